"""What results make of faults: stalls by kind, when everybody went on, and what groups and transactions promise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.assertions import Delivered, GoesOn, Verified
from loadtest.drive.job import Acknowledged
from loadtest.results.counts import Series
from loadtest.results.faults import by_kind, fault_of
from loadtest.results.model import Event, PhaseResult, TenantResult
from loadtest.verify import Given, PartitionRecords, RecordsRead, Written, delivered, judge
from tests.loadtest.made import START, phase, run, tenant


def steady(name: str, *silent: tuple[int, int], seconds: int = 60) -> TenantResult:
    """One that succeeds in each second, but for those from one of a pair to before the other."""
    values = [0 if any(first <= n < end for first, end in silent) else 10 for n in range(seconds)]
    return tenant(name, series=Series(first=int(START), acknowledged=values))


def fault(kind: str, at: float, until: float) -> Event:
    return Event(at=START + at, until=START + until, kind=kind, text="number 1")


def during(*tenants: TenantResult, events: list[Event]) -> PhaseResult:
    return phase(*tenants, duration_s=60.0, events=[Event(at=START, text="make-faults"), *events])


def test_a_line_that_tells_of_a_fault_is_told_from_others() -> None:
    line = json.dumps({"fault": "broker killed", "target": "number 2", "at": 5.5, "until": 9})
    assert fault_of(line) == Event(at=5.5, until=9, kind="broker killed", text="number 2")
    assert [fault_of(text) for text in ("", "killing 2", "{}", "[1]", '{"fault": "x", "at": "soon", "until": 1}')] == [None] * 5


def test_the_longest_stall_belongs_to_the_fault_that_began_last_before_it() -> None:
    events = [fault("broker killed", 5, 8), fault("disk full", 20, 22), fault("broker killed", 40, 41)]
    first, second = steady("first", (6, 9), (21, 23)), steady("second", (41, 46))
    found = [(one.kind, one.times, one.longest, one.tenant) for one in by_kind(during(first, second, events=events))]
    assert found == [("broker killed", 2, 5, "second"), ("disk full", 1, 2, "first")]


def test_stalls_of_those_whom_a_quota_holds_back_are_told_apart() -> None:
    held = steady("held", (6, 16), (41, 44)).model_copy(update={"limited": True})
    events = [fault("broker killed", 5, 8), fault("disk full", 40, 41)]
    found = by_kind(during(held, steady("other", (6, 8)), events=events))
    assert [(one.kind, one.longest, one.tenant, one.of_limited) for one in found] == [
        ("broker killed", 2, "other", 10),
        ("disk full", 0, "", 3),
    ]


def test_time_before_the_first_success_is_no_stall() -> None:
    found = by_kind(during(steady("slow", (0, 12)), events=[fault("broker killed", 5, 8)]))
    assert [(one.kind, one.longest) for one in found] == [("broker killed", 0)]


@pytest.mark.parametrize(
    ("silent", "passed", "got"),
    [
        ((9, 12), True, "after at most 2 s (late)"),
        ((9, 55), False, "after at most 45 s (late)"),
        ((9, 60), False, "late did not"),
    ],
)
def test_everybody_has_to_go_on_after_the_last_fault(silent: tuple[int, int], passed: bool, got: str) -> None:
    some = during(steady("prompt"), steady("late", silent), events=[fault("broker killed", 5, 10)])
    found = GoesOn(check="goes_on").assess(run(some))
    assert (found.passed, found.got) == (passed, got)


@pytest.mark.parametrize("events", [[], [fault("broker killed", 5, 45)]])
def test_without_a_fault_or_time_after_it_nothing_is_shown(events: list[Event]) -> None:
    assert not GoesOn(check="goes_on").assess(run(during(steady("prompt"), events=events))).passed


def records(*sequences: int) -> RecordsRead:
    found = PartitionRecords()
    for sequence in sequences:
        found.add(sequence, "somewhere")
    return {("topic", 1, 0): found}


def part(*runs: tuple[int, int]) -> Acknowledged:
    return Acknowledged(producer=1, partition=0, runs=list(runs))


def test_a_record_of_an_aborted_transaction_must_not_be_there() -> None:
    written = Written("writer", "library", "topic", 1, 1, [part((0, 3))], [part((3, 6))])
    for there, aborted in (((0, 1, 2, 6), 0), ((0, 1, 2, 4, 5), 2)):
        (found,) = judge([written], records(*there))
        assert (found.lost, found.aborted) == (0, aborted)
        assert Verified(check="verified").assess(run(verification=[found])).passed == (not aborted)


def test_a_group_has_to_be_given_each_record_that_is_there() -> None:
    def group(**more: Any) -> Given:
        return Given(**{"tenant": "group", "library": "library", "topic": "topic", "again": 1, "read": []} | more)

    (whole,) = delivered([group(read=[part((0, 3)), part((2, 4))])], records(0, 1, 2, 3))
    assert (whole.there, whole.read, whole.missed, whole.again) == (4, 4, 0, 2)
    (missed,) = delivered([group(read=[part((0, 2))])], records(0, 1, 2, 3))
    assert (missed.missed, missed.examples) == (2, ["topic-0, producer 1: sequences 2 to 3 missed"])
    assert Delivered(check="delivered").assess(run(deliveries=[whole])).passed
    assert not Delivered(check="delivered").assess(run(deliveries=[whole, missed])).passed
    assert not Delivered(check="delivered").assess(run(deliveries=[])).passed
