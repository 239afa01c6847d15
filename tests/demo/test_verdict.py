"""What is said of the figures: no difference is claimed that does not show, and nothing wrong is passed over."""

import pytest

from demo.throttling import Throttling
from demo.verdict import problems, seconds, sentences
from tests.demo.results import felt, results


def test_a_clear_difference_is_told_with_its_figures() -> None:
    topics, produce = sentences(results())
    assert "at least 8.0 s in the storm without a quota (14 of 15 not before the phase was over)" in topics
    assert topics.endswith("after 0.04 s with the quota, in the second half of the phase, after the bursts it admits.")
    assert "10 ms without the storm, 200 ms in the storm without a quota, and 12 ms with the quota" in produce


def test_a_storm_that_does_no_harm_is_called_that() -> None:
    topics, produce = sentences(results(storm=felt(14, 0.05)))
    assert "too fast, or too noisy" in topics
    assert "too fast, or too noisy" in produce
    assert "with the quota" not in topics + produce


def test_a_quota_that_does_no_good_is_called_that() -> None:
    topics, produce = sentences(results(after=felt(180, 6.0)))
    assert "too slow, or too noisy" in topics
    assert "too slow, or too noisy" in produce


def test_topics_that_still_wait_under_the_quota_are_no_success() -> None:
    topics, _ = sentences(results(after=felt(12, 1.5, pending=2)))
    assert "after at least 1.5 s with the quota: what the quota is good for does not show" in topics


def test_a_good_run_has_no_problems() -> None:
    assert problems(results()) == []


def test_what_must_not_be_is_a_problem() -> None:
    assert problems(results(lost=3)) == ["3 acknowledged records were lost"]
    assert problems(results(new_refused=0)) == ["storm-new was throttled, but never told error 89"]
    assert problems(results(old_refused=8)) == ["storm-old was told error 89, which it cannot know"]
    never = problems(results(throttling={"storm-new": Throttling(7, 12_000)}))
    assert never == ["storm-old was never throttled: its burst was not used up; try more --seconds"]


@pytest.mark.parametrize(("value", "text"), [(0.036, "0.04 s"), (1.0, "1.0 s"), (9.94, "9.9 s"), (13.4, "13 s")])
def test_seconds_have_a_sensible_number_of_digits(value: float, text: str) -> None:
    assert seconds(value) == text
