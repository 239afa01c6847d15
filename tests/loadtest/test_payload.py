"""What records carry; sets of sequences; what is lost, repeated and out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtest.drive.job import Acknowledged
from loadtest.payload import HEADER_SIZE, Header, Runs, Writer, header_of, run_bytes, size_of
from loadtest.verify import PartitionRecords, Written, judge

NUMBERS = st.lists(st.integers(0, 40), max_size=60)


def runs_of(numbers: list[int]) -> Runs:
    runs = Runs()
    for number in numbers:
        runs.add(number)
    return runs


@given(NUMBERS)
def test_runs_are_a_set(numbers: list[int]) -> None:
    runs, known = Runs(), set[int]()
    for number in numbers:
        assert runs.add(number) == (number not in known)
        known.add(number)
    assert {n for first, end in runs.pairs() for n in range(first, end)} == known
    assert len(runs) == len(known)
    ends = [end for _, end in runs.pairs()]
    assert all(end < first for end, (first, _) in zip(ends, runs.pairs()[1:], strict=False)), "runs that touch are one"


@given(NUMBERS, NUMBERS)
def test_what_another_one_has_not(ours: list[int], theirs: list[int]) -> None:
    left = runs_of(ours).without(runs_of(theirs))
    assert {n for first, end in left for n in range(first, end)} == set(ours) - set(theirs)
    assert size_of(left) == len(set(ours) - set(theirs))


def test_a_record_is_read_back_by_its_run_alone() -> None:
    run = run_bytes("abc")
    value = Writer(run, 100).record(7, 12, 5_000)
    assert len(value) == 100
    assert header_of(value, run) == Header(7, 12, 5_000)
    assert header_of(value, run_bytes("abd")) is None
    assert header_of(value[: HEADER_SIZE - 1], run) is None
    assert header_of(None, run) is None


def test_a_record_may_be_a_header_and_nothing_else() -> None:
    assert len(Writer(run_bytes("r"), HEADER_SIZE).record(1, 1, 1)) == HEADER_SIZE


def seen(*sequences: int) -> PartitionRecords:
    found = PartitionRecords()
    for sequence in sequences:
        found.add(sequence, "t-0")
    return found


def test_what_is_lost_repeated_and_out_of_order_is_counted() -> None:
    """0 to 9 acknowledged; 4 and 5 are gone, 2 comes twice, 7 comes behind 8, 10 was never acknowledged."""
    written = Written("w", "lib", "t", 1, 2, [Acknowledged(producer=1, partition=0, runs=[(0, 10)])])
    other = Written("other", "lib", "t", 3, 3, [Acknowledged(producer=3, partition=0, runs=[(0, 1)])])
    found = {("t", 1, 0): seen(0, 1, 2, 2, 3, 6, 8, 7, 9, 10), ("t", 3, 0): seen(0), ("u", 1, 0): seen(55)}
    one, two = judge([written, other], found)
    assert (one.acknowledged, one.consumed, one.lost, one.duplicated, one.out_of_order, one.unacknowledged) == (10, 9, 2, 1, 1, 1)
    assert "t-0, producer 1: sequences 4 to 5 lost" in one.examples
    assert (two.acknowledged, two.consumed, two.lost) == (1, 1, 0)


def test_a_topic_that_is_gone_has_lost_everything() -> None:
    (one,) = judge([Written("w", "lib", "t", 1, 1, [Acknowledged(producer=1, partition=0, runs=[(0, 10)])])], {})
    assert (one.acknowledged, one.consumed, one.lost) == (10, 0, 10)


def test_a_record_written_again_in_another_order_is_a_repetition() -> None:
    """An idempotent producer never does this; one that is not may, after a retry."""
    found = seen(0, 1, 2, 0, 1, 2)
    assert (found.duplicated, found.out_of_order, len(found.there)) == (3, 0, 3)
