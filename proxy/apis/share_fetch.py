"""ShareFetch: key 78, versions 1-2 (KIP-932). Counts bytes per topic as responses pass, and charges them to the consumer byte rate.

A response names node endpoints behind its records. Up to `max_held_response` bytes it is held until it is whole, and
they are replaced; a larger one is passed on as it comes, and its endpoints, should it have any, are blanked: the client
then asks for metadata. Version 0 was an early access, never stable, and is left out of ApiVersions."""

from __future__ import annotations

from proxy.apis.streams import Delivery, Passing, held_or
from proxy.session.client import Client
from proxy.session.plans import Decided, Forward, Handling, Place, Request, Stream
from proxy.wire.addresses import SHARE_FETCH, patch_addresses
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.share_fetch import VERSIONS, ShareFetchSums, blank_endpoints, read_share_fetch
from proxy.wire.walk import Walk


class ShareFetch:
    key = SHARE_FETCH
    versions = VERSIONS

    def request(self, client: Client, request: Request) -> Decided | Handling:
        return held_or(client, SHARE_FETCH, request.version, Forward(ShareFetchPlan(client, request.version)))


class ShareFetchPlan(Delivery):
    """The response of one ShareFetch."""

    __slots__ = ("_found",)

    def __init__(self, client: Client, version: int) -> None:
        super().__init__(SHARE_FETCH, version, client)
        self._found = ShareFetchSums()

    def holds(self, size: int) -> bool:
        return size <= self._client.services.max_held_response

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        self.charge(end - start)
        if self._read([(buf, start, end)]):
            return self.told(self._patch(bytes(buf[start:end])))
        return self.told([buf[start:end]]) if self.throttled else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self.charge(sum(map(len, chunks)))
        return self.told(self._patch(b"".join(chunks)) if self._read([(chunk, 0, len(chunk)) for chunk in chunks]) else chunks)

    def stream(self, size: int) -> Stream:
        self.charge(size)
        return self.passing(Passing(self._walk(size), size, self._count, blank_endpoints))

    def _walk(self, size: int) -> Walk:
        """The reading of a response of `size` bytes, 4-byte size included."""
        return Walk(read_share_fetch(self._found, RESPONSE_START.size + flexible(SHARE_FETCH, self._version)), size)

    def _read(self, places: list[Place]) -> bool:
        walk = self._walk(sum(end - start for _, start, end in places))
        for place in places:
            walk.feed(*place)
        if not walk.done:
            raise BadBytes("a ShareFetch response ends too early")
        return self._count()

    def _count(self) -> bool:
        """The response is read: add it to the sums of its topics. Does it end with node endpoints?"""
        self.count_topics(self._found.topics, by_id=True)
        return self._found.endpoints > 0

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(SHARE_FETCH, self._version, frame, self._client.endpoint) or [frame]
