"""Fetch: key 1, versions 0-18. Counts bytes per topic as responses pass. Charges nothing, refuses nothing yet.

From version 16 on a response may name node endpoints at its very end (KIP-951). Up to `max_held_response` bytes such a
response is held until it is whole, and they are replaced; a larger one is passed on as it comes, and its endpoints,
should it have any, are blanked: the client then asks for metadata."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import Forward, Outcome, Place, Plain, Request, Stream
from proxy.wire.addresses import FETCH, holds_addresses, patch_addresses
from proxy.wire.fetch import FIRST_TOPIC_ID, VERSIONS, FetchSums, blank_tags, read_fetch
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import Buffer
from proxy.wire.walk import Walk


class Fetch(Plain):
    key = FETCH
    versions = VERSIONS

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        return Forward(FetchPlan(client, request.version))


class FetchPlan:
    """The response of one Fetch."""

    __slots__ = ("_client", "_found", "_version", "mute", "waits")

    def __init__(self, client: Client, version: int) -> None:
        self._client, self._version = client, version
        self._found = FetchSums()
        self.mute = 0.0
        self.waits = False

    def holds(self, size: int) -> bool:
        return holds_addresses(FETCH, self._version) and size <= self._client.services.max_held_response

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        self._read([(buf, start, end)])
        return self._patch(bytes(buf[start:end])) if self.names_brokers() else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self._read([(chunk, 0, len(chunk)) for chunk in chunks])
        return self._patch(b"".join(chunks)) if self.names_brokers() else chunks

    def stream(self, size: int) -> Stream:
        return _FetchStream(self, size)

    def walk(self, size: int) -> Walk:
        """The reading of a response of so many bytes, 4-byte size included."""
        return Walk(read_fetch(self._found, self._version, self._body()), size)

    def count(self) -> None:
        """The response is read: add it to the sums of its topics."""
        for topic, carried in self._found.topics.items():
            total = self._client.topic_sum(FETCH, topic, by_id=self._version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += carried

    def _body(self) -> int:
        return RESPONSE_START.size + flexible(FETCH, self._version)

    def names_brokers(self) -> bool:
        """Does the response, now that it is read, end with node endpoints?"""
        return self._found.root_tags > 0 and holds_addresses(FETCH, self._version)

    def _read(self, places: list[Place]) -> None:
        walk = self.walk(sum(end - start for _, start, end in places))
        for place in places:
            walk.feed(*place)
        self.count()

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(FETCH, self._version, frame, self._client.endpoint) or [frame]


class _FetchStream:
    """A response that is read while it passes. Nothing goes on before it is read, a few bytes where a read ends in between."""

    __slots__ = ("_blank", "_held", "_plan", "_seen", "_size", "_walk")

    def __init__(self, plan: FetchPlan, size: int) -> None:
        self._plan, self._size = plan, size
        self._walk = plan.walk(size)
        self._seen = 0
        self._held = b""
        self._blank = b""

    def feed(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        was_done = self._walk.done
        self._walk.feed(buf, start, end)
        self._seen += end - start
        if was_done:
            return self._rest(end - start) if self._blank else None
        if self._walk.done:
            self._plan.count()
            if self._plan.names_brokers():
                self._blank = blank_tags(self._size - self._walk.at)
        return self._read_so_far(buf, start, end)

    def _read_so_far(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        """What was held and what is new, as far as it is read; blanks for the node endpoints behind."""
        unread = max(self._seen - self._walk.at, 0)
        blanks: list[Buffer] = []
        if self._blank:
            blanks = self._rest(unread)
        elif self._walk.done:
            unread = 0
        if not unread and not self._held:
            return None
        here = memoryview(buf)[start:end]
        held, self._held = self._held, b""
        if unread > len(here):  # it reaches back into bytes that were held before
            here, held = memoryview(held + bytes(here)), b""
        read = len(here) - unread
        if not self._walk.done:
            self._held = bytes(here[read:])
        return [held, here[:read], *blanks]

    def _rest(self, count: int) -> list[Buffer]:
        """The next bytes in the place of the node endpoints."""
        blanks, self._blank = self._blank[:count], self._blank[count:]
        return [blanks]
