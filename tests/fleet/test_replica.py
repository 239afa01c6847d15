"""Copies of the ledger that read the same log agree, wherever they begin to read it, and whatever somebody else writes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fleet.log_records import TICK, BadRecord, Genesis, LogUpdate, SnapshotPart, decode, decode_event, is_update
from proxy.fleet.replica import Replica
from proxy.fleet.shared_log import LogRecord
from quota.ledger import Answer, Change, Update

KEYS = ("rate/alice/-/-", "rate/bob/-/-", "rate/c%2Fd/-/t")
PROXIES = ("a", "b", "c")


def change(key: str = KEYS[0], delta: int = 0, level: float | None = None, keep: float = 100.0) -> Change:
    return Change(key, delta, level, False, keep)


class Journal:
    """A log, and who has read all of it."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.now = 1000.0
        self.first = Replica(0)
        self.answers: list[Answer] = []
        """of it"""
        self.numbers = dict.fromkeys(PROXIES, 0)

    def add(self, *values: bytes) -> None:
        for value in values:
            self.records.append(LogRecord(len(self.records), self.now, value))
            self.answers += read(self.first, self.records)

    def begin(self, generation: str = "g", base: int | None = None) -> None:
        self.add(Genesis(len(self.records) - 1 if base is None else base, generation).encoded())

    def update(self, boot: str, *changes: Change, generation: str = "g", again: bool = False) -> None:
        self.numbers[boot] += not again
        number = max(self.numbers[boot], 1)
        self.add(LogUpdate(boot, Update(0, number, generation, changes), 5.0).encoded())

    def snapshot(self) -> list[bytes]:
        return [part.encoded() for part in self.first.snapshot(f"s{len(self.records)}")]


def read(replica: Replica, records: Sequence[LogRecord]) -> list[Answer]:
    """Read to the end; the answers to updates on the way."""
    answers = []
    while replica.next_offset < len(records):
        try:
            found = replica.take(records[replica.next_offset])
        except BadRecord:
            continue
        if found is not None:
            answers.append(found[1].answer)
    return answers


def known(replica: Replica) -> object:
    """All that a replica knows, in no order."""
    if replica.state is None:
        return None
    head, totals = replica.state.rows(replica.clock)
    tidy = [[number, sorted(proxies), sorted(present)] for number, proxies, present in head]
    return replica.state.generation, replica.clock, tidy, sorted(totals)


STEP = st.one_of(
    st.tuples(st.just("update"), st.sampled_from(PROXIES), st.sampled_from(KEYS), st.integers(-50, 500), st.booleans()),
    st.tuples(st.just("level"), st.sampled_from(PROXIES), st.sampled_from(KEYS), st.floats(0, 1e6), st.floats(0, 200)),
    st.tuples(st.just("again"), st.sampled_from(PROXIES), st.sampled_from(KEYS), st.integers(1, 500)),
    st.tuples(st.just("time"), st.sampled_from([0.001, 1.0, 60.0, 150.0, 700.0, -3.0, -3600.0])),
    st.tuples(st.just("foreign"), st.binary(max_size=20)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("genesis"), st.integers(0, 10)),
)


def play(journal: Journal, step: tuple[object, ...], waiting: list[bytes]) -> None:
    """One thing that happens to the log. A snapshot that was begun is written later, as others write meanwhile."""
    match step:
        case "update", str(boot), str(key), int(delta), bool(fresh):
            journal.update(boot, Change(key, delta, None, fresh, 100.0), generation=generation(journal))
        case "level", str(boot), str(key), float(level), float(keep):
            journal.update(boot, change(key, 3, level, keep), generation=generation(journal))
        case "again", str(boot), str(key), int(delta):
            journal.update(boot, change(key, delta), generation=generation(journal), again=True)
        case "time", float(seconds):
            journal.now += seconds
        case "foreign", bytes(value):
            journal.add(value)
        case ("snapshot",) if journal.first.state is not None:
            waiting.extend(journal.snapshot())
        case "genesis", int(back):
            journal.begin(f"g{len(journal.records)}", max(len(journal.records) - 1 - back, -1))


