"""Runs a proxy until it is told to stop. In: settings, signals. Out: the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import uvloop

from proxy.config.models import Settings
from proxy.observe.operations import operations_log
from proxy.process.proxy import Load, Proxy
from proxy.process.reload import Reloader
from proxy.process.start_error import StartError
from proxy.process.tuning import tune_gc, tune_malloc
from proxy.tls import TlsError


async def _serve(settings: Settings, load: Load, path: Path | None) -> int:
    log = operations_log(settings.logs.level, proxy=settings.proxy_id)
    loop = asyncio.get_running_loop()
    stopping, hurry, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (hurry if stopping.is_set() else stopping).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    try:
        proxy = Proxy(settings, load, path, log)
        await proxy.start()
    except (StartError, TlsError) as e:
        print(f"kafka-quota-proxy: {e}", file=sys.stderr)  # noqa: T201
        return 1
    tune_gc()
    hup = proxy.supervisor.keep("SIGHUP", partial(_on_hup, again, proxy.reloader))
    waits = [asyncio.create_task(event.wait()) for event in (stopping, proxy.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    hup.cancel()
    await proxy.stop(hurry)
    return 1 if proxy.failed.is_set() else 0


async def _on_hup(again: asyncio.Event, reloader: Reloader) -> None:
    while True:
        await again.wait()
        again.clear()
        await reloader.now("SIGHUP")


def run(settings: Settings, load: Load, path: Path | None = None) -> int:
    """Run a proxy until SIGTERM or SIGINT. `load` reads the settings again when they or their file, `path`, change."""
    tune_malloc()
    _raise_file_limit()
    sys.setswitchinterval(0.001)  # the thread of the usage log must not keep the event loop waiting
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, load, path))
    return 0


def _raise_file_limit() -> None:
    """Each client takes two descriptors; what the system allows is used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
