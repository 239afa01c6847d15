"""What CreateTopics, CreatePartitions and DeleteTopics have in common (KIP-599, seed s1): they charge `controller_mutations`.

Requests that only validate are not charged. Once the quota is exhausted:
- versions whose clients know 89 THROTTLING_QUOTA_EXCEEDED: further topics are refused with it and a message; the others go
  on, and the two answers are merged in the order of the request. When none is left the proxy answers.
- below: everything is accepted, and the client throttled; the topics' error messages say so where the version has them.
Either way throttle_time_ms says for how long the client is muted: from the decision on, so that what the broker took to answer
counts (seed s1, "waiting time in the purgatory"); the broker's own time if that is longer.

What the broker does not do is credited back when it answers.

A request of more than 1 MiB is not read: without a quota it passes uncounted, with one it closes the connection.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from proxy.apis.asking import ask
from proxy.session.client import HIDDEN, Client
from proxy.session.plans import FORWARD, Answer, Forward, Hold, Outcome, Plain, Request, Whole
from proxy.session.tally import Sum
from proxy.wire.create_topics import KEY as CREATE_TOPICS
from proxy.wire.delete_topics import KEY as DELETE_TOPICS
from proxy.wire.items import Item, ItemApi, Items, Key, Result
from proxy.wire.primitives import INT32, BadBytes, Buffer
from quota.book import Found
from quota.decision import Action, Decision, Verdict
from quota.kinds.controller_mutations import MutationLimit

TOPIC_ALREADY_EXISTS: Final = 36
REQUEST_TIMED_OUT: Final = 7
"""The broker did not wait for the end: it may be done all the same."""


class MutationApi(Plain):
    """One such API."""

    def __init__(self, wire: ItemApi) -> None:
        self.wire, self.key, self.versions = wire, wire.key, wire.versions

    @abstractmethod
    def cost(self, client: Client, topic: Item) -> int | None:
        """Partitions of one topic; None when the broker has to be asked, 0 for what costs nothing or cannot be."""

    @abstractmethod
    def estimate(self, client: Client, topic: Item) -> int:
        """The same from what is known, for clients without a quota, for whom the broker is not asked."""

    def unseen(self, client: Client, topic: Item) -> int:
        """The same of a topic of which the broker did not say how large it is: as many as it may cost, as far as is known."""
        return self.estimate(client, topic)

    def there(self, client: Client, topic: Item) -> int | None:
        """Partitions that it has: what the broker said, or where that has not heard of it what the proxy saw happen; 0 when it is
        not there, `NOT_TOLD`, or None when the broker was not asked."""
        told = client.asked.get(topic.key)
        if told in (0, HIDDEN):
            return 0 if topic.name is None else client.services.cluster.topic_size(topic.name) or 0
        return told

    def doubtful(self, client: Client, items: Items, costs: Sequence[int], found: Found[MutationLimit], now: float) -> list[Key]:  # noqa: ARG002
        """Topics that may turn out to cost nothing, now that something is about to be refused."""
        return []

    def free(self, items: Items) -> set[int]:
        """Topics that cost nothing wherever they stand: here those that stand in the request before."""
        first: dict[Key, int] = {}
        return {i for i, topic in enumerate(items.topics) if first.setdefault(topic.key, i) != i}

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        engine = client.services.engine
        found = engine.find_mutation_limit(client.user, client.client_id or "")
        try:
            request.join()
            items = self.wire.read(request.buf, request.body, request.end, request.version)
        except BadBytes:
            if found is None:  # for the broker to judge
                return FORWARD
            raise
        if items.validate_only:
            return FORWARD
        free = self.free(items) | self._exempt(client, items)
        if found is None:
            client.asked = {}  # a quota may have gone while its broker was asked
            costs = [0 if i in free else self.estimate(client, topic) for i, topic in enumerate(items.topics)]
            client.api_sum(self.key).mutations += sum(costs)
            return FORWARD
        known = [0 if i in free else self.cost(client, topic) for i, topic in enumerate(items.topics)]
        charged = [i for i, cost in enumerate(known) if cost != 0]
        # Old versions are done in full, so they wait until the mute is over: one of an entity's connections goes on, and mutes it again.
        may_wait = charged and (not held or request.version < self.wire.first_refusable)
        wait = engine.hold(engine.controller_mutations, found, charged, now) if may_wait else None
        if wait is not None:
            client.services.watcher.decided(wait, client.requester(self.key, request.version, _labels(items, charged)))
            return Hold(wait.throttle)
        missing = [topic.key for topic, cost in zip(items.topics, known, strict=True) if cost is None]
        if missing:
            return ask(client, request, missing)
        costs = [cost or 0 for cost in known]
        if doubtful := self.doubtful(client, items, costs, found, now):
            return ask(client, request, doubtful)
        late = [i for i, cost in enumerate(costs) if not cost and i not in free]
        return self._charge(client, request, items, costs, late, found, now)

    def _exempt(self, client: Client, items: Items) -> set[int]:
        exempt = client.services.engine.limits.exempt.topics
        return {i for i, topic in enumerate(items.topics) if topic.name in exempt}

    def _charge(
        self,
        client: Client,
        request: Request,
        items: Items,
        costs: Sequence[int],
        late: Sequence[int],
        found: Found[MutationLimit],
        now: float,
    ) -> Outcome:
        """`late`: topics of which nothing can come, as the broker said. It may not know yet; what is done is charged then."""
        client.asked = {}
        if not (any(costs) or late):
            return FORWARD
        verdict = client.services.engine.charge_mutations(
            found, costs, refusable=request.version >= self.wire.first_refusable, now=now
        )
        if verdict.decision is not None and verdict.decision.action is Action.REFUSE:
            verdict = replace(verdict, decision=_with_twins(verdict.decision, items))
        total, decision = client.api_sum(self.key), verdict.decision
        told = _Told(self, client, request, items, late, found, verdict, total, now)
        if decision is None:
            return Forward(_Settle(told))
        total.throttle_ms += ceil(decision.throttle * 1000)
        if decision.action is Action.REFUSE:
            total.refuse(decision.quota, len(decision.items))
        names = _labels(items, decision.items)
        client.services.watcher.decided(decision, client.requester(self.key, request.version, names))
        if decision.action is Action.THROTTLE:
            return Forward(_Amend(told))
        if len(decision.items) == len(items.topics):
            throttle_ms = ceil(decision.throttle * 1000)
            frame = self.wire.refusal(request.correlation_id, request.version, items, decision.message, throttle_ms)
            return Answer(frame, decision.throttle)
        kept = self.wire.without(items, set(decision.items), request.buf, request.body, request.end, request.version)
        header = request.buf[request.start + 4 : request.body]
        size = len(header) + sum(len(piece) for piece in kept)
        return Forward(_Amend(told), [INT32.pack(size), header, *kept])


def _with_twins(decision: Decision, items: Items) -> Decision:
    """Whoever refuses a topic refuses it wherever it stands: alone, the broker would take what is free as the second."""
    refused = {items.topics[i].key for i in decision.items}
    return replace(decision, items=tuple(i for i, topic in enumerate(items.topics) if topic.key in refused))


def _labels(items: Items, which: Sequence[int]) -> tuple[str, ...]:
    return tuple(items.topics[i].label for i in which)


@dataclass(frozen=True, slots=True)
class _Told:
    """A request that was charged, and when; `late`: topics that are to be charged if they come to something."""

    api: MutationApi
    client: Client
    sent: Request
    items: Items
    late: Sequence[int]
    found: Found[MutationLimit]
    verdict: Verdict
    total: Sum
    when: float

    @property
    def wire(self) -> ItemApi:
        return self.api.wire

    @property
    def decision(self) -> Decision:
        assert self.verdict.decision is not None
        return self.verdict.decision

    def left(self) -> float:
        """Seconds of the throttle that are left by now."""
        return max(self.when + self.decision.throttle - self.client.now, 0.0)

    def settle(self, frame: bytes) -> None:
        """The broker answered: give back what it did not do, and count what it did."""
        engine, receipt, charged = self.client.services.engine, self.verdict.receipt, self.verdict.charged
        results = self.wire.results(frame, self.sent.version, self.items)
        for i, result in results.items():
            if result.error == 0 and self.items.topics[i].amount == -1 and result.partitions > 0:
                self.client.services.cluster.learn_default_partitions(result.partitions)
                charged += engine.correct_mutations(receipt, i, result.partitions, self.client.now)
        done = [i for i in self.late if i in results and results[i].error in (0, REQUEST_TIMED_OUT)]
        costs = [self.api.unseen(self.client, self.items.topics[i]) for i in done]
        charged += engine.charge_mutations(self.found, costs, refusable=False, now=self.client.now, mute=False).charged
        if engine.would:
            self.client.would_have(self.wire.key, self.sent.version)
        self._learn(results)
        undone = [i for i, result in results.items() if result.error not in (0, REQUEST_TIMED_OUT)]
        self.total.mutations += charged - engine.credit_mutations(receipt, undone)

    def _learn(self, results: dict[int, Result]) -> None:
        """What has come, grown or gone, before any broker says so."""
        cluster = self.client.services.cluster
        for i, result in results.items():
            topic = self.items.topics[i]
            name = topic.name or cluster.topic_name(topic.topic_id) or ""
            self._expect_no_more(name, result.error)
            if self.wire.key == DELETE_TOPICS and result.error in (0, REQUEST_TIMED_OUT):
                cluster.forget_topic(name)
            elif result.error == 0 and topic.name is not None and (size := max(result.partitions, topic.amount)) > 0:
                cluster.learn_size(name, size)

    def _expect_no_more(self, name: str, error: int) -> None:
        """A topic that is deleted, grown or there already has come; one that is created only now has not come before."""
        services = self.client.services
        new = self.wire.key == CREATE_TOPICS and error == 0
        if new or error == (TOPIC_ALREADY_EXISTS if self.wire.key == CREATE_TOPICS else 0):
            for charge in services.expected.seen(name):
                if new:
                    services.engine.credit_mutations(charge.receipt, (charge.item,))


class _Settle(Whole):
    """The answer to a request within its limit."""

    __slots__ = ("_told",)

    def __init__(self, told: _Told) -> None:
        super().__init__(0.0 if told.verdict.decision is None else told.decision.throttle)
        self._told = told

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame = bytes(buf[start:end])
        self._told.settle(frame)
        return self.patched(frame)

    def patched(self, frame: bytes) -> list[Buffer] | None:  # noqa: ARG002
        """The answer to send instead, None to send it as it is."""
        return None


class _Amend(_Settle):
    """The broker's answer with topics that were refused besides; or with the reason, for a client that is too old for that."""

    __slots__ = ()

    def patched(self, frame: bytes) -> list[Buffer] | None:
        told, decision = self._told, self._told.decision
        self.mute = told.left()
        write = told.wire.with_refused if decision.action is Action.REFUSE else told.wire.with_throttle
        return write(frame, told.sent.version, told.items, set(decision.items), decision.message, ceil(self.mute * 1000))
