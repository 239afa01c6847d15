"""What the console shows: users and client ids with their traffic and limits, what quotas did lately, volumes, brokers, and the
state of what is shared.

In: the parts of a running proxy that count already. Out: a plain value for each process (`Live.part`), and one of all workers
(`merged`). Bounded: `MOST` clients, the throttled and the busiest first; `MOST_DECISIONS` decisions. It is made in steps, between
which clients are served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from math import isfinite
from operator import add
from typing import Any, Final, Protocol

from proxy.observe.activity import POINT, POINTS, Rates, Traffic
from proxy.observe.decision_totals import Totals
from proxy.observe.lines import api_name, iso
from proxy.observe.metrics import build_labels
from proxy.observe.throttle_status import SHOWN_MESSAGE, UNITS, named, short, unit_of
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.latencies import Part
from quota.addresses import AddressEntity, with_limit
from quota.catalogue import KEYS, TENANT_KINDS, TOPIC_STORED
from quota.engine import Engine
from quota.entity import Entity, levels
from quota.kind import LimitedKind
from quota.kinds.storage import VolumeState
from quota.overrides import Table
from quota.tenants import NO_TENANTS, Tenants
from quota.windows.durations import BUCKETS, quantile

MOST: Final = 1000
MOST_DECISIONS: Final = 200
MOST_CONNECTIONS: Final = 100
"""Connections, topics and decisions of one client that are shown."""
MOST_TOPICS: Final = 3
"""Topics of the last request that was refused."""
STEP: Final = 5
"""Clients that are looked at before the data path goes on."""
LATELY: Final = 600.0
"""Seconds for which somebody who was throttled or refused is shown before others."""
_KEY_OF: Final = {key.kind: key.name for key in KEYS.values() if not key.at_once}
NONE_TOOK: Final = [0] * BUCKETS
_NOTHING: Final[list[list[float]]] = [[0.0] * POINTS, [0.0] * POINTS]
_SECTIONS: Final = {
    "storage": "quotas.storage",
    "bytes_in": "quotas.topics",
    "topic_producer_byte_rate": "quotas.topics",
    "topic_consumer_byte_rate": "quotas.topics",
    "address_connection_rate": "quotas.connections",
    "topic_policy": "quotas.topic_policy",
    "overload": "quotas.overload",
    **dict.fromkeys(TENANT_KINDS.values(), "tenants"),
    TOPIC_STORED: "quotas.stored_bytes",
}
"""Where the settings file has limits that are not of users and client ids."""


class Seen(Protocol):
    """A connection."""

    @property
    def principal(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def address(self) -> str: ...


@dataclass(frozen=True, slots=True)
class State:
    """What only the running process knows. `positions`: where each entity stands in the settings file; `limits`, `dynamic`: what
    is in force, and what of it was set while proxies run; `connections`: (client, state, seconds since it came, broker,
    software); `processes`: with which quotas are shared, and this one; `about`: of the proxy itself, by name."""

    positions: Callable[[], Mapping[Entity, int]]
    limits: Callable[[], Table]
    dynamic: Callable[[], Table]
    connections: Callable[[], Sequence[tuple[Seen, str, float, str, str]]]
    brokers: Callable[[], list[dict[str, Any]]]
    processes: Callable[[], list[dict[str, Any]]]
    about: Callable[[], dict[str, Any]]


class Live:
    """Of one process. `clock`: monotonic seconds; `wall`: seconds since the epoch; `pause` lets the data path go on."""

    def __init__(
        self,
        engine: Engine,
        usage: UsageLog,
        observer: Observer,
        state: State,
        clock: Callable[[], float],
        wall: Callable[[], float],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine, self._usage, self._observer, self._state = engine, usage, observer, state
        self._clock, self._wall, self._pause = clock, wall, pause

    async def part(self) -> dict[str, Any]:
        """What this process has of it."""
        activity, now = self._usage.activity, self._clock()
        decisions = self._decisions(lambda _: True, MOST_DECISIONS)
        lately = {(it["entity"]["user"], it["entity"]["client_id"]) for it in decisions if it["seconds_ago"] < LATELY}
        connections = await self._connections()
        traffic = dict(iter(activity))
        point = activity.newest
        none = Rates(0.0, 0.0, 0.0, 0.0)
        known = {entity: traffic[entity].rates(point) if entity in traffic else none for entity in {**traffic, **connections}}

        def rank(entity: Entity) -> tuple[bool, float, float]:
            over = (entity.user, entity.client_id) in lately or (entity.user, None) in lately
            return over, known[entity].bytes, known[entity].requests

        clients = []
        for i, entity in enumerate(nlargest(MOST, known, key=rank)):
            if i % STEP == STEP - 1:
                await self._pause()
            clients.append(self._client(entity, known[entity], traffic.get(entity), connections[entity], now))
        return {
            "at": iso(self._wall()),
            "point_seconds": POINT,
            "producer_ids_seconds": self._engine.producer_ids.windows.seconds,
            "about": {**build_labels(), **self._state.about()},
            "clients": clients,
            "clients_known": len(known),
            "decisions": decisions,
            "volumes": [_volume(seen) for seen in islice(self._engine.storage.volumes, MOST)],
            "brokers": self._brokers(),
            "processes": self._state.processes(),
        }

    def _brokers(self) -> list[dict[str, Any]]:
        """Each with how long it took for requests of the last interval, counted by duration; not for those that wait by design."""
        took: dict[int | None, list[int]] = {}
        for place, counts in self._usage.took:
            if place.part is Part.BROKER:
                took[place.broker] = list(map(add, took.get(place.broker, NONE_TOOK), counts))
        return [{**broker, "took": took.get(broker["id"], NONE_TOOK)} for broker in self._state.brokers()]

    async def one(self, user: str, client_id: str | None) -> dict[str, Any]:
        """One client in detail; with None for the client id, a user with all of its client ids."""
        entity = Entity(user, client_id or "")

        def is_it(name: str, its: str | None) -> bool:
            return name == user and client_id in (None, its or "")

        found: list[dict[str, Any]] = []
        for i, (client, state, age, broker, software) in enumerate(list(self._state.connections())):
            if i % 200 == 199:
                await self._pause()
            if is_it(client.user, client.client_id) and len(found) < MOST_CONNECTIONS:
                about = {"address": client.address, "software": software, "state": state}
                found.append({**about, "seconds": round(age, 1), "broker": broker, "client_id": short(client.client_id)})
        topics: Counter[str] = Counter()
        for row in self._usage.activity.rows:
            if row.key.topic is not None and is_it(row.key.principal.removeprefix("User:"), row.key.client_id):
                topics[row.key.topic] += row.record_bytes or row.response_bytes
        return {
            "limits": self._limits(entity, self._clock()),
            "connections": found,
            "topics": [{"topic": short(topic), "bytes": size} for topic, size in topics.most_common(MOST_CONNECTIONS)],
            "decisions": self._decisions(
                lambda whose: whose.user == user and (client_id is None or whose.client_id in (None, client_id)), MOST_CONNECTIONS
            ),
        }

    async def _connections(self) -> Counter[Entity]:
        """How many each client has."""
        found: Counter[Entity] = Counter()
        for i, (client, *_) in enumerate(list(self._state.connections())):
            if i % 200 == 199:
                await self._pause()
            found[Entity(client.user, client.client_id or "")] += 1
        return found

    def _client(self, entity: Entity, rates: Rates, traffic: Traffic | None, connections: int, now: float) -> dict[str, Any]:
        newest, user = self._usage.activity.newest, entity.user or ""
        ids = self._engine.producer_ids.standing(user, now)
        return {
            "user": short(entity.user),
            "client_id": short(entity.client_id),
            "tenant": (self._engine.limits.option(Tenants) or NO_TENANTS).of_user(user),
            "producer_ids": None if ids is None else ids.counted,
            **{name: round(rate, 3) for name, rate in rates._asdict().items()},
            "connections": connections,
            "history": _NOTHING if traffic is None else _history(traffic, newest),
            "limits": self._limits(entity, now),
        }

    def _limits(self, entity: Entity, now: float) -> list[dict[str, Any]]:
        """Each limit that holds for this client, how much of it is used, and where it comes from."""
        engine, found = self._engine, []
        kinds: tuple[LimitedKind[Any], ...] = (
            *engine.rates.values(),
            *engine.tenant_rates.values(),
            engine.controller_mutations,
            engine.producer_ids,
            *engine.topic_numbers,
            engine.stored.of_tenants,
        )
        for kind in kinds:
            if not engine.limits.table(kind.name):
                continue
            resolved = engine.find(kind, entity.user or "", entity.client_id or "")
            if resolved is None:
                continue
            stands = kind.stands(resolved, now)
            found.append(
                {
                    "quota": kind.name,
                    "unit": UNITS.get(kind.name, ""),
                    "usage": round(stands.usage, 3),
                    "limit": stands.limit if isfinite(stands.limit) else None,
                    "source": self._source(kind.name, resolved.owner),
                    "observed": kind.name in engine.limits.observed,
                }
            )
        return found

    def _source(self, quota: str, owner: Entity) -> str:
        """Where the limit stands that was reached, and the name under which it is set."""
        if isinstance(owner, AddressEntity) and with_limit(owner.topic or "") in self._state.dynamic():
            return f"quotas alter: {owner}"
        name = _KEY_OF.get(quota)
        if name is None or owner.topic is not None:
            return _SECTIONS.get(quota, "quotas")
        limits, dynamic = self._state.limits(), self._state.dynamic()
        for level in levels(owner.user or "", owner.client_id or ""):
            if level.owner == owner and name in limits.get(level.key, {}):
                if name in dynamic.get(level.key, {}):
                    return f"quotas alter {name}: {level.key}"
                return f"quotas.entities[{self._state.positions().get(level.key, '')}].{name}: {level.key}"
        return "quotas"

    def _decisions(self, wanted: Callable[[Entity], bool], count: int) -> list[dict[str, Any]]:
        """The last ones, by quota and entity."""
        now, wall = self._clock(), self._wall()
        chosen = nlargest(count, (it for it in self._observer.totals if wanted(it[0][2])), key=lambda it: it[1].at)
        return [
            {
                **named(key),
                "at": iso(wall - (now - totals.at)),
                "seconds_ago": round(now - totals.at, 1),
                **_decision(totals),
                "source": self._source(key[0], totals.decision.entity),
            }
            for key, totals in chosen
        ]


def _history(traffic: Traffic, newest: int) -> list[list[float]]:
    """Bytes in both directions, and requests, in each point."""
    both = map(add, traffic.history(0, newest), traffic.history(1, newest))
    return [[amount / POINT for amount in both], [amount / POINT for amount in traffic.history(2, newest)]]


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
    if len(parts) == 1:
        return dict(parts[0])
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
            [round(x + y, 2) for x, y in zip(mine, theirs, strict=True)]
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
    return list(found.values())


def _processes(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each as it was heard of last."""
    known = sorted((it for part in parts for it in part["processes"]), key=lambda it: float(it["seconds_ago"]))
    return list({process["boot"]: process for process in reversed(known)}.values())


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


