"""Runs a proxy, or a supervisor of several workers, until it is told to stop. In: settings, signals. Out: the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from functools import partial
from pathlib import Path

import uvloop

from proxy.config.models import Settings, deprecated_names
from proxy.config.workers import worker_count
from proxy.observe.operations import Log, operations_log
from proxy.process.proxy import Load, Proxy
from proxy.process.reload import Reloader
from proxy.process.start_error import StartError
from proxy.process.starting import has_started
from proxy.process.supervised import Supervised
from proxy.process.tuning import prepare_process, tune_gc
from proxy.tls import TlsError


class Signals:
    """What the operator wants: SIGTERM and SIGINT to stop, a second one to hurry, SIGHUP to read settings again."""

    def __init__(self) -> None:
        self.stop, self.hurry, self.reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since the command began

    def _stop(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()


async def _serve(settings: Settings, load: Load, path: Path | None) -> int:
    log = operations_log(settings.logs.level, settings.logs.format, proxy=settings.proxy_id)
    for note in deprecated_names(settings):
        log.warning("setting is deprecated", detail=note)
    signals = Signals()
    try:
        proxy = _make(settings, load, path, log)
        if not await has_started(proxy.start(), signals.stop):
            return 0
    except (StartError, TlsError) as e:
        print(f"kafka-quota-proxy: {e}", file=sys.stderr)  # noqa: T201
        return 1
    tune_gc()
    hup = proxy.supervisor.keep("SIGHUP", partial(_on_hup, signals.reload, proxy.reloader))
    waits = [asyncio.create_task(event.wait()) for event in (signals.stop, proxy.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    hup.cancel()
    await proxy.stop(signals.hurry)
    return 1 if proxy.failed.is_set() else 0


def _make(settings: Settings, load: Load, path: Path | None, log: Log) -> Proxy | Supervised:
    count = worker_count(settings)
    return Proxy(settings, load, path, log) if count == 1 else Supervised(settings, count, load, path, log)


async def _on_hup(again: asyncio.Event, reloader: Reloader) -> None:
    while True:
        await again.wait()
        again.clear()
        await reloader.now("SIGHUP")


def run(settings: Settings, load: Load, path: Path | None = None) -> int:
    """Run a proxy until SIGTERM or SIGINT. `load` reads the settings again when they or their file, `path`, change."""
    prepare_process()
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, load, path))
    return 0
