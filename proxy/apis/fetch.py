"""Fetch: key 1, versions 0-18. Counts bytes per topic as responses pass. Charges nothing, refuses nothing yet.

From version 16 on a response may name node endpoints at its very end (KIP-951). Up to `max_held_response` bytes such a
response is held until it is whole, and they are replaced; a larger one is passed on as it comes, and its endpoints,
should it have any, are blanked: the client then asks for metadata."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import Forward, Outcome, Request, Stream
from proxy.wire.addresses import FETCH, holds_addresses, patch_addresses
from proxy.wire.fetch import FIRST_TOPIC_ID, VERSIONS, FetchSums, blank_tags, fetch_sums, read_fetch
from proxy.wire.frames import Frame, places_of
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import Buffer
from proxy.wire.walk import Walk


class Fetch:
    key = FETCH
    versions = VERSIONS

    def recognize(self, client: Client, version: int, frame: Frame, header_stop: int, now: float) -> Forward | None:  # noqa: ARG002
        """Nothing of a request needs to be read; all those of a connection have the same plan."""
        known: Forward | None = client.memo.get(FETCH << 8 | version)
        if known is None:
            known = client.memo[FETCH << 8 | version] = Forward(FetchPlan(client, version))
        return known

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        return Forward(FetchPlan(client, request.version))


class FetchPlan:
    """The responses to Fetch of one client, in one version."""

    __slots__ = ("_body", "_client", "_names_brokers", "_version", "mute", "waits")

    def __init__(self, client: Client, version: int) -> None:
        self._client, self._version = client, version
        self._body = RESPONSE_START.size + flexible(FETCH, version)
        self._names_brokers = holds_addresses(FETCH, version)
        self.mute = 0.0
        self.waits = False

    def holds(self, size: int) -> bool:
        return self._names_brokers and size <= self._client.services.max_held_response

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        found = fetch_sums([(bytes(buf), start, end)], self._version, self._body)
        self.count(found)
        return self._patch(bytes(buf[start:end])) if self.names_brokers(found) else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        found = fetch_sums(places_of(chunks), self._version, self._body)
        self.count(found)
        return self._patch(b"".join(chunks)) if self.names_brokers(found) else chunks

    def stream(self, size: int) -> Stream:
        return _FetchStream(self, self._version, size)

    def walk(self, found: FetchSums, size: int) -> Walk:
        """The reading of a response of so many bytes, 4-byte size included."""
        return Walk(read_fetch(found, self._version, self._body), size)

    def count(self, found: FetchSums) -> None:
        """A response is read: add it to the sums of its topics."""
        for topic, carried in found.topics.items():
            total = self._client.topic_sum(FETCH, topic, by_id=self._version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += carried

    def names_brokers(self, found: FetchSums) -> bool:
        """Does a response that is read end with node endpoints?"""
        return found.root_tags > 0 and self._names_brokers

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(FETCH, self._version, frame, self._client.endpoint) or [frame]


class _FetchStream:
    """A response that is read while it passes. Nothing goes on before it is read, a few bytes where a read ends in between."""

    __slots__ = ("_blank", "_found", "_held", "_plan", "_seen", "_size", "_walk")

    def __init__(self, plan: FetchPlan, version: int, size: int) -> None:
        self._plan, self._size = plan, size
        self._found = FetchSums(version)
        self._walk = plan.walk(self._found, size)
        self._seen = 0
        self._held = b""
        self._blank = b""

    def feed(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        was_done = self._walk.done
        if was_done:
            return self._rest(end - start) if self._blank else None
        self._walk.feed(buf, start, end)
        self._seen += end - start
        if self._walk.done:
            self._plan.count(self._found)
            if self._plan.names_brokers(self._found):
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
