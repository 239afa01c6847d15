"""Produce: key 0, versions 0-13. Counts bytes and records per topic, and asks the engine what becomes of each batch.

A request that is within every limit goes on as it came. Else it is read batch by batch and judged: what is refused is answered
with its error and a message, the rest goes on, and the two answers are merged. A client that is throttled gets its answer with
throttle_time_ms and is then muted (KIP-219); version 0 has no such field, and requests with acks=0 have no response: their
clients feel the mute only. Where a batch with acks=0 is refused, the connection is closed behind what goes on, as brokers do.
A request of an entity that is muted on another connection is held first; of a user over its producer id limit only one with
a new id (KIP-936, seed s2).

From version 10 on a response may name node endpoints (KIP-951), which are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final
from uuid import UUID

from proxy.session.client import Aim, Client
from proxy.session.plans import FORWARD, NO_REPLY, Answer, Forward, Hold, Outcome, Plan, Request, Stream
from proxy.wire.addresses import PRODUCE, holds_addresses, patch_addresses
from proxy.wire.frames import Frame, places
from proxy.wire.primitives import INT32, BadBytes, Buffer
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    MAX_PRODUCER_IDS,
    VERSIONS,
    Remembered,
    Skim,
    base_offset_at,
    names_no_broker,
    skim,
)
from proxy.wire.refusals import Part, Refusal, parts_of, refusal, with_refused, without
from quota.decision import Action, Decision
from quota.kinds.bytes_in import Flow
from quota.kinds.producer_ids import ANY_ID, NO_ID
from quota.kinds.storage import Storage
from quota.produce import Batch, Judgement

MAX_NAMED: Final = 10
"""Topics that a decision names."""
MAX_JUDGED: Final = 10_000
"""Partitions of a request that are judged one by one; reading more would take tenths of a second, and no producer sends so many."""


class Produce:
    key = PRODUCE
    versions = VERSIONS

    def recognize(self, client: Client, version: int, frame: Frame, header_stop: int, now: float) -> Forward | None:
        """The short cut for a request that is like earlier ones of its connection."""
        habits: Habits | None = client.memo.get(version)
        if habits is None:
            return None
        alike = habits.requests.look(frame, header_stop)
        if alike is None:
            return None
        topic, acks, _, size, producer_id, _, _, records = alike
        engine, by_id = client.services.engine, version >= FIRST_TOPIC_ID
        ids = engine.producer_ids
        fence = engine.fence
        if (fence.by_id or fence.overflowing) and fence.concerns(client.user, producer_id):
            return None
        if producer_id > ids.unchecked and not ids.is_calm(client.user, producer_id, now):
            return None
        if engine.looks_at_produce and not passes_one(client, topic, size, by_id, now):
            return None
        total = client.topic_sum(PRODUCE, topic, by_id=by_id)
        total.requests += 1
        total.record_bytes += size
        total.records += records
        return habits.outcome if acks else NO_REPLY

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        version = request.version
        habits: Habits | None = client.memo.get(version)
        if habits is None:
            habits = client.memo[version] = Habits(client, version)
        body = request.body
        frame = (request.buf, request.start, request.end, request.chunks)
        engine = client.services.engine
        with_ids = engine.producer_ids.unchecked < ANY_ID or bool(engine.fence.by_id) or bool(engine.fence.overflowing)
        found = skim(places(frame, body), version, producer_ids=with_ids)
        if not _calm(client, found, now) or (
            engine.looks_at_produce and not passes(client, found.topics, version >= FIRST_TOPIC_ID, now)
        ):
            return judge(client, request, habits, now, held)
        for topic, size, records in found.topics:
            total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += size
            total.records += records
        if request.chunks is None:
            habits.requests.remember(frame, request.header_stop, found)
        return habits.outcome if found.acks else NO_REPLY


def passes_one(client: Client, topic: bytes, size: int, by_id: bool, now: float) -> bool:
    """`passes` for one topic, which most requests have."""
    rules, storage = client.rules(now), client.services.engine.storage
    limit = rules.produce
    aim = client.aim(topic, by_id, now)
    if not storage.calm and not rules.exempt and _concerned(storage, [aim]):
        return False
    meter = aim.meter
    if meter is not None and not meter.take(size, now):
        return False
    if limit is None or aim.exempt or limit.meter.take(size, now):
        return True
    if meter is not None:
        meter.give_back(size, now)
    return False


def passes(client: Client, topics: Sequence[tuple[bytes, int, int]], by_id: bool, now: float) -> bool:
    """Are these topics with so many bytes within every limit of bytes? Then they are counted, else nothing is."""
    if len(topics) == 1:
        return passes_one(client, topics[0][0], topics[0][1], by_id, now)
    rules, storage = client.rules(now), client.services.engine.storage
    if not storage.calm and not rules.exempt and _concerned(storage, [client.aim(topic, by_id, now) for topic, _, _ in topics]):
        return False
    carried = 0
    counted: list[tuple[Flow, int]] = []
    for topic, size, _ in topics:
        aim = client.aim(topic, by_id, now)
        if not aim.exempt:
            carried += size
        if aim.meter is not None:
            if not aim.meter.take(size, now):
                break
            counted.append((aim.meter, size))
    else:
        if rules.produce is None or not carried or rules.produce.meter.take(carried, now):
            return True
    for meter, size in counted:
        meter.give_back(size, now)
    return False


def _concerned(storage: Storage, aims: Sequence[Aim]) -> bool:
    """May any of these topics be on a volume in trouble?"""
    return any(not aim.exempt and (not aim.known or storage.concerns(aim.name)) for aim in aims)


def _calm(client: Client, found: Skim, now: float) -> bool:
    """Do its producer ids change nothing? One more than `MAX_PRODUCER_IDS` is listed at most, which is not calm."""
    if found.producer_ids is None:
        return True
    engine, ids = client.services.engine, found.producer_ids or (NO_ID,)
    if len(ids) > MAX_PRODUCER_IDS:
        return False
    quota, fence = engine.producer_ids, engine.fence
    return all((id <= quota.unchecked or quota.is_calm(client.user, id, now)) and not fence.concerns(client.user, id) for id in ids)


def judge(client: Client, request: Request, habits: Habits, now: float, held: bool) -> Outcome:
    """What becomes of a request that is not within every limit, or whose limits have to be looked at batch by batch."""
    engine, version = client.services.engine, request.version
    frame = (request.buf, request.start, request.end, request.chunks)
    pieces = places(frame, request.body)
    found = skim(pieces, version, details=True, producer_ids=True)
    _check(client, found)
    batches = _batches(client, found, version, now)
    rules = client.rules(now)
    full = engine.hold_full(rules, batches, now)
    if full is not None:
        _tell(client, request, batches, full)
        return Hold(full.throttle)
    if (wait := engine.hold_produce(rules, batches, now, held=held)) is not None:
        _tell(client, request, batches, wait)
        return Hold(wait.throttle)
    judgement = engine.judge_produce(rules, batches, now)
    for decision in judgement.decisions:
        if decision.action is Action.REFUSE:
            client.api_sum(PRODUCE).refuse(decision.quota, len(decision.items))
        _tell(client, request, batches, decision)
    _count(client, found, judgement, version)
    throttle = judgement.throttle
    client.api_sum(PRODUCE).throttle_ms += ceil(throttle * 1000)
    if not judgement.refused:
        usual = habits.outcome if found.acks else NO_REPLY
        return replace(usual, throttle=throttle) if throttle else usual
    parts = parts_of(found)
    refused = {parts[i]: Refusal(why.code, why.message) for i, why in judgement.refused.items()}
    if found.acks and len(refused) == len(set(parts)):
        return Answer(refusal(request.correlation_id, version, refused, ceil(throttle * 1000)), throttle)
    kept: list[Buffer] = []
    if len(refused) < len(set(parts)):
        kept = without(pieces, found, version, refused)
        header = bytes(request.buf[request.start + 4 : request.body])
        kept = [INT32.pack(len(header) + sum(map(len, kept))), header, *kept]
    if not found.acks:
        return Forward(pieces=kept, reply=False, close=True)
    return Forward(Merge(version, parts, refused, habits.outcome.plan), kept, throttle=throttle)


def _check(client: Client, found: Skim) -> None:
    """`BadBytes` for what no producer sends and nobody could judge."""
    if found.partition_count > MAX_JUDGED:
        raise BadBytes(f"a Produce request of {found.partition_count} partitions; {MAX_JUDGED} are the most that quotas look at")
    if len(found.producer_ids or ()) > MAX_PRODUCER_IDS and client.services.engine.producer_ids.find(client.user) is not None:
        raise BadBytes(f"a Produce request with more than {MAX_PRODUCER_IDS} producer ids; a producer has one")


def _batches(client: Client, found: Skim, version: int, now: float) -> list[Batch]:
    """What is judged, in the order of the request."""
    by_id = version >= FIRST_TOPIC_ID
    client.rules(now)
    listed = []
    for (topic, *_), batches in zip(found.topics, found.batches or (), strict=True):
        aim = client.aim(topic, by_id, now)
        topic_id = str(UUID(bytes=topic)) if by_id else None
        listed += [Batch(aim.name, aim.known, topic_id, b.partition, b.size, b.producer_id, b.epoch, b.sequence) for b in batches]
    return listed


def _count(client: Client, found: Skim, judgement: Judgement, version: int) -> None:
    """Add what goes on to the sums of its topics."""
    i = 0
    for (topic, *_), batches in zip(found.topics, found.batches or (), strict=True):
        total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
        total.requests += 1
        for batch in batches:
            if i not in judgement.refused:
                total.record_bytes += batch.size
                total.records += batch.records or 0
            i += 1


def _tell(client: Client, request: Request, batches: Sequence[Batch], decision: Decision) -> None:
    names = dict.fromkeys(batches[i].topic for i in decision.items)
    client.services.watcher.decided(decision, client.requester(PRODUCE, request.version, tuple(names)[:MAX_NAMED]))


class Habits:
    """What one connection does again and again, with one version."""

    __slots__ = ("outcome", "requests")

    def __init__(self, client: Client, version: int) -> None:
        self.requests = Remembered(version)
        self.outcome = Forward(ProducePatch(version, client)) if holds_addresses(PRODUCE, version) else FORWARD


class ProducePatch:
    """Replaces node endpoints.

    Responses about one partition without any differ in three numbers only: one is read, those like it are recognized.
    """

    __slots__ = ("_client", "_head", "_offsets_at", "_size", "_tail", "_version", "mute", "waits")

    def __init__(self, version: int, client: Client) -> None:
        self._version, self._client = version, client
        self.mute = 0.0
        self.waits = False
        self._size = 0
        self._offsets_at = 0
        self._head = b""
        self._tail = b""

    def holds(self, size: int) -> bool:  # noqa: ARG002
        return True

    def stream(self, size: int) -> Stream:
        raise NotImplementedError

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame, offsets = bytes(buf), start + self._offsets_at
        if end - start == self._size and frame[start + 8 : offsets] == self._head and frame[offsets + 24 : end] == self._tail:
            return None
        if names_no_broker(frame, start, end, self._version):
            self._remember(frame[start:end])
            return None
        return patch_addresses(PRODUCE, self._version, frame[start:end], self._client.endpoint)

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        joined = b"".join(chunks)
        return self.finish(joined, 0, len(joined)) or [joined]

    def _remember(self, frame: bytes) -> None:
        at = base_offset_at(frame, 0, len(frame), self._version)
        if at > 0:
            self._size, self._offsets_at = len(frame), at
            self._head, self._tail = frame[8:at], frame[at + 24 :]


class Merge:
    """The answer to what went on of a request, with what was refused. `inner`: what is done with answers otherwise."""

    __slots__ = ("_inner", "_order", "_refused", "_version", "mute", "waits")

    def __init__(self, version: int, order: Sequence[Part], refused: Mapping[Part, Refusal], inner: Plan | None) -> None:
        self._version, self._order, self._refused, self._inner = version, order, refused, inner
        self.mute = 0.0
        self.waits = False

    def holds(self, size: int) -> bool:  # noqa: ARG002
        return True

    def stream(self, size: int) -> Stream:
        raise NotImplementedError

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self.finish_chunks([buf[start:end]])

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        merged = with_refused(b"".join(chunks), self._version, self._order, self._refused)
        pieces = None if self._inner is None else self._inner.finish(merged, 0, len(merged))
        return [merged] if pieces is None else pieces
