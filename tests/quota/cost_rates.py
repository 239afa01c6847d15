"""What rates and topic thresholds cost for a batch: `python -m tests.quota.cost_rates [mypyc]`. No test: figures are for people.

- CPU of a batch that is within every limit, of one that has to be looked at, and of one over the limit
- the same with the modules compiled, in a folder of their own
- CPU of creating one of 10,000 topics, and of a sweep
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

from quota.entity import Entity
from quota.kinds.bytes_in import BytesIn, TopicLimits
from quota.kinds.rates import RateLimit, Rates
from quota.limit_table import LimitTable

ROUNDS = 1_000_000
ALICE = Entity("alice", None)
HOT = ("windows/ewma", "windows/rate", "kinds/rates", "kinds/bytes_in")


def cpu(take: Callable[[int, float], object], now: float = 0.0, rounds: int = ROUNDS) -> float:
    """Seconds of CPU of a call, those of a call that does nothing left out."""
    costs = []
    for call in (take, _nothing):
        start = time.process_time()
        for _ in repeat(None, rounds):
            call(100, now)
        costs.append(time.process_time() - start)
    return (costs[0] - costs[1]) / rounds


def _nothing(amount: int, now: float) -> bool:  # noqa: ARG001
    return True


def main() -> None:
    rates = Rates("producer_byte_rate", "producer byte rate", "bytes", LimitTable({ALICE: RateLimit(1e12)}))
    tight = Rates("producer_byte_rate", "producer byte rate", "bytes", LimitTable({ALICE: RateLimit(1)}))
    found = tight.find("alice", "app")
    assert found is not None
    tight.charge(found, 10**6, 0.0)
    calm = BytesIn(TopicLimits(1e12))
    busy = BytesIn(TopicLimits(1000, {"low": 1, "high": 900}))
    busy.topics_are(f"topic-{i}" for i in range(10_000))
    for name in ("low", "high"):
        busy.topic(name, 0.0).take(100_000, 0.0)
    busy.topic("high", 0.0).explicit = 1e12
    turns = iter(range(10**9))
    figures = {
        "rates: within": cpu(rates.meter(ALICE, 0.0).take),
        "rates: over, taken by nobody": cpu(tight.meter(ALICE, 0.0).take, rounds=ROUNDS // 10),
        "rates: over, charged": cpu(lambda amount, now: tight.charge(found, amount, now), rounds=ROUNDS // 100),
        "topics: total within": cpu(calm.topic("high", 0.0).take),
        "topics: total over, topic within": cpu(busy.topic("high", 6.0).take, 6.0, ROUNDS // 10),
        "topics: both over": cpu(busy.topic("low", 6.0).take, 6.0, ROUNDS // 10),
        "topics: one of 10,000 comes": cpu(lambda _, __: busy.topic_came(f"new-{next(turns)}"), rounds=10_000),
    }
    for name, seconds in figures.items():
        print(f"  {name:<34}{seconds * 1e6:7.3f} µs of CPU beyond a call")


def compiled() -> None:
    """The same in a copy whose hot modules are compiled."""
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        for part in ("quota", "tests"):
            subprocess.run(["cp", "-r", str(root / part), folder], check=True)
        files = [f"quota/{module}.py" for module in HOT]
        subprocess.run([sys.executable, "-m", "mypyc", *files], cwd=folder, check=True)
        subprocess.run(
            [sys.executable, "-m", "tests.quota.cost_rates"], cwd=folder, env=os.environ | {"PYTHONPATH": folder}, check=True
        )


if __name__ == "__main__":
    compiled() if sys.argv[1:] == ["mypyc"] else main()
