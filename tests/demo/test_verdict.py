"""What is said of the figures: no difference is claimed that does not show, and nothing wrong is passed over."""

import pytest

from demo.figures import Flood, HeldBack
from demo.throttling import Throttling
from demo.verdict import about_archive, about_clicks, about_flood, problems, seconds, sentences
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


def test_what_was_held_back_is_told_with_its_figures() -> None:
    good = results()
    assert "wanted to write 24.6 MB in 8 s to a topic with a threshold of 0.2 MB/s, and wrote 3.4 MB" in about_clicks(good)
    assert "refused 120 times, with error 19" in about_clicks(good)
    assert "slowed down, by 2.8 s in sum; then a batch was refused 15 times, with error 56" in about_archive(good)


def test_a_disk_that_got_room_meanwhile_is_no_problem_and_a_threshold_that_did_not_hold_is() -> None:
    assert "archive was not held back" in about_archive(results(archive=HeldBack(1e7, 1e7, 0, 0)))
    slow = results(clicks=HeldBack(24.6e6, 2e6, 0, 0))
    assert "this machine is too slow" in about_clicks(slow)
    assert problems(slow) == []
    never = problems(results(clicks=HeldBack(24.6e6, 24.6e6, 0, 0)))
    assert never == ["clicks was never refused, though it wrote more than the threshold of its topic"]


def test_what_a_flood_was_and_what_the_quota_made_of_it_is_one_line_that_claims_no_more_than_shows() -> None:
    said = about_flood(results())
    assert said.startswith("While clicks flooded a broker, the slowest order of a typical second took 400 ms (10 ms alone)")
    assert said.endswith(", and 30 ms with quotas.overload, which told clicks to wait for 12 s in sum.")
    assert "no overload; this machine is too fast" in about_flood(results(flood=Flood(30.0, 30.0, 0)))
    assert "too slow, or too noisy" in about_flood(results(flood=Flood(400.0, 300.0, 12_000)))
    assert "nothing could be measured" in about_flood(results(flood=Flood(400.0, None, 0)))


@pytest.mark.parametrize(("value", "text"), [(0.036, "0.04 s"), (1.0, "1.0 s"), (9.94, "9.9 s"), (13.4, "13 s")])
def test_seconds_have_a_sensible_number_of_digits(value: float, text: str) -> None:
    assert seconds(value) == text
