"""`python -m tests.observe.cost_turns [CLIENTS] [VIEWERS]`: how long the event loop is held by what the admin listener tells.

A proxy with every kind of quota and this many clients that do nothing is asked for the console by this many viewers for 20 s, and
scraped every 5. Its event loop is that of asyncio, whose callbacks can be timed one by one. CPU time is counted, so a busy machine
does not matter much."""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import multiprocessing
import sys
import tempfile
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import aiohttp

from benchmarks.bench.__main__ import EVERY_QUOTA
from benchmarks.console import _look
from proxy.clients.admin import start_admin
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.observe.operations import silent_log
from proxy.process.proxy import Proxy
from proxy.process.tuning import prepare_process, tune_gc
from proxy.session.tally import TallyKey

SECONDS = 20.0
APIS = (0, 1, 3)
SHOWN = 0.0002
"""Seconds of CPU from which on a turn is listed."""


class Connection(SimpleNamespace):
    """As much of one as the console looks at."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def fill(proxy: Proxy, clients: int) -> None:
    """As if so many clients had sent something."""
    for i in range(clients):
        for api in APIS:
            proxy.logs.tally.take(TallyKey("User:ANONYMOUS", f"client-{i}", None, None, api)).requests += 1
        client = SimpleNamespace(user="ANONYMOUS", client_id=f"client-{i}", remembered={})
        session = SimpleNamespace(client=client, state=SimpleNamespace(name="OPEN"))
        connection: Any = Connection(session=session, age=1.0, broker="b", node_id=1, muted=False)
        proxy.shared.connections.add(connection)


class Turns:
    """CPU of each callback of the event loop that takes longer than `SHOWN`, by what it is."""

    def __init__(self) -> None:
        self.slow: defaultdict[str, list[float]] = defaultdict(list)
        self._collecting = 0.0
        gc.callbacks.append(self._collect)
        run = asyncio.events.Handle._run  # type: ignore[attr-defined]

        def timed(handle: Any) -> None:
            callback, began = handle._callback, time.thread_time()
            run(handle)
            self._took(time.thread_time() - began, callback)

        asyncio.events.Handle._run = timed  # type: ignore[attr-defined]

    def _took(self, seconds: float, callback: Any) -> None:
        if seconds > SHOWN:
            task = getattr(callback, "__self__", None)
            what = task.get_coro() if isinstance(task, asyncio.Task) else callback
            self.slow[getattr(what, "__qualname__", str(what))].append(seconds)

    def _collect(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        elif (seconds := time.thread_time() - self._collecting) > SHOWN:
            self.slow[f"of these, garbage collection {about['generation']}"].append(seconds)


async def measure(clients: int, viewers: int) -> None:
    settings = Settings.model_validate(
        {**EVERY_QUOTA, "upstream": {"bootstrap_servers": ["127.0.0.1:1"]}, "logs": {"usage": {"path": tempfile.mkdtemp()}}}
    )
    proxy = Proxy(settings, lambda: settings, None, silent_log())
    proxy.logs.open()
    fill(proxy, clients)
    admin = await start_admin(HostPort("127.0.0.1", 0), proxy, silent_log())
    port = admin.addresses[0][1]
    context = multiprocessing.get_context("spawn")  # a fork would have this event loop
    looks = context.Value("q", 0)
    looking = context.Process(target=_look, args=(port, viewers, looks), daemon=True)
    looking.start()
    intervals = asyncio.create_task(proxy.logs.close_intervals())
    tune_gc()
    await asyncio.sleep(11)
    turns, began = Turns(), time.thread_time()
    async with aiohttp.ClientSession() as session:
        for _ in range(int(SECONDS / 5)):
            await asyncio.sleep(5)
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                await answer.read()
    print(f"{clients:,} clients, {viewers} viewers, {looks.value} answers: {(time.thread_time() - began) / SECONDS:.1%} of a core")
    for what, seconds in sorted(turns.slow.items(), key=lambda it: -max(it[1])):
        longest = ", ".join(f"{it * 1e3:.2f}" for it in sorted(seconds, reverse=True)[:5])
        print(f"  {what}: {len(seconds)} above {SHOWN * 1e3:.1f} ms; longest {longest} ms")
    looking.kill()
    intervals.cancel()
    proxy.logs.usage.stop()
    await admin.cleanup()


def main() -> None:
    prepare_process()
    clients, viewers = (*map(int, sys.argv[1:]), *(1000, 100)[len(sys.argv) - 1 :])
    asyncio.run(measure(clients, viewers))


if __name__ == "__main__":
    main()
