"""Prometheus figures. In: the objects that already count. Out: a registry that reads them when it is scraped, so the
data path pays nothing for it.

Labels have few values by construction: API names and quota names. Users, client ids and topics are labels of the figures of
their quotas alone, those of `max_entities` at most, and cut where they are long.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import chain
from math import fsum, inf
from typing import Final, NamedTuple, TypeVar

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Timestamp

from proxy.compiled import hot_path
from proxy.observe.lines import api_label
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.latencies import OTHER_BROKERS, Part
from proxy.session.tally import OTHER, Tally
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.rates import Rates
from quota.kinds.storage import Reason, VolumeState
from quota.kinds.stored_bytes import StoredBytes
from quota.kinds.topic_numbers import TopicNumbers
from quota.steps import STEP, largest
from quota.tenants import TenantEntity

U = TypeVar("U")

_ACTIVITY: Final = {
    "bytes_in": "Bytes per second of requests, of those with most traffic, whether limited or not.",
    "bytes_out": "Bytes per second of responses to them.",
    "request": "Requests per second.",
    "mutation": "Partitions per second that they create, add and delete.",
}
_OTHERS: Final = (OTHER, OTHER)
_TIMES: Final = {
    Part.BROKER: ("broker_seconds", "How long brokers took for requests."),
    Part.WAIT: ("broker_wait_seconds", "The same of requests whose answers wait for records or group members by design."),
    Part.PROXY: ("proxy_seconds", "How long requests waited in the proxy that did not go on at once, but for quotas."),
    Part.QUOTA: ("quota_seconds", "How long quotas throttled or held requests, by decision."),
}
"""Metric and meaning of each part of a latency."""
BOOTSTRAP: Final = "bootstrap"
"""What stands for the broker of connections to the bootstrap address."""

PREFIX = "kafka_quota_proxy"
SCOPE: Final = "scope"
"""Label of figures that proxies may share: `FLEET` if the value is that of all proxies together, each of which tells all of it, and
`PROXY` if it is that of the proxy alone."""
FLEET, PROXY = "fleet", "proxy"
MANY: Final = 200
"""Connections that are looked at in one step, less than a microsecond each."""
MAX_LABEL: Final = 128
"""Characters of a user or client id that are shown; of a longer one the beginning, and a hash that tells it from others."""


class LedgerStands(NamedTuple):
    """How the ledger stands that this proxy shares with others."""

    up: bool
    age: float
    """seconds since every shard has answered"""
    proxies: int
    owners: int
    behind: int
    syncs: int
    sync_seconds: float
    failures: int
    synced: int
    learned: float
    estimated: float
    restarts: int
    told: int
    heard: int
    lost: int


@dataclass(frozen=True, slots=True)
class Gauges:
    """Figures that only the running process knows: connections, memory, brokers known, whether the upstream answered last time,
    settings."""

    client_connections: Callable[[], int]
    brokers: Callable[[], int]
    upstream_up: Callable[[], bool]
    muted_connections: Callable[[], Iterator[bool]]
    """whether it is muted or held by a quota, of each connection"""
    memory_held: Callable[[], int]
    memory_waiting: Callable[[], int]
    settings_current: Callable[[], bool]
    settings_applied: Callable[[], int]
    settings_refused: Callable[[], int]
    brokers_without_port: Callable[[], int] = lambda: 0
    certificate_ends: Callable[[], Mapping[str, float]] = dict
    """POSIX time by the setting of the file"""
    enforces_alone: Callable[[], bool] = lambda: False
    dynamic_quotas: Callable[[], int] = lambda: 0
    dynamic_quotas_up: Callable[[], float] = lambda: 0.0
    dynamic_quotas_configured: Callable[[], float] = lambda: 0.0
    quota_changes: Callable[[], int] = lambda: 0
    quota_records_skipped: Callable[[], int] = lambda: 0
    usage_log_topic_up: Callable[[], float] = lambda: 0.0
    usage_log_topic_configured: Callable[[], float] = lambda: 0.0
    usage_log_topic_waiting: Callable[[], int] = lambda: 0
    max_entities: Callable[[], int] = lambda: 100
    """setting `metrics.max_entities`"""
    ledger: Callable[[], LedgerStands | None] = lambda: None
    """None where nothing is shared"""
    shares_quotas: Callable[[], bool] = lambda: False
    """whether quotas count what other proxies let pass"""
    ledger_records_skipped: Callable[[], int | None] = lambda: None
    """None where this process follows no ledger topic"""


class ProxyCollector(Collector):
    """All figures of one proxy. `clock`: monotonic seconds."""

    def __init__(
        self, engine: Engine, tally: Tally, usage: UsageLog, observer: Observer, gauges: Gauges, clock: Callable[[], float]
    ) -> None:
        self._engine, self._tally, self._usage, self._observer = engine, tally, usage, observer
        self._gauges, self._clock = gauges, clock

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in self.steps() if metric is not None)

    def steps(self) -> Iterator[Metric | None]:
        """The same in steps; None for one that has made no figure yet."""
        yield _gauge_of("build_info", "1, with what runs here as labels.", build_labels(), 1.0)
        yield from self._traffic()
        yield from self._activity()
        yield from self._latencies()
        yield from self._quotas()
        gauges, observer = self._gauges, self._observer
        yield _gauge("client_connections", "Connections of clients.", gauges.client_connections())
        muted = 0
        for i, it in enumerate(gauges.muted_connections()):
            muted += it
            if i % MANY == MANY - 1:
                yield None
        yield _gauge("muted_connections", "Connections that are muted or held by a quota.", muted)
        yield _gauge("brokers", "Brokers known.", gauges.brokers())
        text = "Brokers that clients of a listener cannot reach, as no port stands for them; /readyz says why."
        yield _gauge("brokers_without_port", text, gauges.brokers_without_port())
        yield _gauge("upstream_up", "1 when the cluster answered the proxy's last question.", float(gauges.upstream_up()))
        yield _counter("client_failures", "Connections closed because of what the client sent.", observer.client_failures)
        yield _counter(
            "broker_failures", "Connections closed because the broker could not be reached or understood.", observer.broker_failures
        )
        yield _by_label("limit_hits", "How often a limit of the settings bit, by its name.", "limit", observer.limit_hits)
        yield _gauge("memory_held_bytes", "Requests and answers under way that are held in memory.", gauges.memory_held())
        yield _gauge("memory_waiting_connections", "Connections not read for want of memory.", gauges.memory_waiting())
        yield from settings_metrics(
            gauges.settings_current(), gauges.settings_applied(), gauges.settings_refused(), alone=gauges.enforces_alone()
        )
        ends = _gauge("certificate_expiry_timestamp_seconds", "When a certificate of the proxy's own ends.", labels=["setting"])
        for setting, end in sorted(gauges.certificate_ends().items()):
            ends.add_metric([setting], end)
        yield ends
        yield _gauge("dynamic_quotas", "Limits that were set while proxies ran.", gauges.dynamic_quotas())
        yield _gauge("dynamic_quotas_up", "1 while the quota topic can be read and written.", gauges.dynamic_quotas_up())
        yield _gauge("dynamic_quotas_configured", "1 where there is to be such a topic.", gauges.dynamic_quotas_configured())
        yield _counter("quota_changes", "Limits that became others since the start.", gauges.quota_changes())
        yield _counter(
            "quota_records_skipped", "Records of the quota topic that could not be used.", gauges.quota_records_skipped()
        )
        yield from self._ledger()
        yield _gauge("usage_log_keys", "Sums kept for the usage log.", len(self._tally))
        yield _gauge("usage_log_waiting_lines", "Lines of the usage log that wait for the disk.", self._usage.waiting)
        yield _counter(
            "usage_log_dropped_lines", "Lines of the usage log that were lost, in its folder and its topic.", self._usage.dropped
        )
        yield _gauge("usage_log_topic_up", "1 while the brokers take the usage log.", gauges.usage_log_topic_up())
        yield _gauge("usage_log_topic_configured", "1 where it is to go to a topic.", gauges.usage_log_topic_configured())
        yield _gauge("usage_log_topic_waiting_lines", "Lines of it that wait for the brokers.", gauges.usage_log_topic_waiting())

    def _ledger(self) -> Iterator[Metric]:
        """What is shared with other proxies."""
        if (skipped := self._gauges.ledger_records_skipped()) is not None:
            yield skipped_records(skipped)
        stands = self._gauges.ledger()
        if stands is None:
            return
        yield _gauge("ledger_up", "1 while all shards of the ledger answer.", float(stands.up))
        yield _gauge("ledger_age_seconds", "Since the shard of the ledger answered that was silent for longest.", stands.age)
        yield _gauge("ledger_proxies", "Proxies that share the ledger.", stands.proxies)
        yield _gauge("ledger_owners", "Users, client ids and topics that are looked at in the ledger.", stands.owners)
        yield _gauge("ledger_behind", "Those of them whose changes wait to be sent.", stands.behind)
        yield _counter("ledger_syncs", "Batches that the ledger answered.", stands.syncs)
        yield _counter("ledger_sync_seconds", "How long these took together.", stands.sync_seconds)
        yield _counter("ledger_failures", "Batches that it did not answer.", stands.failures)
        yield _counter("ledger_synced_owners", "Users, client ids and topics in answered batches.", stands.synced)
        yield _counter(
            "ledger_learned_units", "Charged by other proxies and counted here, in the units of all quotas.", stands.learned
        )
        yield _counter("ledger_estimated_units", "Counted here for others while the ledger was away.", stands.estimated)
        yield _counter("ledger_restarts", "Times that the ledger had lost all it knew.", stands.restarts)
        yield _counter("ledger_events_told", "Producer ids, fences, mutes and counts that were told to others.", stands.told)
        yield _counter("ledger_events_heard", "The same that others told.", stands.heard)
        yield _counter("ledger_events_lost", "The same that could not be told, as too many waited.", stands.lost)

    def _traffic(self) -> Iterator[Metric]:
        requests, sent, received = (
            Counter(self._usage.requests),
            Counter(self._usage.request_bytes),
            Counter(self._usage.response_bytes),
        )
        for key, (count, request_bytes, response_bytes) in self._tally.by_api().items():
            api = api_label(key)
            requests[api] += count
            sent[api] += request_bytes
            received[api] += response_bytes
        yield _by_label("requests", "Requests of clients.", "api", requests)
        yield _by_label("request_bytes", "Bytes of requests, with their size fields.", "api", sent)
        yield _by_label(
            "response_bytes",
            "Bytes of responses, with their size fields.",
            "api",
            received,
        )

    def _latencies(self) -> Iterator[Metric | None]:
        """Histograms of how long requests take, for each API and broker that was seen."""
        families = {part: _histogram(name, text, ["api", "broker"]) for part, (name, text) in _TIMES.items()}
        for place, took in list(self._usage.latencies):
            yield None
            buckets = [(str(bound), float(count)) for bound, count in took.octaves()]
            buckets.append(("+Inf", float(sum(took.counts))))
            families[place.part].add_metric([api_label(place.api_key), _broker(place.broker)], buckets, took.seconds)
        yield from families.values()

    def _quotas(self) -> Iterator[Metric | None]:
        observer = self._observer
        yield _by_label("throttled_requests", "Requests whose client a quota throttled.", "quota", observer.throttled_requests)
        yield _by_label("held_requests", "Requests held for a mute on another connection.", "quota", observer.held_requests)
        yield _by_label("refused_items", "Topics and partitions that a quota refused.", "quota", observer.refused_items)
        yield _by_label("throttle_seconds", "Throttle time that clients were told.", "quota", observer.throttle_seconds)
        would = _counter_of("would_have", "Requests that observed quotas would have acted on.", ["quota", "action"])
        for labels, count in sorted(observer.would_have_done.items()):
            would.add_metric(labels, count)
        yield would
        yield _counter(
            "unanswered_questions",
            "Times that a request waited longer than quotas.ask_timeout for a broker that was asked about topics.",
            observer.unanswered_questions,
        )
        muted = Counter(quota for quota, _ in self._engine.mutes.active(self._clock()))
        family = self._shared("muted_entities", "Users and client ids that a quota mutes now.", ["quota"])
        for quota, count in muted.items():
            family.add_metric([quota], count)
        yield family
        yield from self._by_entity()
        yield from self._controller_mutations()
        yield from self._producer_ids()
        if self._engine.storage.limits is not None:
            yield from self._storage()
        for rates in self._engine.rates.values():
            yield from self._rates(rates)
        for tenants in self._engine.tenant_rates.values():
            yield from self._tenant_rate(tenants)
        for numbers in self._engine.topic_numbers:
            yield from self._topic_numbers(numbers)
        for kind in self._engine.stored.kinds:
            yield from self._stored_bytes(kind)
        yield from self._topic_rate(self._engine.topic_in)
        yield from self._topic_rate(self._engine.topic_out)
        yield from self._address_connections()
        yield from self._bytes_in()
        yield from self._overload()
        fences = self._shared("sequence_fences", "Partitions of producers of whom a refused batch has to come first.")
        fences.add_metric([], len(self._engine.fence))
        yield fences
        yield _counter(
            "sequence_fence_overflows",
            "Batches of users whose share of fences is full that were refused without being remembered, or for that reason.",
            self._engine.fence.overflows,
        )

    def _overload(self) -> Iterator[Metric]:
        """Brokers as the overload quota sees them."""
        latency = _gauge(
            "overload_latency_seconds", "Of the quickest tenth of answers, by the lower median of users.", labels=["broker"]
        )
        target = _gauge("overload_target_seconds", "Above this a broker is overloaded.", labels=["broker"])
        limited = _gauge("overload_limited", "1 while a broker is overloaded.", labels=["broker"])
        rate = _gauge("overload_limit", "Bytes per second that a user of weight 1 may produce to it then.", labels=["broker"])
        for number, broker in self._engine.overload.brokers.items():
            label, controller = [str(number)], broker.controller
            latency.add_metric(label, controller.latency)
            target.add_metric(label, controller.target)
            limited.add_metric(label, float(controller.rate < inf))
            if controller.rate < inf:
                rate.add_metric(label, controller.rate)
        yield from (latency, target, limited, rate)

    def _by_entity(self) -> Iterator[Metric | None]:
        """What quotas did, and to whom; those to whom they did most."""
        labels = ["quota", "user", "client_id", "topic", "tenant"]
        seconds = _counter_of("entity_throttle_seconds", "Throttle time that clients of this entity were told.", labels)
        requests = _counter_of("entity_throttled_requests", "Requests of this entity that were throttled.", labels)
        items = _counter_of("entity_refused_items", "Topics and partitions that were refused to this entity.", labels)
        enforced = [(key, totals) for key, totals in self._observer.totals if key[1] == "enforce"]
        shown = yield from largest(
            self._gauges.max_entities(), enforced, lambda it: (it[1].throttled_requests + it[1].refused_items, it[1].at)
        )
        known: set[tuple[str, ...]] = set()
        for (quota, _, whose), totals in shown:
            tenant = whose.topic if isinstance(whose, TenantEntity) else None
            topic = whose.topic if tenant is None else None
            values = (quota, _label(whose.user), _label(whose.client_id), _label(topic), _label(tenant))
            if values not in known:  # long names may be shown alike
                known.add(values)
                seconds.add_metric(values, totals.throttle_seconds)
                requests.add_metric(values, totals.throttled_requests)
                items.add_metric(values, totals.refused_items)
        yield from (seconds, requests, items)

    def _activity(self) -> Iterator[Metric | None]:
        """Traffic of the busiest users and client ids, whether limited or not."""
        labels = ["user", "client_id"]
        families = [_gauge(f"client_{name}_rate", text, labels=labels) for name, text in _ACTIVITY.items()]
        activity = self._usage.activity
        busiest = activity.ranked[: self._gauges.max_entities()]
        for i, (values, shown) in enumerate(_labelled(busiest).items()):
            for family, rate in zip(families, shown, strict=True):
                family.add_metric(values, rate)
            if i % STEP == STEP - 1:
                yield None
        if busiest:
            for i, family in enumerate(families):
                family.add_metric(_OTHERS, max(activity.total[i] - fsum(it[i] for _, it in busiest), 0.0))
        yield from families

    def _controller_mutations(self) -> Iterator[Metric | None]:
        """ControllerMutationsQuotaManager `rate` of seed s1, by the entity that owns the window."""
        mutations, labels = self._engine.controller_mutations, ["user", "client_id"]
        rate = self._shared("controller_mutations_rate", "Partition mutations per second on average.", labels)
        limit = self._shared("controller_mutations_limit", "Partition mutations per second that are allowed.", labels)
        left = self._shared("controller_mutations_left", "Partition mutations until the limit is reached.", labels)
        busiest = yield from mutations.busiest(self._gauges.max_entities(), self._clock())
        for values, usage in _labelled(busiest.shown).items():
            rate.add_metric(values, usage.average)
            limit.add_metric(values, usage.rate)
            left.add_metric(values, usage.left)
        if busiest.shown:
            rate.add_metric(_OTHERS, busiest.others)
        yield from (rate, limit, left)
        yield _gauge("controller_mutations_entities", "Users and client ids with mutations that still weigh.", len(mutations))

    def _rates(self, rates: Rates) -> Iterator[Metric | None]:
        """A rate of Kafka's samples, by the entity that owns the window."""
        unit, labels = rates.unit.capitalize(), ["user", "client_id"]
        used = self._shared(f"{rates.name}_used", f"{unit} per second on average.", labels)
        limit = self._shared(f"{rates.name}_limit", f"{unit} per second that are allowed.", labels)
        busiest = yield from rates.busiest(self._gauges.max_entities(), self._clock())
        for values, usage in _labelled(busiest.shown).items():
            used.add_metric(values, usage.usage)
            limit.add_metric(values, usage.limit)
        if busiest.shown:
            used.add_metric(_OTHERS, busiest.others)
        yield from (used, limit)

    def _topic_rate(self, rates: Rates) -> Iterator[Metric | None]:
        """The rates of topics by themselves, of those that use most of theirs."""
        used = self._shared(f"{rates.name}_used", "Bytes per second on average of a topic with a rate.", ["topic"])
        limit = self._shared(f"{rates.name}_limit", "Bytes per second that are allowed.", ["topic"])
        busiest = yield from rates.busiest(self._gauges.max_entities(), self._clock())
        for owner, usage in busiest.shown:
            used.add_metric([_label(owner.topic)], usage.usage)
            limit.add_metric([_label(owner.topic)], usage.limit)
        yield from (used, limit)

    def _tenant_rate(self, rates: Rates) -> Iterator[Metric | None]:
        """The rates of tenants, of those that use most of theirs."""
        used = _gauge(f"{rates.name}_used", f"{rates.unit.capitalize()} per second on average of a tenant.", labels=["tenant"])
        limit = _gauge(f"{rates.name}_limit", f"{rates.unit.capitalize()} per second that are allowed.", labels=["tenant"])
        busiest = yield from rates.busiest(self._gauges.max_entities(), self._clock())
        for owner, usage in busiest.shown:
            used.add_metric([_label(owner.topic)], usage.usage)
            limit.add_metric([_label(owner.topic)], usage.limit)
        yield from (used, limit)

    def _topic_numbers(self, numbers: TopicNumbers) -> Iterator[Metric | None]:
        """Topics or partitions of users or tenants with a limit, of those that are nearest to theirs."""
        whose = "tenant" if numbers.of_tenants else "user"
        used = _gauge(f"{numbers.name}_used", f"{numbers.unit.capitalize()} of a {whose}, as far as is known.", labels=[whose])
        limit = _gauge(f"{numbers.name}_limit", f"{numbers.unit.capitalize()} that are allowed.", labels=[whose])
        fullest = yield from numbers.fullest(self._gauges.max_entities())
        for owner, stands in fullest:
            label = [_label(owner.topic if numbers.of_tenants else owner.user)]
            used.add_metric(label, stands.usage)
            limit.add_metric(label, stands.limit)
        yield from (used, limit)

    def _stored_bytes(self, kind: StoredBytes) -> Iterator[Metric | None]:
        """Stored bytes of tenants or topics with a limit, of those that are nearest to theirs."""
        whose = ["tenant" if kind is self._engine.stored.of_tenants else "topic"]
        used = _gauge(f"{kind.name}_used", f"Bytes that a {whose[0]} has stored, as far as is known.", labels=whose)
        soft = _gauge(f"{kind.name}_soft_limit", "Bytes above which its producers are slowed down.", labels=whose)
        limit = _gauge(f"{kind.name}_limit", "Bytes that are allowed.", labels=whose)
        budgets = list(kind.budgets.values())
        fullest = yield from largest(self._gauges.max_entities(), budgets, lambda it: it.used / it.limit.soft)
        for budget in fullest:
            label = [_label(budget.owner.topic)]
            used.add_metric(label, budget.used)
            soft.add_metric(label, budget.limit.soft)
            limit.add_metric(label, budget.limit.hard)
        yield from (used, soft, limit)

    def _address_connections(self) -> Iterator[Metric]:
        """Connections per second of addresses. Addresses are no labels, as there may be many: only how many there are."""
        connections = self._engine.address_connections
        yield _gauge("connection_rate_addresses", "Addresses that have opened connections lately.", len(connections))

    def _bytes_in(self) -> Iterator[Metric | None]:
        """The meters of seed s4. Topics are labels here, those that are nearest to their thresholds."""
        bytes_in, now = self._engine.bytes_in, self._clock()
        rate = self._shared("topic_bytes_in_rate", "Bytes per second of a topic, as its threshold sees them.", ["topic"])
        threshold = self._shared("topic_bytes_in_threshold", "Bytes per second above which a topic may be refused.", ["topic"])
        shown: dict[str, float] = {}
        nearest = yield from bytes_in.nearest(self._gauges.max_entities(), now)
        for stands in nearest:
            label = _label(stands.topic)
            if label not in shown:
                shown[label] = stands.rate
                rate.add_metric([label], stands.rate)
                threshold.add_metric([label], stands.threshold)
        if shown:
            rate.add_metric([OTHER], max(bytes_in.total.measured(now) - fsum(shown.values()), 0.0))
        yield from (rate, threshold)
        limits = bytes_in.limits
        rate = self._shared("bytes_in_rate", "Bytes per second of all topics, as their threshold sees them.")
        rate.add_metric([], bytes_in.total.measured(now))
        threshold = self._shared("bytes_in_threshold", "The total threshold; 0 for none.")
        threshold.add_metric([], 0 if limits is None else limits.total)
        yield from (rate, threshold)
        yield _counter("bytes_in_refused_bytes", "Bytes of batches that were refused for it.", bytes_in.refused.count)
        yield _counter("bytes_in_throttled_bytes", "Bytes of batches that were slowed down for it.", bytes_in.throttled.count)

    def _producer_ids(self) -> Iterator[Metric | None]:
        """ProducerIds `rate`, `tokens` and `throttle-time` of seed s2, and what else tells which limit would be right."""
        ids, labels = self._engine.producer_ids, ["user"]
        rate = self._shared("producer_ids_rate", "New producer ids per second.", labels)
        tokens = self._shared("producer_ids_tokens", "Producer ids until the limit; below 0 the user is throttled.", labels)
        throttle = _gauge("producer_ids_throttle_time_seconds", "Throttle time that was told, on average.", labels=labels)
        limit = self._shared("producer_ids_limit", "New producer ids that are allowed within a window.", labels)
        active = self._shared("producer_ids_active", "Producer ids within a window, about.", labels)
        shown: set[str] = set()
        busiest = yield from ids.busiest(self._gauges.max_entities(), self._clock())
        for user, usage in busiest.shown:
            label = _label(user)
            if label in shown:
                continue
            shown.add(label)
            rate.add_metric([label], usage.rate)
            throttle.add_metric([label], usage.throttle)
            active.add_metric([label], usage.active)
            if usage.limit is not None:
                tokens.add_metric([label], usage.tokens)
                limit.add_metric([label], usage.limit)
        if shown:
            active.add_metric([OTHER], busiest.others)
        yield from (rate, tokens, throttle, limit, active)
        users = self._shared("producer_ids_users", "Users with producer ids that are remembered.")
        users.add_metric([], len(ids))
        yield users
        yield _gauge("producer_ids_filter_bytes", "Memory of all filters of producer ids.", ids.size_bytes)

    def _shared(self, name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
        """A gauge of what proxies may share."""
        return _SharedGauge(f"{PREFIX}_{name}", text, labels, FLEET if self._gauges.shares_quotas() else PROXY)

    def _storage(self) -> Iterator[Metric | None]:
        """LocalThrottleFactor and ClusterVolumeSource of seeds s0 and s3, and every volume: those nearest to their limit where they
        are many."""
        storage = self._engine.storage
        yield _gauge("storage_throttle_factor", "The lowest factor that holds for anybody.", storage.lowest)
        fallbacks = {reason.value: storage.counts.fallbacks[reason] for reason in Reason}
        yield _by_label("storage_fallback_applied", "Checks after which the fallback factor held.", "reason", fallbacks)
        yield _gauge("storage_fallback", "1 while the fallback factor holds.", float(storage.gap is not None))
        yield _gauge("storage_missing", "Brokers and log dirs that the last check could not see.", len(storage.missing))
        yield _counter(
            "storage_limit_violations", "Volumes at or below a limit, summed over the checks.", storage.counts.violations
        )
        yield _gauge("storage_active_brokers", "Active brokers of the last check.", storage.brokers)
        yield _gauge("storage_active_log_dirs", "Volumes that are known.", len(storage))
        yield from self._totals()
        labels = ["broker", "log_dir"]
        throttling = _gauge("storage_throttling_volume", "1 while the volume slows or refuses producers.", labels=labels)
        total = _gauge("storage_volume_total_bytes", "Size of the volume.", labels=labels)
        available = _gauge("storage_volume_available_bytes", "What is left of it.", labels=labels)
        factor = _gauge("storage_volume_factor", "The throttle factor that it asks for.", labels=labels)
        left = _gauge("storage_volume_seconds_to_limit", "Until its next limit, if it goes on filling like this.", labels=labels)
        volumes = list(storage.volumes)
        shown = yield from largest(self._gauges.max_entities(), volumes, lambda seen: (-seen.factor, -seen.seconds_left))
        for seen in shown:
            place = _place(seen)
            throttling.add_metric(place, float(seen.factor < 1))
            total.add_metric(place, seen.volume.total)
            available.add_metric(place, seen.volume.available)
            factor.add_metric(place, seen.factor)
            left.add_metric(place, seen.seconds_left)
        yield from (throttling, total, available, factor, left)

    def _totals(self) -> Iterator[Metric]:
        """StorageChecker of seed s0: all volumes together."""
        volumes = [(seen.volume, seen) for seen in self._engine.storage.volumes]
        yield _gauge("storage_used_bytes", "Used on all volumes.", sum(it.total - it.available for it, _ in volumes))
        yield _gauge("storage_soft_limit_bytes", "May be used before slowing.", sum(it.total - seen.soft for it, seen in volumes))
        yield _gauge("storage_hard_limit_bytes", "May be used at all.", sum(it.total - seen.hard for it, seen in volumes))


class _SharedGauge(GaugeMetricFamily):
    """One that says in a label whose figures these are."""

    def __init__(self, name: str, text: str, labels: Sequence[str], scope: str) -> None:
        super().__init__(name, text, labels=[*labels, SCOPE])
        self._scope = scope

    def add_metric(self, labels: Sequence[str], value: float, timestamp: Timestamp | float | None = None) -> None:
        super().add_metric([*labels, self._scope], value, timestamp)


def _place(seen: VolumeState) -> list[str]:
    """A volume as labels."""
    broker_id = seen.volume.broker_id
    return ["" if broker_id is None else str(broker_id), _label(seen.volume.log_dir)]


def settings_metrics(current: bool, applied: int, refused: int, *, alone: bool) -> Iterator[Metric]:
    """Of the process that reads the settings."""
    yield _gauge("enforces_alone", "1 where other proxies are known with which no quota is shared.", float(alone))
    yield _gauge("settings_current", "1 when the settings on disk are in force.", float(current))
    outcomes = {"applied": applied, "refused": refused}
    yield _by_label("settings_reloads", "Settings read again while the proxy runs.", "outcome", outcomes)


def skipped_records(count: int) -> Metric:
    """Of the process that follows the ledger topic."""
    return _counter("ledger_records_skipped", "Records of the ledger topic that make no sense: somebody else wrote them.", count)


def worker_metrics(workers: int, answering: int, restarts: int) -> Iterator[Metric]:
    """Of a supervisor."""
    yield _gauge("workers", "Processes that are to serve clients; not there where it is one.", workers)
    yield _gauge("workers_up", "Those of them whose figures these are.", answering)
    yield _counter("worker_restarts", "Times that one of them ended and was started again.", restarts)


def with_process(collector: ProxyCollector) -> Callable[[], Iterator[Metric | None]]:
    """Collects these figures and those of the process, in steps."""
    process, platform = ProcessCollector(registry=None), PlatformCollector(registry=None)
    return lambda: chain(collector.steps(), process.collect(), platform.collect())


def _gauge(name: str, text: str, value: float | None = None, labels: Sequence[str] | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value, labels=labels)


def _gauge_of(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    """With one value."""
    family = _gauge(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


@cache
def build_labels() -> dict[str, str]:
    """What runs here."""
    return {"version": version("kafka-quota-proxy"), "python": platform.python_version(), "hot_path": hot_path()}


def _histogram(name: str, text: str, labels: Sequence[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _broker(node_id: int | None) -> str:
    """As a label."""
    return BOOTSTRAP if node_id is None else OTHER if node_id == OTHER_BROKERS else str(node_id)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _counter_of(name: str, text: str, labels: Sequence[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family


def _labelled(standing: Sequence[tuple[Entity, U]]) -> dict[tuple[str, str], U]:
    """By user and client id as they are shown; of entities that are shown alike, the first: a scrape has no series twice."""
    shown: dict[tuple[str, str], U] = {}
    for entity, usage in standing:
        shown.setdefault((_label(entity.user), _label(entity.client_id)), usage)
    return shown


def _label(name: str | None) -> str:
    """A name from outside as a label: text that can be written, of `MAX_LABEL` characters at most; empty for none."""
    raw = (name or "").encode(errors="surrogatepass")
    text = raw.decode(errors="replace")
    if text == name != OTHER and len(text) <= MAX_LABEL:
        return text
    return f"{text[: MAX_LABEL - 9]}~{sha256(raw).hexdigest()[:8]}" if name else ""
