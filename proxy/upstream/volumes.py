"""Looks at the volumes again and again: those of all brokers, or of this machine.

In: settings, who the brokers are. Out: checks for the storage quota, in which what could not be seen stands as a gap; lines in
the operations log and in the usage log. Every broker has its own time to answer, and all are asked side by side. Answers about
replicas are large, so they are asked for where they matter only, and read in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from heapq import nlargest
from itertools import chain
from typing import Final, NamedTuple, Protocol

from proxy.config.storage import Storage as Settings
from proxy.config.storage import UsedLimit
from proxy.observe.volumes import VolumeLog
from proxy.upstream.cluster_client import ClusterClient, read_log_dirs_of
from proxy.upstream.connector import BrokerError
from proxy.wire.log_dirs import LogDir, read_log_dirs
from proxy.wire.metadata import Broker
from quota.kinds.storage import Check, Event, Gap, Key, Reason, Replicas, Storage, Volume

LARGEST: Final = 1000
"""Topics of a volume that the usage log can name."""
REPLICAS_EVERY: Final = 60.0
"""Seconds after which replicas are asked for again where no volume is in trouble."""
ALL_LOG_DIRS: Final = "all log dirs"
AGAIN: Final = 1.0
"""Seconds after which a proxy that starts asks once more where a broker has closed the connection: it may want a login, or stop."""
_NOT_AUTHORIZED: Final = 31

WantsReplicas = Callable[[int, float], bool]
"""(broker id, now): is it to be asked for its replicas?"""


class Source(Protocol):
    """Where volumes are seen."""

    async def look(self, at: float) -> Check:
        """One look, that of the tick `at`. `BrokerError.too_old` when it can never work."""


class Look(NamedTuple):
    """What one broker answered."""

    volumes: list[Volume]
    replicas: dict[Key, Replicas]
    gaps: list[Gap]


class ClusterSource:
    """All brokers of the cluster. `timeout` in seconds, of each broker."""

    def __init__(self, cluster: ClusterClient, timeout: float, wants_replicas: WantsReplicas) -> None:
        self._cluster, self._timeout, self._wants_replicas = cluster, timeout, wants_replicas

    async def look(self, at: float) -> Check:
        try:
            brokers = await self._cluster.active_brokers(self._timeout)
        except BrokerError as e:
            if e.too_old or e.refused:
                raise
            return Check(at, gaps=(Gap(Reason.CLUSTER, str(e)),))
        looks = await asyncio.gather(*(self._look_at(broker, at) for broker in brokers))
        replicas = dict(chain.from_iterable(look.replicas.items() for look in looks))
        active = frozenset[int | None](broker.node_id for broker in brokers)
        volumes = tuple(chain.from_iterable(look.volumes for look in looks))
        gaps = tuple(chain.from_iterable(look.gaps for look in looks))
        return Check(at, volumes, gaps=gaps, brokers=active, replicas=replicas)

    async def _look_at(self, broker: Broker, at: float) -> Look:
        replicas = self._wants_replicas(broker.node_id, at)
        read = partial(understand, broker.node_id, replicas=replicas)
        try:
            return await read_log_dirs_of(self._cluster, broker, None if replicas else {}, self._timeout, read)
        except BrokerError as e:
            if e.too_old:
                raise
            return Look([], {}, [Gap(Reason.BROKER, f"broker {broker.node_id}: {e}", broker.node_id)])


def understand(broker_id: int, frame: bytes, version: int, replicas: bool) -> Look:
    """What a broker's answer says. `BadBytes` for what is none."""
    error, log_dirs = read_log_dirs(frame, version)
    look = Look([], {}, [])
    if error:
        reason = Reason.NOT_AUTHORIZED if error == _NOT_AUTHORIZED else Reason.BROKER
        why = "it wants Describe on the cluster" if error == _NOT_AUTHORIZED else f"error {error}"
        look.gaps.append(Gap(reason, f"broker {broker_id} does not describe its log dirs: {why}", broker_id))
        return look
    if not log_dirs:
        look.gaps.append(Gap(Reason.BROKER, f"broker {broker_id} names no log dir", broker_id))
    for log_dir in log_dirs:
        volume = Volume(broker_id, log_dir.path, log_dir.total, log_dir.usable)
        wrong = f"error {log_dir.error_code}" if log_dir.error_code else _wrong(volume)
        if wrong:
            look.gaps.append(Gap(Reason.VOLUME, f"{volume}: {wrong}", broker_id, log_dir.path))
            continue
        look.volumes.append(volume)
        if replicas:
            look.replicas[volume.key] = _replicas(log_dir)
    return look


def _wrong(volume: Volume) -> str:
    """What cannot be true of its sizes; empty when they may be."""
    return "" if volume.total > 0 and 0 <= volume.available <= volume.total else f"{volume.available} of {volume.total} bytes"


def _replicas(log_dir: LogDir) -> Replicas:
    sizes = {topic: sum(partitions.values()) for topic, partitions in log_dir.sizes.items()}
    largest = {topic: sizes[topic] for topic in nlargest(LARGEST, sizes, key=lambda topic: sizes[topic])}
    partitions = {topic: frozenset(held) for topic, held in log_dir.sizes.items()}
    return Replicas(partitions, largest, sum(sizes.values()))


Sights = tuple[list[Volume], list[Gap], int]
"""volumes, what could not be seen, bytes used on all file systems"""


