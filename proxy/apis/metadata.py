"""Metadata: key 3, versions 0-13. Addresses are replaced, brokers and topics learnt. Where a client's request makes the cluster
create topics (auto.create.topics.enable, KIP-204), these are charged to `controller_mutations` as if it had created them
itself: it is the same load, and otherwise the way round.

- The broker is asked about names that the proxy does not know: what is there costs nothing.
- Each of the others costs the cluster's default number of partitions, once: while it is not there the client asks again and
  again. One that is not there later either was not created, and is credited back.
- Once the quota is exhausted the flag that allows it is cleared in the request: the client is told that there is no such
  topic, and tries again by itself. Nobody is muted for it, as a producer has other topics too. Versions 0 to 3 have no flag:
  there the topics are created and the client is muted.
"""

from __future__ import annotations

from math import ceil

from proxy.apis.addresses import Patch
from proxy.apis.asking import ask
from proxy.session.client import NOT_TOLD, Client
from proxy.session.expected import Charge
from proxy.session.plans import Forward, Outcome, Plain, Request
from proxy.wire import metadata as wire
from proxy.wire.items import NO_ID
from proxy.wire.primitives import Buffer
from quota.book import Found
from quota.kinds.controller_mutations import MutationLimit


class Metadata(Plain):
    key = wire.KEY
    versions = wire.VERSIONS

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        plan = _Learn(self.key, request.version, client)
        found = client.services.engine.find_mutation_limit(client.user, client.client_id or "")
        if found is None:
            client.asked = {}  # a quota may have gone while the broker was asked
            return Forward(plan)
        request.join()
        wanted = wire.read_auto_create(request.buf, request.body, request.end, request.version)
        engine, cluster = client.services.engine, client.services.cluster
        names = [name for name in dict.fromkeys(wanted.names) if name not in engine.limits.exempt.topics]
        unknown = [name for name in names if cluster.topic_size(name) is None]
        if missing := [(name, NO_ID) for name in unknown if (name, NO_ID) not in client.asked]:
            return ask(client, request, missing)
        absent = [name for name in unknown if client.asked.get((name, NO_ID), 0) in (0, NOT_TOLD)]
        client.asked = {}
        new = [name for name in absent if not self._is_expected(client, name, now)]
        return self._charge(client, request, wanted, new, found, plan, now) if new else Forward(plan)

    def _charge(
        self,
        client: Client,
        request: Request,
        wanted: wire.AutoCreate,
        new: list[str],
        found: Found[MutationLimit],
        plan: _Learn,
        now: float,
    ) -> Outcome:
        engine, total = client.services.engine, client.api_sum(self.key)
        costs = [client.services.cluster.default_partitions] * len(new)
        refusable = wanted.flag >= 0
        verdict = engine.charge_mutations(found, costs, refusable=refusable, now=now, mute=not refusable)
        decision = verdict.decision
        if decision is not None:
            client.services.watcher.decided(decision, client.requester(self.key, request.version, tuple(new)))
        if decision is not None and refusable:
            engine.credit_mutations(verdict.receipt, range(len(new)))  # the flag is for all of them
            total.refuse(decision.quota, len(new))
            view, at = memoryview(request.buf), wanted.flag
            return Forward(plan, [view[request.start : at], b"\0", view[at + 1 : request.end]])
        if decision is not None:
            total.throttle_ms += ceil(decision.throttle * 1000)
            plan.mute, plan.waits = decision.throttle, True
        total.mutations += verdict.charged
        for i, name in enumerate(new):
            client.services.expected.add(name, Charge(verdict.receipt, i, now))
        return Forward(plan)

    def _is_expected(self, client: Client, name: str, now: float) -> bool:
        """Was it charged a moment ago? One that was charged before that and is still not there is credited back."""
        expected = client.services.expected
        if expected.still(name, now):
            return True
        if (missed := expected.missed(name)) is not None:
            client.services.engine.credit_mutations(missed.receipt, (missed.item,))
        return False


class _Learn(Patch):
    """The answer, from which the proxy learns."""

    __slots__ = ()

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame = bytes(buf[start:end])
        cluster = self._client.services.cluster
        cluster.learn_brokers(wire.read_brokers(frame, self._version))
        cluster.learn_topics(frame, self._version)
        return super().finish(frame, 0, len(frame))
