"""How exactly workers hold one rate: 64 real producers in skewed shares at a proxy of one process, and at one of four workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess
from tests.real.steady import create
from tests.real.test_ledger import BATCH, produce
from tests.real.test_workers import BURST, MINUTE, workers

pytestmark = pytest.mark.kafka

RATE = 4_000_000
PRODUCERS = 64
SECONDS = 60
Told = tuple[float, float]
"""(seconds, bytes that were let through by then)"""


def sizes() -> list[int]:
    """Of the records of each producer: the n-th has 1/n of what the first has."""
    return [max(4 * BATCH // (1 + n // 4), 1024) for n in range(PRODUCERS)]


def flow(proxy: ProxyProcess, name: str, seconds: float) -> list[Told]:
    """What the proxy let through, ten times a second."""
    told: list[Told] = []
    with ThreadPoolExecutor(PRODUCERS) as pool:
        began = time.monotonic()
        until = began + seconds
        clients = [pool.submit(produce, proxy.bootstrap, name, name, until, login=False, size=size) for size in sizes()]
        while time.monotonic() < until - 1:
            told.append((time.monotonic() - began, proxy.metric("request_bytes_total", api="Produce")))
            time.sleep(0.1)
        for client in clients:
            client.result()
    return told


def rate_between(told: Sequence[Told], first: float, last: float) -> float:
    """In parts of the quota."""
    some = [it for it in told if first <= it[0] <= last]
    return (some[-1][1] - some[0][1]) / (some[-1][0] - some[0][0]) / RATE


@pytest.mark.skipif(not MINUTE, reason="takes two minutes: `make test-fleet-minute` runs it")
def test_64_producers_at_four_workers_hold_the_quota_for_a_minute(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """What four workers let through at most beyond the burst and the rate is what one process does."""
    over: dict[int, float] = {}
    for count in (1, 4):
        topic = f"{name}-{count}"
        create(kafka3.bootstrap_servers, topic)
        quotas = {"entities": [{"client_id": topic, "cluster_producer_byte_rate": RATE}]}
        with workers(kafka3, tmp_path / str(count), count, quotas=quotas) as proxy:
            told = flow(proxy, topic, SECONDS)
        over[count] = max((sent - RATE * (BURST + at)) / RATE for at, sent in told)
        seconds = [it[1] for it in ((0.0, 0.0), *told)]
        print(
            f"{count} workers: {rate_between(told, BURST, SECONDS):.4f} of the quota after {BURST} s, "
            f"{rate_between(told, 2 * BURST, SECONDS):.4f} after {2 * BURST} s; "
            f"at most {over[count]:.4f} s of the quota beyond burst and rate; "
            + " ".join(f"{rate_between(told, s, s + 1.05):.2f}" for s in range(SECONDS - 2)),
            f"largest step {max(late - early for early, late in pairwise(seconds)) / RATE:.2f} s",
        )
        assert rate_between(told, 2 * BURST, SECONDS) == pytest.approx(1.0, abs=0.01)
    assert over[4] <= max(over[1], 0.0) + 0.01
