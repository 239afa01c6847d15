"""The state of a store, as the records of a ledger topic make it. In: records in their order. Out: the state, which is the same for
all who have read as far.

The log loses its beginning after a time, so its readers begin at a snapshot. A snapshot is of the state after an earlier record,
its *base*, as others write meanwhile; who has no state takes it and reads on behind the base (`next_offset` goes back). Who has a
state ignores it.

Where no state is found, a proxy writes a new generation (`Genesis`). Several may do so at once: the first one counts, as the others
have another one between their base and themselves. So has a snapshot of a state that is not in force any more. Every reader can
tell that from records behind the base, so all of them agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.fleet.log_records import BadRecord, Genesis, LogUpdate, SnapshotPart, decode
from proxy.fleet.shared_log import LogRecord
from proxy.fleet.shared_state import SharedState
from proxy.fleet.store import Reply

TOTALS: Final = 2000
"""Totals in one part of a snapshot."""
SNAPSHOTS: Final = 4
"""Snapshots that may be read at the same time."""
SET_BACK: Final = 10.0
"""Seconds: a clock of the log that goes back by less stands still, and one that goes back by more was set."""


class Replica:
    """What the records from `start` on make."""

    def __init__(self, start: int) -> None:
        self._start = self.next_offset = start
        self.state: SharedState | None = None
        self.clock = 0.0
        """time of the last record that was read"""
        self.since_snapshot = self.snapshot_size = 0
        """bytes of records since a snapshot was written, and of that one"""
        self._genesis = -1
        """offset of the last one"""
        self._parts: dict[str, dict[int, SnapshotPart]] = {}
        self._part_sizes = 0

    def take(self, record: LogRecord) -> tuple[LogUpdate, Reply] | None:
        """The next record. Returns an update with its answer, if it was one. `next_offset` tells which one comes then. `BadRecord`
        for one that makes no sense; it is passed over."""
        self.next_offset = record.offset + 1
        self.since_snapshot += len(record.value)
        back = self.clock - record.written_at
        if back <= 0 or back > SET_BACK:
            self.clock = record.written_at
        match decode(record.value):
            case LogUpdate() as told:
                if self.state is not None:
                    return told, self.state.apply(told.boot, told.update, told.count_for, self.clock)
            case Genesis() as told:
                self._begin(told, record.offset)
            case SnapshotPart() as told:
                self._take_part(told, len(record.value))
        return None

    def snapshot(self, name: str) -> Iterator[SnapshotPart]:
        """The parts of a snapshot of the state as it is when the first one is asked for."""
        assert self.state is not None
        head, totals = self.state.rows(self.clock)
        base, parts = self.next_offset - 1, max(-(-len(totals) // TOTALS), 1)
        first = [self.state.generation, self.clock, self._genesis, head]
        for part in range(parts):
            rows = totals[part * TOTALS : (part + 1) * TOTALS]
            yield SnapshotPart(name, part, parts, base, [first if part == 0 else None, rows])

    def _begin(self, told: Genesis, offset: int) -> None:
        known_since = 0 if self.state is not None else self._start
        if told.base >= self._genesis and told.base + 1 >= known_since:
            self.state = SharedState(told.generation)
            self._parts.clear()
        self._genesis = offset

    def _take_part(self, told: SnapshotPart, size: int) -> None:
        if told.part == 0:
            self._part_sizes = 0
        self._part_sizes += size
        if self.state is None and told.base >= self._genesis and told.base + 1 >= self._start:
            found = self._parts.setdefault(told.name, {})
            found[told.part] = told
            if len(found) == told.parts:
                self._restore([found[part] for part in range(told.parts)])
            elif len(self._parts) > SNAPSHOTS:
                del self._parts[next(iter(self._parts))]
        if told.part == told.parts - 1:
            self.since_snapshot, self.snapshot_size = 0, self._part_sizes

    def _restore(self, parts: list[SnapshotPart]) -> None:
        """Take this state, and go back to its base."""
        self._parts.clear()
        try:
            generation, clock, genesis, head = parts[0].rows[0]
            state = SharedState(str(generation))
            state.restore(head, [])
            for part in parts:
                state.restore([], part.rows[1])
            self.clock, self._genesis = float(clock), int(genesis)
        except (TypeError, ValueError, LookupError, OverflowError):
            raise BadRecord("it is no snapshot") from None
        self.state, self.next_offset = state, parts[0].base + 1
