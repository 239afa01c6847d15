"""The logs of a proxy and who writes to them. In: settings. Out: what the other parts tell things to, and a usage log that is
written to a folder, to a topic, to both, or nowhere."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.observe.lines import Author, iso
from proxy.observe.operations import Log
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import Busiest, UsageLog
from proxy.observe.watcher import Observer
from proxy.observe.writer import Folder, LogDestination, LogWriter
from proxy.pieces import in_pieces
from proxy.process.start_error import StartError, reason_of
from proxy.session.tally import Tally
from proxy.upstream.connector import Upstream

if TYPE_CHECKING:
    from proxy.upstream.log_topic import LogTopic


@dataclass(frozen=True)
class Logs:
    """`folder` and `topic` are where the usage log goes; `writer` is None where it goes nowhere."""

    author: Author
    tally: Tally
    folder: Folder | None
    topic: LogTopic | None
    writer: LogWriter | None
    usage: UsageLog
    throttle_status: ThrottleStatus
    observer: Observer

    def open(self) -> None:
        """Begin to write; `StartError` when the folder cannot be used."""
        if self.folder is not None:
            try:
                self.folder.make()
            except OSError as e:
                where = self.folder.name
                raise StartError(f"cannot write the usage log to {where}: {reason_of(e)}; set `logs.usage.path`") from None
        if self.writer is not None:
            self.writer.start()

    async def close_intervals(self) -> None:
        """Close each interval of the usage log when it is due."""
        while True:
            await asyncio.sleep(self.usage.due_in)
            if not self.usage.due_in:
                await in_pieces(self.usage.closing())

    async def finish(self) -> None:
        """Nothing more comes: write the rest."""
        await asyncio.to_thread(self.usage.stop)
        if self.topic is not None:
            await self.topic.finish()


def make_logs(
    settings: Settings,
    servers: Callable[[], Iterable[HostPort]],
    upstream: Upstream,
    busiest: Busiest,
    log: Log,
) -> Logs:
    """`servers`: brokers to ask, the known ones first. `busiest`: the users with most producer ids."""
    usage, clock = settings.logs.usage, asyncio.get_running_loop().time
    author, tally = Author(settings.proxy_id, secrets.token_hex(8)), Tally(usage.max_keys)
    folder, topic = None, None
    if usage.path is not None:
        path, size, age = Path(usage.path), usage.rotate_size, usage.rotate_interval
        folder = Folder(path, author, rotate_size=size, rotate_interval=age, clock=time.monotonic)
    if usage.topic is not None:
        from proxy.upstream.log_topic import LogTopic  # aiokafka takes time and memory: only where it is needed

        topic = LogTopic(usage.topic, author.proxy, usage.queue_lines, servers, upstream, log)
    writer = _writer([place for place in (folder, topic) if place is not None], author, usage.queue_lines, log)
    detail = "times in the logs follow it; quotas and intervals go by a clock that is never set"
    usage_log = UsageLog(
        tally,
        author,
        writer,
        usage.decisions_per_interval,
        time.time,
        time.monotonic,
        busiest,
        length=usage.interval,
        jumped=lambda seconds: log.warning("wall clock jumped", seconds=round(seconds, 3), detail=detail),
    )
    status = ThrottleStatus(clock, time.time)
    return Logs(author, tally, folder, topic, writer, usage_log, status, Observer(log, usage_log, status))


def _writer(places: list[LogDestination], author: Author, queue_lines: int, log: Log) -> LogWriter | None:
    if not places:
        return None
    return LogWriter(
        places,
        author,
        queue_lines=queue_lines,
        wall=lambda: iso(time.time()),
        complain=lambda place, reason: log.error("usage log cannot be written", place=place, reason=reason),
    )
