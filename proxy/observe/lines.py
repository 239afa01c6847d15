"""The lines of the usage log. In: rows and decisions. Out: dictionaries with exactly the fields of docs/log-format.md,
version 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from math import ceil, floor
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.index import api_key_map

from proxy.session.latencies import Place
from proxy.session.requester import NO_API, Requester
from proxy.session.tally import Row
from quota.decision import Decision
from quota.entity import Entity
from quota.kinds.producer_ids import Usage
from quota.kinds.storage import Replicas, Volume
from quota.tenants import TenantEntity
from quota.windows.durations import longest, quantile

VERSION = 2
LARGEST: Final = 20
"""Topics of a volume that each of its lines names."""
LARGEST_SIZE: Final = 1 << 50
"""what larger sizes of volumes, and throttle times, are written as: a report takes nothing larger"""
LATEST: Final = 253_402_300_799.0
"""the last time that is written, in seconds since the epoch: throttles may end later"""
_NAMES: Final = {**api_key_map, 93: "streams_group_topology_description_update", 94: "unregister_controller"}
"""API key -> name: those that kio knows, and those that Kafka 4.4 adds"""
Line = dict[str, Any]


@dataclass(slots=True)
class Author:
    """Which proxy writes, since which start, and how many lines so far."""

    proxy: str
    boot: str
    _seq: int = field(default=0, init=False)

    def line(self, kind: str, **fields: Any) -> Line:
        """A line of this author, with the next sequence number."""
        self._seq += 1
        return {"v": VERSION, "type": kind, "proxy": self.proxy, "boot": self.boot, "seq": self._seq, **fields}


def usage_line(author: Author, row: Row, start: str, end: str) -> Line:
    """One row of an interval."""
    key = row.key
    topic_id = None if key.topic_id is None else str(UUID(bytes=key.topic_id))
    counts_records = key.api_key == 0 and (key.topic is not None)
    return author.line(
        "usage",
        start=start,
        end=end,
        principal=key.principal,
        client_id=key.client_id,
        topic=key.topic if topic_id is None else topic_id,
        topic_id=topic_id,
        api=api_name(key.api_key),
        api_key=key.api_key,
        requests=row.requests,
        request_bytes=row.request_bytes,
        response_bytes=row.response_bytes,
        record_bytes=row.record_bytes,
        records=row.records if counts_records else None,
        mutations=row.mutations,
        throttle_ms=row.throttle_ms,
        refused=row.refused,
    )


def decision_line(author: Author, decision: Decision, by: Requester, at: str, left_out: int, mode: str = "enforce") -> Line:
    """One decision."""
    return author.line(
        "decision",
        at=at,
        quota=decision.quota,
        action=decision.action.value,
        mode=mode,
        entity={"user": decision.entity.user, "client_id": decision.entity.client_id, **_tenant(decision.entity)},
        principal=by.principal,
        client_id=by.client_id,
        client_address=by.client_address,
        api=api_name(by.api_key),
        api_key=by.api_key,
        api_version=by.api_version,
        items=len(decision.items),
        topics=list(by.topics[:10]),
        usage=decision.usage,
        limit=decision.limit,
        left=decision.left,
        throttle_ms=ceil(min(decision.throttle * 1000, LARGEST_SIZE)),
        message=decision.message,
        left_out=left_out,
    )


def _tenant(entity: Entity) -> dict[str, str | None]:
    """The part that only decisions about tenants have."""
    return {"tenant": entity.topic} if isinstance(entity, TenantEntity) else {}


def volume_line(
    author: Author,
    volume: Volume,
    at: str,
    source: str,
    limits: tuple[float, float] | None,
    factor: float,
    replicas: Replicas | None,
    *,
    all_topics: bool = False,
) -> Line:
    """One volume. `limits`: (hard, soft) in bytes, None if there is no limit for single volumes; `replicas` None if not known.
    `all_topics`: the line names the topics beyond the LARGEST too."""
    hard, soft = (None, None) if limits is None else (_size(floor(limit)) for limit in limits)
    topics = iter(() if replicas is None else replicas.largest.items())
    largest = {topic: _size(size) for topic, size in islice(topics, LARGEST)}
    return author.line(
        "volume",
        at=at,
        source=source,
        broker_id=volume.broker_id,
        log_dir=volume.log_dir,
        total_bytes=_size(volume.total),
        usable_bytes=_size(volume.available),
        limit_bytes=hard,
        soft_limit_bytes=soft,
        factor=round(factor, 6),
        replica_bytes=None if replicas is None else _size(replicas.size),
        topic_bytes=largest,
        more_topic_bytes={topic: _size(size) for topic, size in topics} if all_topics and replicas is not None else None,
    )


def _size(value: int) -> int:
    return min(value, LARGEST_SIZE)


def producer_ids_line(author: Author, user: str, usage: Usage, window: float, start: str, end: str) -> Line:
    """How many producer ids of a user were active when an interval ended; `window` in seconds."""
    return author.line(
        "producer_ids",
        start=start,
        end=end,
        user=user,
        active=round(usage.active),
        counted=usage.counted,
        window_ms=round(window * 1000),
        limit=usage.limit,
    )


class Holds(NamedTuple):
    """What somebody has of topics, and has stored: who is a tenant, a user or a topic. None: not known, or nothing of this sort."""

    owner: Entity
    topics: int | None = None
    partitions: int | None = None
    stored: int | None = None


def owned_line(author: Author, holds: Holds, start: str, end: str) -> Line:
    """What a tenant, a user or a topic had when an interval ended."""
    owner, of_tenant = holds.owner, isinstance(holds.owner, TenantEntity)
    return author.line(
        "owned",
        start=start,
        end=end,
        tenant=owner.topic if of_tenant else None,
        user=owner.user,
        topic=None if of_tenant else owner.topic,
        topic_count=holds.topics,
        partition_count=holds.partitions,
        stored_bytes=None if holds.stored is None else _size(holds.stored),
    )


def latency_line(author: Author, place: Place, counts: Sequence[int], start: str, end: str) -> Line:
    """How long requests of one API took at one broker in an interval, counted by duration."""
    return author.line(
        "latency",
        start=start,
        end=end,
        part=place.part.value,
        broker_id=None if place.broker is None or place.broker < 0 else place.broker,
        api=api_label(place.api_key),
        api_key=None if place.api_key == NO_API else place.api_key,
        requests=sum(counts),
        **{f"p{part}_ms": _milliseconds(quantile(counts, part / 100)) for part in (10, 50, 90, 99)},
        max_ms=_milliseconds(longest(counts)),
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def api_name(key: int) -> str:
    """Kafka's name of an API; `key-<n>` for one that is not known. -1 stands for none: a new connection, or many APIs."""
    name = _NAMES.get(key)
    return f"key-{key}" if name is None else "".join(part.capitalize() for part in name.split("_"))


def api_label(key: int) -> str:
    """The same for metrics, where made-up keys must not make new series."""
    return api_name(key) if key in _NAMES else "unknown"


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(min(seconds, LATEST), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
