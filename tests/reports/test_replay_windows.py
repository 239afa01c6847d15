"""The replay against the proxy's own windows: clients of all phases, by intervals of one second."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quota.windows.rate import RateWindow

pytest.importorskip("pyspark")
from reports.tables import Lengths
from tests.reports.logs import NOON, Log
from tests.reports.test_quotas import read, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE = 1000
BURST = 10


def requests(phase: float, size: int, seconds: int) -> tuple[dict[int, int], float]:
    """Who always has something to send and waits as told: bytes by the second they came in, and the throttles of all answers in
    seconds. From `phase` until `seconds` worth of the rate are there."""
    window, now, sent, told = RateWindow(RATE), phase, 0, 0.0
    came: dict[int, int] = {}
    while sent < seconds * RATE:
        window.record(size, now)
        came[int(now)] = came.get(int(now), 0) + size
        sent += size
        wait = max(window.wait(now), 0.0)
        told += wait
        now += wait + 0.005
    return came, told


@pytest.mark.spark
def test_by_seconds_a_client_is_throttled_for_as_long_as_its_window_says(spark: "SparkSession", tmp_path: Path) -> None:
    log, expected = Log(), {}
    for size in (300, 1250, 4000):
        for tenth in range(10):
            user = f"u{size}-{tenth}"
            came, expected[user] = requests(tenth / 10 + 0.03, size, 30)
            for at, amount in came.items():
                log.usage(at, 1, principal=f"User:{user}", topic="t", record_bytes=amount)
    for at in range(60):
        log.usage(at, 1, principal="User:half", topic="t", record_bytes=RATE // 2)
    expected["half"] = 0.0
    quotas = read(tmp_path, f'quotas: {{entities: [{{user: "<default>", producer_byte_rate: {RATE}}}]}}')
    found = replayed(spark, tmp_path, log.lines, quotas, Lengths(60, 60, 1), NOON + timedelta(days=1))
    assert len(found) == len(expected)
    off = {}
    for (_, user, _), row in found.items():
        seconds = row["seconds_throttled"] + row["waiting"] / row["limit"]
        off[user] = (round(seconds, 1), round(expected[user], 1))
    wrong = {user: both for user, both in off.items() if abs(both[0] - both[1]) > 1 + 0.05 * both[1]}
    assert not wrong, wrong
