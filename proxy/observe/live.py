"""What the console shows: users and client ids with their traffic and limits, what quotas did lately, volumes, brokers, and the
state of what is shared.

In: the parts of a running proxy that count already. Out: the JSON of each process (`Live.part`), and that of all workers
(`merged`). Bounded: `MOST` clients, the throttled and the busiest first; `MOST_DECISIONS` decisions. It is made in steps of one
client or decision, between which clients are served. What changes only with the intervals of the usage log, or with limits, is kept
as text from one look to the next, for the clients that were shown last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain, islice, repeat
from math import isfinite
from operator import add
from typing import Any, Final, NamedTuple, Protocol

from proxy.observe.activity import NO_RATES, POINT, POINTS, Rates, Traffic
from proxy.observe.as_json import as_json
from proxy.observe.decision_totals import Totals
from proxy.observe.limit_sources import LimitSource, LimitSources
from proxy.observe.lines import api_name, iso
from proxy.observe.metrics import build_labels
from proxy.observe.throttle_status import SHOWN_MESSAGE, UNITS, named, short, unit_of
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.latencies import Part
from quota.engine import Engine
from quota.entity import Entity
from quota.kind import LimitedKind
from quota.kinds.storage import VolumeState
from quota.limit_table import ResolvedLimit
from quota.steps import Steps
from quota.tenants import NO_TENANTS, Tenants
from quota.windows.durations import BUCKETS, quantile

MOST: Final = 1000
MOST_DECISIONS: Final = 200
MOST_CONNECTIONS: Final = 100
"""Connections, topics and decisions of one client that are shown."""
MOST_TOPICS: Final = 3
"""Topics of the last request that was refused."""
MOST_LIMITS: Final = 20_000
"""Limits whose owners are kept from one look to the next; what is told of further ones is made for each client."""
FOUND_ANEW: Final = 60.0
"""Seconds after which the limits of a client are found again: in which window it counts changes where a user has very many."""
LATELY: Final = 600.0
"""Seconds for which somebody who was throttled or refused is shown before others."""
NONE_TOOK: Final = [0] * BUCKETS
DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_DIGITS: Final = DIGITS.encode().ljust(256)
_VALUES: Final = bytes.maketrans(DIGITS.encode(), bytes(range(len(DIGITS))))
NO_HISTORY: Final[list[list[Any]]] = [[0, DIGITS[0] * POINTS]] * 2


class Seen(Protocol):
    """The client of a connection."""

    @property
    def principal(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def address(self) -> str: ...


class SeenConnection(NamedTuple):
    """`muted`: or held, by a quota; `age`: seconds since it came; `broker`: where its requests go, and `node_id` of it, None for
    the bootstrap address; `software`: of the client."""

    client: Seen
    state: str
    muted: bool
    age: float
    broker: str
    node_id: int | None
    software: str


@dataclass(frozen=True, slots=True)
class State:
    """What only the running process knows. `sources`: where limits are set; `connections`: those of now, each when it is asked
    for; `brokers`: `id` and `address`; `processes`: with which quotas are shared, and this one; `about`: of the proxy itself, by
    name."""

    sources: LimitSources
    connections: Callable[[], Iterator[SeenConnection]]
    brokers: Callable[[], list[dict[str, Any]]]
    processes: Callable[[], list[dict[str, Any]]]
    about: Callable[[], dict[str, Any]]


class _Limit:
    """A limit of an owner, which many clients may share: what is told of it is made once in a look."""

    __slots__ = ("kind", "look", "resolved", "source", "text")

    def __init__(self, kind: LimitedKind[Any], resolved: ResolvedLimit[Any], source: LimitSource) -> None:
        self.kind, self.resolved, self.source = kind, resolved, source
        self.look, self.text = -1, b""


class _Client:
    """What is kept of a client. `traffic`: the members that change with `interval`, without the brace at their end; `limits`: found
    at `found_at`, by the version `limits_version` of all."""

    __slots__ = ("found_at", "interval", "limits", "limits_version", "traffic")

    def __init__(self) -> None:
        self.interval = self.limits_version = -1
        self.traffic, self.found_at = b"", 0.0
        self.limits: list[_Limit] = []


class Live:
    """Of one process. `clock`: monotonic seconds; `wall`: seconds since the epoch."""

    def __init__(
        self,
        engine: Engine,
        usage: UsageLog,
        observer: Observer,
        state: State,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._engine, self._usage, self._observer, self._state = engine, usage, observer, state
        self._clock, self._wall = clock, wall
        self._look = 0
        self._clients: dict[Entity, _Client] = {}
        self._limits: dict[tuple[str, Entity], _Limit] = {}
        self._limits_version = -1
        self._kinds: list[LimitedKind[Any]] = []
        """those with any limit"""

    def part(self) -> Steps[list[bytes]]:
        """What this process has of it: pieces of one JSON text."""
        self._look += 1
        now = self._clock()
        decisions = yield from self._decisions(lambda _: True, MOST_DECISIONS)
        lately = {(it["entity"]["user"], it["entity"]["client_id"]) for it in decisions if it["seconds_ago"] < LATELY}
        connections, of_brokers, muted = yield from self._connections()
        known = yield from self._known(connections, lately)
        clients, kept, ids = [], dict[Entity, _Client](), dict[str, bytes]()
        for entity, rates in islice(known.items(), MOST):
            client = kept[entity] = self._clients.get(entity) or _Client()
            clients.append(self._client(client, entity, rates, connections[entity], ids, now))
            yield
        self._clients = kept
        rest = {
            "at": iso(self._wall()),
            "point_seconds": POINT,
            "producer_ids_seconds": self._engine.producer_ids.windows.seconds,
            "about": {**build_labels(), **self._state.about(), "muted_connections": muted},
            "clients_known": len(known),
            "brokers": self._brokers(of_brokers),
            "processes": _in_order(self._state.processes()),
        }
        yield
        volumes = []
        for seen in islice(self._engine.storage.volumes, MOST):
            volumes.append(as_json(_volume(seen)))
            yield
        told = []
        for decision in decisions:
            told.append(as_json(decision))
            yield
        lists = {"clients": clients, "decisions": told, "volumes": volumes}
        return [as_json(rest)[:-1], *chain.from_iterable(_array(name, texts) for name, texts in lists.items()), b"}"]

    def _known(
        self, connections: Mapping[Entity, int], lately: Container[tuple[str | None, str | None]]
    ) -> Steps[dict[Entity, Rates]]:
        """All clients: those that were throttled or refused lately, then those with most traffic, then others with connections."""
        first, others = dict[Entity, Rates](), dict[Entity, Rates]()
        for entity, rates in chain(self._usage.activity.ranked, zip(connections, repeat(NO_RATES))):
            if entity not in first and entity not in others:
                over = (entity.user, entity.client_id) in lately or (entity.user, None) in lately
                (first if over else others)[entity] = rates
            yield
        first.update(others)
        return first

    def _brokers(self, connections: Mapping[int | None, int]) -> list[dict[str, Any]]:
        """Each with how long it took for requests of the last interval, counted by duration; not for those that wait by design."""
        took: dict[int | None, list[int]] = {}
        for place, counts in self._usage.took:
            if place.part is Part.BROKER:
                took[place.broker] = list(map(add, took.get(place.broker, NONE_TOOK), counts))
        return [
            timed({**broker, "connections": connections.get(broker["id"], 0), "took": took.get(broker["id"], NONE_TOOK)})
            for broker in self._state.brokers()
        ]

    def one(self, user: str, client_id: str | None) -> Steps[dict[str, Any]]:
        """One client in detail; with None for the client id, a user with all of its client ids."""
        entity = Entity(user, client_id or "")

        def is_it(name: str, its: str | None) -> bool:
            return name == user and client_id in (None, its or "")

        found: list[dict[str, Any]] = []
        for it in self._state.connections():
            client = it.client
            if is_it(client.user, client.client_id) and len(found) < MOST_CONNECTIONS:
                about = {"address": client.address, "software": it.software, "state": it.state}
                found.append({**about, "seconds": round(it.age, 1), "broker": it.broker, "client_id": short(client.client_id)})
            yield
        topics: Counter[str] = Counter()
        for row in self._usage.activity.rows:
            if row.key.topic is not None and is_it(row.key.principal.removeprefix("User:"), row.key.client_id):
                topics[row.key.topic] += row.record_bytes or row.response_bytes
            yield
        decisions = yield from self._decisions(
            lambda whose: whose.user == user and (client_id is None or whose.client_id in (None, client_id)), MOST_CONNECTIONS
        )
        now = self._clock()
        self._look_at_limits()
        return {
            "limits": [self._told(limit, now) for limit in self._limits_of(entity)],
            "connections": found,
            "topics": [{"topic": short(topic), "bytes": size} for topic, size in topics.most_common(MOST_CONNECTIONS)],
            "decisions": decisions,
        }

    def _connections(self) -> Steps[tuple[Counter[Entity], Counter[int | None], int]]:
        """How many each client and each broker has, and how many are muted."""
        clients: Counter[Entity] = Counter()
        brokers: Counter[int | None] = Counter()
        muted = 0
        for it in self._state.connections():
            clients[Entity(it.client.user, it.client.client_id or "")] += 1
            brokers[it.node_id] += 1
            muted += it.muted
            yield
        return clients, brokers, muted

    def _client(self, kept: _Client, entity: Entity, rates: Rates, connections: int, ids: dict[str, bytes], now: float) -> bytes:
        """What is told of a client. `ids`: the number of producer ids of users that were looked at already, as JSON."""
        activity, user = self._usage.activity, entity.user or ""
        if kept.interval != activity.intervals:
            kept.interval, kept.traffic = activity.intervals, self._traffic(entity, rates)
        self._look_at_limits()
        if kept.limits_version != self._limits_version or now - kept.found_at > FOUND_ANEW:
            kept.limits_version, kept.found_at = self._limits_version, now
            kept.limits = list(self._limits_of(entity))
        counted = ids.get(user)
        if counted is None:
            standing = self._engine.producer_ids.standing(user, now)
            counted = ids[user] = as_json(None if standing is None else standing.counted)
        limits = b",".join([self._text(limit, now) for limit in kept.limits])
        return b'%b,"producer_ids":%b,"connections":%d,"limits":[%b]}' % (kept.traffic, counted, connections, limits)

    def _traffic(self, entity: Entity, rates: Rates) -> bytes:
        """What of a client changes with intervals only; its tenant too, which is looked at anew then."""
        activity = self._usage.activity
        traffic = activity.of(entity)
        told = {
            "user": short(entity.user),
            "client_id": short(entity.client_id),
            "tenant": (self._engine.limits.option(Tenants) or NO_TENANTS).of_user(entity.user or ""),
            **{name: round(rate, 3) for name, rate in rates._asdict().items()},
            "history": NO_HISTORY if traffic is None else _history(traffic, activity.newest),
        }
        return as_json(told)[:-1]

    def _look_at_limits(self) -> None:
        """Forget what was found by limits that hold no more."""
        engine = self._engine
        if self._limits_version == engine.limits_version:
            return
        self._limits_version = engine.limits_version
        self._limits.clear()
        kinds: tuple[LimitedKind[Any], ...] = (
            *engine.rates.values(),
            *engine.tenant_rates.values(),
            engine.controller_mutations,
            engine.producer_ids,
            *engine.topic_numbers,
            engine.stored.of_tenants,
        )
        self._kinds = [kind for kind in kinds if engine.limits.table(kind.name)]

    def _limits_of(self, entity: Entity) -> Iterator[_Limit]:
        """Each limit that holds for this client."""
        for kind in self._kinds:
            resolved = self._engine.find(kind, entity.user or "", entity.client_id or "")
            if resolved is None:
                continue
            limit = self._limits.get((kind.name, resolved.owner))
            if limit is None:
                limit = _Limit(kind, resolved, self._state.sources.of(kind.name, resolved.owner))
                if len(self._limits) < MOST_LIMITS:
                    self._limits[kind.name, resolved.owner] = limit
            yield limit

    def _text(self, limit: _Limit, now: float) -> bytes:
        if limit.look != self._look:
            limit.look, limit.text = self._look, as_json(self._told(limit, now))
        return limit.text

    def _told(self, limit: _Limit, now: float) -> dict[str, Any]:
        """How much of a limit is used, and where it comes from."""
        name, stands = limit.kind.name, limit.kind.stands(limit.resolved, now)
        return {
            "quota": name,
            "unit": UNITS.get(name, ""),
            "usage": round(stands.usage, 3),
            "limit": stands.limit if isfinite(stands.limit) else None,
            **limit.source._asdict(),
            "observed": name in self._engine.limits.observed,
        }

    def _decisions(self, wanted: Callable[[Entity], bool], count: int) -> Steps[list[dict[str, Any]]]:
        """The last ones, by quota and entity."""
        now, wall = self._clock(), self._wall()
        chosen = nlargest(count, (it for it in self._observer.totals if wanted(it[0][2])), key=lambda it: it[1].at)
        told = []
        for key, totals in chosen:
            yield
            told.append(
                {
                    **named(key),
                    "at": iso(wall - (now - totals.at)),
                    "seconds_ago": round(now - totals.at, 1),
                    **_decision(totals),
                    **self._state.sources.of(key[0], totals.decision.entity)._asdict(),
                }
            )
        return told


def _array(name: str, texts: Sequence[bytes]) -> Iterator[bytes]:
    """A member of an object that has others before it, as JSON. The elements are pieces as they are: they are megabytes."""
    before = b',"%b":[' % name.encode()
    for text in texts:
        yield before
        yield text
        before = b","
    yield b"]" if texts else before + b"]"


def _history(traffic: Traffic, newest: int) -> list[list[Any]]:
    """Bytes per second in both directions, and requests, as `digits`."""
    both = list(map(add, traffic.history(0, newest), traffic.history(1, newest)))
    return [digits(both, POINT), digits(traffic.history(2, newest), POINT)]


def digits(values: Sequence[float], divisor: float = 1.0) -> list[Any]:
    """A history in short: the greatest value, and a digit of 0 to 63 for each point, relative to it."""
    greatest = max(values)
    if not greatest:
        return [0, DIGITS[0] * len(values)]
    scale = 63 / greatest
    return [round(greatest / divisor, 2), bytes([int(value * scale + 0.5) for value in values]).translate(_DIGITS).decode()]


def undigits(history: Sequence[Any]) -> list[float]:
    """The values of a short history, to 1/126 of the greatest."""
    greatest, text = history
    return [digit * greatest / 63 for digit in text.encode().translate(_VALUES)]


def timed(broker: Mapping[str, Any]) -> dict[str, Any]:
    """A broker with two quantiles of how long it took, in milliseconds."""
    counts = broker["took"]
    times = {f"p{part}_ms": round(quantile(counts, part / 100) * 1000, 1) if any(counts) else None for part in (50, 99)}
    return {**broker, "requests": sum(counts), **times}


def _decision(totals: Totals) -> dict[str, Any]:
    decision, by = totals.decision, totals.by
    return {
        "action": decision.action.value,
        "usage": round(decision.usage, 3),
        "limit": decision.limit if isfinite(decision.limit) else None,
        "unit": unit_of(decision),
        "throttle_seconds": round(totals.throttle_seconds, 3),
        "throttled_requests": totals.throttled_requests,
        "refused_items": totals.refused_items,
        "principal": short(by.principal),
        "client_id": short(by.client_id),
        "client_address": by.client_address,
        "api": api_name(by.api_key),
        "topics": [short(topic) for topic in by.topics[:MOST_TOPICS]],
        "message": short(decision.message, SHOWN_MESSAGE),
    }


def _volume(seen: VolumeState) -> dict[str, Any]:
    volume, left, rate = seen.volume, seen.seconds_left, seen.fill_rate
    return {
        "broker": volume.broker_id,
        "log_dir": short(volume.log_dir),
        "total_bytes": volume.total,
        "available_bytes": volume.available,
        "soft_limit_bytes": round(seen.soft),
        "hard_limit_bytes": round(seen.hard),
        "factor": round(seen.factor, 4),
        "fill_bytes_per_second": None if rate is None else round(rate),
        "seconds_to_limit": round(left) if isfinite(left) else None,
    }


# ---------------------------------------------------------------------- of all workers

EMPTY: Final[Mapping[str, Any]] = {
    "at": None,
    "point_seconds": POINT,
    "about": {},
    "clients": [],
    "clients_known": 0,
    "decisions": [],
    "volumes": [],
    "brokers": [],
    "processes": [],
}
"""Where no worker answers."""


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parts of all workers as one: traffic and connections add up, of what is shared the greatest is told."""
    clients: dict[Any, dict[str, Any]] = {}
    for part in parts:
        for client in part["clients"]:
            key = (client["user"], client["client_id"])
            clients[key] = client if key not in clients else _added(clients[key], client)
    decisions: dict[Any, dict[str, Any]] = {}
    for one in sorted((one for part in parts for one in part["decisions"]), key=lambda it: float(it["seconds_ago"])):
        first = decisions.setdefault((one["quota"], one["mode"], *one["entity"].values()), one)
        if first is not one:
            for count in ("throttle_seconds", "throttled_requests", "refused_items"):
                first[count] += one[count]
    volumes: dict[Any, dict[str, Any]] = {}
    for volume in (it for part in parts for it in part["volumes"]):
        volumes.setdefault((volume["broker"], volume["log_dir"]), volume)
    return {
        **max(parts, key=lambda part: str(part["at"])),
        "clients": nlargest(MOST, clients.values(), key=lambda it: (it["bytes_in"] + it["bytes_out"], it["requests"])),
        "clients_known": max(len(clients), *(part["clients_known"] for part in parts)),
        "decisions": list(decisions.values())[:MOST_DECISIONS],
        "volumes": list(volumes.values()),
        "brokers": _brokers(parts),
        "processes": _processes(parts),
    }


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    sums = ("bytes_in", "bytes_out", "requests", "mutations", "connections")
    usages = {it["quota"]: it["usage"] for it in b["limits"]}
    return {
        **a,
        **{name: round(a[name] + b[name], 3) for name in sums},
        "producer_ids": max(a["producer_ids"] or 0, b["producer_ids"] or 0),
        "history": [
            digits(list(map(add, undigits(mine), undigits(theirs))))
            for mine, theirs in zip(a["history"], b["history"], strict=True)
        ],
        "limits": [{**it, "usage": max(it["usage"], usages.get(it["quota"], 0.0))} for it in a["limits"]],
    }


def _brokers(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for broker in (it for part in parts for it in part["brokers"]):
        first = found.setdefault(broker["id"], broker)
        if first is not broker:
            first["connections"] += broker["connections"]
            first["took"] = list(map(add, first["took"], broker["took"]))
    return list(map(timed, found.values()))


def _processes(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each as it was heard of last."""
    known = sorted((it for part in parts for it in part["processes"]), key=lambda it: float(it["seconds_ago"]))
    return _in_order({process["boot"]: process for process in reversed(known)}.values())


def _in_order(processes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(processes, key=lambda it: (it["proxy"], it["worker"] or 0, it["seconds_ago"]))


def merged_one(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One client in detail, from all workers."""
    topics: Counter[str] = Counter()
    for part in parts:
        topics.update({it["topic"]: it["bytes"] for it in part["topics"]})
    return {
        "limits": max((part["limits"] for part in parts), key=lambda limits: sum(it["usage"] for it in limits)),
        "connections": [it for part in parts for it in part["connections"]][:MOST_CONNECTIONS],
        "topics": [{"topic": topic, "bytes": size} for topic, size in topics.most_common(MOST_CONNECTIONS)],
        "decisions": [it for part in parts for it in part["decisions"]][:MOST_CONNECTIONS],
    }
