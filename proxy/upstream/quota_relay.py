"""The quotas topic of several workers: their supervisor reads and writes it once, for all of them.

In: the topic, at the supervisor; a channel, at a worker. Out: a `QuotaStore` for each worker, with the records in the order of the
topic. The supervisor keeps the last record of each key, numbered in the order in which they came. A worker asks for what comes
behind the last one that it has, and waits where there is nothing; so one that is started again gets all there are, and one that is
slow gets less, but never something old."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

import orjson

from proxy.backoff import Backoff, retry
from proxy.cluster.quota_records import BY, Header, Record
from proxy.fleet.channel import Answers, Channel, ChannelError
from proxy.observe.operations import Log
from proxy.upstream.connector import TopicError
from proxy.upstream.quota_store import QuotaStore, Reader, Written

MAX_KEYS: Final = 20_000
"""Records that are kept for workers that start: twice the limits that may be set while proxies run."""
AT_ONCE: Final = 500
"""Records of one answer."""
WRITTEN_WITHIN: Final = 30.0
"""Seconds for the supervisor to write, which has limits of its own that are shorter, and for the worker to read it."""
FIRST_RETRY, SLOWEST_RETRY = 0.1, 5.0
_NOT_READ: Final = "it was not read yet"
_GONE: Final[list[Header]] = [(BY, orjson.dumps({"principal": "the topic, read again"}))]
"""Who takes away a limit whose record is no longer there."""

_Row = list[Any]
"""A record in JSON: offset, key, value, headers; text for bytes, a character each."""


class Kept(NamedTuple):
    """A record as `Written` has it, with its number in place of an offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    def row(self) -> _Row:
        headers = [[name, _text(value)] for name, value in self.headers]
        return [self.offset, _text(self.key), _text(self.value), headers]


class QuotaRelay:
    """The supervisor's part: a `Reader` of the topic, which answers workers."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.topic: QuotaStore
        self._kept: dict[bytes | None, Kept] = {}
        """by key, in the order of their numbers"""
        self._again: dict[bytes | None, Written] | None = None
        """what was read so far, while the topic is read from its beginning"""
        self._read = False
        self._last = self._forgotten = 0
        """numbers: of the last record, of the last removal that is no longer kept"""
        self._states = 1
        """Number of the state of the topic: whether it was read, and can be written."""
        self._changed = asyncio.Event()
        self._full = False

    # ------------------------------------------------------------------ Reader

    def begin(self) -> None:
        self._again = {}

    def take(self, records: Sequence[Written]) -> None:
        for record in records:
            if self._again is None:
                self._keep(record.key, record.value, record.headers)
            elif record.key in self._again or len(self._again) < MAX_KEYS:
                self._again[record.key] = record
        self._wake()

    def complete(self, *, nothing_ever: bool) -> Sequence[Record]:
        assert self._again is not None
        read, self._again = self._again, None
        if nothing_ever and (
            lost := [Record(it.key, it.value, [*it.headers]) for it in self._kept.values() if it.key and it.value]
        ):
            return lost
        for key in [it.key for it in self._kept.values() if it.value is not None and it.key not in read]:
            self._keep(key, None, _GONE)
        for key, record in read.items():
            kept = self._kept.get(key)
            if kept is None or kept.value != record.value:
                self._keep(key, record.value, record.headers)
        self._read = True
        self.look()
        return ()

    def _keep(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        """As the newest."""
        if self._kept.pop(key, None) is None and len(self._kept) >= MAX_KEYS:
            self._forget_removals()
            if len(self._kept) >= MAX_KEYS:
                if not self._full:
                    self._log.error(
                        "quota records not kept", keys=MAX_KEYS, detail="the topic has more keys than limits may be set"
                    )
                self._full = True
                return
        self._last += 1
        self._kept[key] = Kept(self._last, key, value, headers)

    def _forget_removals(self) -> None:
        """Only workers that have not read them need them, and begin anew."""
        for it in [it for it in self._kept.values() if it.value is None]:
            del self._kept[it.key]
            self._forgotten = max(self._forgotten, it.offset)

    # ------------------------------------------------------------------ what workers ask

    def look(self) -> None:
        """The topic can be used, or cannot any more."""
        self._states += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, number: int, state: int) -> list[Any]:
        """What comes behind this record, for a worker that has seen this state of the topic: the state, why nothing can be written,
        whether the topic was looked at, whether it was read, whether what the worker has is to be forgotten, the number of the
        last record, and records."""
        while state == self._states and not (self._read and self._last > number):
            await self._changed.wait()
        anew = 0 < number < self._forgotten
        rows = [record.row() for record in self._behind(0 if anew else number)] if self._read else []
        return [self._states, self.topic.why_not, self.topic.settled.is_set(), self._read, anew, self._last, rows]

    def _behind(self, number: int) -> Iterator[Kept]:
        newest_first = takewhile(lambda it: it.offset > number, reversed(self._kept.values()))
        return islice(reversed([*newest_first]), AT_ONCE)

    async def write(self, rows: Sequence[_Row]) -> list[Any]:
        """The number of the last record once these are read, or why they were not written."""
        try:
            await self.topic.write([Record(it.key or b"", it.value, [*it.headers]) for it in map(_kept, rows)])
        except TopicError as e:
            return [0, str(e)]
        return [self._last, None]

    def answers(self) -> Answers:
        return {"quotas_after": self.after, "write_quotas": self.write}


class RelayedQuotas:
    """The worker's part: a `QuotaStore`. `name`: of the topic."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name, self._channel = name, channel
        self.reader: Reader
        self.settled = asyncio.Event()
        self._why_not: str | None = _NOT_READ
        self._position, self._state = 0, 0
        self._complete = False
        self._moved = asyncio.Condition()

    @property
    def why_not(self) -> str | None:
        return self._why_not or (None if self._complete else _NOT_READ)

    async def run(self) -> None:
        def failed(error: Exception) -> None:
            self._why_not, self._state = f"the supervisor does not tell: {error}", 0

        self.reader.begin()
        await retry(self._follow, Backoff(FIRST_RETRY, SLOWEST_RETRY), failed, ChannelError)

    async def write(self, records: Sequence[Record]) -> None:
        if self.why_not is not None:
            raise TopicError(f"the topic {self.name} cannot be written: {self.why_not}")
        rows = [Kept(0, *record).row() for record in records]
        try:
            async with asyncio.timeout(WRITTEN_WITHIN):
                last, refused = await self._channel.ask("write_quotas", rows)
                if refused is not None:
                    raise TopicError(refused)
                async with self._moved:
                    await self._moved.wait_for(lambda: self._position >= last)
        except ChannelError as e:
            raise TopicError(f"the change may not take effect: {e}") from None
        except TimeoutError:
            raise TopicError("the supervisor of the workers takes long; the change may still take effect") from None

    async def _follow(self) -> None:
        """Ask once, and take what is told."""
        told = await self._channel.ask("quotas_after", self._position, self._state)
        self._state, self._why_not, settled, read, anew, last, rows = told
        if anew:
            self.reader.begin()
            self._complete = False
        if rows:
            self.reader.take([_kept(row) for row in rows])
            async with self._moved:
                self._position = rows[-1][0]
                self._moved.notify_all()
        if read and not self._complete and self._position >= last:
            self.reader.complete(nothing_ever=False)
            self._complete = True
        if settled and (self._complete or not read):
            self.settled.set()


def _kept(row: _Row) -> Kept:
    offset, key, value, headers = row
    return Kept(offset, _bytes(key), _bytes(value), [(name, _bytes(text) or b"") for name, text in headers])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
