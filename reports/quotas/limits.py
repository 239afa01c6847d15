"""Quotas as values: the limits of users, client ids, tenants, topics and volumes, and which of them can be replayed.

In: nothing. Out: `QuotaFile` and what it is made of. Left to others: reading a settings file (`reports.quotas.file`), which needs
a library that takes as long to import as a quarter of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from reports.quotas.catalogue import KEYS, TOPIC_STORED

DEFAULT = "<default>"
LEVELS = {key.kind: key.kind for key in KEYS if key.level}
"""Kinds of users and tenants that limit what there is at a time, and in which field of the logs that stands."""
_BURST_WINDOWS = 11
"""Seconds of the rate that may come at once if no burst is set, as in the proxy."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `kind` as it is called in decisions, of whom, and how much: per second, ids within a window for `producer_ids`, or
    at a time for LEVELS."""

    kind: str
    user: str | None
    client_id: str | None
    rate: float
    burst: float = 0.0

    @property
    def level(self) -> int:
        """Kafka's order of the levels, the most specific first."""
        user, client = self.user, self.client_id
        with_user = {None: 3, DEFAULT: 2}.get(client, 1) if user is not None else 0
        if user is None:
            return 8 if client == DEFAULT else 7
        return with_user + (3 if user == DEFAULT else 0)


@dataclass(frozen=True, slots=True)
class Available:
    """What has to be left of a volume: bytes, or a part of its size."""

    bytes: int | None
    ratio: float | None

    def of(self, total: int) -> int:
        """In bytes of a volume of `total` bytes."""
        return self.bytes if self.bytes is not None else round((self.ratio or 0) * total)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Users that share limits, by name and by the beginning of their names. `limits`: kind -> how much per second, or at a time
    for LEVELS. `stored_soft`: stored bytes above which its producers are slowed."""

    users: tuple[str, ...]
    user_prefixes: tuple[str, ...]
    limits: Mapping[str, float]
    topic_prefixes: tuple[str, ...] = ()
    stored_soft: float | None = None

    @property
    def rates(self) -> dict[str, float]:
        return {kind: limit for kind, limit in self.limits.items() if kind not in LEVELS}

    @property
    def levels(self) -> dict[str, float]:
        return {kind: limit for kind, limit in self.limits.items() if kind in LEVELS}


def is_level(kind: str) -> bool:
    """Whether a kind limits what there is at a time: of users, tenants or topics."""
    return kind == TOPIC_STORED or kind.removeprefix(of_tenants("")) in LEVELS


def of_tenants(kind: str) -> str:
    """The kind of a limit of tenants, by that of the same limit of users."""
    return f"tenant_{kind}"


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """`limits` of users and client ids; bytes into topics per second, in total and by topic; what has to be left of volumes;
    `topic_rates`: kind of a rate of topics -> topic -> bytes per second; `topics_stored`: topic -> bytes; `tenants` by name."""

    path: str
    limits: tuple[Limit, ...] = ()
    topics_total: float | None = None
    topics: Mapping[str, float] | None = None
    hard: Available | None = None
    soft: Available | None = None
    topic_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    topics_stored: Mapping[str, float] = field(default_factory=dict)
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    not_looked_at: tuple[str, ...] = ()
    """Settings that the report does not look at: limits that the usage log cannot tell of, exemptions, and unknown keys."""

    def tenant_of_user(self) -> Callable[[str], str | None]:
        """Finds the tenant of a user as `quota.tenants` does: who is listed goes before prefixes, the longest before others."""
        listed = {user: name for name, one in self.tenants.items() for user in one.users}
        return _finder(listed, {prefix: name for name, one in self.tenants.items() for prefix in one.user_prefixes})

    def tenant_of_topic(self) -> Callable[[str], str | None]:
        """The same of a topic, as far as its name tells."""
        return _finder({}, {prefix: name for name, one in self.tenants.items() for prefix in one.topic_prefixes})

    def of_topics(self) -> dict[str, Mapping[str, float]]:
        """Kind -> topic -> limit, of those that topics have by themselves."""
        return {**self.topic_rates, TOPIC_STORED: self.topics_stored}


def _finder(names: Mapping[str, str], prefixes: Mapping[str, str]) -> Callable[[str], str | None]:
    lengths = sorted({len(prefix) for prefix in prefixes}, reverse=True)

    def find(name: str) -> str | None:
        found = names.get(name)
        return found or next((prefixes[name[:length]] for length in lengths if name[:length] in prefixes), None)

    return find


def replayed(name: str) -> bool:
    """Whether the usage log tells enough to replay this limit, by its name in KEYS."""
    return any(key.kind == "producer_ids" or key.measure is not None or key.level for key in KEYS if key.name == name)


def limits_of(user: str | None, client_id: str | None, values: Mapping[str, float]) -> Iterator[Limit]:
    """The limits of one entity that can be replayed; `values` by the names of `KEYS`."""
    bursts = {key.kind: values.get(key.name) for key in KEYS if key.at_once}
    for key in KEYS:
        rate = values.get(key.name)
        if rate is not None and not key.at_once and replayed(key.name):
            burst = (bursts[key.kind] or _BURST_WINDOWS * rate) if key.kind in bursts else 0.0
            yield Limit(key.kind, user, client_id, float(rate), float(burst))
