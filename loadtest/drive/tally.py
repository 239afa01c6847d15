"""What clients count. In: what happened, with times on the monotonic clock. Out: a `Report`. One tally belongs to one thread;
others may read its sums while it counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from loadtest.drive.job import Acknowledged, Report
from loadtest.drive.pace import Pace
from loadtest.payload import Runs
from loadtest.results.counts import SeriesRecorder, Throttle, Tick
from loadtest.results.histogram import Recorder, merge

LATE: Final = 1.0
"""Seconds after the end in which operations that were due before may still be sent or succeed, and count."""


RECORDS: Final = ("acknowledged_records", "aborted_records", "read_records")


class Records(dict[tuple[int, int], Runs]):
    """Sequences by producer and partition."""

    def add(self, producer: int, partition: int, sequence: int) -> bool:
        """Whether it is new."""
        runs = self.get((producer, partition))
        if runs is None:
            runs = self[producer, partition] = Runs()
        return runs.add(sequence)

    def told(self) -> list[Acknowledged]:
        return [Acknowledged(producer=producer, partition=n, runs=runs.pairs()) for (producer, n), runs in self.items()]


class Tally:
    """The counts of one client. An operation belongs to the time when it was due; with `by_end`, or without a rate, to the time
    when it succeeded: what left a queue long after it was due says nothing about a rate."""

    def __init__(self, pace: Pace, *, by_end: bool) -> None:
        self.pace = pace
        self._by_end = by_end or pace.rate is None
        self._offset = time.time() - time.monotonic()
        self.sums = Tick()
        self.acknowledged_records, self.aborted_records, self.read_records = Records(), Records(), Records()
        self._read_again = 0
        self._sent = self._acknowledged = self._bytes = 0
        self._failed: Counter[str] = Counter()
        self._latency, self._service, self._lag, self._series = Recorder(), Recorder(), Recorder(), SeriesRecorder()
        self._throttle = Throttle()

    def begun(self, due: float, now: float, count: int = 1, *, lag: bool = True) -> None:
        """Count operations as sent. `lag`: whether the driver itself was the reason for being late."""
        self.sums.sent += count
        self._series.sent(now + self._offset, count)
        if self._measured(due):
            self._sent += count
            if lag:
                self._lag.record(round((now - due) * 1e6))

    def done(self, due: float, sent: float, now: float, size: int = 0, count: int = 1, *, latency: bool = True) -> None:
        """Count operations that succeeded."""
        us = round((now - due) * 1e6) if latency else 0
        sums = self.sums
        sums.acknowledged += count
        sums.bytes += size
        sums.latency_max_us = max(sums.latency_max_us, us)
        at = now + self._offset
        self._series.acknowledged(at, us, size, count)
        counts = self._measured(now) if self._by_end else self._measured(due) and now < self.pace.end + LATE
        if counts:
            self._acknowledged += count
            self._bytes += size
        if latency and self._measured(due):
            self._latency.record(us, count)
            self._service.record(round((now - sent) * 1e6), count)

    def record(self, producer: int, partition: int, sequence: int) -> None:
        """The record was acknowledged, so it has to be found after the run."""
        self.acknowledged_records.add(producer, partition, sequence)

    def aborted(self, producer: int, partition: int, sequence: int) -> None:
        """The record's transaction was aborted, so it must not be found after the run."""
        self.aborted_records.add(producer, partition, sequence)

    def read(self, producer: int, partition: int, sequence: int) -> None:
        """A group's member was given the record."""
        self._read_again += not self.read_records.add(producer, partition, sequence)

    def failed(self, why: str, due: float, now: float, count: int = 1) -> None:
        self.sums.failed += count
        self._series.failed(now + self._offset, count)
        if self._measured(due):
            self._failed[why] += count

    def throttled(self, seconds: float, now: float) -> None:
        """An answer had a throttle time. It counts if some of that time is measured: a throttle of the warm-up may last longer."""
        ms = round(seconds * 1000)
        if ms > 0 and now + seconds > self.pace.measured:
            told = self._throttle
            told.count, told.sum_ms, told.max_ms = told.count + 1, told.sum_ms + ms, max(told.max_ms, ms)

    def refused(self, count: int) -> None:
        """A quota refused operations that will be tried again: they count as answers with a throttle time."""
        self._throttle.count += count

    def report(self, library: str) -> Report:
        for second, count in self.pace.seconds(self._offset):
            self._series.intended(second, count)
        paced = self.pace.rate is not None
        return Report(
            intended=self.pace.count(self.pace.measured, self.pace.end) if paced else self._sent,
            sent=self._sent,
            acknowledged=self._acknowledged,
            failed=dict(self._failed),
            bytes=self._bytes,
            latency=self._latency.histogram(),
            service=self._service.histogram(),
            lag=self._lag.histogram(),
            throttle=self._throttle,
            series=self._series.series(),
            acknowledged_records=self.acknowledged_records.told(),
            aborted_records=self.aborted_records.told(),
            read_records=self.read_records.told(),
            read_again=self._read_again,
            library=library,
        )

    def _measured(self, when: float) -> bool:
        return self.pace.measured <= when < self.pace.end


def sums_of(tallies: Sequence[Tally]) -> Tick:
    """The sums of all tallies. Their largest latencies are reset."""
    now = time.monotonic()
    sums = {name: sum(getattr(tally.sums, name) for tally in tallies) for name in ("sent", "acknowledged", "failed", "bytes")}
    longest = max((tally.sums.latency_max_us for tally in tallies), default=0)
    for tally in tallies:
        tally.sums.latency_max_us = 0
    intended = sum(tally.pace.count(tally.pace.start, min(now, tally.pace.end)) for tally in tallies)
    return Tick(intended=intended, latency_max_us=longest, **sums)


def merged(reports: Iterable[Report]) -> Report:
    """The sum of what several clients or processes counted."""
    some = list(reports)
    return Report(
        **Report.added(some),
        lag=merge(report.lag for report in some),
        **{name: [one for report in some for one in getattr(report, name)] for name in RECORDS},
        read_again=sum(report.read_again for report in some),
        library=next((report.library for report in some if report.library), ""),
    )
