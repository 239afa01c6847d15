"""A proxy of several workers: the supervisor speaks for them. In: settings, files that change. Out: one admin listener, one
readiness, one answer to reloads; `StartError`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import Metric

from proxy.config.models import Settings
from proxy.observe.metrics import settings_metrics, skipped_records
from proxy.observe.operations import Log
from proxy.process.admin import admin_address, open_admin
from proxy.process.alone import Alone
from proxy.process.ledger_topic import make_follower
from proxy.process.proxy import TELL_READY, Load, files_of
from proxy.process.quota_topic import make_quota_topic
from proxy.process.reload import Reloader
from proxy.process.service_manager import tell_service_manager
from proxy.process.start_error import StartError
from proxy.process.workers import Workers
from proxy.supervise import Supervisor
from proxy.tls import UPSTREAM, contexts_of
from proxy.upstream.cluster_relay import ClusterRelay
from proxy.upstream.connector import Upstream
from proxy.upstream.quota_relay import QuotaRelay

LOOK_EVERY: Final = 0.1
"""Seconds between two looks at whether all workers are ready, until systemd is told so."""


class Supervised:
    """A proxy of several workers, as `serve` runs one: it starts, reloads and stops."""

    def __init__(self, settings: Settings, count: int, load: Load, path: Path | None, log: Log) -> None:
        self.settings, self._log = settings, log
        self._alone = Alone(settings, log, asyncio.get_running_loop().time)
        self.supervisor = Supervisor(log)
        self.failed = self.supervisor.failed
        self.reloader = Reloader(settings, load, self._use, partial(files_of, path), log)
        self._contexts, upstream = contexts_of(settings), settings.upstream
        way = Upstream(upstream.connect_timeout, lambda: self._contexts[UPSTREAM], upstream.sasl)
        cluster = ClusterRelay(way, upstream.bootstrap_servers)
        self._ledger_topic = self._alone.ledger_topic = make_follower(settings, cluster.addresses, way, log)
        self._relay = QuotaRelay(log)
        self._quota_topic = make_quota_topic(settings, cluster.addresses, way, log, self._alone.altered, self._relay.look)
        if self._quota_topic is not None:
            self._quota_topic.reader, self._relay.topic = self._relay, self._quota_topic
        self._workers = Workers(settings, count, log, {**self._relay.answers(), **cluster.answers()}, self._ledger_topic)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all workers; `StartError` when one cannot, or the admin listener."""
        self._admin = await open_admin(self.settings, self, self._log)
        try:
            started = await self._workers.start()
        except (StartError, asyncio.CancelledError):
            await self._admin.cleanup()
            raise
        for name, topic in (("ledger topic", self._ledger_topic), ("quota topic", self._quota_topic)):
            if topic is not None:
                self._tasks.append(self.supervisor.keep(name, topic.run))
        self._tasks += [
            self.supervisor.keep("reload", self.reloader.run),
            self.supervisor.keep("readiness", self._tell_ready, once=True),
        ]
        admin = admin_address(self.settings, self._admin)
        self._log.info("started", **started, admin=admin, workers=self._workers.count)
        self._alone.tell()

    def _use(self, settings: Settings) -> None:
        self._contexts = contexts_of(settings)
        self._workers.use(settings)

    async def _tell_ready(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_READY):
                while await self.not_ready() is not None:  # noqa: ASYNC110  (it has several reasons)
                    await asyncio.sleep(LOOK_EVERY)
        tell_service_manager("READY=1")

    async def stop(self, hurry: asyncio.Event) -> None:
        """Let all workers drain."""
        tell_service_manager("STOPPING=1")
        self._log.info("stopping", workers=self._workers.count)
        for task in self._tasks:
            task.cancel()
        await self._workers.stop(hurry)
        await self._admin.cleanup()
        self._log.info("stopped")

    async def metrics(self) -> Iterable[Metric | None]:
        reloader = self.reloader
        own = list(settings_metrics(reloader.current, reloader.applied, reloader.refused, alone=self._alone.reason is not None))
        if self._ledger_topic is not None:
            own.append(skipped_records(self._ledger_topic.skipped))
        names = {metric.name for metric in own}
        return [*(metric for metric in await self._workers.metrics() if metric.name not in names), *own]

    async def not_ready(self) -> str | None:
        return "stopping" if self._workers.stopping.is_set() else await self._workers.not_ready()

    async def warnings(self) -> list[str]:
        return await self._workers.warnings()

    async def live(self) -> list[bytes]:
        about = {"settings_current": self.reloader.current, "enforces_alone": self._alone.reason is not None}
        return await self._workers.live(about)

    async def client(self, user: str, client_id: str | None) -> dict[str, Any]:
        return await self._workers.client(user, client_id)

    async def tenants(self) -> dict[str, Any]:
        return await self._workers.tenants()

    async def throttles(self) -> dict[str, Any]:
        return {**await self._workers.throttles(), "enforces_alone": self._alone.reason}
