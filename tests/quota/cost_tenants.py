"""What tenants cost: `python -m tests.quota.cost_tenants`, with KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test: figures are for
people.

- CPU of a Produce request that is like earlier ones, with limits of its user alone, and with those of its tenant besides
- CPU of finding the limits of a new connection, and of `/tenants`, with 500 tenants and 10,000 topics; memory of the tenants"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from functools import partial
from typing import Any

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.observe.tenants import seen
from quota.rules import Rules
from tests.messages import batch, produce
from tests.support import World

REQUESTS, ROUNDS, TENANTS, TOPICS = 5_000, 15, 500, 10_000
LIMITS = {"cluster_producer_byte_rate": "1TiB", "cluster_request_rate": 1_000_000_000}
USER: dict[str, Any] = {"quotas": {"entities": [{"user": "alice", **LIMITS}]}}
CASES: dict[str, dict[str, Any]] = {
    "no limit": {},
    "the user": USER,
    "the tenant": {"tenants": {"apps": {"users": ["alice"], **LIMITS}}},
    "both": {**USER, "tenants": {"apps": {"users": ["alice"], **LIMITS}}},
}


class Case:
    """A client that sent the same before."""

    def __init__(self, settings: dict[str, Any]) -> None:
        world = World()
        world.engine.change(limits_of(Settings.model_validate(settings)))
        self._dialogue = world.dialogue("alice")
        frame = produce(9, 1, batch(producer_id=7, epoch=0, sequence=0), acks=0)
        for _ in range(3):
            self._dialogue.client(frame)
        self._reads = [frame * 10] * (REQUESTS // 10)
        self.least = float("inf")

    def round(self) -> None:
        """acks=0, so that nothing waits for an answer."""
        session, port = self._dialogue.session, self._dialogue.port
        start = time.process_time()
        for read in self._reads:
            session.client_bytes(read, 1.0)
        self.least = min(self.least, (time.process_time() - start) / REQUESTS)
        port.broker.clear()


def main() -> None:
    cases = {name: Case(settings) for name, settings in CASES.items()}
    for _ in range(ROUNDS):  # in turns, as the machine is not the same all the time
        for case in cases.values():
            case.round()
    base = cases["the user"].least
    for name, case in cases.items():
        print(f"{name:<20}{case.least * 1e6:8.2f} µs{(case.least - base) * 1e6:+8.2f}")
    many = {f"t{i}": {"user_prefixes": [f"t{i}-"], "topic_prefixes": [f"t{i}."], **LIMITS} for i in range(TENANTS)}
    settings = Settings.model_validate({"tenants": many})
    tracemalloc.start()
    limits = limits_of(settings)
    print(f"limits of {TENANTS} tenants: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB")
    tracemalloc.stop()
    world = World()
    world.engine.change(limits)
    start = time.process_time()
    for i in range(TENANTS):
        Rules(world.engine, f"t{i}-etl", "any", 0.0)
    print(f"limits of a connection: {(time.process_time() - start) / TENANTS * 1e6:.1f} µs")
    sizes = {f"t{i % TENANTS}.topic-{i}": 3 for i in range(TOPICS)}
    tenants = tenants_of(settings.tenants)
    start = time.process_time()
    asyncio.run(seen(tenants, world.engine, sizes, 0.0, partial(asyncio.sleep, 0)))
    print(f"/tenants with {TOPICS} topics: {(time.process_time() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
