"""What the producer id quota costs: `python -m tests.quota.cost_producer_ids`. No test: figures are for people.

- CPU of a batch: of an id that was seen lately, of one that only a filter knows, of a new one, of one that is refused
- memory of 1k to 1M ids of one user, beside the exact set; CPU of saving and loading them
- memory of 10,000 users with 10 ids each
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from random import Random

from proxy.hashing import murmur3
from quota.entity import DEFAULT, Entity
from quota.kinds.producer_ids import Mode, ProducerIdLimit, ProducerIds, user_limit_table
from quota.steps import finish_at_once
from quota.windows.timed import TimedFilter

ROUNDS = 50_000
MIB = 1 << 20


def quota(rate: float, mode: Mode = Mode.THROTTLE) -> ProducerIds:
    return ProducerIds(user_limit_table({Entity(DEFAULT, None): ProducerIdLimit(rate, mode)}), murmur3)


def cpu(work: Callable[[int], object], rounds: int) -> float:
    """Seconds of CPU that one call takes; `work` gets the number of the call."""
    start = time.process_time()
    for i in range(rounds):
        work(i)
    return (time.process_time() - start) / rounds


def allocated(work: Callable[[], object]) -> int:
    """Bytes that are allocated by what this makes."""
    gc.collect()
    tracemalloc.start()
    kept = work()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def batches() -> dict[str, float]:
    """Seconds of CPU of one request with one batch, with so many ids of its user there already."""
    found: dict[str, float] = {}
    for ids in (100, 10_000):
        one = quota(1e9)
        for id in range(ids):
            one.count("alice", [id], 0.0)
        one.count("alice", [1], 0.0)
        found[f"seen lately, {ids} ids"] = cpu(lambda _, one=one: one.count("alice", [1], 1.0), ROUNDS)
        found[f"seen lately, {ids} ids, 50 batches"] = cpu(lambda _, one=one: one.count("alice", [1] * 50, 1.0), ROUNDS // 10)
        one._recent.clear()
        found[f"known to the filter, {ids} ids"] = cpu(lambda i, one=one: one.count("alice", [i], 1.0), ids)
        found[f"new, {ids} ids"] = cpu(lambda i, one=one, ids=ids: one.count("alice", [ids + i], 1.0), ids // 10)
    full = quota(10, Mode.REJECT)
    full.count("alice", range(10), 0.0)
    found["refused"] = cpu(lambda i: full.count("alice", [100 + i], 1.0), ROUNDS)
    over = quota(10)
    over.count("alice", range(11), 0.0)
    found["throttled"] = cpu(lambda _: over.count("alice", [1], 1.0), ROUNDS)
    return found


def filters(ids: list[int]) -> TimedFilter:
    """Half of the ids before the turn, half after."""
    timed = TimedFilter(3600, 0.01, murmur3)
    for at, id in enumerate(ids):
        timed.add(id, 0.0 if 2 * at < len(ids) else 1800.0)
    return timed


def users() -> ProducerIds:
    one = quota(1e9)
    for user in range(10_000):
        for id in range(10):
            one.count(f"user-{user:05}", [10 * user + id], 0.0)
    return one


def main() -> None:
    for name, seconds in batches().items():
        print(f"{name:<36}{seconds * 1e6:8.2f} µs of CPU")
    random = Random(1)
    for number in (1000, 10_000, 100_000, 1_000_000):
        ids = [random.getrandbits(62) for _ in range(number)]
        exact, timed = allocated(lambda ids=ids: {id + 1 for id in ids}), allocated(lambda ids=ids: filters(ids))
        one = quota(1e9)
        for id in ids:
            one.count("alice", [id], 0.0)
        data = one.dump(0.0, 0.0)
        save, load = cpu(lambda _, one=one: one.dump(0.0, 0.0), 3), cpu(lambda _, data=data: quota(1e9).load(data, 0.0, 0.0), 3)
        counted = one.usage(0.0)["alice"].counted
        print(f"{number:>9} ids{exact / 1024:10.0f} KiB exact{timed / 1024:8.0f} KiB filters", end="")
        print(f", {100 - 100 * counted / number:.2f} % not counted", end="")
        print(f", save {save * 1e3:6.1f} ms, load {load * 1e3:6.1f} ms, {len(data) / 1024:.0f} KiB")
    print(f"10000 users, 10 ids each{allocated(users) / MIB:10.1f} MiB")
    one = users()
    print(f"a scrape of the 100 busiest{cpu(lambda _: finish_at_once(one.busiest(100, 1.0)), 5) * 1e3:8.1f} ms, a sweep", end="")
    print(f"{cpu(lambda _: one.sweep(1.0), 5) * 1e3:8.1f} ms of CPU")


if __name__ == "__main__":
    main()
