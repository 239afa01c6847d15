"""What CreateTopics, CreatePartitions and DeleteTopics have in common (KIP-599, seed s1): they charge `controller_mutations`.

Requests that only validate are not charged. Once the quota is exhausted:
- versions whose clients know 89 THROTTLING_QUOTA_EXCEEDED: further topics are refused with it and a message; the others go
  on, and the two answers are merged in the order of the request. When none is left the proxy answers.
- below: everything is accepted, and the client throttled; the topics' error messages say so where the version has them.
Either way throttle_time_ms says for how long the client is muted: from the decision on, so that what the broker took to answer
counts (seed s1, "waiting time in the purgatory"); the broker's own time if that is longer.

What the broker does not do is credited back when it answers.

Requests and answers of more than 16 KiB are read, judged and written in steps, between which others are served. A request of more
than 1 MiB is not read: without a quota it passes uncounted, with one it closes the connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final

from proxy.apis import violations
from proxy.apis.asking import Told, ask_sizes
from proxy.session.client import HIDDEN, Client
from proxy.session.held_answers import Answer, InSteps
from proxy.session.plans import FORWARD, Forward, Handling, Hold, Request, given_back
from proxy.session.tally import Sum
from proxy.wire.create_topics import KEY as CREATE_TOPICS
from proxy.wire.delete_topics import KEY as DELETE_TOPICS
from proxy.wire.items import QUOTA_EXCEEDED, Answered, Item, ItemApi, Items, Key, Refusal, Result
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.steps import FEW, MANY, freed
from quota.decision import Action, Decision, Verdict
from quota.kinds.controller_mutations import MutationLimit, Part, Receipt
from quota.limit_table import ResolvedLimit

TOPIC_ALREADY_EXISTS: Final = 36


class MutationApi(ABC):
    """One such API."""

    def __init__(self, wire: ItemApi) -> None:
        self.wire, self.key, self.versions = wire, wire.key, wire.versions

    @abstractmethod
    def cost(self, client: Client, topic: Item, told: Told) -> int | None:
        """Partitions of one topic; None when the broker has to be asked, 0 for what costs nothing or cannot be."""

    @abstractmethod
    def estimate(self, client: Client, topic: Item) -> int:
        """The same from what is known, for clients without a quota, for whom the broker is not asked."""

    def unseen(self, client: Client, topic: Item) -> int:
        """The same of a topic of which the broker did not say how large it is: as many as it may cost, as far as is known."""
        return self.estimate(client, topic)

    def there(self, client: Client, topic: Item, told: Told) -> int | None:
        """Partitions that it has: what the broker said, or where that has not heard of it what the proxy saw happen; 0 when it is
        not there, `NOT_TOLD`, or None when the broker was not asked."""
        size = told.get(topic.key)
        if size in (0, HIDDEN):
            return 0 if topic.name is None else client.services.cluster.topic_size(topic.name) or 0
        return size

    def doubtful(
        self, _client: Client, _items: Items, _costs: Sequence[int], _found: ResolvedLimit[MutationLimit], _told: Told, /
    ) -> Generator[None, None, list[Key]]:
        """Topics that may turn out to cost nothing, now that something is about to be refused. In steps."""
        yield from ()
        return []

    def free(self, items: Items) -> Generator[None, None, set[int]]:
        """Topics that cost nothing wherever they stand: here those that stand in the request before. In steps."""
        first: set[Key] = set()
        free: set[int] = set()
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            if topic.key in first:
                free.add(i)
            first.add(topic.key)
        yield from freed(first)
        return free

    def request(self, client: Client, request: Request) -> Handling:
        try:
            request.join()
            items = yield from self.wire.read(request.buf, request.body, request.end, request.version)
        except BadBytes:
            if self._limit(client) is None and not violations.judged(client):  # for the broker to judge
                return FORWARD
            raise
        if violations.judged(client):
            return (yield from violations.handle(self.wire, client, request, items, self._mutations))
        return (yield from self._mutations(client, request, items))

    def _mutations(self, client: Client, request: Request, items: Items) -> Handling:
        """What becomes of these topics by the rates of mutations."""
        if items.validate_only:
            return FORWARD
        engine = client.services.engine
        free = yield from self.free(items)
        free |= yield from self._exempt(client, items)
        told: Told = {}
        held = False
        while (found := self._limit(client)) is not None:
            costs, charged, missing = yield from self._costs(client, items, free, told)
            # Old versions are done in full, so they wait until the mute is over: one connection goes on and mutes its entity again.
            may_wait = charged and (not held or request.version < self.wire.first_refusable)
            wait = engine.hold(engine.controller_mutations, found, charged, client.now) if may_wait else None
            if wait is not None:
                client.services.watcher.decided(wait, client.requester(self.key, request.version, _labels(items, charged)))
                yield Hold(wait.throttle)
                held = True
                continue
            missing = missing or (yield from self.doubtful(client, items, costs, found, told))
            if not missing:
                yield from freed(told)
                return (yield from self._charge(client, request, items, costs, free, found))
            yield from ask_sizes(client, request, missing, told)
        client.api_sum(self.key).mutations += yield from self._estimated(client, items, free)
        yield from freed(told, items.topics)
        return FORWARD

    def _limit(self, client: Client) -> ResolvedLimit[MutationLimit] | None:
        engine = client.services.engine
        return engine.find(engine.controller_mutations, client.user, client.client_id or "")

    def _estimated(self, client: Client, items: Items, free: set[int]) -> Generator[None, None, int]:
        """What a request costs whose client has no quota."""
        total = 0
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            if i not in free:
                total += self.estimate(client, topic)
        return total

    def _costs(
        self, client: Client, items: Items, free: set[int], told: Told
    ) -> Generator[None, None, tuple[list[int], list[int], list[Key]]]:
        """What each topic costs, 0 while that is not known; which cost something, or may; of which the broker has to be asked."""
        costs: list[int] = []
        charged: list[int] = []
        missing: list[Key] = []
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            cost = 0 if i in free else self.cost(client, topic, told)
            costs.append(cost or 0)
            if cost != 0:
                charged.append(i)
            if cost is None:
                missing.append(topic.key)
        return costs, charged, missing

    def _exempt(self, client: Client, items: Items) -> Generator[None, None, set[int]]:
        exempt = client.services.engine.limits.exempt.topics
        found: set[int] = set()
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            if topic.name in exempt:
                found.add(i)
        return found

    def _charge(
        self,
        client: Client,
        request: Request,
        items: Items,
        costs: Sequence[int],
        free: set[int],
        found: ResolvedLimit[MutationLimit],
    ) -> Handling:
        """Of some topics nothing can come, as the broker said. It may not know yet; what is done is charged then."""
        late: list[int] = []
        for i, cost in enumerate(costs):
            if i % MANY == MANY - 1:
                yield None
            if not cost and i not in free:
                late.append(i)
        if not (any(costs) or late):
            yield from freed(items.topics)
            return FORWARD
        receipt = Receipt(found, {})
        with given_back(client, partial(client.services.engine.controller_mutations.give_up, receipt)):
            return (yield from self._charged(client, request, items, costs, late, receipt))

    def _charged(
        self, client: Client, request: Request, items: Items, costs: Sequence[int], late: Sequence[int], receipt: Receipt
    ) -> Handling:
        """Charge the costs. `late`: topics that are charged if they come to something."""
        engine, found, now = client.services.engine, receipt.found, client.now
        refusable = request.version >= self.wire.first_refusable
        charging = engine.controller_mutations.charging(found, costs, refusable=refusable, now=now, receipt=receipt)
        verdict = engine.enforce((yield from charging), now)
        if engine.would:  # before somebody else is judged
            client.would_have(self.key, request.version)
        if verdict.decision is not None and verdict.decision.action is Action.REFUSE:
            verdict = replace(verdict, decision=(yield from _with_twins(verdict.decision, items)))
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
            refused = _refused(decision)
            frame = yield from self.wire.refusal(request.correlation_id, request.version, items, refused, throttle_ms)
            return Answer(frame, told.left())
        yield None
        refused = _refused(decision)
        yield None
        kept = yield from self.wire.without(items, refused, request.buf, request.body, request.end, request.version)
        return Forward(_Amend(told), request.with_body(kept))


def _with_twins(decision: Decision, items: Items) -> Generator[None, None, Decision]:
    """A topic that is refused is refused wherever it stands in the request: the broker would else do the second, which is free."""
    refused: set[Key] = set()
    for n, i in enumerate(decision.items):
        if n % MANY == MANY - 1:
            yield
        refused.add(items.topics[i].key)
    found: list[int] = []
    for i, topic in enumerate(items.topics):
        if i % MANY == MANY - 1:
            yield
        if topic.key in refused:
            found.append(i)
    yield from freed(refused)
    return replace(decision, items=tuple(found))


def _refused(decision: Decision) -> dict[int, Refusal]:
    return dict.fromkeys(decision.items, Refusal(QUOTA_EXCEEDED, decision.message))


def _labels(items: Items, which: Sequence[int]) -> tuple[str, ...]:
    return tuple(items.topics[i].label for i in which[: violations.LABELLED])


@dataclass(frozen=True, slots=True)
class _Told:
    """A request that was charged, and when; `late`: topics that are to be charged if they come to something."""

    api: MutationApi
    client: Client
    sent: Request
    items: Items
    late: Sequence[int]
    found: ResolvedLimit[MutationLimit]
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

    def settle(self, answer: Answered) -> Generator[None, None, None]:
        """The broker answered: give back what it did not do, and count what it did. In steps."""
        client, receipt, charged = self.client, self.verdict.receipt, self.verdict.charged
        engine, topics = client.services.engine, self.items.topics
        undone: list[int] = []
        for n, (i, result) in enumerate(answer.results):
            if n % FEW == FEW - 1:
                yield
            if result.error == 0 and topics[i].amount == -1 and result.partitions > 0:
                client.services.cluster.learn_default_partitions(result.partitions)
                charged += engine.controller_mutations.correct(receipt, i, result.partitions, client.now)
            if result.error not in (0, violations.REQUEST_TIMED_OUT):
                undone.append(i)
        costs: list[int] = []
        for n, i in enumerate(self.late):
            if n % MANY == MANY - 1:
                yield
            if i in answer.of and answer.told[answer.of[i]].result.error in (0, violations.REQUEST_TIMED_OUT):
                costs.append(self.api.unseen(client, topics[i]))
        charging = engine.controller_mutations.charging(self.found, costs, refusable=False, now=client.now)
        verdict = engine.enforce((yield from charging), client.now, mute=False)
        charged += verdict.charged
        if engine.would:
            client.would_have(self.wire.key, self.sent.version)
        for n, (i, result) in enumerate(answer.results):
            if n % FEW == FEW - 1:
                yield
            self._learn(topics[i], result)
        for n, i in enumerate(undone):
            if n % FEW == FEW - 1:
                yield
            charged -= engine.controller_mutations.credit(receipt, (i,))
        self.total.mutations += charged
        yield from freed(*_parts(receipt), *_parts(verdict.receipt))

    def _learn(self, topic: Item, result: Result) -> None:
        """What has come, grown or gone, before any broker says so."""
        cluster = self.client.services.cluster
        name = topic.name or cluster.topic_name(topic.topic_id) or ""
        self._expect_no_more(name, result.error)
        if self.wire.key == DELETE_TOPICS and result.error in (0, violations.REQUEST_TIMED_OUT):
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
                    services.engine.controller_mutations.credit(charge.receipt, (charge.item,))


def _parts(receipt: object) -> tuple[dict[int, list[Part]], ...]:
    """The parts of a receipt. They are not needed any more once the broker has answered."""
    return (receipt.parts,) if isinstance(receipt, Receipt) else ()


class _Settle(InSteps):
    """The answer to a request within its limit."""

    __slots__ = ("_told",)

    def __init__(self, told: _Told) -> None:
        super().__init__(0.0 if told.verdict.decision is None else told.left())
        self._told = told

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        told = self._told
        answer = yield from told.wire.answer(frame, told.sent.version, told.items)
        yield from told.settle(answer)
        pieces = yield from self.patched(answer)
        yield from freed(answer.told, answer.of, told.items.topics)
        return pieces

    def patched(self, answer: Answered) -> Generator[None, None, list[Buffer]]:
        """The answer to send."""
        yield from ()
        return [answer.frame]


class _Amend(_Settle):
    """The broker's answer with topics that were refused besides; or with the reason, for a client that is too old for that."""

    __slots__ = ()

    def patched(self, answer: Answered) -> Generator[None, None, list[Buffer]]:
        told, decision = self._told, self._told.decision
        self.mute = told.left()
        throttle_ms = ceil(self.mute * 1000)
        if decision.action is Action.REFUSE:
            return (yield from told.wire.with_refused(answer, told.items, _refused(decision), throttle_ms))
        return (yield from told.wire.with_throttle(answer, decision.items, decision.message, throttle_ms))
