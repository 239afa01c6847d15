"""Model: what a report says, as plain values.

In: nothing of Spark. Out: dataclasses that `reports.render` shows and `summary.json` holds. Times are UTC. Bytes are bytes, rates
bytes per second, throttle times milliseconds. An entity is a text: `user alice, client etl`. `produced` and `fetched` of a
principal are whole Produce requests and Fetch responses on the wire; of a topic they are record batches as sent, compressed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from advice.limits import NOT_HELD_BACK, HeldBack
from advice.use import NOT_USED, Use

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
    volumes: int = 0
    producer_ids: int = 0
    latencies: int = 0
    owned: int = 0


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
    """A principal, or one client id of it; `client_id` means nothing for a whole principal.

    `p50` to `peak`: rates of `produced` in bytes per second, over the time in which there was any. `growth`: last week to the week
    before, as a part; `last_week`, `week_before`: bytes produced and fetched. `refused_by`: quota and items.
    `active_producer_ids`: the most at one time.
    """

    principal: str
    client_id: str | None
    produced: int
    fetched: int
    requests: int
    mutations: int
    throttle_ms: int
    refused: int = 0
    peak: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    fetched_p95: float = 0.0
    fetched_peak: float = 0.0
    growth: float | None = None
    last_week: int | None = None
    week_before: int | None = None
    active_producer_ids: int | None = None
    refused_by: tuple[tuple[str, int], ...] = ()


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
class Latency:
    """How long requests of one API took at one broker, in milliseconds. `part`: what took the time. `p50` and `p99`: means of the
    logs' intervals; `worst_p99`: of one interval; `longest`: of all requests. `broker`: None where connections to the bootstrap
    address were meant, behind which is any broker."""

    part: str
    broker: int | None
    api: str
    requests: int
    p50: float
    p99: float
    worst_p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `records`: produced, where they were counted. `main_principal`: who produced most into it."""

    topic: str
    produced: int
    fetched: int
    records: int | None
    peak: float = 0.0
    main_principal: str | None = None
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    growth: float | None = None
    last_week: int | None = None
    week_before: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Items refused to one principal by one quota: complete."""

    quota: str
    principal: str
    items: int


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Decisions of one quota, mode, action, entity and API. `decisions` has those not written too, the rest only the written.
    `usage` and `limit` are of one decision, that furthest beyond its limit."""

    quota: str
    mode: str
    action: str
    entity: str
    api: str
    decisions: int
    items: int
    max_throttle_ms: int
    usage: float
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
    """Who sends and fetches. The lists are the largest of `principal_count`, `client_count`, `topic_count`; of `latency_count`,
    those that took most time in all."""

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
    latencies: tuple[Latency, ...] = ()
    latency_count: int = 0


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
class Level:
    """A level of a volume, `soft`, `limit` or `full`: used bytes at which something happens, and when that is. `already`: it is
    there.

    No day where it is not expected within two years, or there is no forecast.
    """

    name: str
    at_bytes: int
    day: datetime | None = None
    early: datetime | None = None
    late: datetime | None = None
    already: bool = False


