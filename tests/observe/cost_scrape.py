"""`python -m tests.observe.cost_scrape [WORKERS]`: what a scrape of many workers costs their supervisor. Prints seconds.

Each worker has as many users as a proxy shows of each rate (`metrics.max_entities`), all of them the same or its own. Workers are
channels in this process, so the time is that of the supervisor and that of all workers to write what they have collected."""

from __future__ import annotations

import asyncio
import socket
import sys
import time

import structlog

from proxy.clients.admin import exposition
from proxy.fleet.channel import Channel
from proxy.observe.lines import Author
from proxy.observe.merging import Counters, Rows, merged, rows_of
from proxy.observe.metrics import Gauges, ProxyCollector
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.process.tuning import tune_gc
from quota.entity import DEFAULT, Entity
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable
from quota.steps import finish_at_once
from tests.support import World, changed

USERS = 100
SHARED, OWN = "the same users at all", "users of its own at each"


def rows(prefix: str) -> Rows:
    """The metrics of a worker with so many users at every rate."""
    world = World()
    engine = world.engine
    tables = {name: LimitTable({Entity(DEFAULT, None): RateLimit(1e6)}) for name in engine.rates}
    engine.change(changed(engine.limits, **tables))
    for name in engine.rates:
        for number in range(USERS):
            found = engine.find(engine.rates[name], f"{prefix}-{number}", "app")
            assert found is not None
            engine.rates[name].meter(found.owner, 0.0).record(1000, 0.0)
    usage = UsageLog(world.tally, Author("", ""), None, 1, lambda: 0.0, lambda: 0.0)
    observer = Observer(structlog.get_logger(), usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    nothing = dict.fromkeys(
        (
            "client_connections",
            "brokers",
            "memory_held",
            "memory_waiting",
            "settings_applied",
            "settings_refused",
        ),
        lambda: 0,
    )
    gauges = Gauges(**nothing, muted_connections=lambda: iter(()), upstream_up=lambda: True, settings_current=lambda: True)
    return finish_at_once(rows_of(ProxyCollector(engine, world.tally, usage, observer, gauges, lambda: 0.0).steps()))


async def measure(workers: list[Rows]) -> tuple[float, int]:
    """(seconds of a scrape, bytes of the answer)"""
    channels = []

    def answers(own: Rows) -> Channel:
        async def metrics() -> Rows:
            return own

        here, there = socket.socketpair()
        worker = Channel(there, {"metrics": metrics})
        channels.append(Channel(here, {}))
        return worker

    workers_ends = [answers(own) for own in workers]
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each.run()) for each in (*channels, *workers_ends)]
    counters, took = Counters(), []
    for _ in range(3):
        began = time.perf_counter()
        found = await asyncio.gather(*(each.ask("metrics") for each in channels))
        text, _ = finish_at_once(exposition(merged(counters.complete(dict(enumerate((1, own) for own in found))), USERS), ""))
        took.append(time.perf_counter() - began)
    for task in tasks:
        task.cancel()
    return min(took), len(text)


def main() -> None:
    tune_gc()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for what, prefixes in ((SHARED, ["user"] * count), (OWN, [f"user-{i}" for i in range(count)])):
        took, size = asyncio.run(measure([rows(prefix) for prefix in prefixes]))
        print(f"{count} workers, {what}: {took:.2f} s, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
