"""Produce: key 0, versions 0-13. Counts bytes and records per topic. Charges nothing, refuses nothing yet.

From version 10 on a response may name node endpoints (KIP-951), which are replaced. Requests with acks=0 have no response.
"""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import FORWARD, NO_REPLY, Forward, Outcome, Request, Stream
from proxy.wire.addresses import PRODUCE, holds_addresses, patch_addresses
from proxy.wire.frames import Frame, places
from proxy.wire.primitives import Buffer
from proxy.wire.produce import FIRST_TOPIC_ID, VERSIONS, Remembered, base_offset_at, names_no_broker, skim


class Produce:
    key = PRODUCE
    versions = VERSIONS

    def recognize(self, client: Client, version: int, frame: Frame, header_stop: int) -> Forward | None:
        """The short cut for a request that is like earlier ones of its connection."""
        habits: Habits | None = client.memo.get(version)
        if habits is None:
            return None
        alike = habits.requests.look(frame, header_stop)
        if alike is None:
            return None
        topic, acks, _, size, _, _, _, records = alike
        total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
        total.requests += 1
        total.record_bytes += size
        total.records += records
        return habits.outcome if acks else NO_REPLY

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        version = request.version
        habits: Habits | None = client.memo.get(version)
        if habits is None:
            habits = client.memo[version] = Habits(client, version)
        body = request.body
        frame = (request.buf, request.start, request.end, request.chunks)
        found = skim(places(frame, body), version)
        for topic, size, records in found.topics:
            total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += size
            total.records += records
        if request.chunks is None:
            habits.requests.remember(frame, request.header_stop, found)
        return habits.outcome if found.acks else NO_REPLY


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