@dataclass(frozen=True, slots=True)
class DrivingTopic:
    """A topic that takes space of a volume: replica bytes now and how many more than at first, and who produced to it, with their
    part."""

    topic: str
    bytes: int
    grown: int
    principals: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Path:
    """What was observed of a volume's used bytes and the forecast: times in seconds since the epoch, bytes."""

    observed: tuple[tuple[int, int], ...] = ()
    ahead: tuple[tuple[int, float, float, float], ...] = ()
    """time, mean, low, high"""
    proposed: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a forecast of bytes says, by a history of `days`. `per_day` is bytes a day, between `per_day_low` and `per_day_high`.
    `reason` says why there is no forecast.

    `tested_error` is the mean error in bytes over the last `tested_days` days, which the model had not seen; `tested_inside` of
    them lay within the interval.
    """

    days: int
    reason: str | None = None
    model: str | None = None
    per_day: float | None = None
    per_day_low: float | None = None
    per_day_high: float | None = None
    tested_days: int = 0
    tested_error: float | None = None
    tested_inside: int = 0


@dataclass(frozen=True, slots=True)
class VolumeRow(Growth):
    """One volume. `proposed` and `factor` are about proposed quotas: the levels then, and the part of the growth that is left."""

    broker_id: int | None
    log_dir: str
    at: datetime
    total: int
    used: int
    levels: tuple[Level, ...]
    drivers: tuple[DrivingTopic, ...]
    path: Path
    proposed: tuple[Level, ...] = ()
    factor: float | None = None

    @property
    def name(self) -> str:
        """The volume in short."""
        return self.log_dir if self.broker_id is None else f"broker {self.broker_id} {self.log_dir}"


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant: what it had when the logs last told, `at`. `growth` is of stored bytes, from a week before, as a part.

    `decisions` are those by limits of the tenant itself. What its users moved is known where a settings file says who they are:
    `produced` to `refused`. `largest_topic` is that of its topics which has most stored, of those that the logs name.
    """

    tenant: str
    at: datetime | None
    topics: int | None
    partitions: int | None
    stored: int | None
    growth: float | None
    decisions: int
    produced: int | None = None
    fetched: int | None = None
    throttle_ms: int | None = None
    refused: int | None = None
    largest_topic: str | None = None
    largest_topic_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Budget(Growth):
    """Stored bytes of a tenant, held against its limits: `used` of `limit`, the last of `levels` (`soft`, `hard`). Without limits
    in force there is none of both. `proposed` and `factor` are about proposed quotas, where they change anything: the limits then,
    and the part of the growth that is left."""

    tenant: str
    at: datetime
    used: int
    limit: int | None
    levels: tuple[Level, ...]
    path: Path = Path()
    proposed: tuple[Level, ...] = ()
    factor: float | None = None

    @property
    def last(self) -> Level | None:
        """The limit at which producing stops, or is slowed where it does not; the proposed one where none is in force."""
        return next(reversed(self.levels or self.proposed), None)


@dataclass(frozen=True, slots=True)
class Tenants:
    """`rows` are the largest of `count`. `told`: the logs say what tenants have; `members`: a settings file says who they are.
    `budgets` are those that end first, of `budget_count` tenants with a limit; `full` of these have reached it."""

    rows: tuple[TenantRow, ...] = ()
    count: int = 0
    told: bool = False
    members: bool = False
    budgets: tuple[Budget, ...] = ()
    budget_count: int = 0
    full: int = 0


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A limit and what was used of it. Rates are in the quota's unit per second, for `producer_ids` in ids within a window.

    `state`: `hit` where the logs say that its owner was held back, else `over`, `near`, `within` or `unused`. `throttled` seconds
    are what the limit would have cost, `waiting` is what had not passed at the end. `suggested` is a limit that leaves headroom; it
    rests on `used`, rates of the intervals of the logs, and `held_back` (`advice.limits`).
    """

    kind: str
    whose: str
    limit: float
    state: str
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    peak: float = 0.0
    throttled: float = 0.0
    longest_wait: float = 0.0
    waiting: float = 0.0
    suggested: float | None = None
    used: Use = NOT_USED
    held_back: HeldBack = NOT_HELD_BACK


@dataclass(frozen=True, slots=True)
class Compared:
    """Limits of a settings file against the traffic. `rows` are the tightest of `count`; `hit`, `over` and `near` count them all,
    each once; `unused` are those without traffic."""

    file: str
    rows: tuple[QuotaRow, ...]
    count: int
    hit: int
    over: int
    near: int
    unused: tuple[str, ...]
    not_looked_at: tuple[str, ...] = ()
    """Settings in the file that the report does not look at."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a principal costs; amounts in bytes and byte-days."""

    principal: str
    in_bytes: int
    out_bytes: int
    stored_byte_days: int
    cost: float


@dataclass(frozen=True, slots=True)
class Charges:
    """The most expensive of `count` principals, or the largest where nothing has a price."""

    rows: tuple[Charge, ...]
    count: int
    total: float
    currency: str
    priced: bool


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds without a line of a proxy that logged before and after."""

    proxy: str
    first: datetime
    seconds: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """When volumes and budgets of tenants fill, how quotas fit, what it costs."""

    volumes: tuple[VolumeRow, ...] = ()
    quotas: Compared | None = None
    what_if: Compared | None = None
    charges: Charges | None = None
    silences: tuple[Silence, ...] = ()
    tenants: Tenants = Tenants()


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
    capacity: Capacity = Capacity()
    note: str = ""
    """What who made it says about its logs."""

    @property
    def age(self) -> timedelta:
        """How old the newest line was when the report was made; never below zero."""
        return max(self.made - self.last, timedelta()) if self.last else timedelta()

    @property
    def proxies(self) -> tuple[str, ...]:
        """The proxies that wrote at least one good line, by name."""
        return tuple(sorted({writer.proxy for writer in self.writers}))
