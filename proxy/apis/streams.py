"""Answers with records, to Fetch and ShareFetch: counted by topic, charged to the consumer byte rate, read while they pass.

They are charged when their size is known, that is when they begin, go out whole, and tell of the throttle if there is one; then
the client is muted. A broker would send nothing instead and have the client ask again: here the records are there already.
The larger ones stream; node endpoints at their end (KIP-951) are then blanked in place."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from proxy.session.client import Client
from proxy.session.plans import Decided, Forward, FrequentPlan, Handling, Hold, Stream
from proxy.session.throttled import Telling
from proxy.wire.addresses import FETCH, SHARE_FETCH
from proxy.wire.primitives import Buffer
from proxy.wire.throttle import tell, throttle_place
from proxy.wire.walk import TopicPart, Walk
from quota.rules import COLD, Metered, Rules

RECORDS: Final = (FETCH, SHARE_FETCH)
"""APIs whose answers have records of topics."""


def held_or(client: Client, key: int, version: int, otherwise: Forward) -> Decided | Handling:
    """What becomes of a request for records: it is held while its entity is muted on another connection."""
    seconds = _hold(client, key, version, held=False)
    return _held(client, key, version, otherwise, seconds) if seconds else otherwise


def _held(client: Client, key: int, version: int, otherwise: Forward, seconds: float) -> Handling:
    while seconds:
        yield Hold(seconds)
        seconds = _hold(client, key, version, held=True)
    return otherwise


def may_go_on(client: Client, key: int) -> bool:
    """Need no request for records wait now?"""
    now = client.now
    return _have_room(client.rules(now), key, now)


def _have_room(rules: Rules, key: int, now: float) -> bool:
    """Is no rate exceeded that such a request waits for?"""
    rate = rules.answers.get(key)
    if rate is not None and not rate.has_room(0, now):
        return False
    if key in RECORDS:
        for of_topic in rules.read.values():
            if not of_topic.has_room(0, now):
                return False
    return True


def _hold(client: Client, key: int, version: int, *, held: bool) -> float:
    """Seconds for which it has to wait now; `held`: it has waited before. It waits for the rates of topics that its client has read
    from, too: which topics a request is about depends on those before it (KIP-227)."""
    now, seconds = client.now, 0.0
    rules = client.rules(now)
    if _have_room(rules, key, now):
        return 0.0
    for rate in (rules.answers.get(key), *(rules.read.values() if key in RECORDS else ())):
        if rate is not None and not rate.has_room(0, now):
            seconds = max(seconds, client.hold_rate(rate, key, version, now, held=held))
    return seconds


class Delivery(FrequentPlan):
    """The plan for such answers. One that is over the limit mutes the client when it is out; requests behind it do not wait for
    it before, as its size is not known then."""

    __slots__ = ("_client", "_key", "_until", "_version")

    def __init__(self, key: int, version: int, client: Client) -> None:
        super().__init__()
        self._key, self._version, self._client = key, version, client
        self._until = 0.0  # when the throttle of the answer ends that is passing or passed last; 0 without one

    @property
    def mute(self) -> float:
        """Seconds that are left of the throttle."""
        return max(self._until - self._client.now, 0.0) if self._until else 0.0

    @property
    def throttled(self) -> bool:
        """True if the answer that is passing tells of a throttle."""
        return self._until > 0

    def charge(self, size: int) -> None:
        """An answer of `size` bytes begins."""
        client, now = self._client, self._client.now
        rate = client.rules(now).answers.get(self._key)
        self._until = 0.0
        if rate is not None and not rate.take(size, now):
            self._charge(rate, size, now)

    def count_topics(self, topics: list[TopicPart], *, by_id: bool) -> None:
        """An answer has this of topics: add it to their sums and charge it to their rates. Of one that streams it is known when its
        beginning has gone out: its client is muted behind it and not told. So only those stream that are too large to be held."""
        client, now = self._client, self._client.now
        rules, limited = client.rules(now), client.services.engine.limits_topic_out
        known = rules.read_by[by_id]
        for part in topics:
            topic = part.topic
            size: int = part.size
            total = client.topic_sum(self._key, topic, by_id=by_id)
            total.requests += 1
            total.record_bytes += size
            if not size or not limited:
                continue
            rate = known.get(topic)
            if rate is None:
                rate = rules.topic_read(topic, client.services.cluster.topic_name if by_id else None)
            if rate is not None and not rate.take(size, now):
                self._charge(rate, size, now)

    def charge_cold(self, size: int) -> None:
        """Of an answer, so many bytes are far behind the end of the log. The next request waits if the answer was such a one."""
        rules = self._client.rules(self._client.now)
        rate = rules.cold
        if rate is None or not size:
            if COLD in rules.read:
                del rules.read[COLD]
            return
        rules.read[COLD] = rate
        now = self._client.now
        if not rate.take(size, now):
            self._charge(rate, size, now)

    def _charge(self, rate: Metered, size: int, now: float) -> None:
        throttle = self._client.charge_rate(rate, size, self._key, self._version, now)
        if throttle:
            self._until = max(self._until, now + throttle)
        else:
            self._client.would_have(self._key, self._version)

    def told(self, pieces: list[Buffer]) -> list[Buffer]:
        """A whole answer, which tells of the throttle."""
        return tell(self._key, self._version, pieces, ceil(self.mute * 1000)) if self.throttled else pieces

    def passing(self, stream: Stream) -> Stream:
        """The same for one that streams."""
        if not self.throttled:
            return stream
        return Telling(stream, throttle_place(self._key, self._version), ceil(self.mute * 1000))


class Passing:
    """A response of `size` bytes that is read while it passes. Nothing goes on before it is read: the end of a read that says too
    little waits for the next one, a few bytes as a rule. `done` is called once all is read that has to be, and says whether node
    endpoints stand behind; `blank` makes this number of bytes, which say that there are none."""

    __slots__ = ("_blank", "_blanks", "_done", "_held", "_seen", "_size", "_walk")

    def __init__(self, walk: Walk, size: int, done: Callable[[], bool], blank: Callable[[int], bytes]) -> None:
        self._walk, self._size, self._done, self._blank = walk, size, done, blank
        self._seen = 0
        self._held = b""
        self._blanks = b""

    def feed(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        was_done = self._walk.done
        if was_done:
            return self._rest(end - start) if self._blanks else None
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

    def _last(self, here: memoryview) -> list[Buffer] | None:
        """All is read, with these bytes, that has to be."""
        names_brokers = self._done()
        if not names_brokers:
            held, self._held = self._held, b""
            return [held, here] if held else None
        self._blanks = self._blank(self._size - self._walk.at)
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
        blanks, self._blanks = self._blanks[:count], self._blanks[count:]
        return [blanks]
