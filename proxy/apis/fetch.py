"""Fetch: key 1, versions 0-18. Counts bytes per topic as responses pass, and charges them to the consumer byte rate, to the rates
of topics, and to the rate of cold reads.

From version 16 on a response may name node endpoints at its very end (KIP-951). Up to `max_held_response` bytes such a
response is held until it is whole, and they are replaced; a larger one is passed on as it comes, and its endpoints,
should it have any, are blanked: the client then asks for metadata. Where rates of topics or of cold reads hold, older versions
are held in the same way: what a response owes is known behind its records, and its throttle time stands in front of them. One
whose first read says all of that, and that there are no endpoints, passes as it comes, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.apis.streams import Delivery, Passing, held_or, may_go_on
from proxy.session.client import Client
from proxy.session.plans import AlikeRequests, Decided, Forward, Handling, Request, Stream
from proxy.wire.addresses import FETCH, holds_addresses, patch_addresses
from proxy.wire.fetch import FIRST_TOPIC_ID, VERSIONS, FetchSums, blank_tags, fetch_sums, read_fetch, sums_ahead, usual_sums
from proxy.wire.frames import places_of
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import Buffer, as_bytes, int16
from proxy.wire.runs import Run, unread_requests
from proxy.wire.walk import Walk

if TYPE_CHECKING:
    from mypy_extensions import i64


class Fetch(AlikeRequests):
    key = FETCH
    versions = VERSIONS

    def run(self, client: Client, data: bytes, start: i64, most: i64, largest: i64) -> Run | None:
        """Nothing of a request needs to be read but its header."""
        version, claimed = int16(data, start + 6), client.raw_client_id
        if not claimed or not VERSIONS[0] <= version <= VERSIONS[1]:
            return None
        return unread_requests(data, start, most, largest, claimed)

    def take(self, client: Client, run: Run) -> Forward | None:
        """All requests of a connection have the same plan, as its answers come one by one."""
        if not may_go_on(client, FETCH):
            return None
        kind: int = FETCH << 8 | run.version
        known = client.remembered.get(kind)
        if not isinstance(known, Forward):
            known = client.remembered[kind] = Forward(FetchPlan(client, run.version))
        return known

    def request(self, client: Client, request: Request) -> Decided | Handling:
        return held_or(client, FETCH, request.version, Forward(FetchPlan(client, request.version)))


class FetchPlan(Delivery):
    """The responses to Fetch of one client, in one version."""

    __slots__ = ("_body", "_names_brokers")

    def __init__(self, client: Client, version: int) -> None:
        super().__init__(FETCH, version, client)
        self._body = RESPONSE_START.size + flexible(FETCH, version)
        self._names_brokers = holds_addresses(FETCH, version)

    def holds(self, size: int) -> bool:
        client = self._client
        if size > client.services.max_held_response:
            return False
        return self._names_brokers or client.services.engine.limits_topic_out or client.rules(client.now).cold is not None

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        self.charge(end - start)
        if self._count(usual_sums(as_bytes(buf), start, end, self._version, self._body, self._lag())):
            return self.told(self._patch(bytes(buf[start:end])))
        return self.told([buf[start:end]]) if self.throttled else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self.charge(sum(map(len, chunks)))
        found = fetch_sums(places_of(chunks), self._version, self._body, self._lag())
        return self.told(self._patch(b"".join(chunks)) if self._count(found) else chunks)

    def begin(self, buf: bytes, start: int, size: int) -> list[Buffer] | None:
        """Most large responses have one partition with many bytes, or end with it: then the first read says all."""
        found = sums_ahead(buf, start, size, self._version, self._body, self._lag())
        if found is None:
            return None
        self.charge(size)
        self._count(found)
        return self.told([memoryview(buf)[start:]]) if self.throttled else []

    def stream(self, size: int) -> Stream:
        self.charge(size)
        found = FetchSums(self._version, self._lag())
        walk = Walk(read_fetch(found, self._version, self._body), size)
        return self.passing(Passing(walk, size, lambda: self._count(found), blank_tags))

    def _lag(self) -> int:
        """Offsets behind the end of the log from which on a read is cold; -1 where that does not matter."""
        client = self._client
        return -1 if client.rules(client.now).cold is None else client.services.engine.cold_lag

    def _count(self, found: FetchSums) -> bool:
        """A response is read: add it to the sums of its topics. Does it end with node endpoints?"""
        self.count_topics(found.topics, by_id=self._version >= FIRST_TOPIC_ID)
        self.charge_cold(found.cold)
        return found.root_tags > 0 and self._names_brokers

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(FETCH, self._version, frame, self._client.endpoint) or [frame]
