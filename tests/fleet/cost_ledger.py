"""What a batch of the ledger costs a real Redis and the proxy: `python -m tests.fleet.cost_ledger`. No test: figures are for
people.

In: nothing. Out: for batches of several sizes, of owners that changed and of owners that are looked at: CPU of Redis and of the
client for each owner, and how many owners a second one Redis can add up."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from proxy.config.ledger import Ledger as Settings
from proxy.fleet.redis_store import RedisStore
from quota.entity import DEFAULT, Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Ledger
from quota.limit_table import LimitTable
from tests.redis_server import RedisServer

SECONDS: Final = 2.0
SIZES: Final = (1, 50, 500)


async def measure(server: RedisServer, owners: int, changed: bool) -> tuple[float, float, float]:
    """(owners per second, CPU seconds of Redis and of the client for each owner), one batch after the other on one connection."""
    settings = Settings.model_validate({"kind": "redis", "servers": [server.address]})
    store = RedisStore(settings, f"cost-{owners}-{changed}")
    rates = Rates("producer_byte_rate", "", "", LimitTable({Entity(DEFAULT, None): RateLimit(1e9)}))
    rates.publish()
    ledger = Ledger([rates], 0.0)
    names = [Entity(f"tenant-{number:06}", None) for number in range(owners)]
    now = 0.0

    async def sync(*, charge: bool) -> int:
        nonlocal now
        now += 0.01
        if charge:
            for name in names:
                rates.meter(name, now).take(100, now)
        ledger.collect(now)
        batch = ledger.batch(ledger.shards[0], now)
        reply = await store.send(batch.update())
        ledger.answered(batch, reply.answer, now)
        return len(batch.items)

    for _ in range(4):
        await sync(charge=True)
    before, own, start, done = cpu(server), time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        done += await sync(charge=changed)
    took = time.perf_counter() - start
    redis, client = cpu(server) - before, time.process_time() - own
    await store.close()
    return done / took, redis / max(done, 1), client / max(done, 1)


def cpu(server: RedisServer) -> float:
    """CPU seconds of a Redis."""
    with server.client() as client:
        found: dict[str, Any] = client.info("cpu")
    return float(found["used_cpu_sys"]) + float(found["used_cpu_user"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        for owners in SIZES:
            for changed in (True, False):
                rate, redis, client = await measure(server, owners, changed)
                what = "changed" if changed else "looked at"
                print(
                    f"{owners:4} owners {what:10} {rate:9,.0f}/s on one connection; for each: Redis {redis * 1e6:5.1f} µs, proxy"
                    f" {client * 1e6:5.1f} µs; one Redis at most {1 / redis if redis else 0:9,.0f}/s"
                )


if __name__ == "__main__":
    asyncio.run(main())
