"""What is refused with 44 POLICY_VIOLATION: topics that would pass a number of topics or partitions of their owner (`max_topics`,
`max_partitions`), and what is against a policy of topics (`topic_policy`).

- CreateTopics, CreatePartitions, AlterConfigs and IncrementalAlterConfigs: such topics are refused with a message that says what is
  allowed, or how many there are of how many. The others go on, and the two answers are merged in the order of the request. When
  none is left the proxy answers. All versions alike, requests that only validate too.
- Before a topic is refused because of a number, the broker is asked whether it is there already: then the broker answers that.
- Topics that stand twice are the broker's: it refuses both.
- What is admitted is reserved until the broker answers; then what it did counts, and what it did not do is given back. So answers
  to DeleteTopics are looked at too.
- What a request leaves to the brokers is not judged by policies.

It leaves to others: the arithmetic (`quota.kinds.topic_numbers`, `quota.kinds.topic_policy`), and rates of mutations (`mutations`),
to which what is refused here is not charged."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from proxy.apis.asking import Told, ask_sizes
from proxy.session.client import HIDDEN, Client
from proxy.session.held_answers import Answer, InSteps
from proxy.session.plans import Forward, Handling, Pause, Plan, Request, given_back
from proxy.wire.create_partitions import KEY as CREATE_PARTITIONS
from proxy.wire.create_topics import CREATE_TOPICS as CREATE_TOPICS_WIRE
from proxy.wire.create_topics import KEY as CREATE_TOPICS
from proxy.wire.delete_topics import KEY as DELETE_TOPICS
from proxy.wire.items import POLICY_VIOLATION, Answered, Item, ItemApi, Items, Key, Refusal, Result
from proxy.wire.primitives import Buffer
from proxy.wire.steps import FEW, MANY, freed
from proxy.wire.topic_configs import APPEND, SET, AlterConfigsApi, Config, is_topic
from quota.decision import Decision
from quota.kinds import topic_policy
from quota.kinds.topic_numbers import Judged, conclude, judging
from quota.kinds.topic_policy import CONFIGS, PARTITIONS, REPLICATION_FACTOR, AskedTopic
from quota.owned_topics import RESERVED_FOR, WantedTopic

REQUEST_TIMED_OUT: Final = 7
"""The broker did not wait for the end: it may be done all the same."""
LABELLED: Final = 100
"""Topics of one decision whose names are told."""

Admitting = Generator[None, None, Mapping[int, Decision]]
_CREATING: Final = (CREATE_TOPICS, CREATE_PARTITIONS)
Rest = Callable[[Client, Request, Items], Handling]
"""What becomes of the topics that are not refused."""


def limited(client: Client) -> bool:
    """True if numbers of topics matter for what this client creates and deletes."""
    return client.services.engine.follows_owners


def limits_names(client: Client) -> bool:
    """True if topics that this client names may be too many: it is not exempt."""
    return limited(client) and not _is_exempt(client)


def _is_exempt(client: Client) -> bool:
    return client.services.engine.limits.exempt.everywhere(client.user, client.client_id or "")


def judged(client: Client) -> bool:
    """True if topics may be refused, or their numbers matter."""
    return limited(client) or bool(client.services.engine.topic_policies)


def handle(wire: ItemApi, client: Client, request: Request, items: Items, rest: Rest) -> Handling:
    """Refuse topics that would pass a limit, and handle the others."""
    judged, refused = Judged(), dict[int, Refusal]()
    with given_back(client, partial(_release, client, judged)):
        if not _is_exempt(client):
            refused = yield from _against_policy(wire, client, request, items)
            if limited(client) and wire.key in _CREATING:
                refused |= yield from _too_many(wire, client, request, items, refused, judged)
        if items.validate_only:
            _release(client, judged, client.now)
        if not refused:
            decided = yield from rest(client, request, items._replace(topics=items.topics.copy()))  # which it frees
        elif len(refused) == len(items.topics):
            return Answer((yield from wire.refusal(request.correlation_id, request.version, items, refused, 0)))
        else:
            request = yield from _without(wire, request, items, refused)
            kept = yield from wire.read(request.buf, request.body, request.end, request.version)
            decided = yield from rest(client, request, kept)
    settling = _Settling(wire, client, request, items, judged, refused)
    if isinstance(decided, Answer):  # all that was left is refused for another reason
        _release(client, judged, client.now)
        return Answer(b"".join((yield from settling.merged(decided.frame))), decided.mute)
    return Forward(_Settle(decided.plan, settling), [request.buf] if refused and decided.pieces is None else decided.pieces)


def _against_policy(wire: ItemApi, client: Client, request: Request, items: Items) -> Generator[None, None, dict[int, Refusal]]:
    """Topics that are against a policy."""
    engine = client.services.engine
    if not engine.topic_policies or wire.key == DELETE_TOPICS:
        return {}
    twice = yield from _twice(items)
    asked: list[AskedTopic | None] = []
    for i, topic in enumerate(items.topics):
        if i % FEW == FEW - 1:
            yield
        name = topic.name or ""
        skipped = topic.key in twice or name in engine.limits.exempt.topics
        asked.append(None if skipped else AskedTopic(name, wire.key == CREATE_TOPICS, _values(wire, topic, request)))
    refused = yield from topic_policy.judging(engine, client.user, asked, client.now)
    decisions = {i: decision for i, (decision, _) in refused.items()}
    messages = {i: message for i, (_, message) in refused.items()}
    return (yield from _told(wire, client, request, items, decisions, messages))


def _values(wire: ItemApi, topic: Item, request: Request) -> dict[str, str | int]:
    """What a request asks for of a topic, without what it leaves to the brokers."""
    found: dict[str, str | int] = {}
    configs: Iterable[Config] = ()
    if wire is CREATE_TOPICS_WIRE:
        shape = CREATE_TOPICS_WIRE.shape(topic, request.buf, request.version)
        found, configs = {PARTITIONS: shape.partitions, REPLICATION_FACTOR: shape.replication_factor}, shape.configs
    elif isinstance(wire, AlterConfigsApi):
        configs = wire.configs(topic, request.buf, request.version) if is_topic(topic) else ()
    else:
        found = {PARTITIONS: topic.amount}
    found = {thing: value for thing, value in found.items() if value != -1}
    for name, value, operation in configs:
        if name in CONFIGS and value is not None and operation in (SET, APPEND):
            found[name] = value
    return found


def _too_many(
    wire: ItemApi, client: Client, request: Request, items: Items, refused: Mapping[int, Refusal], judged: Judged
) -> Generator[Pause, None, dict[int, Refusal]]:
    """Topics that would pass a number, by item; what is admitted is reserved in `judged`. `refused`: topics that are refused
    already."""
    engine = client.services.engine
    twice = yield from _twice(items)
    told: Told = {}
    while True:
        wanted: list[WantedTopic | None] = []
        unknown: dict[Key, None] = {}
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield None
            one = None if i in refused or topic.key in twice else _wanted(wire, client, topic, told)
            if isinstance(one, WantedTopic) or one is None:
                wanted.append(one)
            else:
                unknown[topic.key] = None
        if not unknown:
            yield from judging(engine, client.user, wanted, client.now + RESERVED_FOR, judged)
            unknown = {key: None for i in judged.items if (key := items.topics[i].key) not in told}
        if not unknown:
            decisions = conclude(engine, judged, client.now)
            messages = {i: decision.message for i, decision in decisions.items()}
            return (yield from _told(wire, client, request, items, decisions, messages))
        _release(client, judged, client.now)
        judged.over.clear()
        yield from ask_sizes(client, request, unknown, told)


def _wanted(wire: ItemApi, client: Client, topic: Item, told: Told) -> WantedTopic | _Unknown | None:
    """What is asked for with this topic; None where nothing can come of it, or nothing is to be counted."""
    services, name = client.services, topic.name or ""
    if name in services.engine.limits.exempt.topics:
        return None
    size = told.get(topic.key, 0)
    if size in (0, HIDDEN):
        size = services.cluster.topic_size(name) or 0
    if wire.key == CREATE_TOPICS:
        partitions = services.cluster.default_partitions if topic.amount == -1 else max(topic.amount, 0)
        return None if size > 0 and topic.key in told else WantedTopic(name, partitions, True)
    if size <= 0:
        return None if topic.key in told else _Unknown()
    return WantedTopic(name, topic.amount - size, False) if topic.amount > size else None


class _Unknown:
    """The broker has to be asked."""


def _twice(items: Items) -> Generator[None, None, set[Key]]:
    """Topics that stand in the request more than once."""
    seen: set[Key] = set()
    twice: set[Key] = set()
    for i, topic in enumerate(items.topics):
        if i % MANY == MANY - 1:
            yield
        (twice if topic.key in seen else seen).add(topic.key)
    return twice


def _told(
    wire: ItemApi,
    client: Client,
    request: Request,
    items: Items,
    refused: Mapping[int, Decision],
    messages: Mapping[int, str],
) -> Generator[None, None, dict[int, Refusal]]:
    """Tell the observers; what each topic is answered with."""
    if client.services.engine.would:
        client.would_have(wire.key, request.version)
    tell(client, wire.key, request.version, refused, lambda i: items.topics[i].label)
    found: dict[int, Refusal] = {}
    for n, (i, message) in enumerate(messages.items()):
        if n % MANY == MANY - 1:
            yield
        found[i] = Refusal(POLICY_VIOLATION, message)
    return found


def admit(client: Client, request: Request, wanted: Sequence[WantedTopic], seconds: float, *, whole: bool) -> Admitting:
    """Judge topics that are not there and that brokers create for another request; what is admitted is reserved for
    `seconds`. `whole`: all of them or none. Returns the decisions that hold, by index."""
    engine, judged = client.services.engine, Judged()
    if _is_exempt(client):
        return {}
    judging_them = [None if one.name in engine.limits.exempt.topics else one for one in wanted]
    with given_back(client, partial(_release, client, judged)):
        yield from judging(engine, client.user, judging_them, client.now + seconds, judged)
        refused = conclude(engine, judged, client.now)
        if engine.would:
            client.would_have(request.key, request.version)
        tell(client, request.key, request.version, refused, lambda i: wanted[i].name)
    if refused and whole:
        _release(client, judged, client.now)
    return refused


def tell(client: Client, key: int, version: int, refused: Mapping[int, Decision], label: Callable[[int], str]) -> None:
    """Count and log refusals, one line for each limit."""
    for decision in {id(decision): decision for decision in refused.values()}.values():
        names = tuple(label(i) for i in decision.items[:LABELLED])
        client.api_sum(key).refuse(decision.quota, len(decision.items))
        client.services.watcher.decided(decision, client.requester(key, version, names))


def _without(wire: ItemApi, request: Request, items: Items, refused: Mapping[int, Refusal]) -> Generator[None, None, Request]:
    """The same request without these topics."""
    kept = yield from wire.without(items, refused, request.buf, request.body, request.end, request.version)
    frame = b"".join(request.with_body(kept))
    return Request(
        request.key, request.version, request.correlation_id, (frame, 0, len(frame), None), request.header_stop - request.start
    )


def _release(client: Client, judged: Judged, _now: float) -> None:
    """Nothing comes of what was reserved."""
    client.services.engine.owned.release(judged.receipt.values())
    judged.receipt.clear()


class _Settling:
    """What is to be done when the broker has answered."""

    def __init__(
        self, wire: ItemApi, client: Client, request: Request, items: Items, judged: Judged, refused: Mapping[int, Refusal]
    ) -> None:
        self._wire, self._client, self._items, self._judged, self._refused = wire, client, items, judged, refused
        self._user, self._version = client.user, request.version

    def merged(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        """The answer with what was refused here, in the order of the request."""
        answer = yield from self._wire.answer(frame, self._version, self._items)
        yield from self.settle(answer)
        pieces: list[Buffer] = [frame]
        if self._refused:
            pieces = yield from self._wire.with_refused(answer, self._items, self._refused, 0)
        yield from freed(answer.told, answer.of, self._items.topics)
        return pieces

    def settle(self, answer: Answered) -> Generator[None, None, None]:
        """Count what the broker did; give back what it did not do."""
        if self._items.validate_only or isinstance(self._wire, AlterConfigsApi):
            return
        owned, topics = self._client.services.engine.owned, self._items.topics
        for n, (i, result) in enumerate(answer.results):
            if n % FEW == FEW - 1:
                yield
            if result.error == 0:
                self._count(topics[i], result)
            if result.error != REQUEST_TIMED_OUT and (made := self._judged.receipt.pop(i, None)) is not None:
                owned.release((made,))

    def _count(self, topic: Item, result: Result) -> None:
        """The broker has created, enlarged or deleted this topic."""
        services = self._client.services
        cluster, owned = services.cluster, services.engine.owned
        name = topic.name or cluster.topic_name(topic.topic_id) or ""
        if self._wire.key == DELETE_TOPICS:
            cluster.forget_topic(name)
            return
        size = max(result.partitions, topic.amount)
        if size <= 0:
            size = cluster.default_partitions
        if self._wire.key == CREATE_TOPICS:
            owned.created(name, self._user)
        cluster.learn_size(name, size)
        owned.tell(self._user, name, size)


class _Settle(InSteps):
    """The answer to a request of which some topics were refused, or reserved. `plan`: what else is to be done with it."""

    __slots__ = ("_plan", "_settling")

    def __init__(self, plan: Plan | None, settling: _Settling) -> None:
        super().__init__(0.0 if plan is None else plan.mute, waits=plan is not None and plan.waits)
        self._plan, self._settling = plan, settling

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        if self._plan is not None:
            pieces = yield from self._plan.work(frame)
            frame = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], bytes) else b"".join(pieces)
            self.mute = self._plan.mute
        return (yield from self._settling.merged(frame))
