"""One running proxy: its parts, how it starts, takes new settings and stops. In: settings. Out: open ports; `StartError` with what
would help."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import Metric

from proxy.apis.registry import default_handlers, understood
from proxy.clients.connection import Shared
from proxy.clients.listeners import ClientListener
from proxy.clients.overdue import guard
from proxy.clients.turns import Turns
from proxy.cluster.brokers import Brokers, Change, Mistaken
from proxy.cluster.topics import Topics
from proxy.compiled import hot_path
from proxy.config.limits import limits_of, windows_of
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.fleet.log_store import LogStore
from proxy.fleet.members import Members
from proxy.hashing import murmur3
from proxy.identity.certificates import parse_rules
from proxy.observe.lines import Holds, iso
from proxy.observe.live import Live
from proxy.observe.metrics import ProxyCollector, with_process
from proxy.observe.operations import Log, silent_log
from proxy.observe.overload import tell_overload
from proxy.observe.tenants import NumberWarnings, PrefixWarnings, holdings, seen
from proxy.observe.volumes import VolumeLog
from proxy.pieces import in_pieces
from proxy.process.alone import Alone
from proxy.process.bounds import set_bounds
from proxy.process.drain import drain, waits_for
from proxy.process.gauges import gauges_of
from proxy.process.ledger_topic import make_follower
from proxy.process.live_state import member_of, sources_of, state_of
from proxy.process.logs import make_logs
from proxy.process.producer_id_snapshot import ProducerIdSnapshot
from proxy.process.quota_topic import make_quota_topic
from proxy.process.reload import Reloader
from proxy.process.service_manager import tell_service_manager
from proxy.process.start_error import StartError, no_address, reason_of
from proxy.session.admission import Admission
from proxy.session.budget import Budget, Census
from proxy.session.plans import Handlers
from proxy.session.port import Services
from proxy.session.presence import Presence
from proxy.supervise import Supervisor, Work
from proxy.tls import UPSTREAM, certificate_ends, contexts_of, watched_files
from proxy.upstream.cluster_client import ClusterClient, DirectClient
from proxy.upstream.cluster_relay import AGE, RelayedClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.directory import Directory
from proxy.upstream.dynamic_quotas import DynamicQuotas
from proxy.upstream.metadata_poller import MetadataPoller
from proxy.upstream.quota_relay import RelayedQuotas
from proxy.upstream.stored_bytes import StoredBytesWatch
from proxy.upstream.volumes import Watch
from quota.engine import Engine
from quota.kinds.overload import STEP
from quota.kinds.producer_ids import Usage
from quota.steps import Steps
from quota.tenants import NO_TENANTS, Tenants

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.fleet.fleet import Fleet
    from proxy.process.worker_role import WorkerRole
    from proxy.upstream.quota_store import QuotaStore

Load = Callable[[], Settings]
"""Reads the settings; `SettingsError` when they cannot be used."""

SWEEP: Final = 10.0
"""Seconds between clean-ups of what quotas no longer need."""
TELL_READY: Final = 30.0
"""Seconds after which systemd is told that the proxy is ready though the cluster does not answer."""
LOOK_EVERY: Final = 0.05
"""Seconds between two looks at whether clients can be served, until systemd is told so."""


class Proxy:
    """One running proxy. Made on the event loop; `TlsError` when certificates cannot be used. `load` reads the settings
    again, `path` is their file. `worker`: where this process is one of several; the supervisor then has the admin
    listener and reads the settings."""

    def __init__(self, settings: Settings, load: Load, path: Path | None, log: Log, worker: WorkerRole | None = None) -> None:
        self.settings, self._log, self._worker = settings, log, worker
        loop = asyncio.get_running_loop()
        self._clock, self._born = loop.time, loop.time()
        self._drain_timeout, self.max_entities = settings.limits.drain_timeout, settings.metrics.max_entities
        self._first = worker is None or worker.saves
        """Of several workers, which all know the same, one says it."""
        once = log if self._first else silent_log()
        self.alone = Alone(settings, log, loop.time)
        self.supervisor = Supervisor(log)
        self.failed = self.supervisor.failed
        self._tasks: list[asyncio.Task[None]] = []
        self._shipping: list[asyncio.Task[None]] = []
        self._admin: web.AppRunner | None = None
        self._contexts, self.certificate_ends = contexts_of(settings), certificate_ends(settings)
        upstream = settings.upstream
        self._upstream, self._once_log = Upstream(upstream.connect_timeout, lambda: self._contexts[UPSTREAM], upstream.sasl), once
        self.brokers = Brokers(upstream.bootstrap_servers, self._changed, self._clock, given=upstream.brokers)
        self.engine = Engine(limits_of(settings), murmur3, windows_of(settings))
        topics = Topics(self.engine.bytes_in, self.engine.owned.topic_sized)
        self.directory = Directory(self.brokers, topics, settings.quotas.default_partitions)
        self._prefixes, self._numbers = PrefixWarnings(topics.sizes, log), NumberWarnings(self.engine, log)
        self.logs = make_logs(settings, self.brokers.addresses, self._upstream, self._producer_ids, log)
        if self._first:
            self.logs.usage.holdings = self._holdings
        self.snapshot = ProducerIdSnapshot(
            settings.producer_ids_file,
            self.engine.producer_ids,
            self._clock,
            time.time,
            log,
            writes=self._first,
        )
        self.quota_topic, self.dynamic_quotas = self._make_dynamic_quotas()
        self.shared = self._make_shared()
        self.ledger_topic = None if worker is not None else make_follower(settings, self.brokers.addresses, self._upstream, log)
        self.alone.ledger_topic = self.ledger_topic
        self.fleet = self._make_fleet()
        self.listeners = [
            ClientListener(name, listener, settings.fixed_ports, self.shared, self.brokers, partial(self._context, name), log)
            for name, listener in settings.listeners.items()
        ]
        self.follower = MetadataPoller(
            self.brokers,
            self.directory,
            self._wants_topics,
            upstream.metadata_refresh,
            self._cluster_client(AGE),
            once,
            self._served,
        )
        self.volumes = Watch(
            self.engine.storage,
            settings.quotas.storage,
            lambda check: self.engine.observe(check, lambda: self.logs.usage.produced),
            self._cluster_client(AGE),
            VolumeLog(once, self.logs.usage, writes=self._first),
            self._clock,
        )
        self.engine.stored.produced = lambda: self.logs.usage.produced
        stored = settings.quotas.stored_bytes
        self.stored_bytes = StoredBytesWatch(self.engine, stored, self._cluster_client(0.0), once, self._clock)
        self.reloader = Reloader(settings, load, self.use, partial(files_of, path), log)
        logs = self.logs
        gauges, self.limit_sources = gauges_of(self), sources_of(self)
        self._collected = with_process(ProxyCollector(self.engine, logs.tally, logs.usage, logs.observer, gauges, self._clock))
        self._live = Live(self.engine, logs.usage, logs.observer, state_of(self, gauges), self._clock, time.time)

    @property
    def _tenants(self) -> Tenants:
        return self.engine.limits.option(Tenants) or NO_TENANTS

    def _cluster_client(self, age: float) -> ClusterClient:
        """Who asks the cluster for this process. Workers ask by their supervisor, which asks once for all of them. An answer may be
        `age` seconds old then."""
        if self._worker is None:
            return DirectClient(self.brokers.addresses, self._upstream)
        return RelayedClient(self._worker.channel, age)

    def _wants_topics(self) -> bool:
        """True if it matters which topics there are."""
        engine = self.engine
        return engine.counts_topics or engine.follows_owners or bool(self._tenants)

    def _served(self) -> None:
        """The cluster answered the proxy; without an identity of its own, that shows that the cluster wants no logins."""
        if self.settings.upstream.sasl is None:
            self.shared.services.admission.served(self._clock())

    def _make_dynamic_quotas(self) -> tuple[QuotaStore | None, DynamicQuotas]:
        """Where quotas are altered, and the topic that keeps them, if there is to be one. Workers reach it by their supervisor."""
        dynamic = self.settings.quotas.dynamic
        topic: QuotaStore | None
        if self._worker is not None:
            topic = None if dynamic is None else RelayedQuotas(dynamic.topic, self._worker.channel)
        else:
            topic = make_quota_topic(self.settings, self.brokers.addresses, self._upstream, self._log, self.alone.altered)
        return topic, DynamicQuotas(
            self.settings, self.engine, topic, self._clock, lambda: iso(time.time()), self._log, tells=self._first
        )

    def _make_fleet(self) -> Fleet | None:
        """What is shared with other proxies, if anything is: by a store that they all reach, else with the other workers. Workers
        reach a topic by their supervisor, which follows it once for all of them."""
        worker, settings, boot = self._worker, self.settings.ledger, self.logs.author.boot
        if worker is None and settings.kind == "local":
            return None
        from proxy.fleet.fleet import Fleet, redis_store

        if settings.kind == "redis":
            open_store = redis_store(settings, boot)
        elif worker is not None:
            settings, open_store = worker.ledger(settings), worker.open_store
        else:
            assert self.ledger_topic is not None
            open_store = partial(LogStore, self.ledger_topic, boot)
        fleet = Fleet(settings, self.engine, boot, self._clock, self._log, open_store)
        if self.settings.ledger.kind != "local":  # workers of one proxy know of each other's without it
            fleet.count(Presence(self.shared.services.census))
        fleet.introduce(Members(boot, lambda: member_of(self)))
        return fleet

    def shares_quotas(self) -> bool:
        """True if quotas count what other proxies let pass. Workers of one proxy are no other proxies."""
        return self.settings.ledger.kind != "local" and self.fleet is not None and self.fleet.link.joined

    def _producer_ids(self) -> Steps[tuple[float, list[tuple[str, Usage]]]]:
        """The users with most producer ids, for the usage log: as many as have metrics."""
        ids = self.engine.producer_ids
        busiest = yield from ids.busiest(self.max_entities, self._clock())
        return ids.windows.seconds, busiest.shown

    def _holdings(self) -> Steps[list[Holds]]:
        """What tenants, users and topics have, likewise."""
        return holdings(self.engine, self.max_entities, topics_known=self.directory.topics.listed)

    def _make_shared(self) -> Shared:
        """What all connections share."""
        settings, handlers = self.settings, Handlers(default_handlers())
        limits, others = settings.limits, None if self._worker is None else self._worker.counts
        services = Services(
            self.directory,
            self.engine,
            self.logs.tally,
            self.logs.observer,
            understood(handlers),
            budget=Budget(limits.memory_total, others, None if others is None else asyncio.get_running_loop().call_later),
            census=Census(limits.max_connections, others=others),
            dynamic_quotas=self.dynamic_quotas,
            admission=Admission(logins=settings.upstream.sasl is not None),
            latencies=self.logs.usage.latencies,
        )
        set_bounds(services, settings)
        handover = None if self._worker is None else self._worker.handover
        turns = Turns(asyncio.get_running_loop())
        return Shared(services, handlers, self._upstream.connect, turns, handover=handover)

    def _context(self, name: str) -> ssl.SSLContext | None:
        return self._contexts[name]

    def use(self, settings: Settings) -> None:
        """Take what can change while the proxy runs from these settings: all of it or, with `TlsError`, nothing. A listener
        that they leave out stays as it is until a restart."""
        contexts, listeners = contexts_of(settings), settings.listeners
        rules = {name: parse_rules(listener.tls.principal_mapping_rules) for name, listener in listeners.items() if listener.tls}
        self.dynamic_quotas.use(settings)
        self._contexts, self.certificate_ends = {**self._contexts, **contexts}, certificate_ends(settings)
        for listener in self.listeners:
            listener.rules = rules.get(listener.name, listener.rules)
        self.volumes.change(settings.quotas.storage)
        self.stored_bytes.change(settings.quotas.stored_bytes)
        set_bounds(self.shared.services, settings)
        self._drain_timeout, self.max_entities = settings.limits.drain_timeout, settings.metrics.max_entities

    async def start(self) -> None:
        """Open all ports and begin to follow the cluster; `StartError` when a port or a folder cannot be had, or when the cluster
        cannot tell how full its volumes are."""
        await self._prepare()
        if self._worker is None:
            from proxy.process.admin import open_admin  # aiohttp takes time and memory, which workers do without

            self._admin = await open_admin(self.settings, self, self._log)
        self.logs.open()
        for listener in self.listeners:  # last: at ports that are shared, clients come from now on
            try:
                listener.open()
            except OSError as e:
                raise StartError(no_address(self.settings, listener.name, e)) from None
        if self._worker is not None:
            self._worker.handover.begin(self._take)
        self.brokers.begin()
        keep = self.supervisor.keep
        self._tasks = [keep(name, work) for name, work in self._works().items()]
        self._tasks.append(keep("readiness", self._tell_ready, once=True))
        self._shipping = [] if self.logs.topic is None else [keep("usage log topic", self.logs.topic.run)]
        self._tell_started()

    async def _prepare(self) -> None:
        """Look at the volumes, and remember producer ids."""
        settings = self.settings
        try:
            await self.volumes.start()
        except BrokerError as e:
            remedy = "set `upstream.sasl`" if e.refused else "set `quotas.storage.source` to `local`, or leave `quotas.storage` out"
            raise StartError(f"`quotas.storage` needs to know how full volumes are: {e}; {remedy}") from None
        await self.stored_bytes.look()
        try:
            self.snapshot.load()
        except OSError as e:
            where = settings.producer_ids_file
            raise StartError(f"cannot keep producer ids in {where}: {reason_of(e)}; set `quotas.producer_ids.state_file`") from None

    def _take(self, conn: socket.socket, name: str, node_id: int | None) -> None:
        """Another worker has accepted this connection."""
        listener = next((listener for listener in self.listeners if listener.name == name), None)
        if listener is None:
            conn.close()
        else:
            listener.take(conn, node_id)

    def started(self) -> dict[str, Any]:
        """What the operations log says when the proxy has started."""
        settings = self.settings
        host = settings.listen.bootstrap.host
        return {
            "bootstrap": str(HostPort(host, self.listeners[0].port)),
            "listeners": {
                listener.name: str(HostPort(listener.settings.bootstrap.host, listener.port)) for listener in self.listeners
            },
            "usage_log": settings.logs.usage.path or "off: set logs.usage.path or --logs to have one",
            "usage_log_topic": settings.logs.usage.topic or "off: set logs.usage.topic to have one",
            "quotas": len(settings.quotas.entities),
            "hot_path": hot_path(),
        }

    def _tell_started(self) -> None:
        boot = self.logs.author.boot
        if self._admin is None:
            self._log.info("worker started", boot=boot)
        else:
            from proxy.process.admin import admin_address

            self._log.info("started", **self.started(), admin=admin_address(self.settings, self._admin), boot=boot)
            self.alone.tell()

    def _works(self) -> dict[str, Work]:
        """What goes on all the time."""
        own: dict[str, Work] = {} if self.quota_topic is None else {"quota topic": self.quota_topic.run}
        if self.fleet is not None:
            own["ledger"] = self.fleet.run
        if self.ledger_topic is not None:
            own["ledger topic"] = self.ledger_topic.run
        if self._worker is None:
            own["reload"] = self.reloader.run
        return {
            "cluster": self.follower.run,
            "usage log intervals": self.logs.close_intervals,
            "sweeps": self._sweeps,
            "connections": partial(guard, self.shared),
            "producer ids": self.snapshot.run,
            "volumes": self.volumes.run,
            "stored bytes": self.stored_bytes.run,
            "overload": self._look_at_overload,
            **own,
        }

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain: no new connections, idle ones close, the others have until `drain_timeout`, or until there is a hurry, to
        get their answers."""
        self.shared.draining = True
        tell_service_manager("STOPPING=1")
        self._log.info("stopping", connections=len(self.shared.connections))
        if self._worker is not None:
            self._worker.handover.stop()
        for listener in self.listeners:
            listener.close()
        await drain(self.shared, self.listeners, self._drain_timeout, hurry)
        unanswered = waits_for(self.shared)
        if unanswered:
            self._log.warning(
                "drain timeout",
                connections=unanswered.total(),
                waited_for=dict(unanswered),
                detail="their answers are not waited for",
            )
        for listener in self.listeners:
            listener.abandon()
        for connection in list(self.shared.connections):
            connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._admin is not None:
            await self._admin.cleanup()
        await self.snapshot.save()
        self.snapshot.close()
        await self.logs.finish()
        for task in self._shipping:
            task.cancel()
            await asyncio.wait([task], timeout=1.0)  # aiokafka takes longer to end where brokers are away
        self._log.info("stopped")

    @property
    def worker_number(self) -> int | None:
        """Which of several workers this is, from 0 on."""
        return None if self._worker is None else self._worker.number

    @property
    def uptime(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._born

    async def metrics(self) -> Iterable[Metric | None]:
        return self._collected()

    async def throttles(self) -> dict[str, Any]:
        return {
            "proxy": self.settings.proxy_id,
            "enforces_alone": self.alone.reason,
            **await in_pieces(self.logs.throttle_status.seen(self.limit_sources)),
        }

    async def tenants(self) -> dict[str, Any]:
        sizes = self.directory.topics.sizes()
        told = await in_pieces(seen(self._tenants, self.engine, sizes, self._clock()))
        return {"proxy": self.settings.proxy_id, **told}

    async def live(self) -> list[bytes]:
        return await in_pieces(self._live.part())

    async def client(self, user: str, client_id: str | None) -> dict[str, Any]:
        return await in_pieces(self._live.one(user, client_id))

    async def not_ready(self) -> str | None:
        """Why clients cannot be served, None when they can."""
        if self.shared.draining:
            return "stopping"
        if not self.follower.up:
            return "the cluster does not answer"
        dynamic = self.settings.quotas.dynamic
        if self.quota_topic is None or dynamic is None or self.quota_topic.settled.is_set():
            return None
        return "quotas are not read yet" if self._clock() < self._born + dynamic.start_timeout else None

    async def warnings(self) -> list[str]:
        """What is wrong though clients can be served: brokers to which none of them are led, settings that name the wrong one."""
        unreachable = [
            f"listener {listener.name}: clients cannot reach broker {node_id}: {reason}"
            for listener in self.listeners
            for node_id, reason in listener.route.refused.items()
        ]
        given = self.brokers.wrongly_given()
        wrong = [f"upstream.brokers: {address} is broker {really}, not {node_id}" for node_id, address, really in given]
        return unreachable + wrong

    def _changed(self, change: Change) -> None:
        ports = {
            listener.name: {
                node_id: listener.route.endpoint(node_id, "")[1]
                for node_id in (*change.joined, *change.moved)
                if node_id not in listener.route.refused
            }
            for listener in self.listeners
        }
        self._once_log.info("brokers changed", joined=change.joined, moved=change.moved, left=change.left, ports=ports)
        for mistaken in change.mistaken:
            self._end_mistaken(mistaken)

    def _end_mistaken(self, mistaken: Mistaken) -> None:
        """Clients that wanted one broker and have another one come again, and are led to the right one."""
        node_id, address, really = mistaken
        wrong = [each for each in self.shared.connections if each.node_id == node_id and each.target == address]
        for connection in wrong:
            connection.transport.abort()
        self._log.error(
            "address of another broker", broker=node_id, address=str(address), really=really, connections_closed=len(wrong)
        )

    async def _tell_ready(self) -> None:
        """To systemd, once clients can be served; a cluster that is away for long is no reason to be started over."""
        while await self.not_ready() is not None and self._clock() < self._born + TELL_READY:  # noqa: ASYNC110  (it has several reasons)
            await asyncio.sleep(LOOK_EVERY)
        tell_service_manager("READY=1")

    async def _look_at_tenants(self) -> None:
        await in_pieces(self._numbers.look())
        self._prefixes.topics_known = self.directory.topics.listed
        await in_pieces(self._prefixes.look(self._tenants))

    async def _look_at_overload(self) -> None:
        """Whether brokers keep up; told when that changes."""
        while True:
            await asyncio.sleep(STEP)
            for change in self.engine.overload.step(self._clock()):
                tell_overload(self._log, change)

    async def _sweeps(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.engine.sweep(self._clock())
            self.logs.observer.sweep()
            if self._first:
                await self._look_at_tenants()
            lasting = () if self.engine.storage.calm else (self.engine.storage.name,)
            self.logs.observer.forget_quiet(set(self.engine.mutes.active(self._clock())), lasting)


def files_of(path: Path | None, settings: Settings) -> list[str]:
    """The settings file and those that it names."""
    sections = [settings.upstream.tls, *(listener.tls for listener in settings.listeners.values())]
    named = [name for tls in sections if tls is not None for name in watched_files(tls)]
    return [*([str(path)] if path is not None else []), *named]