def generation(journal: Journal) -> str:
    return "" if journal.first.state is None else journal.first.state.generation


@given(st.lists(STEP, max_size=30), st.lists(STEP, max_size=15), st.data())
def test_who_begins_at_a_snapshot_knows_what_those_know_who_have_read_all(
    before: list[tuple[object, ...]], after: list[tuple[object, ...]], data: st.DataObject
) -> None:
    journal, waiting = Journal(), list[bytes]()
    journal.begin()
    for step in before:
        play(journal, step, waiting)
        if waiting and data.draw(st.booleans()):
            journal.add(waiting.pop(0))
    journal.add(*waiting)
    late = Replica(data.draw(st.integers(0, len(journal.records))))
    read(late, journal.records)
    knows, waiting, journal.answers = late.state is not None, [], []
    for step in after:
        play(journal, step, waiting)
        journal.add(*waiting)
        waiting.clear()
    answers = read(late, journal.records)
    if knows:
        assert answers == journal.answers
    assert known(late) in (None, known(journal.first))


def test_a_snapshot_is_found_behind_its_base_and_what_came_meanwhile_counts_once() -> None:
    journal = Journal()
    journal.begin()
    for number in range(5000):
        journal.update("a", change(f"k{number}", 7))
    parts = journal.snapshot()
    assert len(parts) == 3
    base = len(journal.records) - 1
    journal.update("b", change("k0", 1))
    journal.add(parts[0])
    journal.update("b", change("k1", 1))
    journal.add(*parts[1:])
    late = Replica(base + 1)
    read(late, journal.records)
    assert late.state is not None
    assert [late.state.shard(0).totals[key].amount for key in ("k0", "k1", "k2", "k4999")] == [8, 8, 7, 7]
    assert known(late) == known(journal.first)
    too_late = Replica(base + 2)
    read(too_late, journal.records)
    assert too_late.state is None, "what stands before the first record that it reads is missing"


def test_of_several_that_begin_at_once_the_first_counts_for_all() -> None:
    journal = Journal()
    journal.add(TICK, b"of somebody")
    for generation in ("first", "second", "third"):
        journal.begin(generation, base=1)
    journal.update("a", change(delta=5), generation="first")
    for start in range(3):
        replica = Replica(start)
        read(replica, journal.records)
        assert known(replica) == known(journal.first)
    for start in (3, 4, 5):
        replica = Replica(start)
        read(replica, journal.records)
        assert replica.state is None, "it cannot know which was the first"
    assert journal.first.state is not None
    assert journal.first.state.generation == "first"


def test_a_snapshot_of_a_state_that_is_not_in_force_any_more_is_none() -> None:
    journal = Journal()
    journal.begin("old")
    journal.update("a", change(delta=5), generation="old")
    parts = journal.snapshot()
    journal.begin("new")
    journal.add(*parts)
    replica = Replica(1)
    read(replica, journal.records)
    assert replica.state is not None
    assert replica.state.generation == "new"
    assert known(replica) == known(journal.first)


def test_a_snapshot_of_an_older_state_is_none_for_who_cannot_tell_whether_a_newer_one_began() -> None:
    journal = Journal()
    journal.begin("old")
    journal.update("a", change(delta=5), generation="old")
    parts = journal.snapshot()
    journal.begin("new", base=0)
    journal.add(*parts)
    replica = Replica(2)
    read(replica, journal.records)
    assert replica.state is None
    assert journal.first.state is not None
    assert journal.first.state.generation == "new"


@pytest.mark.parametrize(("step", "expected"), [(-3.0, 1000.0), (-3600.0, 1000.0 - 3600.0), (3600.0, 1000.0 + 3600.0)])
def test_a_clock_that_goes_back_a_little_stands_still_and_one_that_was_set_is_followed(step: float, expected: float) -> None:
    journal = Journal()
    journal.begin()
    journal.now += step
    journal.add(TICK)
    assert journal.first.clock == expected


