"""Puts the parts together, runs them, stops them. In: settings. Out: a running proxy; `run` returns the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import uvloop

from proxy.apis.registry import by_key, default_handlers, understood
from proxy.cluster.brokers import Brokers, Change, Hooks
from proxy.cluster.topics import Topics
from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.net.admin import start_admin
from proxy.net.connection import Shared
from proxy.net.directory import Directory
from proxy.net.follow import Follower
from proxy.net.listeners import Listeners
from proxy.net.tuning import tune_gc, tune_malloc
from proxy.observe.lines import Author, iso
from proxy.observe.metrics import Gauges, ProxyCollector, registry_of
from proxy.observe.operations import Log, operations_log
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.observe.writer import LogWriter
from proxy.session.port import Services
from proxy.session.tally import Tally
from quota.engine import Engine

SWEEP = 10.0
"""Seconds between clean-ups of what quotas no longer need."""


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


class Proxy:
    """One running proxy. Made on the event loop."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings, self._log = settings, log
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        self._draining = False
        self.failed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.engine = Engine(limits_of(settings))
        tally = Tally(settings.logs.usage.max_keys)
        self._author = Author(settings.proxy_id, secrets.token_hex(8))
        self._writer = self._make_writer()
        self._usage = UsageLog(tally, self._author, self._writer, settings.logs.usage.decisions_per_interval, time.time)
        self._observer = Observer(log, self._usage)
        self.brokers = Brokers(
            settings.upstream.bootstrap_servers,
            settings.listen.ports(),
            Hooks(self._listen, self._unlisten, self._changed),
            self._clock,
        )
        directory = Directory(self.brokers, Topics(), settings.listen.advertise)
        handlers = by_key(default_handlers())
        services = Services(
            directory,
            self.engine,
            tally,
            self._observer,
            understood(handlers),
            settings.quotas.default_partitions,
            settings.limits.max_frame,
        )
        self.shared = Shared(services, handlers, settings.upstream.connect_timeout)
        self._listeners = Listeners(settings.listen.bootstrap.host, self.shared, log)
        self.follower = Follower(
            self.brokers,
            settings.upstream.metadata_refresh,
            settings.upstream.connect_timeout,
            log,
        )
        gauges = Gauges(
            client_connections=lambda: len(self.shared.connections),
            brokers=lambda: len(self.brokers),
            upstream_up=lambda: self.follower.up,
            muted_connections=lambda: sum(connection.muted for connection in self.shared.connections),
        )
        self._registry = registry_of(ProxyCollector(self.engine, tally, self._usage, self._observer, gauges, self._clock))

    async def start(self) -> None:
        """Open all ports and begin to follow the cluster; `StartError` when a port or a folder cannot be had."""
        settings = self.settings
        bootstrap = settings.listen.bootstrap
        try:
            self.brokers.bootstrap_port = self._listeners.open(None, bootstrap.port, self.brokers.bootstrap_addresses)
        except OSError as e:
            raise StartError(
                f"cannot listen at {bootstrap}: {_reason(e)}; set `listen.bootstrap` or --listen to a free address"
            ) from None
        try:
            self._admin, admin_port = await start_admin(settings.admin.listen, self._registry, self.not_ready)
        except OSError as e:
            raise StartError(
                f"cannot listen at {settings.admin.listen}: {_reason(e)}; set `admin.listen` to a free address"
            ) from None
        if self._writer is not None:
            try:
                self._writer.start()
            except OSError as e:
                raise StartError(
                    f"cannot write the usage log to {settings.logs.usage.path}: {_reason(e)}; set `logs.usage.path`"
                ) from None
        self._tasks = [asyncio.create_task(work) for work in (self.follower.run(), self._intervals(), self._sweeps())]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        self._log.info(
            "started",
            bootstrap=str(HostPort(bootstrap.host, self.brokers.bootstrap_port)),
            admin=str(HostPort(settings.admin.listen.host, admin_port)),
            usage_log=settings.logs.usage.path or "off: set logs.usage.path or --logs to have one",
            quotas=len(settings.quotas.entities),
            boot=self._author.boot,
        )

    async def stop(self) -> None:
        """Drain: no new connections, idle ones close, the others have until `drain_timeout` to get their answers."""
        self._draining = True
        self._log.info("stopping", connections=len(self.shared.connections))
        self._listeners.close_all()
        deadline = self._clock() + self.settings.limits.drain_timeout
        while self.shared.connections and self._clock() < deadline:
            for connection in list(self.shared.connections):
                if not connection.session.in_flight:
                    connection.session.client_lost()
            await asyncio.sleep(0.05)
        for connection in list(self.shared.connections):
            connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.cleanup()
        await asyncio.to_thread(self._usage.stop)
        self._log.info("stopped")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """None of these ends by itself: a mistake in the program ends the proxy, rather than leave it half alive."""
        if not task.cancelled() and task.exception() is not None:
            self._log.critical("internal error", exc_info=task.exception())
            self.failed.set()

    def not_ready(self) -> str | None:
        """Why clients cannot be served, None when they can."""
        if self._draining:
            return "stopping"
        return None if self.follower.up else "the cluster does not answer"

    def _make_writer(self) -> LogWriter | None:
        usage = self.settings.logs.usage
        if usage.path is None:
            return None
        return LogWriter(
            Path(usage.path),
            self._author,
            rotate_size=usage.rotate_size,
            rotate_interval=usage.rotate_interval,
            queue_lines=usage.queue_lines,
            clock=time.monotonic,
            wall=lambda: iso(time.time()),
            complain=lambda folder, reason: self._log.error("usage log cannot be written", folder=folder, reason=reason),
        )

    def _listen(self, node_id: int, port: int) -> int | None:
        return self._listeners.open_for_broker(node_id, port, lambda: self.brokers.broker_addresses(node_id))

    def _unlisten(self, node_id: int) -> None:
        self._listeners.close(node_id)

    def _changed(self, change: Change) -> None:
        ports = {node_id: self.brokers.port(node_id) for node_id in (*change.joined, *change.moved)}
        self._log.info("brokers changed", joined=change.joined, moved=change.moved, left=change.left, ports=ports)

    async def _intervals(self) -> None:
        """Close an interval of the usage log on every multiple of its length on the wall clock, so that those of
        several proxies match."""
        length = self.settings.logs.usage.interval
        while True:
            end = (time.time() // length + 1) * length
            while (left := end - time.time()) > 0:  # noqa: ASYNC110  (a timer may wake a moment too early)
                await asyncio.sleep(left)
            self._usage.close_interval(end)

    async def _sweeps(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.engine.sweep(self._clock())
            self._observer.forget_quiet(set(self.engine.mutes.active(self._clock())))


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


async def _serve(settings: Settings) -> int:
    log = operations_log(settings.logs.level, proxy=settings.proxy_id)
    proxy = Proxy(settings, log)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        await proxy.start()
    except StartError as e:
        print(f"kafka-quota-proxy: {e}", file=sys.stderr)  # noqa: T201
        return 1
    tune_gc()
    waits = [asyncio.create_task(event.wait()) for event in (stopping, proxy.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await proxy.stop()
    return 1 if proxy.failed.is_set() else 0


def run(settings: Settings) -> int:
    """Run a proxy until SIGTERM or SIGINT."""
    tune_malloc()
    sys.setswitchinterval(0.001)  # the thread of the usage log must not keep the event loop waiting
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))
    return 0
