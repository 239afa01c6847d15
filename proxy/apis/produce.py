"""Produce: key 0, versions 0-13. Counts bytes and records per topic, and asks the engine what becomes of each batch.

A request that is within every limit goes on as it came. Else it is read batch by batch and judged: what is refused is answered
with its error and a message, the rest goes on, and the two answers are merged. What the broker then does not write is given
back, and what no broker has confirmed before is counted with the answer (`produced`). A client that is throttled gets its answer
with throttle_time_ms and is then muted (KIP-219); version 0 has no such field, and requests with acks=0 have no response: their
clients feel the mute only. Where a batch with acks=0 is refused, the connection is closed behind what goes on, as brokers do.
A request of an entity that is muted on another connection is held first; of a user over its producer id limit only one with
a new id (KIP-936, seed s2).

From version 10 on a response may name node endpoints (KIP-951), which are replaced.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final
from uuid import UUID

from proxy.apis.produced import AT_ONCE, MAX_UNSETTLED, Judged, Last, Merge, ProducePatch, Settle, give_back, question, uncount
from proxy.session.client import Client, Counted, TargetTopic
from proxy.session.held_answers import Answer
from proxy.session.pending import Pending
from proxy.session.plans import FORWARD, NO_REPLY, AlikeRequests, Decided, Forward, Handling, Hold, Request, Wait, given_back
from proxy.wire.addresses import PRODUCE, holds_addresses
from proxy.wire.frames import Frame, Place, places
from proxy.wire.primitives import BadBytes, Buffer, int32
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    MAX_PRODUCER_IDS,
    VERSIONS,
    Skim,
    skim,
)
from proxy.wire.refusals import Refusal, refusal, without
from proxy.wire.runs import ProduceRun, Requests, Run
from proxy.wire.walk import TopicPart
from quota.batch import Batch
from quota.decision import Action
from quota.engine import MAX_HOLD
from quota.in_flight import Passage, Window
from quota.kinds.overload import STEP
from quota.kinds.producer_ids import ANY_ID, NO_ID
from quota.kinds.storage import Storage

if TYPE_CHECKING:
    from mypy_extensions import i64

NOT_WITHIN, NOT_COUNTED, COUNTED = 0, 1, 2
"""Is a request within every limit of bytes, and was something counted for it that an error gives back?"""
MAX_JUDGED: Final = 1000
"""Partitions of a request that are judged one by one. Producers with very many partitions on one broker have some hundreds in a
request; what is above this closes the connection."""


class Produce(AlikeRequests):
    key = PRODUCE
    versions = VERSIONS

    def run(self, client: Client, data: bytes, start: i64, most: i64, largest: i64) -> Run | None:
        """Those like earlier ones of the connection."""
        shapes = client.remembered.get(int32(data, start + 4))  # key 0 and the version
        if not isinstance(shapes, RequestShapes) or shapes.requests.claimed is not client.raw_client_id:
            return None
        return shapes.requests.run(data, start, most if client.unsettled <= MAX_UNSETTLED else 1, largest)

    def one(self, client: Client, version: int, frame: Frame) -> Run | None:
        shapes = client.remembered.get(version)
        if not isinstance(shapes, RequestShapes) or shapes.requests.claimed is not client.raw_client_id:
            return None
        return shapes.requests.one(frame)

    def take(self, client: Client, run: Run) -> Forward | None:
        assert isinstance(run, ProduceRun)
        shape, now = run.shape, client.now
        producer_id: int = run.producer_id  # no `i64`: what it is compared with may be below all of these
        shapes = client.remembered.get(run.version)
        if shape is None or not isinstance(shapes, RequestShapes):
            return None
        engine, by_id = client.services.engine, shape.version >= FIRST_TOPIC_ID
        ids, fence = engine.producer_ids, engine.fence
        if (fence.by_id or fence.overflowing) and fence.concerns(client.user, producer_id):
            return None
        if producer_id > ids.unchecked and not ids.is_calm(client.user, producer_id, now):
            return None
        client.rules(now)
        target = client.target(shape.topic, by_id)
        within = passes_one(client, target, run.carried, run.sizes, shape.acks, now) if engine.looks_at_produce else NOT_COUNTED
        if not within:
            return None
        total = client.produced(target, shape.topic, by_id)
        total.requests += run.count
        total.record_bytes += run.carried
        total.records += run.records
        return shapes.usual(shape.acks, within)

    def request(self, client: Client, request: Request) -> Decided | Handling:
        version, now = request.version, client.now
        shapes = client.remembered.get(version)
        if not isinstance(shapes, RequestShapes):
            shapes = client.remembered[version] = RequestShapes(client, version)
        body = request.body
        frame = (request.buf, request.start, request.end, request.chunks)
        engine = client.services.engine
        with_ids = engine.producer_ids.unchecked < ANY_ID or bool(engine.fence.by_id) or bool(engine.fence.overflowing)
        found = skim(places(frame, body), version, producer_ids=with_ids)
        if len(found.topics) > AT_ONCE:
            return _many(client, request, shapes, found)
        client.rules(now)
        targets = [client.target(part.topic, version >= FIRST_TOPIC_ID) for part in found.topics]
        within = _within(client, found, targets, now)
        if not within:
            _bound(found)
            return judged_request(client, request, shapes)
        _add(client, found.topics, targets, version)
        if request.chunks is None:
            shapes.requests.remember(frame, request.header_stop, found, client.raw_client_id)
        return shapes.usual(found.acks, within)


def _within(client: Client, found: Skim, targets: list[TargetTopic], now: float) -> int:
    """Does a request to these topics go on without being judged batch by batch?"""
    if not _calm(client, found, now):
        return NOT_WITHIN
    return passes(client, found, targets, now) if client.services.engine.looks_at_produce else NOT_COUNTED


def _many(client: Client, request: Request, shapes: RequestShapes, found: Skim) -> Handling:
    """What becomes of a request of very many topics."""
    by_id = request.version >= FIRST_TOPIC_ID
    client.rules(client.now)
    few = found.topics[:MAX_JUDGED]  # of more topics none is judged
    within = _within(client, found, [client.target(part.topic, by_id) for part in few], client.now)
    if not within:
        _bound(found)
        yield None
        return (yield from judged_request(client, request, shapes))
    decided = shapes.usual(found.acks, within)
    with given_back(client, partial(uncount, client)) if within == COUNTED else nullcontext():
        for start in range(0, len(found.topics), AT_ONCE):
            yield None
            client.rules(client.now)
            some = found.topics[start : start + AT_ONCE]
            _add(client, some, [client.target(part.topic, by_id) for part in some], request.version)
    return decided


def _add(client: Client, topics: list[TopicPart], targets: list[TargetTopic], version: int) -> None:
    """Add what a request has for these topics to their sums."""
    by_id = version >= FIRST_TOPIC_ID
    for i in range(len(topics)):
        part = topics[i]
        total = client.produced(targets[i], part.topic, by_id)
        total.requests += 1
        total.record_bytes += part.size
        total.records += part.records


def passes_one(client: Client, target: TargetTopic, size: int, sizes: list[int], acks: int, now: float) -> int:
    """`passes` for requests about one topic, with `size` bytes of records together, and these each."""
    rules, storage = client.rules(now), client.services.engine.storage
    limit, window = rules.produce, rules.window
    if window is not None and window.limited:
        return NOT_WITHIN
    if not storage.calm and not rules.exempt and _concerned(storage, [target]):
        return NOT_WITHIN
    pair = target.pair
    if pair is not None and not (acks and pair.confirmed and target.complete) and not target.may_count(client, acks, now):
        return NOT_WITHIN
    # A topic takes what comes while it is not over its threshold, so the last of several has to find it so.
    last = sizes[-1]
    before = size - last
    if before and not _takes(target, before, now):
        return NOT_WITHIN
    if not _takes(target, last, now):
        if before:
            give_back(target, before, None, now, now)
        return NOT_WITHIN
    if target.exempt:
        limit = None
    if limit is not None and not limit.take(size, now):
        give_back(target, size, None, now, now)
        return NOT_WITHIN
    if window is not None:
        window.sent += size
    if not acks or (target.meter is None and limit is None and target.rate is None and target.stored is None):
        return NOT_COUNTED
    client.charged.append(Counted(now, target, sizes, limit))
    return COUNTED


def passes(client: Client, found: Skim, targets: list[TargetTopic], now: float) -> int:
    """Are the topics of a request within every limit of bytes? Then they are counted, else nothing is."""
    topics, acks = found.topics, found.acks
    if len(topics) == 1:
        size: int = topics[0].size
        return passes_one(client, targets[0], size, [size], acks, now)
    if not 0 < len(topics) <= MAX_JUDGED:
        return NOT_WITHIN if topics else NOT_COUNTED
    rules, storage = client.rules(now), client.services.engine.storage
    if not storage.calm and not rules.exempt and _concerned(storage, targets):
        return NOT_WITHIN
    held = rules.window is not None and rules.window.limited
    if held or not all(target.may_count(client, acks, now) for target in targets):
        return NOT_WITHIN
    limit, window, carried, count = rules.produce, rules.window, 0, 0
    for part in topics:
        target = targets[count]
        size = part.size
        if not _takes(target, size, now):
            break
        count += 1
        if not target.exempt:
            carried += size
    else:
        if limit is None or not carried or limit.take(carried, now):
            if window is not None:
                window.sent += carried
            if acks:
                client.charged.append(Counted(now, targets[0], [0], limit, topics, targets))
                client.unsettled += count
            return COUNTED if acks else NOT_COUNTED
    for i in range(count):
        give_back(targets[i], topics[i].size, None, now, now)
    return NOT_WITHIN


def _takes(target: TargetTopic, size: int, now: float) -> bool:
    """Count bytes towards a topic if it is within its limits; else nothing is counted."""
    meter, rate, stored = target.meter, target.rate, target.stored
    if meter is not None and not meter.take(size, now):
        return False
    if rate is None or rate.take(size, now):
        if stored is None or stored.take(size):
            return True
        if rate is not None:
            rate.refund(size, now)
    if meter is not None:
        meter.give_back(size, now)
    return False


def _concerned(storage: Storage, targets: Sequence[TargetTopic]) -> bool:
    """May any of these topics be on a volume in trouble?"""
    return any(not target.exempt and (not target.known or storage.concerns(target.name)) for target in targets)


def _calm(client: Client, found: Skim, now: float) -> bool:
    """Do its producer ids change nothing? One more than `MAX_PRODUCER_IDS` is listed at most, which is not calm."""
    if found.producer_ids is None:
        return True
    engine, ids = client.services.engine, found.producer_ids or (NO_ID,)
    if len(ids) > MAX_PRODUCER_IDS:
        return False
    quota, fence = engine.producer_ids, engine.fence
    return all((id <= quota.unchecked or quota.is_calm(client.user, id, now)) and not fence.concerns(client.user, id) for id in ids)


def _bound(found: Skim) -> None:
    if found.partition_count > MAX_JUDGED:
        raise BadBytes(f"a Produce request of {found.partition_count} partitions; {MAX_JUDGED} are the most that quotas look at")


def judged_request(client: Client, request: Request, shapes: RequestShapes) -> Handling:
    """What becomes of a request that is not within every limit, or whose limits have to be looked at batch by batch. Each step is
    right by itself: what a batch counts is counted when it is decided that it goes on."""
    engine, version = client.services.engine, request.version
    pieces = places((request.buf, request.start, request.end, request.chunks), request.body)
    found = skim(pieces, version, details=True, producer_ids=True)
    if found.partition_count > AT_ONCE:
        yield None
    if len(found.producer_ids or ()) > MAX_PRODUCER_IDS and engine.producer_ids.find(client.user) is not None:
        raise BadBytes(f"a Produce request with more than {MAX_PRODUCER_IDS} producer ids; a producer has one")
    judged = yield from _read(client, found, version)
    held = False
    while (wait := judged.judging.hold(client.now, held=held)) is not None:
        judged.tell([wait])
        yield Hold(wait.throttle)
        held = True
        judged = yield from _read(client, found, version)
    window, size = client.rules(client.now).window, judged.limited_size
    if window is None or not size:
        return (yield from _charged(client, request, shapes, judged, pieces))
    if not window.limited:
        window.sent += size
        return (yield from _charged(client, request, shapes, judged, pieces))
    pending = Pending()
    passage, came = _enter(client, judged, window, pending), client.now
    with given_back(client, passage.end):
        if not passage.going:
            yield Wait(pending, quota=True)
        until = client.now + MAX_HOLD
        while not window.observed and client.now < until and (pause := window.pause(client.now)) > 0:
            yield Hold(min(pause, until - client.now, STEP))  # the window changes meanwhile
        window.owe(size, client.now, answered=found.acks != 0)
        if (waited := client.now - came) > 0:
            judged = yield from _read(client, found, version)
        decided = yield from _charged(client, request, shapes, judged, pieces)
    if not isinstance(decided, Forward) or not decided.reply:
        passage.end(client.now)
        return decided
    if waited <= window.latency:  # nothing is left of it when the answer comes
        return replace(decided, passage=passage)
    waited = min(waited, engine.limits.max_throttle)
    client.api_sum(PRODUCE).throttle_ms += ceil(waited * 1000)
    return replace(decided, throttle=max(decided.throttle, waited), passage=passage)


def _enter(client: Client, judged: Judged, window: Window, pending: Pending) -> Passage:
    """A request comes to the window of its user, at a broker that is overloaded. `pending` is done when it may go on, if it
    waits."""
    engine, size = client.services.engine, judged.limited_size
    if not window.has_room(size) or window.pause(client.now, size) > 0:
        window.held = True
        items = judged.judging.limited(range(len(judged.batches)))
        decision = engine.enforce(engine.overload.waits(window, size, items, client.now), client.now).decision
        if decision is not None:
            judged.tell([decision])
    return window.enter(size, pending.finish)


def _charged(client: Client, request: Request, shapes: RequestShapes, judged: Judged, pieces: list[Place]) -> Handling:
    """What becomes of a request that need not wait any more."""
    with given_back(client, judged.give_up):
        return (yield from _decided(client, request, shapes, judged, pieces))


def _decided(client: Client, request: Request, shapes: RequestShapes, judged: Judged, pieces: list[Place]) -> Handling:
    """Charge a request that need not wait, batch by batch."""
    engine, total = client.services.engine, client.api_sum(PRODUCE)
    judgement = yield from judged.judge()
    for decision in judgement.decisions:
        if decision.action is Action.REFUSE:
            total.refuse(decision.quota, len(decision.items))
    judged.tell(judgement.decisions)
    total.throttle_ms += ceil(judgement.throttle * 1000)
    if engine.would:
        client.would_have(PRODUCE, request.version)
    if judged.counted:
        yield from judged.count([i for i in range(len(judged.batches)) if i not in judgement.refused])
    if judgement.refused:
        return (yield from _refuse(client, request, shapes, judged, pieces))
    usual = _usual(client, request, shapes, judged)
    return replace(usual, throttle=judgement.throttle) if judgement.throttle else usual


def _refuse(client: Client, request: Request, shapes: RequestShapes, judged: Judged, pieces: list[Place]) -> Handling:
    """A part of a request is refused, or all of it; the rest goes on, and the answers are merged. acks=0: the connection is closed
    behind the rest. What no broker has confirmed of that stays with what is expected of the user. In steps."""
    judgement, parts, version, acks = judged.judgement, judged.parts, request.version, judged.found.acks
    refused = {parts[i]: Refusal(why.code, why.message) for i, why in judgement.refused.items()}
    everything = len(refused) == len(set(parts))
    if everything and acks:
        frame = yield from refusal(request.correlation_id, version, refused, ceil(judgement.throttle * 1000))
        return Answer(frame, judgement.throttle)
    kept: list[Buffer] = []
    if not everything:
        kept = yield from without(pieces, judged.found, version, refused)
        kept = request.with_body(kept)
    if not acks:
        return Forward(pieces=kept, reply=False, close=True)
    plan = Merge(version, parts, refused, _usual(client, request, shapes, judged).plan)
    return Forward(plan, kept, throttle=judgement.throttle)


def _read(client: Client, found: Skim, version: int) -> Generator[None, None, Judged]:
    """What is judged, in the order of the request. In steps."""
    by_id, now = version >= FIRST_TOPIC_ID, client.now
    client.rules(now)
    listed: list[Batch] = []
    targets: list[TargetTopic] = []
    counted = True
    for part, batches in zip(found.topics, found.batches or (), strict=True):
        topic = part.topic
        target = client.target(topic, by_id)
        counted = counted and target.may_count(client, found.acks, now)
        topic_id = str(UUID(bytes=topic)) if by_id else None
        listed += [
            Batch(target.name, target.known, topic_id, b.partition, b.size, b.producer_id, b.epoch, b.sequence) for b in batches
        ]
        if len(targets) % AT_ONCE + len(batches) > AT_ONCE:
            yield
        targets += [target] * len(batches)
    return Judged(client, version, found, targets, listed, counted, now)


def _usual(client: Client, request: Request, shapes: RequestShapes, judged: Judged) -> Forward:
    """How a request goes on of which nothing is refused. The broker's answer settles what was counted, or counts it."""
    acks = judged.found.acks
    if judged.counted and not (acks and judged.judging.counted):
        return shapes.usual(acks, NOT_COUNTED)
    plan = Settle(judged, addresses=holds_addresses(PRODUCE, request.version))
    if acks:
        return Forward(plan)
    frame = [memoryview(request.buf)[request.start : request.end]] if request.chunks is None else request.chunks
    return Forward(plan, [*frame, question(client, request)])


class RequestShapes:
    """What earlier requests of one connection looked like, in one version, and the plans for requests that look the same."""

    __slots__ = ("_client", "_counted", "_outcome", "requests")

    def __init__(self, client: Client, version: int) -> None:
        self._client = client
        self.requests = Requests(version)
        addresses = holds_addresses(PRODUCE, version)
        self._outcome = Forward(ProducePatch(version, client, addresses=True, credits=False)) if addresses else FORWARD
        self._counted = Forward(ProducePatch(version, client, addresses=addresses, credits=True))

    def usual(self, acks: int, within: int) -> Forward:
        """How a request goes on, as it is."""
        if not acks:
            return NO_REPLY
        if within != COUNTED:
            return self._outcome
        plan = self._counted.plan
        return self._counted if self._client.unsettled <= MAX_UNSETTLED or plan is None else Forward(Last(plan))