def test_a_batch_that_is_in_the_log_twice_counts_once() -> None:
    journal = Journal()
    journal.begin()
    journal.update("a", change(delta=70))
    journal.update("a", change(delta=70), again=True)
    journal.update("b", change(delta=5))
    assert [list(answer.totals) for answer in read(Replica(0), journal.records)] == [[70], [70], [75]]


def test_a_total_is_forgotten_at_its_time_whoever_has_cleaned_up() -> None:
    journal = Journal()
    journal.begin()
    journal.update("a", change(delta=70, keep=10))
    parts = journal.snapshot()
    journal.add(*parts)
    late = Replica(2)
    read(late, journal.records)
    journal.now += 11
    journal.update("a", change(delta=1, keep=10))
    assert [list(it.totals) for it in read(late, journal.records)] == [[1]]


def foreign() -> Iterator[bytes]:
    """What nobody of us writes."""
    good = orjson.loads(LogUpdate("a", Update(0, 1, "g", [change(delta=1)]), 5.0).encoded())
    yield from (b"", b"hello", b"[", b"[]", b"{}", b"[1]", b'[2,"t"]', b"[" * 100_000, zlib.compress(b"[" * 100), b"\x78\x01")
    yield zlib.compress(b" " * (64 << 20))
    for position, values in {
        2: [None, "x" * 2000],
        3: [-1, 256, "0", 1.5],
        4: [0, -1, 2**60, None],
        6: [-1, 1e9, "5"],
        7: [None, [[]], [["k", 1]], [["k", True, None, 1.0]], [["k", 2**62, None, 1.0]], [["k", 1, 1e300, 1.0]]],
    }.items():
        for value in values:
            yield orjson.dumps([*good[:position], value, *good[position + 1 :]])
    yield orjson.dumps([*good[:7], [["k", 1, None, -1.0]]])
    yield orjson.dumps([*good[:7], [["k" * 2000, 1, None, 1.0]]])
    yield orjson.dumps([1, "g", -2, "g"])
    yield orjson.dumps([1, "s", "n", 1, 1, 0, []])


@pytest.mark.parametrize("value", [*foreign()])
def test_a_record_that_makes_no_sense_is_told_from_others(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode(value)


@pytest.mark.parametrize(
    "rows",
    [[], [None, []], [["g", 1.0, 0], []], [["g", 1.0, 0, [[0, [["a", "x", 1.0]], []]]], []], [["g", 1.0, 0, []], [[0, "k", "x"]]]],
)
def test_a_snapshot_that_makes_no_sense_is_not_taken(rows: list[object]) -> None:
    journal = Journal()
    journal.add(TICK, SnapshotPart("s", 0, 1, 0, rows).encoded())
    assert journal.first.state is None
    journal.begin()
    assert journal.first.state is not None


@pytest.mark.parametrize("value", [b"", b"[]", b'{"a":1}', b"hello", b"\xff"])
def test_an_event_that_makes_no_sense_is_told_from_others(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_event(value)


def test_totals_stay_numbers_that_can_be_written_whoever_adds_to_them() -> None:
    journal = Journal()
    journal.begin()
    for _ in range(10):
        journal.update("a", change(delta=2**60))
    journal.add(*journal.snapshot())
    late = Replica(len(journal.records) - 1)
    read(late, journal.records)
    assert known(late) == known(journal.first)


def test_updates_without_a_beginning_change_nothing_and_are_told_from_all_else() -> None:
    """So a topic that has only these can be used, as if it was empty."""
    journal = Journal()
    journal.update("a", change(delta=5))
    journal.add(TICK)
    assert journal.first.state is None
    assert all(is_update(record.value) for record in journal.records)
    journal.begin()
    snapshot = journal.snapshot()
    assert not any(map(is_update, (journal.records[-1].value, *snapshot, b"", b"of somebody")))
