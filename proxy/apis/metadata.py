"""Metadata: key 3, versions 0-13. Addresses are replaced, brokers and topics learnt. Where a client's request makes the cluster
create topics (auto.create.topics.enable, KIP-204), these are charged to `controller_mutations` as if it had created them
itself: it is the same load, and otherwise the way round.

- The broker is asked about names that the proxy does not know: what is there, or may not be seen by the client, costs nothing.
- Each of the others costs the cluster's default number of partitions, once: while it is not there the client asks again and
  again. One that is not there later either was not created, and is credited back.
- Once the quota is exhausted, further names are left out of the request, in all versions: the client is told that there is no
  such topic, as it is told while one is being created, and tries again by itself. What fits is created, so that each try gets
  further. Nobody is muted for it, as a producer has other topics too.
"""

from __future__ import annotations

from proxy.apis.addresses import Patch
from proxy.apis.asking import ask, came
from proxy.session.client import NOT_TOLD, Client
from proxy.session.expected import Charge
from proxy.session.plans import Forward, Outcome, Plain, Request
from proxy.wire import metadata as wire
from proxy.wire.items import NO_ID
from proxy.wire.primitives import INT32, Buffer
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
        named = wire.read_auto_create(request.buf, request.body, request.end, request.version)
        unknown = self._unknown(client, named)
        if missing := [(name, NO_ID) for name in unknown if (name, NO_ID) not in client.asked]:
            return ask(client, request, missing)
        absent = [name for name in unknown if client.asked.get((name, NO_ID), 0) in (0, NOT_TOLD)]
        client.asked = {}
        new = [name for name in absent if not self._is_expected(client, name, now)]
        return self._charge(client, request, new, found, plan, now) if new else Forward(plan)

    def _unknown(self, client: Client, names: list[str]) -> list[str]:
        """Those of these topics that are not known to exist."""
        services, unknown = client.services, []
        for name in names:
            size = services.cluster.topic_size(name)
            if size is not None:
                came(client, name, size)
            elif name not in services.engine.limits.exempt.topics:
                unknown.append(name)
        return unknown

    def _charge(
        self, client: Client, request: Request, new: list[str], found: Found[MutationLimit], plan: _Learn, now: float
    ) -> Outcome:
        engine, total = client.services.engine, client.api_sum(self.key)
        each = client.services.cluster.default_partitions
        verdict = engine.charge_mutations(found, [each] * len(new), refusable=True, now=now, mute=False)
        decision = verdict.decision
        refused = set() if decision is None else set(decision.items)
        total.mutations += verdict.charged
        for i, name in enumerate(new):
            if i not in refused:
                client.services.expected.add(client.user, name, Charge(verdict.receipt, i, each, now))
        if decision is None:
            return Forward(plan)
        plan.refused = [new[i] for i in decision.items]
        total.refuse(decision.quota, len(plan.refused))
        client.services.watcher.decided(decision, client.requester(self.key, request.version, tuple(plan.refused)))
        header = request.buf[request.start + 4 : request.body]
        kept = wire.without(request.buf, request.body, request.end, request.version, set(plan.refused))
        return Forward(plan, [INT32.pack(len(header) + sum(map(len, kept))), header, *kept])

    def _is_expected(self, client: Client, name: str, now: float) -> bool:
        """Was its principal charged for it a moment ago? One that was charged before that and is still not there is credited
        back."""
        expected = client.services.expected
        if expected.still(client.user, name, now):
            return True
        if (missed := expected.drop(client.user, name)) is not None:
            client.services.engine.credit_mutations(missed.receipt, (missed.item,))
        return False


class _Learn(Patch):
    """The answer, from which the proxy learns. `refused`: topics that the broker was not asked about."""

    __slots__ = ("refused",)

    def __init__(self, key: int, version: int, client: Client) -> None:
        super().__init__(key, version, client)
        self.refused: list[str] = []

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame = bytes(buf[start:end])
        cluster = self._client.services.cluster
        cluster.learn_brokers(wire.read_brokers(frame, self._version))
        cluster.learn_topics(frame, self._version)
        if not self.refused:
            return super().finish(frame, 0, len(frame))
        frame = wire.with_unknown(frame, self._version, self.refused)
        return super().finish(frame, 0, len(frame)) or [frame]
