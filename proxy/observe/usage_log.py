"""Intervals of the usage log, and who is how often in it.

In: the tally, decisions, two clocks. Out: lines for the writer; totals since the start for metrics. Without a writer (no
usage log wanted) it keeps the totals only. An interval is closed in steps of one row, between which clients are served: what they
do meanwhile is of the next one where its sum was closed already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from proxy.observe.activity import Activity
from proxy.observe.intervals import Interval, Intervals
from proxy.observe.lines import (
    Author,
    Holds,
    Line,
    api_label,
    decision_line,
    iso,
    latency_line,
    owned_line,
    producer_ids_line,
    usage_line,
)
from proxy.observe.writer import LogWriter
from proxy.session.latencies import Latencies, Place
from proxy.session.requester import Requester
from proxy.session.tally import Row, Tally
from quota.decision import Decision
from quota.entity import Entity
from quota.fair_share import FairShare
from quota.kinds.producer_ids import Usage
from quota.steps import Steps, finish_at_once

T = TypeVar("T")

Busiest = Callable[[], Steps[tuple[float, list[tuple[str, Usage]]]]]
"""The window of producer ids in seconds, and how the users stand that have most of them."""
LINES_AT_ONCE: Final = 20
"""Lines that are made and handed over together. The thread that writes them keeps the event loop waiting for as long as their JSON
takes."""

PRODUCE: Final = 0
PER_PRINCIPAL: Final = 10
"""How many times as many decisions of a principal are logged in an interval as of one quota and entity."""
MOST_LEFT_OUT: Final = 10_000
"""Quotas and entities with decisions that were left out, which are counted in a later line; each principal has its share."""
OWNED_EVERY: Final = 60.0
"""Seconds between two lines about what somebody has: of intervals that are shorter, those write it in which one of these ends."""
SHORTEST: Final = 0.1
"""Seconds that an interval counts at least: one that is cut short by the end of the proxy says little of a rate."""


class UsageLog:
    """`wall` gives seconds since the epoch, `clock` monotonic ones; both without a cache, as they are compared. `length` of an
    interval in seconds; `jumped` is told by how many seconds the wall clock was set. One object per proxy, on the event loop."""

    def __init__(
        self,
        tally: Tally,
        author: Author,
        writer: LogWriter | None,
        decisions_per_interval: int,
        wall: Callable[[], float],
        clock: Callable[[], float],
        busiest: Busiest | None = None,
        *,
        length: float = 10.0,
        jumped: Callable[[float], None] = lambda _: None,
        latencies: Latencies | None = None,
    ) -> None:
        """`busiest` gives the users with most producer ids; its argument is the number of lines to write. `latencies`: how long
        requests take."""
        self._tally, self._author, self._writer, self._wall = tally, author, writer, wall
        self._busiest = busiest
        self.holdings: Callable[[], Steps[list[Holds]]] | None = None
        """what tenants, users and topics have; only asked where there is a log"""
        self._allowed = decisions_per_interval
        self._clock, self._jumped = clock, jumped
        self.latencies = latencies or Latencies()
        self._counted: dict[Place, list[int]] = {}
        """what the latencies were when the last interval was closed"""
        self._intervals = Intervals(length, clock(), wall())
        self._closing: Steps[None] | None = None
        """what is left to do of an interval that has ended"""
        self._logged: Counter[tuple[str, Entity] | str] = Counter()
        """lines of the running interval, by quota and entity, and by principal"""
        self._left_out: dict[tuple[str, Entity], tuple[str, int]] = {}
        """who caused them, and how many"""
        self._left_out_shares = FairShare(MOST_LEFT_OUT)
        self.requests: Counter[str] = Counter()
        self.request_bytes: Counter[str] = Counter()
        self.response_bytes: Counter[str] = Counter()
        """Totals of the intervals that were closed, by API."""
        self.activity = Activity()
        self.produced: dict[str, float] = {}
        """Bytes per second of record batches that users produced in the last interval, by name."""
        self.took: list[tuple[Place, list[int]]] = []
        """How long requests of the last interval took, counted by duration; only places with any."""

    @property
    def dropped(self) -> int:
        """Lines lost since the start."""
        return self._writer.dropped if self._writer else 0

    @property
    def waiting(self) -> int:
        """Lines that wait for the disk."""
        return self._writer.waiting if self._writer else 0

    def decided(self, decision: Decision, by: Requester, mode: str = "enforce") -> None:
        """Log a decision, unless its quota and entity, or its principal, had their share of this interval: then it is counted in
        the next line of its quota and entity."""
        if self._writer is None:
            return
        key, principal = (decision.quota, decision.entity), by.principal
        if self._logged[principal] >= self._allowed * PER_PRINCIPAL or self._logged.get(key, 0) >= self._allowed:
            self._leave_out(key, principal)
            return
        self._logged[key] += 1
        self._logged[principal] += 1
        line = decision_line(self._author, decision, by, iso(self._wall()), self._taken_left_out(key), mode)
        self._writer.put([line], principal)

    def _leave_out(self, key: tuple[str, Entity], principal: str) -> None:
        """Count it; not where its principal had decisions about too many entities left out already."""
        caused, count = self._left_out.get(key, (principal, 0))
        if count or self._left_out_shares.take(principal):
            self._left_out[key] = caused, count + 1

    def _taken_left_out(self, key: tuple[str, Entity]) -> int:
        if key not in self._left_out:
            return 0
        caused, count = self._left_out.pop(key)
        self._left_out_shares.give_back(caused)
        return count

    @property
    def due_in(self) -> float:
        """Seconds until the running interval is to be closed."""
        return max(self._intervals.due - self._clock(), 0.0)

    def closing(self, *, last: bool = False) -> Steps[None]:
        """The interval ends now: log its rows. If this was begun and given up for the last one, it is ended first. `last`: no
        other follows."""
        yield from self._end_closing()
        self._closing = self._closed(self._intervals.close(self._clock(), self._wall()), last=last)
        yield from self._end_closing()

    def close_interval(self, *, last: bool = False) -> None:
        """The same without a break."""
        finish_at_once(self.closing(last=last))

    def _end_closing(self) -> Steps[None]:
        if self._closing is not None:
            for _ in self._closing:
                yield
            self._closing = None

    def _closed(self, interval: Interval, *, last: bool) -> Steps[None]:
        rows: list[Row] = []
        produced: Counter[str] = Counter()
        self._logged.clear()
        for sums in self._tally.sums():
            if (row := self._tally.close(sums)) is not None:
                rows.append(row)
                self._add(row)
                if row.key.api_key == PRODUCE and row.record_bytes:
                    produced[row.key.principal.removeprefix("User:")] += row.record_bytes
            yield
        self.produced = {user: size / max(interval.seconds, SHORTEST) for user, size in produced.items()}
        self.took = yield from self._took()
        yield from self.activity.closed(interval.end, interval.seconds, rows)
        if self._writer is not None:
            times = (iso(interval.start), iso(interval.end))
            yield from self._put(rows, lambda row: usage_line(self._author, row, *times))
            yield from self._put(self.took, lambda it: latency_line(self._author, *it, *times))
            if self._busiest is not None:
                window, users = yield from self._busiest()
                active = [it for it in users if it[1].active]
                yield from self._put(active, lambda it: producer_ids_line(self._author, *it, window, *times))
            ended = interval.start // OWNED_EVERY != interval.end // OWNED_EVERY
            if self.holdings is not None and (last or ended):
                held = yield from self.holdings()
                yield from self._put(held, lambda it: owned_line(self._author, it, *times))
        if interval.jump:
            self._jumped(interval.jump)

    def _put(self, told: Sequence[T], make: Callable[[T], Line]) -> Steps[None]:
        """Hand over the lines about these, at once when they have their numbers: lines of decisions get theirs meanwhile."""
        assert self._writer is not None
        for start in range(0, len(told), LINES_AT_ONCE):
            self._writer.put([make(it) for it in told[start : start + LINES_AT_ONCE]])
            yield

    def _took(self) -> Steps[list[tuple[Place, list[int]]]]:
        """How long requests of the interval that ends now took."""
        found = []
        for place, durations in list(self.latencies):
            now, before = durations.counts, self._counted.get(place)
            if now != before:
                counts = now if before is None else [count - was for count, was in zip(now, before, strict=True)]
                if any(counts):
                    found.append((place, list(counts)))
                self._counted[place] = list(now)
            yield
        return found

    @property
    def on(self) -> bool:
        """True if a usage log is written."""
        return self._writer is not None

    def write(self, make: Callable[[Author, str], list[Line]]) -> None:
        """Log lines of another kind, made if there is a log: of this author, at this time."""
        if self._writer is not None:
            self._writer.put(make(self._author, iso(self._wall())))

    def stop(self) -> None:
        """Log what there is, and wait for the disk, two seconds at most."""
        self.close_interval(last=True)
        if self._writer is not None:
            self._writer.stop(2.0)

    def _add(self, row: Row) -> None:
        if row.key.topic is None:
            api = api_label(row.key.api_key)
            self.requests[api] += row.requests
            self.request_bytes[api] += row.request_bytes
            self.response_bytes[api] += row.response_bytes
