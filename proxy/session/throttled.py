"""The answer to a throttled request: it goes out at once and tells for how long, then the client is muted (KIP-219)."""

from __future__ import annotations

from collections.abc import Generator
from math import ceil

from proxy.session.client import Client
from proxy.session.plans import Plan, Stream
from proxy.wire.addresses import PRODUCE
from proxy.wire.primitives import Buffer
from proxy.wire.throttle import NOWHERE, overlay, tell, throttle_place


class Throttled:
    """What is done with such an answer: what its own plan says, if it has one, and the throttle time besides. It is over at
    `until`, whenever the answer comes; what is left then is what the client is told."""

    __slots__ = ("_client", "_inner", "_key", "_until", "_version", "waits")

    def __init__(self, inner: Plan | None, key: int, version: int, client: Client, until: float) -> None:
        self._inner, self._key, self._version = inner, key, version
        self._client, self._until = client, until
        self.waits = True

    @property
    def mute(self) -> float:
        own = self._until - self._client.now
        return max(own, 0.0 if self._inner is None else self._inner.mute)

    @property
    def throttle_ms(self) -> int:
        return ceil(self.mute * 1000)

    def begin(self, buf: bytes, start: int, size: int) -> list[Buffer] | None:
        pieces = None if self._inner is None else self._inner.begin(buf, start, size)
        return None if pieces is None else self._tell(pieces or [memoryview(buf)[start:]])

    def holds(self, size: int) -> bool:
        return self._key == PRODUCE or (self._inner is not None and self._inner.holds(size))

    def in_steps(self, size: int) -> bool:
        return self._inner is not None and self._inner.in_steps(size)

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        assert self._inner is not None
        pieces = yield from self._inner.work(frame)
        return self._tell(pieces)

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        pieces = None if self._inner is None else self._inner.finish(buf, start, end)
        return self._tell([buf[start:end]] if pieces is None else pieces)

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        return self._tell(chunks if self._inner is None else self._inner.finish_chunks(chunks))

    def stream(self, size: int) -> Stream:
        inner = None if self._inner is None else self._inner.stream(size)
        return Telling(inner, throttle_place(self._key, self._version), self.throttle_ms)

    def _tell(self, pieces: list[Buffer]) -> list[Buffer]:
        if not pieces:  # of a question of the proxy's own
            return pieces
        return tell(self._key, self._version, pieces, self.throttle_ms)


class Telling:
    """A response that tells of a throttle time at `place` while it passes."""

    __slots__ = ("_at", "_inner", "_throttle_ms")

    def __init__(self, inner: Stream | None, place: int, throttle_ms: int) -> None:
        self._inner, self._at, self._throttle_ms = inner, place, throttle_ms

    def feed(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        pieces = None if self._inner is None else self._inner.feed(buf, start, end)
        if self._at <= NOWHERE:  # it is behind, or was never there
            return pieces
        if pieces is None:
            pieces = [memoryview(buf)[start:end]]
        at, self._at = self._at, self._at - sum(map(len, pieces))
        return overlay(pieces, at, self._throttle_ms)
