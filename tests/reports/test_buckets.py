"""Buckets of plots: round, fine enough to see something, and never too many."""

import pytest

pytest.importorskip("pyspark")
from reports.transforms.buckets import MAX_POINTS, plot_seconds

DAY = 86_400


@pytest.mark.parametrize(
    ("length", "table", "bucket"),
    [
        (0, 10, 10),
        (1980, 10, 10),
        (2000, 10, 20),
        (3600, 10, 20),
        (DAY, 10, 600),
        (30 * DAY, 10, 21_600),
        (365 * DAY, 10, 2 * DAY),
        (56 * 365 * DAY, 10, 103 * DAY),
        (3600, 7, 21),
        (3600, 3600, 3600),
    ],
)
def test_buckets_are_round_multiples_of_the_tables(length: int, table: int, bucket: int) -> None:
    first = 1_772_366_403
    found = plot_seconds(first, first + length, table)
    assert found == bucket
    assert length // found + 1 <= MAX_POINTS
