"""Lines: what one proxy would have logged. In: a plan, which proxy, the intervals. Out: texts, one line each, numbered.

The fields stand in the order in which the proxy writes them. Traffic has a daily and a weekly wave and some noise; a tenant over
its limit is refused now and then, and there is a decision for it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.logs.plan import DAY, WEEKEND, Plan, Tenant, Volume

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
_NAMES = {PRODUCE: "Produce", FETCH: "Fetch", METADATA: "Metadata", CREATE_TOPICS: "CreateTopics"}
_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Times:
    """`start` in seconds since the epoch, `interval` and `volume_interval` in seconds."""

    start: int
    interval: int
    volume_interval: int = 600
    producers_interval: int = 600
    owned_interval: int = 0
    """0: no lines about what tenants have"""


@dataclass(frozen=True, slots=True)
class Key:
    """One row of an interval: the part of its line that never changes, and what it has of its tenant's bytes."""

    text: str
    kind: int
    of_topic: bool
    share: float


class Writer:
    """The lines of one start of a proxy, which sees `share` of all traffic."""

    def __init__(self, plan: Plan, times: Times, proxy: str, boot: str, share: float, seed: int) -> None:
        self._plan, self._times, self._share = plan, times, share
        self._chance = random.Random(seed)
        self._ends = f'"proxy":{json.dumps(proxy)},"boot":"{boot}","seq":'
        self._rows = [(tenant, _keys(tenant)) for tenant in plan.tenants]
        self.seq = 0

    @property
    def lines_per_interval(self) -> int:
        """Usage lines of one interval."""
        return sum(len(keys) for _, keys in self._rows)

    def interval(self, number: int) -> Iterator[str]:
        """All lines of the interval `number`, from 0."""
        times = self._times
        at = times.start + number * times.interval
        span = f'"start":"{iso(at)}","end":"{iso(at + times.interval)}",'
        busy = _busy(at) * self._share * times.interval
        weeks = number * times.interval / (7 * DAY)
        gauss, head = self._chance.gauss, f'{{"v":1,"type":"usage",{self._ends}'
        for tenant, keys in self._rows:
            bytes_in = tenant.rate * busy * (1 + tenant.growth * weeks) * max(0.05, 1 + 0.2 * gauss(0, 1))
            for key in keys:
                self.seq += 1
                yield f"{head}{self.seq},{span}{key.text}{_figures(key, tenant, int(bytes_in * key.share))}"
        yield from self._others(number, at)

    def _others(self, number: int, at: int) -> Iterator[str]:
        times, plan = self._times, self._plan
        if number * times.interval % times.volume_interval < times.interval:
            day = number * times.interval / DAY
            yield from (self._volume(volume, day, at) for volume in plan.volumes)
        if number * times.interval % times.producers_interval < times.interval:
            yield from (self._producers(tenant, index, at) for index, tenant in enumerate(plan.tenants[:20]))
        if times.owned_interval and number * times.interval % times.owned_interval < times.interval:
            weeks = number * times.interval / (7 * DAY)
            yield from (self._owned(tenant, weeks, at) for tenant in plan.tenants)
        if self._chance.random() < 0.02:
            yield self._decision(self._chance.choice(plan.tenants[:5]), at)

    def _line(self, kind: str, **fields: object) -> str:
        self.seq += 1
        return f'{{"v":1,"type":"{kind}",{self._ends}{self.seq},{json.dumps(fields, separators=(",", ":"))[1:]}'

    def _volume(self, volume: Volume, day: float, at: int) -> str:
        used = volume.used(day, self._chance)
        return self._line(
            "volume",
            at=iso(at),
            source="cluster",
            broker_id=volume.broker_id,
            log_dir=volume.log_dir,
            total_bytes=volume.total,
            usable_bytes=volume.total - used,
            limit_bytes=volume.limit,
            soft_limit_bytes=volume.soft_limit,
            factor=1.0,
            replica_bytes=round(used * 0.98),
            topic_bytes=self._topic_bytes(used),
        )

    def _topic_bytes(self, used: int) -> dict[str, int]:
        """What topics have of the bytes that a volume uses."""
        return {topic: round(used * 0.7 / 20) for tenant in self._plan.tenants[:4] for topic in tenant.topics[:5]}

    def _producers(self, tenant: Tenant, index: int, at: int) -> str:
        active = max(1, 400 // (index + 1))
        user = tenant.principal.removeprefix("User:")
        end = iso(at + self._times.interval)
        figures = {"active": active, "counted": active // 2, "window_ms": 3_600_000, "limit": None}
        return self._line("producer_ids", start=iso(at), end=end, user=user, **figures)

    def _owned(self, tenant: Tenant, weeks: float, at: int) -> str:
        """What a tenant has stored: a week of its traffic."""
        stored = round(tenant.rate * 7 * DAY * (1 + tenant.growth * weeks))
        figures = {"topic_count": len(tenant.topics), "partition_count": 6 * len(tenant.topics), "stored_bytes": stored}
        whose = {"tenant": tenant.principal.removeprefix("User:"), "user": None, "topic": None}
        return self._line("owned", start=iso(at), end=iso(at + self._times.interval), **whose, **figures)

    def _decision(self, tenant: Tenant, at: int) -> str:
        user = tenant.principal.removeprefix("User:")
        return self._line(
            "decision",
            at=iso(at),
            quota="controller_mutations",
            action="refuse",
            mode="enforce",
            entity={"user": user, "client_id": None},
            principal=tenant.principal,
            client_id=tenant.client_ids[0],
            client_address="10.0.0.9:40312",
            api="CreateTopics",
            api_key=CREATE_TOPICS,
            api_version=7,
            items=3,
            topics=[f"tmp-{self.seq}"],
            usage=12.5,
            limit=5.0,
            left=0.0,
            throttle_ms=1500,
            message=f"controller_mutations quota of user {user} exceeded",
            left_out=self._chance.randrange(3),
        )


def iso(seconds: int) -> str:
    """A time as the format writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _busy(at: int) -> float:
    """How busy a cluster is at this time, 1 on average of a working day."""
    weekday, second = (at // DAY + 3) % 7, at % DAY
    return (WEEKEND if weekday > 4 else 1.0) * (1 + 0.5 * math.sin(2 * math.pi * (second / DAY - 0.3)))


def _keys(tenant: Tenant) -> list[Key]:
    clients = len(tenant.client_ids)
    weights = [1 / (index + 1) for index in range(len(tenant.topics))]
    keys = []
    for client in tenant.client_ids:
        keys += [Key(_key_text(tenant, client, None, kind), kind, False, 1 / clients) for kind in (PRODUCE, FETCH, METADATA)]
        for topic, weight in zip(tenant.topics, weights, strict=True):
            share = weight / sum(weights) / clients
            keys += [Key(_key_text(tenant, client, topic, kind), kind, True, share) for kind in (PRODUCE, FETCH)]
    return keys


def _key_text(tenant: Tenant, client: str | None, topic: str | None, kind: int) -> str:
    fields = {
        "principal": tenant.principal,
        "client_id": client,
        "topic": topic,
        "topic_id": None,
        "api": _NAMES[kind],
        "api_key": kind,
    }
    return json.dumps(fields, separators=(",", ":"))[1:-1]


def _figures(key: Key, tenant: Tenant, bytes_in: int) -> str:
    """The rest of a usage line, from `requests` on."""
    kind, requests = key.kind, 1 + bytes_in // 60_000
    bytes_out = int(bytes_in * tenant.fan_out)
    if kind == METADATA:
        frames, records, record_bytes = f'"request_bytes":{requests * 60},"response_bytes":{requests * 900}', "null", 0
    elif key.of_topic:
        frames, record_bytes = '"request_bytes":0,"response_bytes":0', bytes_in if kind == PRODUCE else bytes_out
        records = str(bytes_in // 310) if kind == PRODUCE else "null"
    elif kind == PRODUCE:
        frames, records, record_bytes = f'"request_bytes":{bytes_in + requests * 90},"response_bytes":{requests * 62}', "null", 0
    else:
        frames, records, record_bytes = f'"request_bytes":{requests * 90},"response_bytes":{bytes_out + requests * 70}', "null", 0
    sums = f'"record_bytes":{record_bytes},"records":{records}'
    return f',"requests":{requests},{frames},{sums},"mutations":0,"throttle_ms":0,"refused":{{}}}}'
