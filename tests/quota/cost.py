"""What the controller mutation quota costs: `python -m tests.quota.cost`. No test: figures are for people.

- CPU of a decision about 50 topics of 4 partitions: all admitted, all refused, a dry run, a credit of all
- memory of 10,000 entities: after one charge each, and with something recorded in each of 100 windows
- CPU of finding the 100 busiest of them, for a scrape
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

from proxy.hashing import murmur3
from quota.engine import Engine
from quota.entity import DEFAULT, Entity
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.limit_table import LimitTable, ResolvedLimit
from quota.steps import finish_at_once
from tests.support import charge_mutations, limits_of

TOPICS = [4] * 50
ENTITIES = 10_000
ROUNDS = 2_000


def engine(rate: float, burst: float, algorithm: Algorithm) -> Engine:
    return Engine(
        limits_of(controller_mutations=LimitTable({Entity(DEFAULT, None): MutationLimit(rate, burst, algorithm)})), murmur3
    )


def limit_of(one: Engine, user: str) -> ResolvedLimit[MutationLimit]:
    found = one.find_mutation_limit(user, "app")
    assert found is not None
    return found


def cpu(work: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Seconds of CPU that one call takes; `work` gets the number of the call."""
    start = time.process_time()
    for i in range(rounds):
        work(i)
    return (time.process_time() - start) / rounds


def decisions(algorithm: Algorithm) -> dict[str, float]:
    """Seconds of CPU of each kind of decision."""
    wide, tight = engine(1e6, 1e8, algorithm), engine(1e-3, 1, algorithm)
    alice, bob = limit_of(wide, "alice"), limit_of(tight, "bob")
    charge_mutations(tight, bob, [1000], refusable=True, now=0.0)
    receipts = [charge_mutations(wide, alice, TOPICS, refusable=True, now=i / 10).receipt for i in range(ROUNDS)]
    return {
        "admitted": cpu(lambda i: charge_mutations(wide, alice, TOPICS, refusable=True, now=ROUNDS / 10 + i / 10)),
        "refused": cpu(lambda _: charge_mutations(tight, bob, TOPICS, refusable=True, now=0.0)),
        "accepted, throttled": cpu(lambda _: charge_mutations(tight, bob, TOPICS, refusable=False, now=0.0)),
        "dry run": cpu(lambda _: wide.controller_mutations.refuses(alice, TOPICS, ROUNDS / 5)),
        "credited": cpu(lambda i: wide.controller_mutations.credit(receipts[i], range(50))),
    }


def memory(algorithm: Algorithm, seconds: int) -> tuple[float, Engine]:
    """MiB that `ENTITIES` take that recorded something in each of so many seconds."""
    gc.collect()
    tracemalloc.start()
    one = engine(5, 500, algorithm)
    for second in range(seconds):
        for number in range(ENTITIES):
            charge_mutations(one, limit_of(one, f"user-{number:05}"), [6], refusable=False, now=float(second))
        one.mutes.sweep(1e9)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / (1 << 20), one


def main() -> None:
    for algorithm in Algorithm:
        print(f"{algorithm.value}: 50 topics x 4 partitions")
        for name, seconds in decisions(algorithm).items():
            print(f"  {name:<22}{seconds * 1e6:8.0f} µs of CPU")
        for seconds in (1, 100):
            size, one = memory(algorithm, seconds)
            print(f"  {ENTITIES} entities, {seconds:>3} s  {size:6.1f} MiB")
        busiest = cpu(lambda _, known=one.controller_mutations: finish_at_once(known.busiest(100, 100.0)), 10)  # type: ignore[misc]
        print(f"  100 busiest of them   {busiest * 1e6:8.0f} µs of CPU")


if __name__ == "__main__":
    main()
