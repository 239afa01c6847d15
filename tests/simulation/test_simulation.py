"""The simulation itself: some runs, that they repeat exactly, that failures are made small, and that defects are found."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.simulation.defects import DEFECTS, PATIENCE, ROOT, find, stale
from tests.simulation.faults import Fault
from tests.simulation.runs import shrink
from tests.simulation.world import Outcome


def simulate(*options: str) -> None:
    """In a process of its own, as what makes runs repeatable has to be set when Python starts."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_some_runs_are_right_and_the_same_again() -> None:
    simulate("--first", "2", "--runs", "1", "--repeat", "--no-shrink")


@pytest.mark.nightly
def test_twenty_minutes_are_right() -> None:
    """As above, with other seeds each time."""
    simulate("--seconds", "1200")


def fails_with(*faults: int) -> Outcome:
    """A run of twenty faults that fails while these happen."""
    return run_of(range(20), faults)


def run_of(kept: Sequence[int], needed: Sequence[int]) -> Outcome:
    happened = [Fault(float(i), "cut a connection", 0.0, 0, 0) for i in kept]
    return Outcome(1, wrong=["lost"] if set(needed) <= set(kept) else [], faults=happened)


@pytest.mark.parametrize("needed", [(), (0,), (19,), (3, 7), (0, 10, 19)])
def test_a_failure_is_told_with_the_faults_that_it_needs(needed: tuple[int, ...]) -> None:
    kept, smallest = shrink(fails_with(*needed), lambda rest: run_of(rest, needed), tries=200)
    assert kept == list(needed)
    assert smallest.wrong


def test_defects_are_those_of_the_present_sources() -> None:
    assert [defect.name for defect in DEFECTS if stale(defect)] == []
    assert len({defect.name for defect in DEFECTS}) >= 20


def test_a_defect_is_found() -> None:
    """One of them, whatever the seed; all of them at night."""
    (defect,) = (it for it in DEFECTS if it.name == "a connection that ended is still counted")
    assert "connections" in find(defect, PATIENCE, first=2).why


@pytest.mark.nightly
def test_defects_are_found() -> None:
    """`test_a_defect_is_found` does the same with one."""
    missed = [found.defect.name for found in (find(defect, PATIENCE, first=1001) for defect in DEFECTS) if not found.why]
    assert len(missed) * 20 <= len(DEFECTS), missed