def _in_thread(work: Callable[[], Sights]) -> asyncio.Future[Sights]:
    """Run the work in a daemon thread, so that it cannot delay the end of the process: a call to a network file system that is
    away does not return. An error of the work is the future's."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Sights] = loop.create_future()

    def tell(found: Sights | None, error: BaseException | None) -> None:
        if future.done():
            return
        if found is None:
            future.set_exception(error or RuntimeError("nothing was found"))
        else:
            future.set_result(found)

    def run() -> None:
        found, error = None, None
        try:
            found = work()
        except BaseException as e:  # the future hands it to the task that waits
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, found, error)

    threading.Thread(target=run, name="volumes", daemon=True).start()
    return future


class LocalSource:
    """File systems of this machine: those of a broker beside the proxy. With `max_used` all of them count as one volume."""

    def __init__(self, log_dirs: Iterable[str], broker_id: int | None, max_used: UsedLimit | None, timeout: float) -> None:
        self._log_dirs, self._broker_id = list(log_dirs), broker_id
        self._max_used, self._timeout = max_used, timeout
        self._looking: asyncio.Future[Sights] | None = None

    async def look(self, at: float) -> Check:
        if self._looking is None or self._looking.done():
            self._looking = _in_thread(self._look)
        try:
            async with asyncio.timeout(self._timeout):
                volumes, gaps, used = await asyncio.shield(self._looking)
        except TimeoutError:
            return Check(at, gaps=(Gap(Reason.VOLUME, f"the file systems do not answer within {self._timeout:g} s"),))
        brokers = frozenset({self._broker_id})
        if self._max_used is None:
            return Check(at, tuple(volumes), gaps=tuple(gaps), brokers=brokers)
        hard = self._max_used.hard
        all_log_dirs = Volume(self._broker_id, ALL_LOG_DIRS, hard, max(hard - used, 0))
        return Check(at, () if gaps else (all_log_dirs,), tuple(volumes), tuple(gaps), brokers)

    def _look(self) -> Sights:
        volumes, gaps, used = [], [], {}
        for log_dir in self._log_dirs:
            try:
                found, device = os.statvfs(log_dir), os.stat(log_dir).st_dev
            except OSError as e:
                gaps.append(Gap(Reason.VOLUME, f"{log_dir}: {os.strerror(e.errno or 0)}", self._broker_id, log_dir))
                continue
            volume = Volume(self._broker_id, log_dir, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
            if wrong := _wrong(volume):
                gaps.append(Gap(Reason.VOLUME, f"{log_dir}: {wrong}", self._broker_id, log_dir))
                continue
            volumes.append(volume)
            used[device] = volume.total - volume.available
        return volumes, gaps, sum(used.values())


class Watch:
    """Keeps the storage quota informed. `settings` None: there is none. `observe` is told what a check saw; `clock`
    gives monotonic seconds."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings | None,
        observe: Callable[[Check], list[Event]],
        cluster: ClusterClient,
        log: VolumeLog,
        clock: Callable[[], float],
    ) -> None:
        self._storage, self._settings = storage, settings
        self._tell, self._cluster = observe, cluster
        self._log, self._clock = log, clock
        self._changed = asyncio.Event()
        self._source = self._source_of(settings)

    def change(self, settings: Settings | None) -> None:
        """These settings hold from now on: if they are others, with a new check."""
        if settings != self._settings:
            self._settings, self._source = settings, self._source_of(settings)
            self._changed.set()

    async def start(self) -> None:
        """The first check. `BrokerError` when it can never work with this cluster."""
        if self._source is None:
            return
        try:
            check = await self._source.look(self._clock())
        except BrokerError as e:
            if not e.refused:
                raise
            await asyncio.sleep(AGAIN)
            check = await self._source.look(self._clock())
        self._observe(check)

    async def run(self) -> None:
        """Until cancelled: a check at every multiple of the interval (`moments.py`), and when settings changed. A slow check
        costs those that would have begun meanwhile."""
        tick, number = self._clock(), None
        while True:
            interval = self._settings.check_interval if self._source is not None and self._settings is not None else None
            if interval is not None:
                now = int(self._clock() // interval)
                number = now + 1 if number is None else max(now, number + 1)
                tick = number * interval
            if await self._changes_until(tick if interval is not None else None):
                tick, number = self._clock(), None
            if self._source is not None:
                self._observe(await self._look(self._source, tick))

    async def _changes_until(self, when: float | None) -> bool:
        """True if the settings change before this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(when):
                await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def _look(self, source: Source, at: float) -> Check:
        """A look that is a gap if it fails."""
        try:
            return await source.look(at)
        except BrokerError as e:
            return Check(at, gaps=(Gap(Reason.CLUSTER, str(e)),))

    def _observe(self, check: Check) -> None:
        events = self._tell(check)
        self._log.checked(check, self._storage, events, self._settings.source if self._settings is not None else "")

    def _source_of(self, settings: Settings | None) -> Source | None:
        if settings is None or not settings.on:
            return None
        if settings.source == "local":
            return LocalSource(settings.log_dirs, settings.broker_id, settings.max_used, settings.check_timeout)
        wants = partial(_wants_replicas, self._storage, needed=settings.scope == "volume" or self._log.wanted)
        return ClusterSource(self._cluster, settings.check_timeout, wants)


def _wants_replicas(storage: Storage, broker_id: int, now: float, *, needed: bool) -> bool:
    return needed and storage.wants_replicas(broker_id, now, REPLICAS_EVERY)
