"""A whole deployment in simulated time: clients, proxies, brokers, the store of the ledger, and faults. In: a seed, and which of
its faults happen. Out: an `Outcome`; the same for the same input, to the last byte.

Each part has chance of its own, made of the seed and its name, so that a fault that is left out changes as little else as
possible."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, NamedTuple

from proxy.config.models import Settings
from tests.simulation import checker, producer
from tests.simulation.admins import AT_ONCE, MOST, Admin
from tests.simulation.brokers import Cluster
from tests.simulation.clients import Connection, History, ask_for_brokers
from tests.simulation.consumer import Consumer
from tests.simulation.faults import KINDS, Fault, schedule, some_kinds
from tests.simulation.network import Network, NetworkLoop, Node, on
from tests.simulation.producer import JAVA, LIBRDKAFKA, UNANSWERED, Producer
from tests.simulation.proxies import BOOTSTRAP, HOST, Clock, LedgerStore, SimulatedProxy, replaced
from tests.simulation.strangers import Stranger

START: Final = 3.0
"""Seconds until clients come."""
SETTLE: Final = 200.0
"""Seconds in which all has to be written after the last fault; what is muted is muted for 30 s at most."""
GONE: Final = 60.0
"""Seconds in which every connection of clients that went away has ended: what they sent before may have to wait for a mute."""
DRAIN: Final = 5.0
"""Seconds that a proxy takes to stop at most."""
RESYNC: Final = 2.0
"""Seconds until proxies that hear of each other again know what was charged."""
GRACE: Final = 20.0
"""Seconds that a delay may be felt after its cause has ended: clients come again, all at once."""


@dataclass(frozen=True)
class Shape:
    """What is simulated. Times in seconds."""

    seconds: float = 60.0
    proxies: int = 2
    brokers: int = 3
    producers: int = 6
    fault_every: float = 1.0
    some_kinds: bool = False
    """only a few kinds of faults happen, others in each run"""


@dataclass
class Outcome:
    """`wrong` is empty if all is as promised. `digest`: of all that was written, with its times."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    digest: str = ""
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


class Leniency(NamedTuple):
    """What quotas may be exceeded by for what happened from one time to the other: seconds of the rate, and, if `unheard`, what
    proxies that do not hear of each other let pass. For one `owner` of a rate, or all."""

    at: float
    until: float
    seconds: float
    unheard: bool = False
    owner: str | None = None


@dataclass(frozen=True)
class Mutations:
    """The limit of a user's controller mutations."""

    user: str
    algorithm: str
    rate: float
    burst: float

    @property
    def in_the_long_run(self) -> float:
        """Partitions per second. An amount that is spread over so many samples weighs for half of them, the running one left out;
        and whatever is asked for is done while the average is below the rate (docs/controller-mutations.md)."""
        if self.algorithm == "token_bucket":
            return self.rate
        samples = self.burst / self.rate
        return (self.rate + AT_ONCE * MOST / samples) * 2 * samples / (samples - 1)