# ---------------------------------------------------------------------- as it goes to browsers

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_DIGITS: Final = DIGITS.encode().ljust(256)


def compact(told: dict[str, Any]) -> dict[str, Any]:
    """The same with short histories: the greatest value, and a digit of 0 to 63 for each point, relative to it; with two
    quantiles of how long brokers took, in milliseconds; processes by name."""
    clients = [{**client, "history": [_digits(values) for values in client["history"]]} for client in told["clients"]]
    processes = sorted(told["processes"], key=lambda it: (it["proxy"], it["worker"] or 0, it["seconds_ago"]))
    return {**told, "clients": clients, "brokers": [_timed(broker) for broker in told["brokers"]], "processes": processes}


def _timed(broker: dict[str, Any]) -> dict[str, Any]:
    counts = broker["took"]
    times = {f"p{part}_ms": round(quantile(counts, part / 100) * 1000, 1) if any(counts) else None for part in (50, 99)}
    return {**{name: it for name, it in broker.items() if name != "took"}, "requests": sum(counts), **times}


def _digits(values: Sequence[float]) -> list[Any]:
    greatest = max(values)
    if not greatest:
        return [0, DIGITS[0] * len(values)]
    scale = 63 / greatest
    return [round(greatest, 2), bytes([int(value * scale + 0.5) for value in values]).translate(_DIGITS).decode()]
