"""Metadata: key 3, versions 0-13. Addresses are replaced, brokers and topics learnt. Where a client's request makes the cluster
create topics (auto.create.topics.enable, KIP-204), these are charged to `controller_mutations` as if it had created them
itself: it is the same load, and otherwise the way round.

- The broker is asked about names that the proxy does not know: what is there, or may not be seen by the client, costs nothing.
- Each of the others costs the cluster's default number of partitions, once: while it is not there the client asks again and
  again. One that is not there later either was not created, and is credited back.
- Once the quota is exhausted, further names are left out of the request, in all versions: the client is told that there is no
  such topic, as it is told while one is being created, and tries again by itself. What fits is created, so that each try gets
  further. The connection is not muted for it, as a producer has other topics too.
- Names that would pass a number of topics or partitions of their owner (`violations`) are left out in the same way: Metadata has
  no message for a topic, and brokers say no more when a policy of theirs refuses one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial

from proxy.apis import violations
from proxy.apis.addresses import Patch
from proxy.apis.asking import Told, ask_sizes, came
from proxy.session.client import NOT_TOLD, Client
from proxy.session.expected import WITHIN, Charge
from proxy.session.held_answers import InSteps
from proxy.session.plans import Decided, Forward, Handling, Request, given_back
from proxy.wire import metadata as wire
from proxy.wire.items import NO_ID
from proxy.wire.primitives import Buffer
from proxy.wire.steps import FEW, MANY, freed
from quota.kinds.controller_mutations import MutationLimit, Receipt
from quota.limit_table import ResolvedLimit
from quota.owned_topics import WantedTopic


class Metadata:
    key = wire.KEY
    versions = wire.VERSIONS

    def request(self, client: Client, request: Request) -> Decided | Handling:
        if _limit(client) is None and not violations.limits_names(client):
            return Forward(_Learn(self.key, request.version, client))
        return self._judged(client, request)

    def _judged(self, client: Client, request: Request) -> Handling:
        request.join()
        names = yield from wire.read_auto_create(request.buf, request.body, request.end, request.version)
        unknown = yield from self._unknown(client, names)
        told: Told = {}
        if unknown:
            yield from ask_sizes(client, request, ((name, NO_ID) for name in unknown), told)
            unknown = yield from self._unknown(client, names)
        new: list[str] = []
        for i, name in enumerate(unknown):
            if i % MANY == MANY - 1:
                yield None
            absent = told.get((name, NO_ID), 0) in (0, NOT_TOLD)
            if absent and not self._is_expected(client, name, client.now):
                new.append(name)
        yield from freed(told)
        refused = yield from self._too_many(client, request, new)
        if refused:
            new = [name for name in new if name not in refused]
        found = _limit(client)
        if found is None or not new:
            return (yield from self._without(client, request, refused))
        return (yield from self._charge(client, request, new, refused, found))

    def _too_many(self, client: Client, request: Request, new: list[str]) -> Generator[None, None, dict[str, None]]:
        """Those of these topics that would pass a number of topics or partitions of their owner."""
        if not new or not violations.limits_names(client):
            return {}
        each = client.services.cluster.default_partitions
        wanted = [WantedTopic(name, each, True) for name in new]
        refused = yield from violations.admit(client, request, wanted, WITHIN, whole=False)
        return {new[i]: None for i in refused}

    def _without(self, client: Client, request: Request, refused: Iterable[str]) -> Handling:
        """The request without these topics."""
        names = list(refused)
        if not names:
            return Forward(_Learn(self.key, request.version, client))
        yield None
        kept = yield from wire.without(request.buf, request.body, request.end, request.version, set(names))
        plan = _Merge(self.key, request.version, client, names)
        return Forward(plan, request.with_body(kept))

    def _unknown(self, client: Client, names: list[str]) -> Generator[None, None, list[str]]:
        """Those of these topics that are not known to exist."""
        services = client.services
        unknown: list[str] = []
        for i, name in enumerate(names):
            if i % MANY == MANY - 1:
                yield
            size = services.cluster.topic_size(name)
            if size is not None:
                came(client, name, size)
            elif name not in services.engine.limits.exempt.topics:
                unknown.append(name)
        return unknown

    def _charge(
        self, client: Client, request: Request, new: list[str], cut: Iterable[str], found: ResolvedLimit[MutationLimit]
    ) -> Handling:
        receipt = Receipt(found, {})
        with given_back(client, partial(_undo, client, new, receipt)):
            return (yield from self._charged(client, request, new, cut, receipt))

    def _charged(self, client: Client, request: Request, new: list[str], cut: Iterable[str], receipt: Receipt) -> Handling:
        engine, total, now, found = client.services.engine, client.api_sum(self.key), client.now, receipt.found
        each = client.services.cluster.default_partitions
        costs = [each] * len(new)
        charging = engine.controller_mutations.charging(found, costs, refusable=True, now=now, receipt=receipt)
        verdict = engine.enforce((yield from charging), now, mute=False)
        if engine.would:  # before somebody else is judged
            client.would_have(self.key, request.version)
        decision = verdict.decision
        refused = set() if decision is None else set(decision.items)
        total.mutations += verdict.charged
        for i, name in enumerate(new):
            if i % FEW == FEW - 1:
                yield None
            if i not in refused:
                client.services.expected.add(client.user, name, Charge(verdict.receipt, i, each, now))
        if decision is None:
            return (yield from self._without(client, request, cut))
        names = tuple(new[i] for i in decision.items)
        total.refuse(decision.quota, len(names))
        client.services.watcher.decided(decision, client.requester(self.key, request.version, names))
        return (yield from self._without(client, request, (*names, *cut)))

    def _is_expected(self, client: Client, name: str, now: float) -> bool:
        """Was its principal charged for it a moment ago? One that was charged before that and is still not there is credited
        back."""
        expected = client.services.expected
        if expected.still(client.user, name, now):
            return True
        if (missed := expected.drop(client.user, name)) is not None:
            client.services.engine.controller_mutations.credit(missed.receipt, (missed.item,))
        return False


def _undo(client: Client, names: Sequence[str], receipt: Receipt, now: float) -> None:
    """A request does not go on, as its connection ends: take back what was charged for these topics."""
    expected = client.services.expected
    for name in names:
        charge = expected.still(client.user, name, now)
        if charge is not None and charge.receipt is receipt:
            expected.drop(client.user, name)
    client.services.engine.controller_mutations.give_up(receipt, now)


def _limit(client: Client) -> ResolvedLimit[MutationLimit] | None:
    engine = client.services.engine
    return engine.find(engine.controller_mutations, client.user, client.client_id or "")


class _Learn(Patch):
    """The answer, from which the proxy learns."""

    __slots__ = ()

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame = bytes(buf[start:end])
        self.learn(frame)
        return self.patched(frame)

    def learn(self, frame: bytes) -> None:
        cluster = self._client.services.cluster
        cluster.learn_brokers(wire.read_brokers(frame, self._version))
        cluster.learn_topics(frame, self._version)


class _Merge(InSteps):
    """The same, with topics that the broker was not asked about: they were `refused`."""

    __slots__ = ("_learn", "_version", "refused")

    def __init__(self, key: int, version: int, client: Client, refused: list[str]) -> None:
        super().__init__()
        self._learn, self._version, self.refused = _Learn(key, version, client), version, refused

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        self._learn.learn(frame)
        merged = yield from wire.with_unknown(frame, self._version, self.refused)
        return self._learn.patched(merged) or [merged]
