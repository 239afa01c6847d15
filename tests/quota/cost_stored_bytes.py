"""What stored bytes cost: `python -m tests.quota.cost_stored_bytes`, with KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test:
figures are for people.

- CPU of a Produce request that is like earlier ones, and of its answer, with rates of its user and its topic, and with budgets of
  its tenant and its topic besides
- 10,000 topics of 500 tenants: CPU of reading what a broker tells, of adding it up (both in a thread), of what the event loop does
  of it, and memory"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Generator
from typing import Any

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.upstream.stored_bytes import _understood
from tests.apis.produce_frames import records, write, written
from tests.support import World
from tests.wire.test_log_dirs import log_dirs

TENANTS, TOPICS, PARTITIONS = 500, 10_000, 3
REQUESTS, ROUNDS, AT_ONCE = 5_000, 25, 10
PART = {("apps.orders", 0): records(500)}
RATES: dict[str, Any] = {
    "entities": [{"user": "alice", "cluster_producer_byte_rate": "1TiB", "cluster_request_rate": 1_000_000_000}],
    "topic_rates": {"topics": {"apps.orders": {"bytes_in": "1TiB"}}},
}
BUDGETS: dict[str, Any] = {
    "tenants": {"apps": {"topic_prefixes": ["apps."], "stored_bytes_hard": "512TiB"}},
    "quotas": {**RATES, "stored_bytes": {"topics": {"apps.orders": {"hard": "512TiB"}}}},
}


class Case:
    """A client that sends the same again and again, and a broker that writes it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        world = World()
        world.engine.change(limits_of(Settings.model_validate(settings)))
        for budget in world.engine.stored.budgets:
            budget.begin()
            budget.finish(0)
        self._dialogue = world.dialogue("alice")
        frame, answer = write(PART, 1), written(list(PART), 1)
        for _ in range(3):
            self._dialogue.client(frame)
            self._dialogue.broker(answer)
        self._frames, self._answers = frame * AT_ONCE, answer * AT_ONCE
        self.least = float("inf")

    def round(self) -> None:
        session, port = self._dialogue.session, self._dialogue.port
        start = time.process_time()
        for _ in range(REQUESTS // AT_ONCE):
            session.client_bytes(self._frames, 1.0)
            session.broker_bytes(self._answers, 1.0)
        self.least = min(self.least, (time.process_time() - start) / REQUESTS)
        assert len(b"".join(port.broker)) >= REQUESTS * len(self._frames) // AT_ONCE
        port.broker.clear()
        port.client.clear()


def main() -> None:
    cases = {"rates": Case({"quotas": RATES}), "rates and budgets": Case(BUDGETS)}
    for _ in range(ROUNDS):  # in turns, as the machine is not the same all the time
        for case in cases.values():
            case.round()
    least = cases["rates"].least
    for name, case in cases.items():
        print(f"{name:<20}{case.least * 1e6:8.3f} µs{(case.least / least - 1) * 100:+8.1f} %")
    looks()


def looks() -> None:
    """With a limit of all tenants, and nothing exceeded."""
    many = {f"t{i}": {"topic_prefixes": [f"t{i}."], "stored_bytes_hard": "512TiB"} for i in range(TENANTS)}
    world = World()
    world.engine.change(limits_of(Settings.model_validate({"tenants": many})))
    parts = [(i, 1 << 30) for i in range(PARTITIONS)]
    frame = log_dirs(4, {"path": "/data", "topics": {f"t{i % TENANTS}.topic-{i}": parts for i in range(TOPICS)}})
    stored = world.engine.stored
    tracemalloc.start()
    told = _understood(frame, 4)
    print(f"memory of a broker's {TOPICS} topics: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB")
    tracemalloc.stop()
    print(f"to read them: {took(lambda: _understood(frame, 4)):.1f} ms")
    look, longest = steps(stored.begin(0.0, everything=True))
    print(f"to begin a look: {longest:.2f} ms in the longest turn")
    assert look is not None
    look.brokers = {1: told}
    print(f"to add them up: {took(lambda: stored.understand(look)):.1f} ms")
    _, longest = steps(stored.finish(look))
    print(f"to take it over: {longest:.2f} ms in the longest turn")
    for name in told:
        stored.topic(name)
    tracemalloc.start()
    stored._topics = {}
    for name in told:
        stored.topic(name)
    print(f"memory of {TOPICS} topics that are written to: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB")
    tracemalloc.stop()


def took(what: Callable[[], object]) -> float:
    """ms of CPU."""
    start = time.process_time()
    what()
    return (time.process_time() - start) * 1e3


def steps(work: Generator[None, None, Any]) -> tuple[Any, float]:
    """What comes of it, and ms of CPU of the longest step."""
    longest = 0.0
    while True:
        start = time.process_time()
        try:
            next(work)
        except StopIteration as e:
            return e.value, max(longest, (time.process_time() - start) * 1e3)
        longest = max(longest, (time.process_time() - start) * 1e3)


if __name__ == "__main__":
    main()
