"""Model: what a report says, as plain values.

In: nothing of Spark. Out: dataclasses that `reports.render` shows and `summary.json` holds. Times are UTC. Bytes are bytes, rates
bytes per second, throttle times milliseconds. An entity is a text: `user alice, client etl`. `produced` and `fetched` of a
principal are whole Produce requests and Fetch responses on the wire; of a topic they are record batches as sent, compressed.
"""

from dataclasses import dataclass
from datetime import datetime

EVERYBODY = "everybody"
"""The entity of a quota that is for all."""


@dataclass(frozen=True, slots=True)
class Lines:
    """How many lines were read, and what became of them: `read` = the rest added up."""

    read: int
    usage: int
    decisions: int
    gaps: int
    duplicates: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Writer:
    """One start of a proxy. `missing`: numbers in its sequence without a good line. `lost`: lines that it says it dropped."""

    proxy: str
    boot: str
    first_seq: int
    last_seq: int
    lines: int
    duplicates: int
    missing: int
    lost: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bad lines of one reason and field, with one of them as an example."""

    reason: str
    field: str | None
    lines: int
    file: str
    raw: str | None


@dataclass(frozen=True, slots=True)
class Party:
    """A principal, or one client id of it; `client_id` means nothing for a whole principal. `peak`: highest rate of `produced`."""

    principal: str
    client_id: str | None
    produced: int
    fetched: int
    requests: int
    mutations: int
    throttle_ms: int
    refused: int = 0
    peak: float = 0.0


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API. Bytes are whole frames."""

    api: str
    requests: int
    request_bytes: int
    response_bytes: int
    mutations: int
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `records`: produced, where they were counted. `main_principal`: who produced most into it."""

    topic: str
    produced: int
    fetched: int
    records: int | None
    peak: float = 0.0
    main_principal: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Items refused to one principal by one quota: complete."""

    quota: str
    principal: str
    items: int


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Decisions of one quota, mode, action, entity and API. `decisions` has those not written too, the rest only the written."""

    quota: str
    mode: str
    action: str
    entity: str
    api: str
    decisions: int
    items: int
    max_throttle_ms: int
    max_usage: float
    limit: float
    last: datetime
    message: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as logged."""

    at: datetime
    proxy: str
    quota: str
    mode: str
    action: str
    entity: str
    principal: str
    client_id: str | None
    client_address: str
    api: str
    items: int
    topics: tuple[str, ...]
    usage: float
    limit: float
    throttle_ms: int
    message: str | None


@dataclass(frozen=True, slots=True)
class Series:
    """Sums for each bucket of a plot.

    `values[i][j]` is that of `keys[i]` in the bucket that starts at `first + j * seconds`, in seconds since the epoch. The last key
    is None where smaller keys were summed into one.
    """

    first: int
    seconds: int
    keys: tuple[str | None, ...]
    values: tuple[tuple[float, ...], ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to plot."""
        return not any(any(row) for row in self.values)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who sends and fetches. The lists are the largest of `principal_count`, `client_count`, `topic_count`."""

    principals: tuple[Party, ...]
    principal_count: int
    clients: tuple[Party, ...]
    client_count: int
    topics: tuple[Topic, ...]
    topic_count: int
    apis: tuple[Api, ...]
    produced: int
    fetched: int
    requests: int
    topic_produced: int
    produced_by_principal: Series
    fetched_by_principal: Series
    produced_by_topic: Series
    fetched_by_topic: Series


@dataclass(frozen=True, slots=True)
class Limits:
    """Who was refused or throttled. `refusals` and `reasons` are the largest, `latest` the last decisions, newest first.

    `refused` and `decisions` are totals; `watching` are the quotas whose decisions are all of mode observe.
    """

    refusals: tuple[Refusal, ...]
    refused: int
    reasons: tuple[ReasonRow, ...]
    latest: tuple[Decision, ...]
    decisions: int
    watching: tuple[str, ...]
    refused_by_quota: Series
    decisions_by_entity: Series
    throttle_by_principal: Series


@dataclass(frozen=True, slots=True)
class Report:
    """All that one report says. `seconds`: length of the tables' buckets. No period where no line was good."""

    logs: str
    made: datetime
    first: datetime | None
    last: datetime | None
    seconds: int
    lines: Lines
    writers: tuple[Writer, ...]
    quarantine: tuple[Quarantined, ...]
    traffic: Traffic
    limits: Limits

    @property
    def proxies(self) -> tuple[str, ...]:
        """The proxies that wrote at least one good line, by name."""
        return tuple(sorted({writer.proxy for writer in self.writers}))
