"""ShareFetch: key 78, versions 1-2 (KIP-932). Counts bytes per topic as responses pass. Charges nothing, refuses nothing.

A response names node endpoints behind its records. Up to `max_held_response` bytes it is held until it is whole, and
they are replaced; a larger one is passed on as it comes, and its endpoints, should it have any, are blanked: the client
then asks for metadata. Version 0 was an early access, never stable, and is left out of ApiVersions."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import Forward, Outcome, Place, Plain, Request, Stream
from proxy.wire.addresses import SHARE_FETCH, patch_addresses
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.share_fetch import VERSIONS, ShareFetchSums, blank_endpoints, read_share_fetch
from proxy.wire.walk import Walk


class ShareFetch(Plain):
    key = SHARE_FETCH
    versions = VERSIONS

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        return Forward(ShareFetchPlan(client, request.version))


class ShareFetchPlan:
    """The response of one ShareFetch."""

    __slots__ = ("_client", "_found", "_version", "mute", "waits")

    def __init__(self, client: Client, version: int) -> None:
        self._client, self._version = client, version
        self._found = ShareFetchSums()
        self.mute = 0.0
        self.waits = False

    def holds(self, size: int) -> bool:
        return size <= self._client.services.max_held_response

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        self._read([(buf, start, end)])
        return self._patch(bytes(buf[start:end])) if self.names_brokers else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self._read([(chunk, 0, len(chunk)) for chunk in chunks])
        return self._patch(b"".join(chunks)) if self.names_brokers else chunks

    def stream(self, size: int) -> Stream:
        return _ShareFetchStream(self, size)

    def walk(self, size: int) -> Walk:
        """The reading of a response of so many bytes, 4-byte size included."""
        return Walk(read_share_fetch(self._found, RESPONSE_START.size + flexible(SHARE_FETCH, self._version)), size)

    def count(self) -> None:
        """The response is read: add it to the sums of its topics."""
        for topic, carried in self._found.topics.items():
            total = self._client.topic_sum(SHARE_FETCH, topic, by_id=True)
            total.requests += 1
            total.record_bytes += carried

    @property
    def names_brokers(self) -> bool:
        """Does the response, now that it is read, end with node endpoints?"""
        return self._found.endpoints > 0

    def _read(self, places: list[Place]) -> None:
        walk = self.walk(sum(end - start for _, start, end in places))
        for place in places:
            walk.feed(*place)
        if not walk.done:
            raise BadBytes("a ShareFetch response ends too early")
        self.count()

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(SHARE_FETCH, self._version, frame, self._client.endpoint) or [frame]


class _ShareFetchStream:
    """A response that is read while it passes. Nothing goes on before it is read: the end of a read that says too little
    waits for the next one, a few bytes as a rule."""

    __slots__ = ("_blank", "_held", "_plan", "_seen", "_size", "_walk")

    def __init__(self, plan: ShareFetchPlan, size: int) -> None:
        self._plan, self._size = plan, size
        self._walk = plan.walk(size)
        self._seen = 0
        self._held = b""
        self._blank = b""

    def feed(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        was_done = self._walk.done
        if was_done:
            return self._rest(end - start) if self._blank else None
        self._walk.feed(buf, start, end)
        self._seen += end - start
        here = memoryview(buf)[start:end]
        if self._walk.done:
            return self._last(here)
        unread = max(self._seen - self._walk.at, 0)
        if not unread and not self._held:
            return None
        self._held, passed = self._split(here, unread)
        return passed

    def _last(self, here: memoryview) -> list[Buffer]:
        """All is read, with these bytes, that has to be."""
        self._plan.count()
        if not self._plan.names_brokers:
            held, self._held = self._held, b""
            return [held, here]
        self._blank = blank_endpoints(self._size - self._walk.at)
        behind, passed = self._split(here, self._seen - self._walk.at)
        self._held = b""
        return [*passed, *self._rest(len(behind))]

    def _split(self, here: memoryview, unread: int) -> tuple[bytes, list[Buffer]]:
        """(the last `unread` bytes of what was held and what is new, the rest of it)."""
        if unread > len(here):
            here = memoryview(self._held + bytes(here))
            return bytes(here[len(here) - unread :]), [here[: len(here) - unread]]
        stop = len(here) - unread
        return bytes(here[stop:]), [self._held, here[:stop]]

    def _rest(self, count: int) -> list[Buffer]:
        """The next bytes in the place of the node endpoints."""
        blanks, self._blank = self._blank[:count], self._blank[count:]
        return [blanks]
