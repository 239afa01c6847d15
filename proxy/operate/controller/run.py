"""The controller at work: one pass after another until SIGTERM. In: the Kubernetes API, the proxy, admin listeners. Out: quotas of
the proxy, statuses and events of objects, a line on standard error for what went wrong. An API server or a proxy that does not
answer is asked again at the next pass."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from proxy.config.units import HostPort
from proxy.operate import plan
from proxy.operate.controller import reconcile, strimzi
from proxy.operate.controller.api import EVENTS, QUOTAS, ApiError, Kind, Kubernetes, Object, kubernetes
from proxy.operate.controller.definition import GROUP, KIND, VERSION
from proxy.operate.controller.lease import PASS, Lease
from proxy.operate.controller.objects import FINALIZER, KafkaQuota, read, stamp
from proxy.operate.controller.reconcile import Event, Step
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.quota_client import QuotaClient, first_that_answers, result_text
from proxy.wire.client_quotas import DONE, Entry, Filter, Result
from quota.entity import Entity
from quota.keys import named

Look = Callable[[], list[dict[str, Any]]]
"""The throttles pages of all proxies; it blocks."""
EVERYTHING: Final = Filter((), strict=False)


@dataclass(frozen=True)
class Options:
    """What to look after. `users`: the KafkaUsers to be read too; None: none."""

    servers: Sequence[HostPort]
    upstream: Upstream
    namespaces: Sequence[str]
    lease: tuple[str, str]
    interval: float
    users: Kind | None
    look: Look | None


def run(options: Options, kubeconfig: Path | None) -> None:
    """Until SIGTERM or SIGINT. `ApiError` when it is not known how to reach the API server."""
    asyncio.run(_run(options, kubeconfig))


async def _run(options: Options, kubeconfig: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with kubernetes(kubeconfig) as api:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        lease = Lease(api, *options.lease, identity, time.monotonic, time.time)
        controller, leading = Controller(api, options, identity, time.time), None
        while not stop.is_set():
            try:
                async with asyncio.timeout(PASS):
                    holds = await lease.held()
                    if holds != leading:
                        say("this controller leads" if holds else "another controller leads")
                        leading = holds
                    if holds:
                        await controller.work()
            except (ApiError, BrokerError) as e:
                say(str(e))
            except TimeoutError:
                say(f"a pass took more than {PASS:g} s, and was given up")
            try:
                await asyncio.wait_for(stop.wait(), options.interval)
            except TimeoutError:
                pass
        try:
            await lease.release()
        except ApiError as e:
            say(f"the lease was not given back: {e}")


class Controller:
    """Passes over all objects, for the holder of the Lease."""

    def __init__(self, api: Kubernetes, options: Options, identity: str, wall: Callable[[], float]) -> None:
        self._api, self._options, self._identity, self._wall = api, options, identity, wall
        self._complaints: dict[str, str] = {}
        self._complaints_before: dict[str, str] = {}
        """What did not work in this pass and in the one before, by object."""

    async def work(self) -> None:
        """One pass."""
        self._complaints_before, self._complaints = self._complaints, {}
        for namespace in self._options.namespaces if self._options.users else ():
            async with self._apart(f"KafkaUsers of {namespace}"):
                await self._mirror(namespace)
        quotas = [read(found) for namespace in self._options.namespaces for found in await self._api.list(QUOTAS, namespace)]
        if not quotas:
            return
        throttled = await self._throttled()
        try:
            await first_that_answers(
                self._options.servers, self._options.upstream, lambda client: self._with(client, quotas, throttled)
            )
        except BrokerError as e:
            await self._unreachable(quotas, throttled, str(e))
            raise

    async def _mirror(self, namespace: str) -> None:
        assert self._options.users is not None
        users = await self._api.list(self._options.users, namespace)
        found = strimzi.changes(users, await self._api.list(QUOTAS, namespace))
        for made in found.make:
            async with self._apart(f"{namespace}/{made['metadata']['name']}"):
                await self._api.create(QUOTAS, namespace, made)
        for made in found.alter:
            name, limits = made["metadata"]["name"], dict.fromkeys(strimzi.LIMITS.values()) | made["spec"]["limits"]
            async with self._apart(f"{namespace}/{name}"):
                await self._api.patch(QUOTAS, namespace, name, {"spec": {"limits": limits}})
        for name in found.delete:
            async with self._apart(f"{namespace}/{name}"):
                await self._api.delete(QUOTAS, namespace, name)

    @asynccontextmanager
    async def _apart(self, place: str) -> AsyncIterator[None]:
        """What the API server refuses about one object keeps no other from its limits; the next pass tries it again. What it says
        is told once."""
        try:
            yield
        except ApiError as e:
            if not e.status:
                raise
            if e.status not in (404, 409):  # it has gone, or was altered, since it was read
                self._complain(place, str(e))

    def _complain(self, place: str, text: str) -> None:
        """Say it, if it was not said in the pass before."""
        self._complaints[place] = text
        if self._complaints_before.get(place) != text:
            say(f"{place}: {text}")

    async def _throttled(self) -> dict[Entity, set[str]] | None:
        if self._options.look is None:
            return None
        try:
            return reconcile.throttled_of(await asyncio.to_thread(self._options.look))
        except (OSError, ValueError) as e:
            self._complain("who is throttled is not known", str(e))
        except (KeyError, TypeError, AttributeError):
            self._complain("who is throttled is not known", "--admin leads to something else than a proxy of this version")
        return None

    async def _with(self, client: QuotaClient, quotas: list[KafkaQuota], throttled: dict[Entity, set[str]] | None) -> None:
        steps = []
        for step in reconcile.steps(quotas, plan.own(await client.describe(EVERYTHING))):
            async with self._apart(f"limits of {named(step.entity)}"):
                if step.first is not None and not step.first.wrong:
                    await self._claim(step.first)
                steps.append(step)
        entries = [step.entry for step in steps if step.entry is not None]
        results = dict(_by_entry(await client.alter(entries, validate_only=False))) if entries else {}
        for step in steps:
            result = DONE if step.entry is None else results[frozenset(step.entry.who)]
            async with self._apart(f"limits of {named(step.entity)}"):
                await self._settle(step, None if result == DONE else result_text(result), throttled)

    async def _claim(self, quota: KafkaQuota) -> None:
        """Before anything is written: what would have to be given back is remembered, whenever the controller ends."""
        if FINALIZER not in quota.finalizers:
            await self._set_finalizers(quota, [*quota.finalizers, FINALIZER])
        claimed = reconcile.claimed(quota)
        if claimed != quota.status:
            await self._write(quota, claimed)

    async def _settle(self, step: Step, refusal: str | None, throttled: dict[Entity, set[str]] | None) -> None:
        now = self._wall()
        for quota, made, events in reconcile.settled(step, refusal, now):
            counts = quota is step.first
            status = reconcile.with_throttles(quota, made, throttled, now) if counts else made
            if status != quota.status:
                await self._write(quota, status)
            if not counts and refusal is None and FINALIZER in quota.finalizers:
                await self._set_finalizers(quota, [name for name in quota.finalizers if name != FINALIZER])
            for event in events:
                await self._tell(quota, event)
        for quota in step.gone:
            if FINALIZER not in quota.finalizers:
                continue
            if refusal is not None:
                await self._tell(quota, Event("Warning", "NotGivenBack", refusal))
                continue
            await self._tell(quota, Event("Normal", "GivenBack", f"Given back: {', '.join(sorted(quota.owned)) or 'nothing'}."))
            await self._set_finalizers(quota, [name for name in quota.finalizers if name != FINALIZER])

    async def _unreachable(self, quotas: list[KafkaQuota], throttled: dict[Entity, set[str]] | None, reason: str) -> None:
        """Say so in objects that wait for the proxy. What is in force stays so; whether it throttles is as admin listeners say."""
        now = self._wall()
        for quota in quotas:
            async with self._apart(quota.place):
                status = reconcile.unreachable(quota, throttled, reason, now)
                if status != quota.status:
                    await self._write(quota, status)

    async def _set_finalizers(self, quota: KafkaQuota, names: list[str]) -> None:
        """Unless another has altered the object since it was read: then the next pass does it."""
        version = quota.object["metadata"]["resourceVersion"]
        body: Object = {"metadata": {"finalizers": names, "resourceVersion": version}}
        quota.object["metadata"] = (await self._api.patch(QUOTAS, quota.namespace, quota.name, body))["metadata"]

    async def _write(self, quota: KafkaQuota, status: Object) -> None:
        gone = {key: None for key in quota.status if key not in status}
        made = await self._api.patch(QUOTAS, quota.namespace, quota.name, {"status": status | gone}, status=True)
        quota.object.update(made)

    async def _tell(self, quota: KafkaQuota, event: Event) -> None:
        say(f"{quota.place}: {event.reason}: {event.message}")
        meta = quota.object["metadata"]
        regarding = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "namespace": quota.namespace,
            "name": quota.name,
            "uid": meta["uid"],
        }
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{quota.name[:200].rstrip('.-')}-"},
            "eventTime": stamp(self._wall(), "microseconds"),
            "reportingController": f"{GROUP}/controller",
            "reportingInstance": self._identity[:128],
            "action": "Reconcile",
            "type": event.type,
            "reason": event.reason,
            "note": event.message[:1000],
            "regarding": regarding,
        }
        try:
            await self._api.create(EVENTS, quota.namespace, body)
        except ApiError as e:  # an event that is lost changes nothing
            say(f"{quota.place}: the event was not written: {e}")


def _by_entry(results: Sequence[tuple[Entry, Result]]) -> list[tuple[frozenset[tuple[str, str | None]], Result]]:
    return [(frozenset(entry.who), result) for entry, result in results]


def say(text: str) -> None:
    """A line for people."""
    click.echo(text, err=True)
