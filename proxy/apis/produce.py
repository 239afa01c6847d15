"""Produce: key 0, versions 0-13. Counts bytes and records per topic. Charges `producer_ids` (KIP-936, seed s2), refuses nothing.

Once a user is over that quota, every request of it goes on, and is answered with throttle_time_ms: the time is over that long after
the decision, the broker's own if that is longer. Version 0 has no such field, and requests with acks=0 have no response: their
clients feel the mute only. A request with a producer id that is new, of a user who is muted on another connection, is held first.

From version 10 on a response may name node endpoints (KIP-951), which are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import Final
from uuid import UUID

from proxy.session.client import MAX_TOPIC_NAME, Client
from proxy.session.plans import FORWARD, NO_REPLY, Forward, Hold, Outcome, Request, Stream
from proxy.wire.addresses import PRODUCE, holds_addresses, patch_addresses
from proxy.wire.frames import Frame, places
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    MAX_PRODUCER_IDS,
    VERSIONS,
    Remembered,
    Skim,
    base_offset_at,
    names_no_broker,
    skim,
    with_throttle,
)
from quota.decision import Decision
from quota.kinds.producer_ids import ANY_ID, NO_ID

MAX_NAMED: Final = 10
"""Topics that a decision names."""


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
        ids = client.services.engine.producer_ids
        if producer_id > ids.unchecked and not ids.is_calm(client.user, producer_id, now):
            return None
        total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
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
        found = skim(places(frame, body), version, producer_ids=engine.producer_ids.unchecked < ANY_ID)
        decision = self._charge(client, request, found, now, held)
        if isinstance(decision, Hold):
            return decision
        for topic, size, records in found.topics:
            total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += size
            total.records += records
        if request.chunks is None:
            habits.requests.remember(frame, request.header_stop, found)
        if decision is not None:
            return _throttled(client, request, found, decision, now)
        return habits.outcome if found.acks else NO_REPLY

    def _charge(self, client: Client, request: Request, found: Skim, now: float, held: bool) -> Decision | Hold | None:
        """Charge the producer ids of a request."""
        if found.producer_ids is None:
            return None
        ids = found.producer_ids or [NO_ID]
        engine, user = client.services.engine, client.user
        quota = engine.producer_ids
        if all(id <= quota.unchecked or quota.is_calm(user, id, now) for id in ids):
            return None
        free = exempt(client, found, request.version)
        if len(ids) > MAX_PRODUCER_IDS:
            if free or quota.find(user) is None:
                return None
            raise BadBytes(f"a Produce request with more than {MAX_PRODUCER_IDS} producer ids; a producer has one")
        if not (free or held):
            wait = engine.hold_producer_ids(user, ids, now)
            if wait is not None:
                _tell(client, request, found, replace(wait, items=tuple(range(found.partition_count))))
                return Hold(wait.throttle)
        decision = engine.charge_producer_ids(user, ids, now, exempt=free).decision
        if decision is None:
            return None
        decision = replace(decision, items=tuple(range(found.partition_count)))
        client.api_sum(PRODUCE).throttle_ms += ceil(decision.throttle * 1000)
        _tell(client, request, found, decision)
        return decision


def exempt(client: Client, found: Skim, version: int) -> bool:
    """Is this client id exempt, or every topic of the request? Exempt users have no limit anyway."""
    free = client.services.engine.limits.exempt
    if client.client_id in free.client_ids:
        return True
    return bool(found.topics) and all(name in free.topics for name in _names(client, found, version))


def _names(client: Client, found: Skim, version: int) -> Iterator[str]:
    """Its topics; those whose id says nothing to the proxy as the id."""
    for topic, _, _ in found.topics:
        if version >= FIRST_TOPIC_ID:
            yield client.services.cluster.topic_name(topic) or str(UUID(bytes=topic))
        else:
            yield topic[: MAX_TOPIC_NAME + 1].decode(errors="replace")


def _tell(client: Client, request: Request, found: Skim, decision: Decision) -> None:
    names = tuple(islice(_names(client, found, request.version), MAX_NAMED))
    client.services.watcher.decided(decision, client.requester(PRODUCE, request.version, names))


def _throttled(client: Client, request: Request, found: Skim, decision: Decision, now: float) -> Forward:
    if not found.acks:
        return Forward(reply=False, mute=decision.throttle)
    return Forward(ThrottlePatch(request.version, client, now + decision.throttle))


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


class ThrottlePatch:
    """The answer to a client that is muted until a given time."""

    __slots__ = ("_client", "_until", "_version", "mute", "waits")

    def __init__(self, version: int, client: Client, until: float) -> None:
        self._version, self._client, self._until = version, client, until
        self.mute = 0.0
        self.waits = True

    def holds(self, size: int) -> bool:  # noqa: ARG002
        return True

    def stream(self, size: int) -> Stream:
        raise NotImplementedError

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self.finish_chunks([buf[start:end]])

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self.mute = max(self._until - self._client.now, 0.0)
        frame = with_throttle(b"".join(chunks), self._version, ceil(self.mute * 1000))
        if not holds_addresses(PRODUCE, self._version):
            return [frame]
        return patch_addresses(PRODUCE, self._version, frame, self._client.endpoint) or [frame]
