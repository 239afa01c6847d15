"""CreateTopics: key 19, versions 0-7 (KIP-599, seed s1).

Charges `controller_mutations`: the partitions of each topic, its explicit assignments if it has them, or the broker's
default. A request that only validates is not charged. Once the quota is exhausted:
- version 6 and up: further topics are refused with 89 THROTTLING_QUOTA_EXCEEDED and a message; the others go on, and
  the two answers are merged.
- below: everything is accepted, and the client throttled; version 1 and up say so in the topics' error messages.
Either way throttle_time_ms says for how long the client is muted, the broker's own time if that is longer.

A request of more than 1 MiB closes the connection: reading it would hold up everybody for longer than a third of a second, and no
controller creates so many topics at once (KRaft: 10 000 records).

Not here: what the broker then refuses is not yet credited back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from proxy.session.client import Client
from proxy.session.plans import FORWARD, Answer, Forward, Hold, Outcome, Plain, Request, Whole
from proxy.session.port import Services
from proxy.wire import create_topics as wire
from proxy.wire.primitives import INT32, BadBytes, Buffer
from quota.decision import Action, Decision

MAX_REQUEST = 1 << 20
"""Bytes of a request."""


class CreateTopics(Plain):
    key = wire.KEY
    versions = wire.VERSIONS

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        size = request.end - request.start if request.chunks is None else sum(map(len, request.chunks))
        if size > MAX_REQUEST:
            raise BadBytes(f"a CreateTopics request of {size} bytes; {MAX_REQUEST} are the most")
        engine = client.services.engine
        found = engine.find_mutation_limit(client.user, client.client_id or "")
        if found is None:
            return self._only_count(client, request)
        request.join()
        body = wire.read_request(request.buf, request.body, request.end, request.version)
        if body.validate_only:
            return FORWARD
        costs = self._costs(client.services, body)
        charged = [i for i, cost in enumerate(costs) if cost]
        wait = engine.hold(found, charged, now) if charged and not held else None
        if wait is not None:
            topics = tuple(body.topics[i].name for i in charged)
            client.services.watcher.decided(wait, client.requester(self.key, request.version, topics))
            return Hold(wait.throttle)
        verdict = engine.charge_mutations(found, costs, refusable=request.version >= wire.FIRST_REFUSABLE, now=now)
        total = client.api_sum(self.key)
        total.mutations += verdict.charged
        if verdict.decision is None:
            return FORWARD
        over = _Over(request, body, verdict.decision)
        total.throttle_ms += over.throttle_ms
        if verdict.decision.action is Action.REFUSE:
            total.refuse(verdict.decision.quota, len(over.names))
        client.services.watcher.decided(verdict.decision, client.requester(self.key, request.version, over.names))
        return over.outcome()

    def _only_count(self, client: Client, request: Request) -> Outcome:
        """Nothing limits this client; the report wants to know all the same who creates how much."""
        request.join()
        try:
            body = wire.read_request(request.buf, request.body, request.end, request.version)
        except BadBytes:  # for the broker to judge
            return FORWARD
        if not body.validate_only:
            client.api_sum(self.key).mutations += sum(self._costs(client.services, body))
        return FORWARD

    def _costs(self, services: Services, body: wire.CreateTopics) -> list[int]:
        """Partitions of each topic; none for what is exempt, or refused anyway because its name stands twice."""
        names = Counter(topic.name for topic in body.topics)
        exempt = services.engine.limits.exempt.topics
        free = {name for name, count in names.items() if count > 1 or name in exempt}
        return [0 if topic.name in free else self._cost(services, topic) for topic in body.topics]

    def _cost(self, services: Services, topic: wire.NewTopic) -> int:
        return services.default_partitions if topic.partitions == -1 else max(topic.partitions, 0)


@dataclass(frozen=True, slots=True)
class _Over:
    """A request that is over the quota with some or all of its topics."""

    sent: Request
    body: wire.CreateTopics
    decision: Decision

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.body.topics[i].name for i in self.decision.items)

    @property
    def throttle_ms(self) -> int:
        return ceil(self.decision.throttle * 1000)

    def outcome(self) -> Outcome:
        sent, mute = self.sent, self.decision.throttle
        if self.decision.action is Action.THROTTLE:
            return Forward(_Explain(self))
        if len(self.decision.items) == len(self.body.topics):
            message, names = self.decision.message, self.names
            return Answer(wire.refusal(sent.correlation_id, sent.version, names, message, self.throttle_ms), mute)
        kept = wire.without(self.body, set(self.decision.items), sent.buf, sent.body, sent.end, sent.version)
        header = sent.buf[sent.start + 4 : sent.body]
        size = len(header) + sum(len(piece) for piece in kept)
        return Forward(_Merge(self), [INT32.pack(size), header, *kept])


class _Told(Whole):
    """An answer that tells of the quota."""

    __slots__ = ("_over",)

    def __init__(self, over: _Over) -> None:
        super().__init__(over.decision.throttle)
        self._over = over


class _Explain(_Told):
    """The answer to a client that is too old to be refused."""

    __slots__ = ()

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        over = self._over
        messages = dict.fromkeys(over.names, over.decision.message)
        return wire.with_throttle(bytes(buf[start:end]), over.sent.version, messages, over.throttle_ms)


class _Merge(_Told):
    """The broker's answer for the topics that went on, with those that were refused."""

    __slots__ = ()

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        over = self._over
        return wire.with_refused(bytes(buf[start:end]), over.sent.version, over.names, over.decision.message, over.throttle_ms)
