"""Puts the parts together, runs them, stops them. In: settings. Out: a running proxy; `run` returns the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import secrets
import signal
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from proxy.apis.registry import default_handlers, understood
from proxy.clients.admin import start_admin
from proxy.clients.connection import ClientConnection, Shared
from proxy.clients.listeners import ClientListener
from proxy.clients.overdue import guard
from proxy.clients.turns import Turns
from proxy.cluster.brokers import Brokers, Change
from proxy.cluster.topics import Topics
from proxy.compiled import hot_path
from proxy.config.limits import limits_of, windows_of
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.hashing import murmur3
from proxy.identity.certificates import parse_rules
from proxy.observe.lines import Author, iso
from proxy.observe.metrics import Gauges, ProxyCollector, registry_of
from proxy.observe.operations import Log, operations_log
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.volumes import VolumeLog
from proxy.observe.watcher import Observer
from proxy.observe.writer import Folder, LogDestination, LogWriter
from proxy.process.producer_id_snapshot import ProducerIdSnapshot
from proxy.process.reload import Reloader
from proxy.process.service_manager import tell_service_manager
from proxy.process.tuning import tune_gc, tune_malloc
from proxy.session.admission import Admission
from proxy.session.budget import Budget, Census
from proxy.session.plans import Handlers
from proxy.session.port import Services
from proxy.session.session import State
from proxy.session.tally import Tally
from proxy.supervise import Supervisor, Work
from proxy.tls import TlsError, client_context, server_context, watched_files
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.directory import Directory
from proxy.upstream.dynamic_quotas import DynamicQuotas
from proxy.upstream.metadata_poller import MetadataPoller
from proxy.upstream.volumes import Watch
from quota.engine import Engine
from quota.kinds.producer_ids import Usage
from quota.overrides import count

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet
    from proxy.upstream.log_topic import LogTopic
    from proxy.upstream.quota_topic import QuotaTopic

Load = Callable[[], Settings]
"""Reads the settings; `SettingsError` when they cannot be used."""

UPSTREAM: Final = "<upstream>"
SWEEP: Final = 10.0
"""Seconds between clean-ups of what quotas no longer need."""
TELL_READY: Final = 30.0
"""Seconds after which systemd is told that the proxy is ready though the cluster does not answer."""
DRAIN_POLL: Final = 0.05
"""Seconds between two looks at what is left while connections drain."""
DRAIN_STEP: Final = 0.4
"""Seconds between the connections to one broker and those to the next; all of them take a quarter of the time at most."""
DRAIN_AT_ONCE: Final = 500
"""Connections that are drained before others have their turn."""


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


class Proxy:
    """One running proxy. Made on the event loop; `TlsError` when certificates cannot be used. `load` reads the settings
    again, `path` is their file."""

    def __init__(self, settings: Settings, load: Load, path: Path | None, log: Log) -> None:
        self.settings, self._log = settings, log
        loop = asyncio.get_running_loop()
        self._clock, self._born = loop.time, loop.time()
        self._drain_timeout, self._max_entities = settings.limits.drain_timeout, settings.metrics.max_entities
        self.supervisor = Supervisor(log)
        self.failed = self.supervisor.failed
        self._tasks: list[asyncio.Task[None]] = []
        self._shipping: list[asyncio.Task[None]] = []
        self.engine = Engine(limits_of(settings), murmur3, windows_of(settings))
        self._snapshot = ProducerIdSnapshot(settings.producer_ids_file, self.engine.producer_ids, self._clock, time.time, log)
        tally = Tally(settings.logs.usage.max_keys)
        self._author = Author(settings.proxy_id, secrets.token_hex(8))
        self._contexts = contexts_of(settings)
        upstream = settings.upstream
        self._upstream = Upstream(upstream.connect_timeout, lambda: self._contexts[UPSTREAM], upstream.sasl)
        self._folder, self._log_topic = self._make_places()
        self._writer = self._make_writer()
        usage = settings.logs.usage
        self._usage = UsageLog(
            tally,
            self._author,
            self._writer,
            usage.decisions_per_interval,
            time.time,
            time.monotonic,
            self._producer_ids,
            length=usage.interval,
            jumped=self._clock_jumped,
        )
        self._throttle_status = ThrottleStatus(self._clock, time.time)
        self._observer = Observer(log, self._usage, self._throttle_status)
        self._topic, self._dynamic_quotas = self._make_dynamic_quotas()
        self._ledger = self._make_ledger()
        self.shared = self._make_shared(tally)
        if self._ledger is not None:
            self._ledger.count(self.shared.services.census)
        self._listeners = [
            ClientListener(name, listener, settings.fixed_ports, self.shared, partial(self._context, name), log)
            for name, listener in settings.listeners.items()
        ]
        self.brokers = Brokers(
            settings.upstream.bootstrap_servers,
            [listener.route for listener in self._listeners],
            self._changed,
            self._clock,
            given=settings.upstream.brokers,
        )
        for listener in self._listeners:
            listener.bootstrap_addresses, listener.broker_addresses = (
                self.brokers.bootstrap_addresses,
                self.brokers.broker_addresses,
            )
        self._directory.brokers = self.brokers
        self.follower = MetadataPoller(
            self.brokers,
            self._directory,
            lambda: self.engine.limits.topics is not None,
            settings.upstream.metadata_refresh,
            self._upstream,
            log,
            self._served,
        )
        self._volumes = Watch(
            self.engine.storage,
            settings.quotas.storage,
            lambda check: self.engine.observe(check, lambda: self._usage.produced),
            self.brokers.addresses,
            self._upstream,
            VolumeLog(log, self._usage),
            self._clock,
        )
        self.reloader = Reloader(settings, load, self._use, partial(_files, path), log)
        self._registry = registry_of(ProxyCollector(self.engine, tally, self._usage, self._observer, self._gauges(), self._clock))

    def _served(self) -> None:
        """The cluster answered the proxy; without an identity of its own, that shows that the cluster wants no logins."""
        if self.settings.upstream.sasl is None:
            self.shared.services.admission.served(self._clock())

    def _make_dynamic_quotas(self) -> tuple[QuotaTopic | None, DynamicQuotas]:
        """Where quotas are altered, and the topic that keeps them, if there is to be one."""
        dynamic = self.settings.quotas.dynamic
        topic = None
        if dynamic is not None:
            from proxy.upstream.quota_topic import QuotaTopic  # aiokafka takes time and memory: only where it is needed

            topic = QuotaTopic(dynamic.topic, self._servers, self._upstream, self._log)
        return topic, DynamicQuotas(self.settings, self.engine, topic, self._clock, lambda: iso(time.time()), self._log)

    def _make_ledger(self) -> Fleet | None:
        """What is shared with other proxies, if anything is. redis-py takes memory, and is imported only then."""
        if self.settings.ledger.kind == "local":
            return None
        from proxy.fleet.fleet import Fleet

        return Fleet(self.settings.ledger, self.engine, self._author.boot, self._clock, self._log)

    def _servers(self) -> Iterable[HostPort]:
        """Brokers to ask, the known ones first."""
        return self.brokers.addresses()

    def _producer_ids(self) -> tuple[float, list[tuple[str, Usage]]]:
        """The users with most producer ids, for the usage log: as many as have metrics."""
        ids = self.engine.producer_ids
        return ids.windows.seconds, ids.busiest(self._max_entities, self._clock()).shown

    def _make_shared(self, tally: Tally) -> Shared:
        """What all connections share."""
        settings, handlers = self.settings, Handlers(default_handlers())
        limits = settings.limits
        self._directory = Directory(Topics(self.engine.bytes_in), settings.quotas.default_partitions)
        services = Services(
            self._directory,
            self.engine,
            tally,
            self._observer,
            understood(handlers),
            budget=Budget(limits.memory_total),
            census=Census(limits.max_connections),
            dynamic_quotas=self._dynamic_quotas,
            admission=Admission(logins=settings.upstream.sasl is not None),
        )
        _bound(services, settings)
        return Shared(services, handlers, self._upstream.connect, Turns(asyncio.get_running_loop()))

    def _gauges(self) -> Gauges:
        services, connections = self.shared.services, self.shared.connections
        return Gauges(
            client_connections=lambda: len(connections),
            brokers=lambda: len(self.brokers),
            upstream_up=lambda: self.follower.up,
            muted_connections=lambda: sum(connection.muted for connection in connections),
            memory_held=lambda: services.budget.held,
            memory_waiting=lambda: services.budget.waiting,
            max_entities=lambda: self._max_entities,
            settings_current=lambda: self.reloader.current,
            settings_applied=lambda: self.reloader.applied,
            settings_refused=lambda: self.reloader.refused,
            dynamic_quotas=lambda: count(self._dynamic_quotas.dynamic),
            dynamic_quotas_up=lambda: float(self._topic is not None and self._topic.why_not is None),
            dynamic_quotas_configured=lambda: float(self._topic is not None),
            quota_changes=lambda: self._dynamic_quotas.changes,
            quota_records_skipped=lambda: self._dynamic_quotas.skipped,
            ledger=lambda: None if self._ledger is None else self._ledger.stands(),
            usage_log_topic_up=lambda: float(self._log_topic is not None and self._log_topic.up),
            usage_log_topic_configured=lambda: float(self._log_topic is not None),
            usage_log_topic_waiting=lambda: 0 if self._log_topic is None else self._log_topic.waiting,
        )

    def _context(self, name: str) -> ssl.SSLContext | None:
        return self._contexts[name]

    def _use(self, settings: Settings) -> None:
        """Take what can change while the proxy runs from these settings: all of it or, with `TlsError`, nothing. A listener
        that they leave out stays as it is until a restart."""
        contexts, listeners = contexts_of(settings), settings.listeners
        rules = {name: parse_rules(listener.tls.principal_mapping_rules) for name, listener in listeners.items() if listener.tls}
        self._dynamic_quotas.use(settings)
        self._contexts = {**self._contexts, **contexts}
        for listener in self._listeners:
            listener.rules = rules.get(listener.name, listener.rules)
        self._volumes.change(settings.quotas.storage)
        _bound(self.shared.services, settings)
        self._drain_timeout, self._max_entities = settings.limits.drain_timeout, settings.metrics.max_entities

    async def start(self) -> None:
        """Open all ports and begin to follow the cluster; `StartError` when a port or a folder cannot be had, or when the cluster
        cannot tell how full its volumes are."""
        settings = self.settings
        try:
            await self._volumes.start()
        except BrokerError as e:
            remedy = "set `upstream.sasl`" if e.refused else "set `quotas.storage.source` to `local`, or leave `quotas.storage` out"
            raise StartError(f"`quotas.storage` needs to know how full volumes are: {e}; {remedy}") from None
        try:
            self._snapshot.load()
        except OSError as e:
            where = settings.producer_ids_file
            raise StartError(f"cannot keep producer ids in {where}: {_reason(e)}; set `quotas.producer_ids.state_file`") from None
        try:
            self._admin, admin_port = await start_admin(
                settings.admin.listen, self._registry, self.not_ready, self._seen, self._log
            )
        except OSError as e:
            raise StartError(
                f"cannot listen at {settings.admin.listen}: {_reason(e)}; set `admin.listen` or --admin to a free address"
            ) from None
        if self._folder is not None:
            try:
                self._folder.make()
            except OSError as e:
                raise StartError(
                    f"cannot write the usage log to {settings.logs.usage.path}: {_reason(e)}; set `logs.usage.path`"
                ) from None
        if self._writer is not None:
            self._writer.start()
        for listener in self._listeners:  # last: at ports that are shared, clients come from now on
            try:
                listener.open()
            except OSError as e:
                raise StartError(_no_address(settings, listener, e)) from None
        self.brokers.begin()
        keep = self.supervisor.keep
        self._tasks = [keep(name, work) for name, work in self._works().items()]
        self._tasks.append(keep("readiness", self._tell_ready, once=True))
        self._shipping = [] if self._log_topic is None else [keep("usage log topic", self._log_topic.run)]
        self._log.info(
            "started",
            bootstrap=str(HostPort(settings.listen.bootstrap.host, self._listeners[0].port)),
            listeners={
                listener.name: str(HostPort(listener.settings.bootstrap.host, listener.port)) for listener in self._listeners
            },
            admin=str(HostPort(settings.admin.listen.host, admin_port)),
            usage_log=settings.logs.usage.path or "off: set logs.usage.path or --logs to have one",
            usage_log_topic=settings.logs.usage.topic or "off: set logs.usage.topic to have one",
            quotas=len(settings.quotas.entities),
            boot=self._author.boot,
            hot_path=hot_path(),
        )

    def _works(self) -> dict[str, Work]:
        """What goes on all the time."""
        own: dict[str, Work] = {} if self._topic is None else {"quota topic": self._topic.run}
        if self._ledger is not None:
            own["ledger"] = self._ledger.run
        return {
            "cluster": self.follower.run,
            "usage log intervals": self._intervals,
            "sweeps": self._sweeps,
            "connections": partial(guard, self.shared),
            "reload": self.reloader.run,
            "producer ids": self._snapshot.run,
            "volumes": self._volumes.run,
            **own,
        }

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain: no new connections, idle ones close, the others have until `drain_timeout`, or until there is a hurry, to
        get their answers."""
        self.shared.draining = True
        tell_service_manager("STOPPING=1")
        self._log.info("stopping", connections=len(self.shared.connections))
        for listener in self._listeners:
            listener.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                await self._drain(hurry)
        unanswered = sum(connection.session.state is not State.CLOSED for connection in self.shared.connections)
        if unanswered:
            self._log.warning("drain timeout", connections=unanswered, detail="their answers are not waited for")
        for listener in self._listeners:
            listener.abandon()
        for connection in list(self.shared.connections):
            connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.cleanup()
        await self._snapshot.save()
        self._snapshot.close()
        await asyncio.to_thread(self._usage.stop)
        if self._log_topic is not None:
            await self._log_topic.finish()
        for task in self._shipping:
            task.cancel()
            await asyncio.wait([task], timeout=1.0)  # aiokafka takes longer to end where brokers are away
        self._log.info("stopped")

    async def _drain(self, hurry: asyncio.Event) -> None:
        """Until no connection is left, or there is a hurry. Broker by broker, so that no client loses all its connections at
        once, and those that come again elsewhere do not come all together."""
        by_broker: defaultdict[str, list[ClientConnection]] = defaultdict(list)
        for connection in self.shared.connections:
            by_broker[connection.broker].append(connection)
        step = min(DRAIN_STEP, self._drain_timeout / 4 / (len(by_broker) or 1))
        for connections in by_broker.values():
            for start in range(0, len(connections), DRAIN_AT_ONCE):
                for connection in connections[start : start + DRAIN_AT_ONCE]:
                    connection.session.drain()
                await asyncio.sleep(0)
            await _pause(step, hurry)
        while not hurry.is_set() and (self.shared.connections or any(listener.welcoming for listener in self._listeners)):
            await _pause(DRAIN_POLL, hurry)

    def _seen(self) -> dict[str, Any]:
        """What `/throttles` says."""
        return {"proxy": self.settings.proxy_id, **self._throttle_status.seen()}

    def not_ready(self) -> str | None:
        """Why clients cannot be served, None when they can."""
        if self.shared.draining:
            return "stopping"
        if not self.follower.up:
            return "the cluster does not answer"
        dynamic = self.settings.quotas.dynamic
        if self._topic is None or dynamic is None or self._topic.settled.is_set():
            return None
        return "quotas are not read yet" if self._clock() < self._born + dynamic.start_timeout else None

    def _make_places(self) -> tuple[Folder | None, LogTopic | None]:
        """Where the usage log goes to."""
        usage, author, folder, topic = self.settings.logs.usage, self._author, None, None
        if usage.path is not None:
            path, size, age = Path(usage.path), usage.rotate_size, usage.rotate_interval
            folder = Folder(path, author, rotate_size=size, rotate_interval=age, clock=time.monotonic)
        if usage.topic is not None:
            from proxy.upstream.log_topic import LogTopic

            topic = LogTopic(usage.topic, author.proxy, usage.queue_lines, self._servers, self._upstream, self._log)
        return folder, topic

    def _make_writer(self) -> LogWriter | None:
        places: list[LogDestination] = [place for place in (self._folder, self._log_topic) if place is not None]
        if not places:
            return None
        return LogWriter(
            places,
            self._author,
            queue_lines=self.settings.logs.usage.queue_lines,
            wall=lambda: iso(time.time()),
            complain=lambda place, reason: self._log.error("usage log cannot be written", place=place, reason=reason),
        )

    def _changed(self, change: Change) -> None:
        ports = {
            listener.name: {node_id: listener.route.endpoint(node_id, "")[1] for node_id in (*change.joined, *change.moved)}
            for listener in self._listeners
        }
        self._log.info("brokers changed", joined=change.joined, moved=change.moved, left=change.left, ports=ports)

    async def _intervals(self) -> None:
        """Close each interval of the usage log when it is due."""
        while True:  # noqa: ASYNC110  (time is what it waits for)
            await asyncio.sleep(self._usage.tick())

    def _clock_jumped(self, seconds: float) -> None:
        detail = "times in the logs follow it; quotas and intervals go by a clock that is never set"
        self._log.warning("wall clock jumped", seconds=round(seconds, 3), detail=detail)

    async def _tell_ready(self) -> None:
        """To systemd, once clients can be served; a cluster that is away for long is no reason to be started over."""
        while self.not_ready() is not None and self._clock() < self._born + TELL_READY:  # noqa: ASYNC110  (it has several reasons)
            await asyncio.sleep(DRAIN_POLL)
        tell_service_manager("READY=1")

    async def _sweeps(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.engine.sweep(self._clock())
            self._observer.sweep()
            lasting = () if self.engine.storage.calm else (self.engine.storage.name,)
            self._observer.forget_quiet(set(self.engine.mutes.active(self._clock())), lasting)


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(unless.wait(), seconds)


def _no_address(settings: Settings, listener: ClientListener, error: OSError) -> str:
    where = f"`{settings.key_of(listener.name)}.bootstrap`" + (" or --listen" if listener.name == "main" else "")
    text = f"cannot listen at {listener.settings.bootstrap}: {_reason(error)}; set {where} to a free address"
    if error.errno != errno.EADDRINUSE:
        return text
    if listener.settings.reuse_port:
        return f"{text}; whoever listens there has no `reuse_port`, or is of another user"
    return f"{text}, or share it: `--reuse-port` for all proxies there"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def contexts_of(settings: Settings) -> dict[str, ssl.SSLContext | None]:
    """TLS contexts by name of the listener, and that for brokers; `TlsError` when one cannot be made."""
    contexts: dict[str, ssl.SSLContext | None] = {
        name: server_context(listener.tls, "listen.tls" if name == "main" else f"more_listeners.{name}.tls")
        if listener.tls
        else None
        for name, listener in settings.listeners.items()
    }
    contexts[UPSTREAM] = client_context(settings.upstream.tls) if settings.upstream.tls else None
    if settings.ledger.tls is not None:
        client_context(settings.ledger.tls, "ledger.tls")  # redis-py makes its own of the same files, and says less of them
    return contexts


def _files(path: Path | None, settings: Settings) -> list[str]:
    """The settings file and those that it names."""
    sections = [settings.upstream.tls, *(listener.tls for listener in settings.listeners.values())]
    named = [name for tls in sections if tls is not None for name in watched_files(tls)]
    return [*([str(path)] if path is not None else []), *named]


def _bound(services: Services, settings: Settings) -> None:
    """Let these limits hold."""
    limits = settings.limits
    bounds, budget, census = services.bounds, services.budget, services.census
    bounds.max_frame, bounds.max_held_response = limits.max_frame, limits.memory_per_connection
    bounds.max_in_flight = limits.max_in_flight
    bounds.first_request_timeout, bounds.request_timeout = limits.first_request_timeout, limits.request_timeout
    bounds.idle_timeout, bounds.ask_timeout = limits.idle_timeout, settings.quotas.ask_timeout
    budget.total = limits.memory_total
    census.most, census.per_address = limits.max_connections, limits.max_connections_per_address
    census.per_principal = limits.max_connections_per_principal


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
