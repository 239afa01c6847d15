"""What tenants cost: `python -m tests.quota.cost_tenants`, with KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test: figures are for
people.

- CPU of a Produce request that is like earlier ones, with limits of its user alone, and with those of its tenant besides
- CPU of finding the limits of a new connection, and of `/tenants`, with 500 tenants and 10,000 topics; memory of the tenants
- numbers of topics: CPU and memory of 10,000 topics of 500 tenants, of a request that creates a topic, and of Metadata"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.observe.tenants import seen
from quota.rules import Rules
from quota.steps import finish_at_once
from quota.tenants import NO_TENANTS
from tests.apis.topic_frames import create, created, described, metadata
from tests.quota.cost_recognized import Case, compare
from tests.support import World

TENANTS, TOPICS = 500, 10_000
LIMITS = {"cluster_producer_byte_rate": "1TiB", "cluster_request_rate": 1_000_000_000}
USER: dict[str, Any] = {"quotas": {"entities": [{"user": "alice", **LIMITS}]}}
CASES: dict[str, dict[str, Any]] = {
    "no limit": {},
    "the user": USER,
    "the tenant": {"tenants": {"apps": {"users": ["alice"], **LIMITS}}},
    "both": {**USER, "tenants": {"apps": {"users": ["alice"], **LIMITS}}},
}


def case(settings: dict[str, Any]) -> Case:
    world = World()
    world.engine.change(limits_of(Settings.model_validate(settings)))
    return Case(world)


def main() -> None:
    compare({name: case(settings) for name, settings in CASES.items()}, "the user")
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
    finish_at_once(seen(tenants, world.engine, sizes, 0.0))
    print(f"/tenants with {TOPICS} topics: {(time.process_time() - start) * 1e3:.1f} ms")
    numbers()


def numbers() -> None:
    """With `max_topics` and `max_partitions` of all tenants, and nothing exceeded."""
    many = {f"t{i}": {"topic_prefixes": [f"t{i}."], "max_topics": 1000, "max_partitions": 10_000} for i in range(TENANTS)}
    limits = limits_of(Settings.model_validate({"tenants": many}))
    names = [f"t{i % TENANTS}.topic-{i}" for i in range(TOPICS)]
    world = World(knows_nothing=True)
    world.engine.change(limits)
    for name in names:
        world.cluster.sizes[name] = 3
    tracemalloc.start()
    for name in names:
        world.engine.owned.topic_sized(name, 3)
    print(f"{TOPICS} topics: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB")
    tracemalloc.stop()
    print(f"to hear of one: {took(lambda i: world.engine.owned.topic_sized(names[i], 4), TOPICS):.1f} µs")
    world.engine.owned.configure(NO_TENANTS)
    print(f"other tenants: {took(lambda _: world.engine.change(limits), 1) / 1e3:.1f} ms")
    for what, of in (("numbers", world), ("no numbers", World(knows_nothing=True))):
        of.cluster.sizes |= dict.fromkeys(names, 3)
        for many_names in (1, 10):
            frame = metadata(9, 1, *names[:many_names])
            print(f"Metadata of {many_names}, {what}: {took(asking(of, frame, described(9, 1, {})), 2000):.1f} µs")
        answer = created(7, 1, "t0.new", error=36)
        frame = create(7, 1, ("t0.new", 1))
        print(f"CreateTopics, {what}: {took(asking(of, frame, answer), 2000):.1f} µs")


def asking(world: World, frame: bytes, answer: bytes) -> Callable[[int], None]:
    """A request and its answer."""
    dialogue = world.dialogue("alice")

    def ask(_: int) -> None:
        dialogue.client(frame)
        dialogue.broker(answer)
        dialogue.port.broker.clear()
        dialogue.port.client.clear()

    return ask


def took(what: Callable[[int], object], times: int) -> float:
    """µs of CPU of each."""
    start = time.process_time()
    for i in range(times):
        what(i)
    return (time.process_time() - start) / times * 1e6


if __name__ == "__main__":
    main()
