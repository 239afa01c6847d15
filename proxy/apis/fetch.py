"""Fetch: key 1, versions 0-18. Counts bytes per topic as responses pass, and charges them to the consumer byte rate, to the rates
of topics, and to the rate of cold reads.

From version 16 on a response may name node endpoints at its very end (KIP-951). Up to `max_held_response` bytes such a
response is held until it is whole, and they are replaced; a larger one is passed on as it comes, and its endpoints,
should it have any, are blanked: the client then asks for metadata. Where rates of topics or of cold reads hold, older versions
are held in the same way: what a response owes is known behind its records, and its throttle time stands in front of them. One
whose first read says all of that, and that there are no endpoints, passes as it comes, whatever its size."""

from __future__ import annotations

from proxy.apis.streams import Delivery, Passing, held_or, may_go_on
from proxy.session.client import Client
from proxy.session.plans import Decided, Forward, Handling, Request, Stream
from proxy.wire.addresses import FETCH, holds_addresses, patch_addresses
from proxy.wire.fetch import FIRST_TOPIC_ID, VERSIONS, FetchSums, blank_tags, fetch_sums, read_fetch, sums_ahead
from proxy.wire.frames import Frame, Place, places_of
from proxy.wire.headers import RESPONSE_START, flexible
from proxy.wire.primitives import Buffer, as_bytes
from proxy.wire.walk import Walk


class Fetch:
    key = FETCH
    versions = VERSIONS

    def recognize(self, client: Client, version: int, _frame: Frame, _header_stop: int, /) -> Forward | None:
        """Nothing of a request needs to be read; all those of a connection have the same plan, as its answers come one by one."""
        if not may_go_on(client, FETCH):
            return None
        known = client.remembered.get(FETCH << 8 | version)
        if not isinstance(known, Forward):
            known = client.remembered[FETCH << 8 | version] = Forward(FetchPlan(client, version))
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
        if self._read([(as_bytes(buf), start, end)]):
            return self.told(self._patch(bytes(buf[start:end])))
        return self.told([buf[start:end]]) if self.throttled else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self.charge(sum(map(len, chunks)))
        return self.told(self._patch(b"".join(chunks)) if self._read(places_of(chunks)) else chunks)

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

    def _read(self, places: list[Place]) -> bool:
        return self._count(fetch_sums(places, self._version, self._body, self._lag()))

    def _lag(self) -> int:
        """Offsets behind the end of the log from which on a read is cold; -1 where that does not matter."""
        client = self._client
        return -1 if client.rules(client.now).cold is None else client.services.engine.cold_lag

    def _count(self, found: FetchSums) -> bool:
        """A response is read: add it to the sums of its topics. Does it end with node endpoints?"""
        for topic, carried in found.topics.items():
            total = self._client.topic_sum(FETCH, topic, by_id=self._version >= FIRST_TOPIC_ID)
            total.requests += 1
            total.record_bytes += carried
        if self._client.services.engine.limits_topic_out:
            self.charge_topics(found.topics, by_id=self._version >= FIRST_TOPIC_ID)
        self.charge_cold(found.cold)
        return found.root_tags > 0 and self._names_brokers

    def _patch(self, frame: bytes) -> list[Buffer]:
        return patch_addresses(FETCH, self._version, frame, self._client.endpoint) or [frame]