class World:
    """One run. `kept`: the faults of the schedule that happen, by their places; None for all."""

    def __init__(self, seed: int, shape: Shape, kept: Sequence[int] | None = None) -> None:
        self.seed, self.shape = seed, shape
        plan = self.chance("plan")
        self.loop = NetworkLoop()
        self.network = Network(self.loop, self.chance("network"), plan.choice((0.0002, 0.002, 0.02)))
        self.history = History(self.loop, calm=self.is_within)
        self.clock = Clock(self.loop)
        self.store = LedgerStore(self.chance("store"))
        self.cluster = Cluster(self.network, self.chance("brokers"), shape.brokers)
        self.ledger = shape.proxies > 1
        self.rates = {"alice": plan.choice((20_000.0, 50_000.0)), "bob": plan.choice((5_000.0, 100_000.0)), "modest": 400_000.0}
        """producer byte rates of users, and of tenants"""
        self.members: dict[str, tuple[str, ...]] = {}
        """users of tenants"""
        self._add_tenant(self.chance("tenants"))
        self.rate_history = {owner: [(0.0, rate)] for owner, rate in self.rates.items()}
        """(since when, the rate) of each"""
        self.limited_topic = "clicks"
        self.topic_rate = plan.choice((8_000.0, 30_000.0))
        """bytes per second of that topic, in this mode when it is exceeded"""
        self.topic_rates = [(0.0, self.topic_rate)]
        """(since when, the rate)"""
        self.topic_mode = plan.choice(("transient", "transient", "throttle"))
        self.storage_hard = 1 << 30
        self.full_until = -1.0
        """until when everybody may be refused as a volume is full"""
        self.proxies = [SimulatedProxy(i, self.network, self.settings, self.history.fail) for i in range(shape.proxies)]
        self.producers = self._producers(plan)
        self.mutations: Mutations | None = None
        self.mutation_rates: list[tuple[float, float]] = []
        """(since when, the most that passes in the long run)"""
        self.admins = self._admins(self.chance("admins"))
        self.read_rate = 0.0
        """bytes per second that `dora` may read"""
        self.consumers = self._consumers(self.chance("consumers"))
        self.read_rates = [(0.0, self.read_rate)]
        """(since when, the rate)"""
        self.strangers: list[Stranger] = []
        self.done: Counter[str] = Counter()
        self.leniency: list[Leniency] = []
        kinds = some_kinds(self.chance("kinds")) if shape.some_kinds else tuple(KINDS)
        all_faults = schedule(self.chance("faults"), START + 2, START + shape.seconds, shape.fault_every, kinds)
        self.faults = [all_faults[i] for i in kept if i < len(all_faults)] if kept is not None else all_faults
        self.late = 0
        """records with acks=0 that stand behind some that their producer made later, on another connection"""
        self.closest = {"bytes": 0.0, "bytes read": 0.0, "partitions": 0.0}
        """the most that was had of what a quota allows"""

    def chance(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    @property
    def clients(self) -> list[Producer | Admin | Consumer]:
        return [*self.producers, *self.admins, *self.consumers]

    def is_calm(self, user: str) -> bool:
        """Does this user ask for less than it may have?"""
        return user in ("modest", "free")

    def is_within(self, user: str) -> bool:
        """Must this user not feel any quota now?"""
        return self.is_calm(user) and self.loop.time() > self.full_until

    def _producers(self, plan: Random) -> list[Producer]:
        cluster = self.cluster
        for name, partitions in (("orders", 6), ("clicks", 3), ("fleeting", 2)):
            cluster.create(name, partitions)
        lasting = {name: [(name, i) for i in range(len(cluster.topics[name].partitions))] for name in ("orders", "clicks")}
        users = ("alice", "bob", "modest", "free", "alice", "bob", "alice", "alice")
        made = []
        for number in range(self.shape.producers):
            kind = (LIBRDKAFKA, JAVA)[number % 2] if number < 2 else plan.choice(producer.KINDS)
            user = users[number % len(users)]
            open_to = lasting["orders"] + ([] if self.is_calm(user) else lasting["clicks"])
            parts = plan.sample(open_to, plan.randint(1, 6))
            if not self.is_calm(user) and plan.random() < 0.4:
                parts = lasting["clicks"]
            if not kind.idempotent and plan.random() < 0.5:
                parts = [("fleeting", 0), ("fleeting", 1)]
            rate = self.rates.get(user, 50_000.0)
            if any(topic == self.limited_topic for topic, _ in parts):
                rate = min(rate, self.topic_rate)
            pace = plan.choice((0.5, 5.0, 20.0, 60.0))
            demand = 0.1 if self.is_calm(user) else 5.0 if pace < 1 and user == "bob" else 2.0
            size = int(max(min(demand * rate / pace, 200_000), 120))
            made.append(
                Producer(
                    self.network,
                    self.history,
                    self.chance(f"producer {number}"),
                    number,
                    kind,
                    user,
                    parts,
                    (HOST, BOOTSTRAP),
                    pace,
                    size,
                    max(int(5 * rate), 4 * size),
                )
            )
        quiet = self.chance("unanswered")
        for number in range(len(made), len(made) + quiet.choice((0, 1, 1, 2))):
            topics = [("fleeting", 0), ("fleeting", 1)] if quiet.random() < 0.5 else lasting["clicks"]
            at, chance = (HOST, BOOTSTRAP), self.chance(f"producer {number}")
            user, pace = quiet.choice(users), quiet.choice((5.0, 20.0, 60.0))
            size = int(max((0.1 if self.is_calm(user) else 2.0) * self.rates.get(user, 50_000.0) / pace, 120))
            more = pace, min(size, 200_000), 4 * min(size, 200_000)
            made.append(Producer(self.network, self.history, chance, number, UNANSWERED, user, topics, at, *more))
        return made

    def _add_tenant(self, plan: Random) -> None:
        """Those who ask for more than they may have share a rate as well, often."""
        if plan.random() < 0.5:
            self.members["market"] = ("alice", "bob")
            self.rates["market"] = plan.choice((0.3, 0.7)) * sum(self.rates[user] for user in self.members["market"])

    def _admins(self, plan: Random) -> list[Admin]:
        """Often some who create topics: with a limit, and without one."""
        count = plan.choice((0, 0, 1, 2))
        if count:
            rate, algorithm = plan.choice((1.0, 4.0)), plan.choice(("spread", "token_bucket"))
            self.mutations = Mutations("carol", algorithm, rate, rate * (11 if algorithm == "spread" else plan.choice((2, 11))))
            self.mutation_rates.append((0.0, self.mutations.in_the_long_run))

        def connected() -> None:
            """Who is only told to wait may come again on another connection, and is held for some time then."""
            if self.mutations is not None:
                self.lenient(AT_ONCE * MOST / self.mutations.rate, owner=self.mutations.user)

        made = []
        for number in range(2 * count):
            user, pace = ("carol", plan.choice((2.0, 8.0))) if number % 2 == 0 else ("free", 0.3)
            chance = self.chance(f"admin {number}")
            more = (HOST, BOOTSTRAP), pace, count - 1, connected if user == "carol" else lambda: None
            made.append(Admin(self.network, self.cluster, self.history, chance, number, user, *more))
        return made

    def _consumers(self, plan: Random) -> list[Consumer]:
        """Often some who read what others write: with a limit, and without one."""
        made = []
        self.read_rate = plan.choice((5_000.0, 20_000.0))
        for number in range(plan.choice((0, 0, 1, 2, 3))):
            topic = plan.choice(("orders", "clicks"))
            parts = [(topic, i) for i in range(len(self.cluster.topics[topic].partitions))]
            user, chance = ("dora", "free", "dora")[number], self.chance(f"consumer {number}")
            largest = plan.choice((2_000, 20_000))
            made.append(Consumer(self.network, self.cluster, self.history, chance, number, user, parts, (HOST, BOOTSTRAP), largest))
        return made

    def settings(self, number: int) -> Settings:
        """Those of a proxy, as they are now."""
        rates = {user: int(rate) for user, rate in self.rates.items() if user not in self.members}
        entities = [{"user": user, "cluster_producer_byte_rate": rate} for user, rate in rates.items()]
        given: dict[str, Any] = {
            "proxy_id": f"proxy-{number}",
            "upstream": {
                "bootstrap_servers": [f"{broker.host}:9092" for broker in self.cluster.brokers.values()],
                "sasl": {"mechanism": "PLAIN", "username": "proxy", "password": "right"},
                "metadata_refresh": "5s",
                "connect_timeout": "3s",
            },
            "listen": {"bootstrap": f"{HOST}:{BOOTSTRAP}", "advertise": HOST, "broker_ports": "9101-9120"},
            "quotas": {
                "entities": entities,
                "topic_rates": {"topics": {self.limited_topic: {"bytes_in": int(self.topic_rate)}}, "mode": self.topic_mode},
                "storage": {"min_available_bytes": self.storage_hard, "check_interval": "3s", "check_timeout": "2s"},
            },
            "limits": {"drain_timeout": f"{DRAIN:g}s", "max_throttle": "30s"},
        }
        if (mutations := self.mutations) is not None:
            limit = {"controller_mutations_rate": mutations.rate, "controller_mutations_burst": mutations.burst}
            entities.append({"user": mutations.user, **limit})
            given["quotas"]["controller_mutations_algorithm"] = mutations.algorithm
        if self.consumers:
            entities.append({"user": "dora", "cluster_consumer_byte_rate": int(self.read_rate)})
        if self.members:
            given["tenants"] = {
                tenant: {"users": list(users), "cluster_producer_byte_rate": int(self.rates[tenant])}
                for tenant, users in self.members.items()
            }
        if self.ledger:
            given["ledger"] = {"kind": "redis", "servers": ["store:6379"]}
        return Settings.model_validate(given)

    # ------------------------------------------------------------------ the run

    def run(self) -> Outcome:
        outcome = Outcome(self.seed, faults=self.faults)
        random.seed(self.seed)
        gc.disable()
        asyncio.set_event_loop(self.loop)
        try:
            with replaced(self.network, self.store, self.clock, self.chance("proxies")):
                self.loop.run_until_complete(self._run())
        finally:
            gc.enable()
            asyncio.set_event_loop(None)
            self._end()
        outcome.wrong = self.history.wrong + self.loop.errors
        outcome.seconds = self.loop.time()
        outcome.digest = self._digest()
        outcome.figures = self._figures()
        return outcome

    async def _run(self) -> None:
        for proxy in self.proxies:
            proxy.start()
        await asyncio.sleep(START)
        for client in self.clients:
            client.start()
        watch = asyncio.create_task(self._watch())
        now = self.loop.time()
        for fault in self.faults:
            await asyncio.sleep(max(fault.at - now, 0))
            now = self.loop.time()
            self.happen(fault)
        await asyncio.sleep(max(START + self.shape.seconds - now, 0))
        await self._settle()
        watch.cancel()
        checker.check(self)
        await self._close()

    async def _watch(self) -> None:
        """Whatever is said of memory has to be true at any time."""
        while True:
            await asyncio.sleep(1.7)
            for proxy in self.proxies:
                if proxy.alive and (wrong := proxy.memory_wrong()):
                    self.history.fail(wrong)

    async def _settle(self) -> None:
        """No more faults, no new records: all that clients have still goes."""
        for client in self.clients:
            client.stop()
        self.topic_rate *= 10  # so that all that waits fits into that time
        self.topic_rates.append((self.loop.time(), self.topic_rate))
        if self.mutations is not None:
            rate, burst = 10 * self.mutations.rate, 10 * self.mutations.burst
            self.mutations = replace(self.mutations, rate=rate, burst=burst)
            self.mutation_rates.append((self.loop.time(), self.mutations.in_the_long_run))
        self.read_rate *= 100
        self.read_rates.append((self.loop.time(), self.read_rate))
        more = {owner: 4.0 * (len(self.members.get(owner, ())) + 1) for owner in self.rates}
        self.change_rates({owner: more[owner] * rates[0][1] for owner, rates in self.rate_history.items()})
        healed = max((fault.at + fault.seconds for fault in self.faults), default=0.0) + 0.5
        await asyncio.sleep(max(healed - self.loop.time(), 0.0))
        end = self.loop.time() + SETTLE
        while any(client.left for client in self.clients) and self.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        for client in self.clients:
            if client.left:
                what = f"{client.client_id} is not done with {client.left} batches, topics or partitions"
                self.history.fail(f"{what} {SETTLE:g} s after the last fault")

    async def _close(self) -> None:
        """Clients go away; then nothing may be left."""
        for client in self.clients:
            client.close()
        for stranger in self.strangers:
            stranger.close()
        end = self.loop.time() + GONE
        while self.loop.time() < end and not all(it.alive and it.quiet for it in self.proxies):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        connected = [set(proxy.node.transports) for proxy in self.proxies]
        await asyncio.sleep(4.0)  # what a proxy asks brokers itself takes less
        for proxy, before in zip(self.proxies, connected, strict=True):
            if left := before & set(proxy.node.transports):
                self.history.fail(f"{len(left)} connections of proxy {proxy.number} did not end with those of its clients")
            if not proxy.alive:
                self.history.fail(f"proxy {proxy.number} does not run")
                continue
            for what in proxy.left_over():
                self.history.fail(f"{what} are left at proxy {proxy.number} though nobody is connected")

    def _end(self) -> None:
        """Nothing goes on."""
        for node in [proxy.node for proxy in self.proxies] + [broker.node for broker in self.cluster.brokers.values()]:
            node.alive = False
        self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop._scheduled.clear()  # type: ignore[attr-defined]
        for _ in range(20):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        self.loop.close()

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for topic in self.cluster.all_topics():
            for partition in topic.partitions:
                for entry in partition.log:
                    digest.update(f"{topic.name} {entry.at!r} {entry.batch}".encode())
        digest.update(repr((self.history.answers, self.history.wrong)).encode())
        return digest.hexdigest()[:16]

    def _figures(self) -> dict[str, float]:
        history = self.history
        return {
            "records acknowledged": len(history.acknowledged),
            "answers": history.answers,
            "throttles": history.throttles,
            "refused": history.errors.get(19, 0) + history.errors.get(56, 0),
            "acks=0": sum(len(producer.handed) for producer in self.producers),
            "acks=0, late": self.late,
            "failed for good": sum(producer.failed for producer in self.producers),
            "records read": sum(consumer.read for consumer in self.consumers),
            "partitions created and deleted": sum(amount for _, _, amount in self.cluster.mutations),
            **{f"closest to a bound of {unit}": round(closest, 3) for unit, closest in self.closest.items()},
            "longest wait beyond what was told": round(history.longest, 3),
            **{f"fault: {kind}": count for kind, count in self.done.items()},
        }

    # ------------------------------------------------------------------ faults

    def disturb(self, seconds: float) -> None:
        """Something may delay clients until some time after that."""
        self.history.delayed_until = max(self.history.delayed_until, self.loop.time() + seconds + GRACE)

    def lenient(self, seconds: float, *, lasts: float = 0.0, unheard: bool = False, owner: str | None = None) -> None:
        """From now on, once, quotas may be exceeded by this: see `Leniency`. `lasts`: seconds of its cause."""
        now = self.loop.time()
        self.leniency.append(Leniency(now, now + lasts, seconds, unheard, owner))

    def happen(self, fault: Fault) -> None:
        before = self.done[fault.kind]
        getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)
        assert self.done[fault.kind] >= before

    def _later(self, seconds: float, what: Any, *args: Any) -> None:
        self.loop.call_later(seconds, what, *args)

    def _cut_a_connection(self, fault: Fault) -> None:
        connections = list(self.network.connections.values())
        if connections:
            connections[fault.which % len(connections)].cut(Random(fault.number))
            self.disturb(10.0)
            self.done[fault.kind] += 1

    def _cut_half_of_all_connections(self, fault: Fault) -> None:
        chance = Random(fault.number)
        for connection in list(self.network.connections.values()):
            if chance.random() < 0.5:
                connection.cut(chance)
        self.disturb(10.0)
        self.done[fault.kind] += 1

    def _kill_a_broker(self, fault: Fault) -> None:
        number = 1 + fault.which % len(self.cluster.brokers)
        if self.cluster.brokers[number].node.alive and len(self.cluster.live()) > 1:
            self.cluster.kill(number)
            self.disturb(fault.seconds + 5)
            self._later(fault.seconds, self.cluster.start, number)
            self.done[fault.kind] += 1

    def _move_a_leader(self, fault: Fault) -> None:
        partitions = [partition for topic in self.cluster.topics.values() for partition in topic.partitions]
        self.cluster.move_leader(partitions[fault.which % len(partitions)])
        self.disturb(1.0)
        self.done[fault.kind] += 1

    def _proxy(self, fault: Fault) -> SimulatedProxy | None:
        proxy = self.proxies[fault.which % len(self.proxies)]
        return proxy if proxy.alive else None

    def _kill_a_proxy(self, fault: Fault) -> None:
        proxy = self._proxy(fault)
        if proxy is not None:
            proxy.kill()
            self.disturb(fault.seconds + 5)
            self._forgets(fault.seconds)
            self._later(fault.seconds, proxy.start)
            self.done[fault.kind] += 1

    def _restart_a_proxy(self, fault: Fault) -> None:
        proxy = self._proxy(fault)
        if proxy is not None:
            self.disturb(fault.seconds + 15)
            self._forgets(fault.seconds + DRAIN)
            proxy.stop(lambda: self._later(fault.seconds, proxy.start))
            self.done[fault.kind] += 1

    def _forgets(self, away: float) -> None:
        """A proxy that starts again, `away` seconds later, knows nothing of what was used before, unless others tell."""
        self.lenient(12.5 if not self.ledger else 3.0, lasts=away + RESYNC, unheard=True)

    def _slow_down_a_node(self, fault: Fault) -> None:
        nodes = [it.node for it in (*self.cluster.brokers.values(), *self.proxies)]
        node, slower = nodes[fault.which % len(nodes)], (0.02, 0.2, 0.8)[fault.number % 3]
        node.slow += slower
        self.disturb(fault.seconds + 2)
        self.lenient(6 * slower)
        self._later(fault.seconds, self._faster, node, slower)
        self.done[fault.kind] += 1

    def _faster(self, node: Node, slower: float) -> None:
        node.slow -= slower
        self.lenient(6 * slower)

    def _unshared(self, seconds: float) -> None:
        """Proxies are on their own for this time: each may take others for less than they are."""
        self.lenient((len(self.proxies) - 1) * (seconds + RESYNC) + RESYNC, lasts=seconds + RESYNC, unheard=True)

    def _store_away(self, fault: Fault) -> None:
        memory = self.store.memory
        memory.away = True
        self._unshared(fault.seconds)
        self._later(fault.seconds, setattr, memory, "away", False)
        self.done[fault.kind] += 1

    def _store_away_for_one(self, fault: Fault) -> None:
        clients = [it for it in self.store.clients if it._node is self.proxies[fault.which % len(self.proxies)].node]
        for client in clients:
            client.away = True
            self._later(fault.seconds, setattr, client, "away", False)
        self._unshared(fault.seconds)
        self.done[fault.kind] += bool(clients)

    def _store_loses_answers(self, fault: Fault) -> None:
        for client in self.store.clients:
            client.lossy = 0.3
            self._later(fault.seconds, setattr, client, "lossy", 0.0)
        self._unshared(fault.seconds)
        self.done[fault.kind] += 1

    def _store_empty(self, fault: Fault) -> None:
        self._unshared(1.0)
        self.store.lose()
        self.done[fault.kind] += 1

    def _store_rolled_back(self, fault: Fault) -> None:
        self.store.keep()

        def back() -> None:
            self._unshared(1.0)
            self.store.roll_back()

        self._later(fault.seconds / 8, back)
        self.done[fault.kind] += 1

    def _clock_jumps(self, fault: Fault) -> None:
        self.clock.ahead += (-3600.0, -1.0, 0.5, 86400.0)[fault.number % 4]
        self.done[fault.kind] += 1

    def _disk_fills(self, fault: Fault) -> None:
        cluster, number = self.cluster, 1 + fault.which % len(self.cluster.brokers)
        left = (0, self.storage_hard - 1)[fault.number % 2]
        cluster.filled[number] = cluster.volume - left
        self.full_until = max(self.full_until, self.loop.time() + fault.seconds + 15)
        self.disturb(fault.seconds + 5)
        self._later(fault.seconds, cluster.filled.__setitem__, number, 0)
        self.done[fault.kind] += 1

    def _settings_change(self, fault: Fault) -> None:
        owners = "alice", "bob", *self.members
        owner = owners[fault.which % len(owners)]
        self.change_rates({owner: max(self.rates[owner] * (0.2, 0.5, 2.0, 4.0)[fault.number % 4], 2_000.0)})
        self.done[fault.kind] += 1

    def change_rates(self, rates: dict[str, float]) -> None:
        """Other limits hold from now on, at all proxies."""
        for owner, rate in rates.items():
            before, self.rates[owner] = self.rates[owner], rate
            self.rate_history[owner].append((self.loop.time(), rate))
            # What had to wait for a lower limit comes at once, at each proxy, before they hear of each other.
            self.lenient(12.5 * before / rate if rate < before else RESYNC, lasts=RESYNC, owner=owner)
        for proxy in self.proxies:
            proxy.reload()

    def _topic_deleted(self, fault: Fault) -> None:
        if self.cluster.delete("fleeting"):
            self.disturb(fault.seconds + 12)
            self._later(fault.seconds, self.cluster.create, "fleeting", 2)
            self.done[fault.kind] += 1

    def _producer_begins_anew(self, fault: Fault) -> None:
        self.producers[fault.which % len(self.producers)].renew()
        self.done[fault.kind] += 1

    def _nonsense(self, fault: Fault) -> None:
        self._come("nonsense", fault)

    def _half_a_request(self, fault: Fault) -> None:
        self._come("half", fault)

    def _many_requests(self, fault: Fault) -> None:
        """Somebody within all limits asks for much at once, and gets it."""
        count = 20 + fault.number % 100

        def up() -> None:
            for i in range(count):
                ask_for_brokers(connection, version=9 - i % 2)
            self._later(30.0, end)

        def end() -> None:
            if not connection.over:
                if connection.asked:
                    connection.look_at_wait(connection.asked[0], self.loop.time())
                connection.close()

        node = Node(f"crowd-{fault.which}")
        connection = Connection(self.history, "free", node.name, up, lambda: None)
        on(node).run(self.loop.create_task, self._reach(connection))
        self.done[fault.kind] += 1

    async def _reach(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):
            await self.network.connect(lambda: connection, HOST, BOOTSTRAP)

    def _many_connections(self, fault: Fault) -> None:
        self._come("many", fault)

    def _come(self, what: str, fault: Fault) -> None:
        stranger = Stranger(self.network, what, Random(fault.number), (HOST, BOOTSTRAP))
        self.strangers.append(stranger)
        on(stranger.node).run(self.loop.create_task, stranger.run(fault.seconds))
        self.done[fault.kind] += 1
