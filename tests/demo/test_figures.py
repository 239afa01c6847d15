"""Percentiles, waits and sums: arithmetic on what the load's programs said."""

import pytest

from demo.events import Event
from demo.figures import StormFigures, delivery, latencies, percentile, storm_figures, waits


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.0) == percentile([7.0], 0.5) == percentile([7.0], 0.99) == 7.0


def test_latencies_are_summed_up_in_all_and_by_second() -> None:
    found = latencies([(0.0, 3.0), (0.9, 1.0), (1.0, 10.0), (2.5, 2.0)])
    assert found is not None
    assert (found.count, found.p50, found.p99, found.worst) == (4, 2.0, 10.0, 10.0)
    assert found.seconds == (3.0, 10.0, 2.0)
    assert found.typical == 3.0


def test_nothing_measured_is_no_figure() -> None:
    assert latencies([]) is None
    assert waits([], {}, set(), 10.0) is None
    assert waits([("given-up", 1.0)], {}, {"given-up"}, 10.0) is None


def test_a_topic_that_is_not_usable_yet_has_waited_until_the_end() -> None:
    found = waits([("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)], {"a": 0.1, "b": 0.3}, {"d"}, 10.0)
    assert found is not None
    assert found.seconds == (0.1, 0.3, 7.0)
    assert (found.count, found.median, found.worst, found.pending, found.failed) == (3, 0.3, 7.0, 1, 1)


def test_a_request_without_an_answer_counts_as_a_wait_and_in_no_sum() -> None:
    sent = [{"at": 0.0}, {"at": 1.0}, {"at": 2.0}]
    answered = [
        {"seconds": 1.0, "created": 560, "refused": 0, "failed": 0},
        {"seconds": 0.5, "created": 80, "refused": 400, "failed": 80},
    ]
    found = storm_figures(sent, answered, end=9.0)
    assert found == StormFigures(requests=2, created=640, refused=400, failed=80, longest_wait=7.0)
    assert found.asked == 1120


def test_a_client_that_never_asked_waited_for_nothing() -> None:
    assert storm_figures([], [], end=9.0) == StormFigures(0, 0, 0, 0, 0.0)


def test_only_what_was_acknowledged_can_be_lost() -> None:
    records: list[Event] = [{"id": "a", "error": None}, {"id": "b", "error": None}, {"id": "c", "error": "timed out"}]
    found = delivery(records, {"a", "x"})
    assert (found.acknowledged, found.refused, found.lost) == (2, 1, 1)
