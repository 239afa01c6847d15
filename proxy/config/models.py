"""Every setting: its name, its default, its meaning. In: plain data from a YAML file. Out: frozen models.

The descriptions are the documentation: docs/settings.md and `--print-schema` are made from them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import Field, PrivateAttr, ValidationInfo, create_model, field_validator, model_validator

from configfile.base import FileName, Model, Name
from configfile.load import Key
from proxy.config.broker_ports import REMEDY
from proxy.config.ledger import TOPIC, Ledger
from proxy.config.limit_fields import limit_field
from proxy.config.listeners import Listener, ListenerTls
from proxy.config.storage import Storage
from proxy.config.stored_bytes import StoredBytes
from proxy.config.tenants import MAX_TENANTS, TenantName, TenantSettings, tenants_of
from proxy.config.topic_policy import TopicPolicySettings
from proxy.config.units import ANY_HOST, Address, Duration, HostPort, Size, Workers
from proxy.config.upstream import Upstream
from quota.catalogue import DEPRECATED, ENTITY_KEYS, KINDS, MAX_BYTES, MAX_REQUESTS, MUTATIONS_BURST, MUTATIONS_RATE
from quota.entity import DEFAULT
from quota.keys import wrong_together
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.cold_reads import COLD_READ_LAG
from quota.kinds.connections import parse_network

WORKERS: Final = "KAFKA_QUOTA_PROXY_WORKERS"
"""Variable with the default of `workers`."""


class AdminAuth(Model):
    """Who may read the admin listener: holders of the token, and users with a password. `/healthz` and `/readyz` are for all.
    Files are read again when they change."""

    token_file: FileName | None = None
    """File with a token on one line, for `Authorization: Bearer TOKEN`."""
    users_file: FileName | None = None
    """File with a line `name:password` for each user, for logins of browsers (`Authorization: Basic`)."""

    @model_validator(mode="after")
    def _any(self) -> AdminAuth:
        if self.token_file is None and self.users_file is None:
            raise ValueError("nobody could log in; set `token_file` or `users_file`, or leave `auth` out")
        return self


class Admin(Model):
    listen: Address = HostPort("127.0.0.1", 9190)
    """Where `/metrics`, `/healthz`, `/readyz`, `/throttles`, `/live` and the console for people are served. Nothing can be changed
    by it."""
    tls: ListenerTls | None = None
    """TLS for this listener. Another certificate needs a restart."""
    auth: AdminAuth | None = None
    """Who may read; everybody who reaches the listener when not set."""


class UsageLog(Model):
    path: Name | None = None
    """Folder of the usage log, which the capacity report reads; none when not set. Files are never deleted by the proxy."""
    topic: Annotated[str, Field(pattern=TOPIC)] | None = None
    """Topic of the upstream cluster to which the same lines are sent, beside the folder or instead of it; none when not set. The
    proxy makes it where it is not there: one partition, three replicas or as many as there are brokers, kept for two weeks.
    `upstream.sasl` has to be allowed to create it, describe it and write to it; nobody else should be."""
    interval: Annotated[Duration, Field(ge=1)] = 10.0
    """Length of the intervals that traffic is summed over."""
    max_keys: Annotated[int, Field(ge=1)] = 10_000
    """Principals x client ids x topics x APIs that are told apart in an interval. Each principal has a share of it; what is beyond
    it is summed up by principal and API, with client id `<other>`."""
    decisions_per_interval: Annotated[int, Field(ge=1)] = 10
    """Decisions logged per quota and entity in an interval, and 10 times as many per principal; the rest is counted."""
    rotate_size: Annotated[Size, Field(ge=1024)] = 64 << 20
    """A file that reaches this size is closed, and a new one begun."""
    rotate_interval: Annotated[Duration, Field(ge=1)] = 3600.0
    """A file that reaches this age is closed, and a new one begun."""
    queue_lines: Annotated[int, Field(ge=1)] = 100_000
    """Lines that may wait for the disk, and as many for the brokers of `topic`; more are dropped, counted, and noted in the log
    as a gap. Decisions take half of it at most."""

    @model_validator(mode="after")
    def _room_for_an_interval(self) -> UsageLog:
        if self.queue_lines < self.max_keys:
            raise ValueError(f"`queue_lines` {self.queue_lines} is below `max_keys` {self.max_keys}: an interval would not fit")
        return self


class Logs(Model):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines of the operations log, which goes to standard output."""
    format: Literal["auto", "json", "text"] = "auto"
    """How its lines are written: `json` for programs, `text` for people; `auto` is `text` on a terminal and `json` elsewhere."""
    usage: UsageLog = UsageLog()


class Limits(Model):
    """What one client may take, and all of them together. Each limit has a metric, and a line in the operations log that
    names the client when it bites."""

    max_frame: Annotated[Size, Field(ge=1024, le=0x7FFFFFFF)] = 100 << 20
    """The largest request; one that is larger closes its connection. Kafka's `socket.request.max.bytes`."""
    memory_total: Annotated[Size, Field(ge=1 << 20)] = 1 << 30
    """What all connections together may hold of requests and answers that are under way. Each principal may hold 8 times what is
    still free, so 8/9 of it at most. Beyond that, no large requests and answers of this principal are read until there is room;
    one of its requests always goes on (at each worker one), so nothing locks up."""
    memory_per_connection: Annotated[Size, Field(ge=1 << 16)] = 4 << 20
    """The largest answer that is held whole to be changed, and what may wait for a client or a broker that does not take
    it; then reading from the other side stops. Larger answers stream. The one request that is being received is not counted."""
    max_connections: Annotated[int, Field(ge=1)] = 10_000
    """Connections of clients. For one more the oldest that is not let in yet is closed, of the address that has most of them; where
    all are let in, the new one. One user may have 8/9 of them. Each takes two file descriptors."""
    max_connections_per_address: Annotated[int, Field(ge=1)] | None = None
    """The same for one address of a client, of whose own connections one is closed. Kafka's `max.connections.per.ip`."""
    max_connections_per_principal: Annotated[int, Field(ge=1)] | None = None
    """Connections of one user; one more is closed once it has logged in. Clients without a login are not counted."""
    max_in_flight: Annotated[int, Field(ge=1)] = 1000
    """Requests of a connection that wait for their answers; no more are looked at before some are answered."""
    first_request_timeout: Annotated[Duration, Field(gt=0)] = 30.0
    """How long a connection may take to its first whole request, TLS and login included."""
    request_timeout: Annotated[Duration, Field(gt=0)] = 120.0
    """How long a request may take from its first byte to its last while the proxy reads from the client."""
    idle_timeout: Annotated[Duration, Field(gt=0)] = 600.0
    """How long a connection may be silent with no answer outstanding. Kafka's `connections.max.idle.ms`."""
    max_connection_age: Annotated[Duration, Field(ge=1)] | None = None
    """How old a connection may become, give or take a tenth, so that not all end at once. Then it ends between two requests, and
    its client opens another one: so load balancers spread their clients anew, and certificates are looked at again. Not set: any
    age."""
    max_throttle: Annotated[Duration, Field(gt=0, le=3600)] = 30.0
    """No throttle of the proxy lasts longer. What is owed beyond it throttles the next request."""
    drain_timeout: Duration = 20.0
    """How long connections may go on after SIGTERM."""

    @model_validator(mode="after")
    def _room(self) -> Limits:
        if self.memory_total < self.max_frame:
            raise ValueError(
                f"`memory_total` {self.memory_total} is below `max_frame` {self.max_frame}: the largest request would not fit"
            )
        return self


class ExemptClient(Model):
    """A user with a client id. Both are names: `<default>` is none here."""

    user: Name
    """Name of the user, as in the principal `User:name`."""
    client_id: Name
    """Client id."""

    @field_validator("user", "client_id")
    @classmethod
    def _named(cls, name: str) -> str:
        if name == DEFAULT:
            raise ValueError(f"`{DEFAULT}` cannot be exempt; name a user and a client id, or leave the limit out")
        return name


class Exempt(Model):
    """What is metered and never limited. A client id is whatever a client claims: exempt users, or a user with a client id."""

    users: list[Name] = Field(default_factory=list)
    """Names of users, as in the principal `User:name`. Nothing limits them."""
    clients: list[ExemptClient] = Field(default_factory=list)
    """Users with one of their client ids. Nothing limits them, either."""
    client_ids: list[Name] = Field(default_factory=list)
    """Client ids that limits of client ids alone do not hold for. Limits of their users do, and so do storage, topics and producer
    ids."""
    topics: list[Name] = Field(default_factory=lambda: ["__consumer_offsets", "__transaction_state", "__share_group_state"])
    """Topics whose creation is not charged, and writing to which is never throttled."""


class Metrics(Model):
    max_entities: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Users and client ids that have their quotas shown in `/metrics`, those that use most of their rate, and all others together
    as `<other>`; `0` shows none. Names of users and clients are labels there."""


Rate = Annotated[Size, Field(ge=1, le=MAX_BYTES)]


class _EntityNames(Model):
    user: Name | None = None
    """Name of the user, or `<default>`."""
    client_id: Name | None = None
    """Client id, or `<default>`. A client id is whatever a client claims, so each user has this much for itself, also where no
    `user` is named; in Kafka all users who claim the client id share it."""

    def limits(self) -> dict[str, float]:
        """The limits that are set, by the names of their keys."""
        given = {name: getattr(self, name) for name in ENTITY_KEYS}
        given |= {DEPRECATED[name].name: getattr(self, name) for name in self.deprecated_names()}
        return {name: float(value) for name, value in given.items() if value is not None}

    def deprecated_names(self) -> list[str]:
        """Those by which limits are set."""
        return [name for name in DEPRECATED if getattr(self, name) is not None]

    @field_validator(
        *(name for key in ENTITY_KEYS.values() if key.users_only for name in {key.name, key.deprecated}), check_fields=False
    )
    @classmethod
    def _for_users(cls, limit: float | None, info: ValidationInfo) -> float | None:
        if limit is not None and info.data.get("client_id") is not None:
            raise ValueError(
                f"`{info.field_name}` is for users only, as a client id is whatever a client claims; leave out `client_id`"
            )
        return limit

    @model_validator(mode="after")
    def _consistent(self) -> _EntityNames:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs `user`, `client_id` or both")
        for name in self.deprecated_names():
            if getattr(self, DEPRECATED[name].name) is not None:
                raise ValueError(f"`{name}` is the deprecated name of `{DEPRECATED[name].name}`; leave it out")
        limits = self.limits()
        if not limits:
            *names, last = (f"`{key.name}`" for key in ENTITY_KEYS.values() if not key.at_once)
            raise ValueError(f"an entity without a limit; set {', '.join(names)} or {last}")
        if MUTATIONS_BURST in limits and MUTATIONS_RATE not in limits:
            raise ValueError("`controller_mutations_burst` needs `controller_mutations_rate` beside it")
        if (wrong := wrong_together(limits)) is not None:
            raise ValueError(wrong)
        return self


if TYPE_CHECKING:
    EntityQuota = _EntityNames
    Kind = str
else:
    Kind = Literal[KINDS]
    EntityQuota = create_model(
        "EntityQuota",
        __base__=_EntityNames,
        __module__=__name__,
        __doc__="""Limits of a user, a client id, or both; `<default>` for all that have no limit of their own. The most specific
    one holds, as in Kafka.""",
        **{name: limit_field(key, name) for name, key in {**ENTITY_KEYS, **DEPRECATED}.items()},
    )


class ProducerIds(Model):
    """How producer ids are counted (KIP-936)."""

    mode: Literal["throttle", "reject"] = "throttle"
    """What happens to a user over its limit: all that it produces is slowed down, as KIP-936 has it; or batches with new ids are
    refused with error 19, which clients retry, and known ids go on untouched."""
    hold_new: bool = False
    """Whether InitProducerId, by which clients get their ids, waits while its user has used up the limit, 10 s at most. Who wants
    another epoch of an id that is known does not wait."""
    window_size: Annotated[Duration, Field(ge=1, le=2_592_000)] = 3600.0
    """How long an id is remembered from when it was new, and what `producer_ids_rate` is about:
    `producer.id.quota.window.size.seconds`."""
    window_num: Annotated[int, Field(ge=1, le=1000)] = 11
    """Windows over which the metric `rate` is told: `producer.id.quota.window.num`."""
    cleanup_interval: Annotated[Duration, Field(ge=10, le=86_400)] = 60.0
    """How often the proxy looks for users of whom nothing is left: `producer.id.quota.cache.cleanup.scheduler.interval.ms`."""
    false_positive_rate: Annotated[float, Field(ge=1e-6, le=0.5)] = 0.01
    """How often an id that is new may be taken for one that is known, and so not be counted."""
    count_unlimited: bool = True
    """Whether users without a limit are counted too, so that metrics tell which limit would be right."""
    state_file: FileName | None = None
    """File in which what was counted outlives the proxy; `{proxy_id}` in it stands for `proxy_id`. Without it a restart forgets.
    One proxy writes it: another one that is given the same file says so, and takes it over when the first has ended."""


class Connections(Model):
    """Connections per second that an address may open (KIP-612), before TLS and login. One too many is closed after a delay of 1 s
    at most. The rate is measured over 11 samples of 1 s, so ten seconds of it may come at once."""

    per_address: Annotated[float, Field(ge=1, le=MAX_REQUESTS, allow_inf_nan=False)] | None = None
    """The rate of each address without one of its own: `connection_creation_rate` of the default ip in Kafka."""
    networks: dict[Name, Annotated[float, Field(ge=1, le=MAX_REQUESTS, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=10_000
    )
    """The rate of an address, or of each address in a network (`10.1.0.0/16`). The smallest network holds."""
    ipv6_prefix: Annotated[int, Field(ge=1, le=128)] = 64
    """Bits of an IPv6 address that make one client: all that begin alike share a rate."""

    @field_validator("networks")
    @classmethod
    def _networks(cls, networks: dict[str, float]) -> dict[str, float]:
        seen = set()
        for name in networks:
            try:
                network = parse_network(name)
            except ValueError:
                raise ValueError(
                    f"`{name}` is neither an address nor a network; 10.1.2.3, 10.1.0.0/16 and 2001:db8::/32 are"
                ) from None
            if network in seen:
                raise ValueError(f"`{name}` stands twice, as {network}")
            seen.add(network)
        return networks


class DynamicQuotas(Model):
    """Quotas that are altered while the proxy runs, by AlterClientQuotas, and kept in a topic of the cluster that all proxies
    follow; `dynamic: {}` switches them on. A limit that was set so goes before the one in this file."""

    topic: Annotated[str, Field(pattern=TOPIC)] = "__kafka_quota_proxy_quotas"
    """The topic. The proxy creates it where it is not there: compacted, one partition, three replicas or as many as there are
    brokers. `upstream.sasl` has to be allowed to create it, read it and write to it; nobody else should be."""
    start_timeout: Duration = 10.0
    """How long `/readyz` waits at start until the topic was read. Then the proxy goes on with the quotas of this file, until it
    can be read."""


class TopicQuotas(Model):
    """Thresholds for bytes in, of all topics and of each. Only when the total is over its threshold are topics over theirs
    refused or slowed down."""

    total_bytes_in_per_sec: Rate
    """Bytes of record batches per second that the whole cluster takes."""
    bytes_in_per_sec: dict[Name, Rate] = Field(default_factory=dict)
    """The same by topic. In sum at most the total; what they leave of it is shared equally by all other topics."""
    meter: Literal["ewma", "window"] = "ewma"
    """How rates are measured: a one-minute average that moves every 5 s, or 11 samples of 1 s as Kafka's own quotas."""
    mode: Literal["transient", "fail", "throttle"] = "transient"
    """What happens to a batch: it is refused with error 19, which every client retries; or with 44, which none does, and its
    records are lost to their producer; or it is taken, and its client throttled."""

    @model_validator(mode="after")
    def _sum(self) -> TopicQuotas:
        TopicLimits(self.total_bytes_in_per_sec, self.bytes_in_per_sec)
        return self


class TopicRate(Model):
    """The rates of one topic, over 11 samples of 1 s as Kafka's own quotas."""

    bytes_in: Rate | None = None
    """Bytes of record batches per second that may be produced to it, by all clients together."""
    bytes_out: Rate | None = None
    """Bytes of record batches per second that may be read from it, by Fetch and ShareFetch of all clients together."""

    @model_validator(mode="after")
    def _some(self) -> TopicRate:
        if self.bytes_in is None and self.bytes_out is None:
            raise ValueError("a topic without a rate; set `bytes_in`, `bytes_out` or both")
        return self


class TopicRates(Model):
    """Rates of topics by themselves, whether or not the total of `quotas.topics` is exceeded."""

    topics: dict[Annotated[str, Field(pattern=TOPIC)], TopicRate] = Field(default_factory=dict, max_length=10_000)
    """The rates by topic: `orders: {bytes_in: 10MiB, bytes_out: 50MiB}`."""
    mode: Literal["throttle", "transient", "fail"] = "throttle"
    """What happens to a batch for a topic above its `bytes_in`: it is taken, and its client throttled, as long as throttles can pay
    for it; or it is refused with error 19, which every client retries; or with 44, which none does, and its records are lost to
    their producer."""


class Overload(Model):
    """What happens when a broker cannot keep up: its answers to Produce take longer than they should, for three seconds. Then users
    may have only so much under way to it that its answers take as long as they may, shared fairly; `overload: {}` switches it on.
    See docs/overload.md."""

    target_latency: Annotated[Duration, Field(ge=0.005, le=30)] = 0.1
    """How long a broker may take for the quickest tenth of answers to Produce. At least twice what it takes when nobody asks for
    much."""
    least_rate: Annotated[Size, Field(ge=1024, le=MAX_BYTES)] = 65_536
    """Bytes of record batches per second that each user may always produce to a broker, times its weight."""
    weights: dict[Name, Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=10_000
    )
    """How much users, or tenants where they have one, get beside others, by name; 1 for all others."""


class Quotas(Model):
    entities: list[EntityQuota] = Field(default_factory=list)
    admins: list[Name] = Field(default_factory=list)
    """Names of users who may alter the quotas of the proxy, as in the principal `User:name`. What brokers may be told is up to
    the brokers."""
    dynamic: DynamicQuotas | None = None
    observe: bool | list[Kind] = Field(
        False,
        description="Quotas that are only observed: computed, logged and counted, never enforced. `true` for all, or a list of\n"
        + ", ".join(f"`{kind}`" for kind in KINDS)
        + ".",
    )
    cold_read_lag: Annotated[int, Field(ge=0, le=MAX_BYTES)] = COLD_READ_LAG
    """Offsets behind the end of the log from which on a read counts towards `cold_read_rate`: about what the page cache of a broker
    has of a partition."""
    controller_mutations_algorithm: Literal["spread", "token_bucket"] = "spread"
    """How a burst of controller mutations is forgotten: spread over the windows before it, or as a bucket that fills at the
    rate. In the long run the bucket holds the rate; spreading may let about twice as much pass."""
    default_partitions: Annotated[int, Field(ge=1)] | None = None
    """What a new topic costs that leaves the number of its partitions to the broker. When not set, the cluster's own
    `num.partitions`, which the proxy asks a broker for; 1 until it is known."""
    ask_timeout: Annotated[Duration, Field(gt=0)] = 5.0
    """How long a broker may take that the proxy asks about topics before the log says `broker did not tell`. The request waits for
    the answer however long it takes."""
    producer_ids: ProducerIds = ProducerIds()
    storage: Storage | None = None
    stored_bytes: StoredBytes = StoredBytes()
    connections: Connections = Connections()
    topic_rates: TopicRates = TopicRates()
    topics: TopicQuotas | None = None
    """Thresholds for bytes in. Not set: none."""
    overload: Overload | None = None
    """Fairness at brokers that cannot keep up. Not set: none."""
    topic_policy: TopicPolicySettings = TopicPolicySettings()
    """What requests may give to topics, whose tenant has no rule of its own for it."""

    @model_validator(mode="after")
    def _unique(self) -> Quotas:
        seen: set[tuple[str | None, str | None]] = set()
        for entity in self.entities:
            key = (entity.user, entity.client_id)
            if key in seen:
                raise ValueError(
                    f"user {entity.user!r} with client_id {entity.client_id!r} stands twice; put all its limits into one entry"
                )
            seen.add(key)
        return self


class Reload(Model):
    """When the settings file and the files that it names are looked at again. SIGHUP does it at once, always."""

    interval: Duration = 10.0
    """How often; `0` leaves it to SIGHUP. A changed file is read once it has stayed as it is for a second, or for `interval` where
    that is shorter: half of a file that is being written may be valid, with fewer quotas."""


def _default_workers() -> int | str:
    """What the environment says, as in the image; else 1."""
    text = os.environ.get(WORKERS, "1")
    return int(text) if text.isdecimal() else text


class Places:
    """The file of settings, and the lines of limits in it. Settings are the same wherever they stand."""

    def __init__(self, file: str = "", lines: Mapping[Key, int] | None = None) -> None:
        self.file, self.lines = file, lines or {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places)

    __hash__ = None  # type: ignore[assignment]


class Settings(Model):
    proxy_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = Field(default_factory=lambda: platform.node() or "proxy")
    """Name of this proxy in logs: letters, digits, dots, dashes and underscores. By default the host's name, so several on one
    host need names of their own."""
    workers: Workers = Field(default_factory=_default_workers, validate_default=True)
    """Processes that serve clients, each on one processor, behind the same ports and one admin address. They enforce one quota, and
    `limits` hold for all of them together. `auto`: as many as the processors that the process may use, limits of its control group
    and `KAFKA_QUOTA_PROXY_PROCESSORS` of the environment included, and as `limits.memory_total` holds requests of
    `limits.max_frame`. More than one need fixed ports. By default 1, or what `KAFKA_QUOTA_PROXY_WORKERS` of the environment says,
    which is `auto` in the image."""
    upstream: Upstream = Upstream()
    listen: Listener = Listener()
    more_listeners: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,30}$")], Listener] = Field(default_factory=dict)
    """Further listeners by name, such as `internal`: each has the settings of `listen`, and its own addresses and ports."""
    admin: Admin = Admin()
    logs: Logs = Logs()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    reload: Reload = Reload()
    exempt: Exempt = Exempt()
    quotas: Quotas = Quotas()
    tenants: dict[TenantName, TenantSettings] = Field(default_factory=dict, max_length=MAX_TENANTS)
    """Groups of users that share limits, and own topics: `payments: {user_prefixes: [payments-], topic_prefixes: [payments.],
    cluster_producer_byte_rate: 20MiB}`."""
    ledger: Ledger = Ledger()

    _places: Places = PrivateAttr(default_factory=Places)

    def stands_in(self, file: str, lines: Mapping[Key, int]) -> None:
        """These settings were read from a file, where each key stands on a line."""
        self._places = Places(file, {key: line for key, line in lines.items() if key[:1] in (("quotas",), ("tenants",))})

    def place(self, key: Key) -> str | None:
        """File and line of a setting, as `settings.yaml:17`, or of the section that it is in; None where it is not of a file."""
        file, lines = self._places.file, self._places.lines
        line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
        return None if line is None else f"{file}:{line}"

    @property
    def producer_ids_file(self) -> Path | None:
        """`quotas.producer_ids.state_file` of this proxy."""
        name = self.quotas.producer_ids.state_file
        return None if name is None else Path(name.replace("{proxy_id}", self.proxy_id))

    @field_validator("tenants")
    @classmethod
    def _of_one_tenant(cls, tenants: dict[str, TenantSettings]) -> dict[str, TenantSettings]:
        tenants_of(tenants)
        return tenants

    @field_validator("quotas")
    @classmethod
    def _own_topics(cls, quotas: Quotas, info: ValidationInfo) -> Quotas:
        logs: Logs | None = info.data.get("logs")
        if quotas.dynamic is not None and logs is not None and quotas.dynamic.topic == logs.usage.topic:
            raise ValueError(f"`quotas.dynamic.topic` and `logs.usage.topic` are both {logs.usage.topic}; take two topics")
        return quotas

    @property
    def listeners(self) -> dict[str, Listener]:
        """All listeners by name; `listen` is called `main`."""
        return {"main": self.listen, **self.more_listeners}

    @staticmethod
    def key_of(listener: str) -> str:
        """Where the settings of a listener stand, by its name."""
        return "listen" if listener == "main" else f"more_listeners.{listener}"

    @property
    def fixed_ports(self) -> frozenset[int]:
        """Ports that no broker can have: those of the bootstrap listeners and of admin."""
        return frozenset({self.admin.listen.port, *(listener.bootstrap.port for listener in self.listeners.values())} - {0})

    @property
    def has_fixed_ports(self) -> bool:
        """False if a listener takes any free port, which workers cannot share."""
        return all(it.bootstrap.port and (it.routing == "sni" or it.ports().first) for it in self.listeners.values())

    @model_validator(mode="after")
    def _for_workers(self) -> Settings:
        if self.workers in (1, "auto"):
            return self
        if not self.has_fixed_ports:
            raise ValueError(
                "`workers` share their ports: give `bootstrap` and `broker_ports` of each listener fixed ones, not `0`"
            )
        limits = self.limits
        if limits.memory_total // int(self.workers) < limits.max_frame:
            raise ValueError(
                f"`limits.memory_total` {limits.memory_total} has no room for a request of `limits.max_frame`"
                f" {limits.max_frame} in each of {self.workers} workers; set it higher, or fewer `workers`"
            )
        return self

    @model_validator(mode="after")
    def _apart(self) -> Settings:
        """No two sockets of the proxy want the same port."""
        if "main" in self.more_listeners:
            raise ValueError("`more_listeners.main`: this is what `listen` is called; take another name")
        taken = [_Claim("admin.listen", self.admin.listen.host, _only(self.admin.listen.port), False)]
        for name, listener in self.listeners.items():
            where, host = self.key_of(name), listener.bootstrap.host
            first, last = listener.ports()
            for claim in (
                _Claim(f"{where}.bootstrap", host, _only(listener.bootstrap.port), False),
                _Claim(f"{where}.broker_ports", host, range(first, last + 1), listener.broker_ports is None),
            ):
                if (other := next(filter(claim.clashes, taken), None)) is not None:
                    port = max(claim.ports.start, other.ports.start)
                    raise ValueError(f"`{claim.key}` and `{other.key}` both take port {port} of {host}; keep them apart")
                taken.append(claim)
        return self

    @model_validator(mode="after")
    def _every_broker_has_a_port(self) -> Settings:
        """Of those that are given; of others only a running proxy learns."""
        for name, listener in self.listeners.items():
            if listener.routing == "ports":
                refused = listener.port_map(self.fixed_ports).refused(self.upstream.brokers.keys())
                for node_id, reason in refused.items():
                    raise ValueError(
                        f"`{self.key_of(name)}`: clients could not reach broker {node_id} of `upstream.brokers`: {reason}; {REMEDY}"
                    )
        return self


class _Claim(NamedTuple):
    """Ports that something wants. A range by default leaves out single ports that are taken."""

    key: str
    host: str
    ports: range
    by_default: bool

    def clashes(self, other: _Claim) -> bool:
        both = range(max(self.ports.start, other.ports.start), min(self.ports.stop, other.ports.stop))
        same_host = self.host == other.host or bool({self.host, other.host} & {ANY_HOST, "::"})
        yields = (self.by_default and len(other.ports) == 1) or (other.by_default and len(self.ports) == 1)
        return bool(both) and both.start > 0 and same_host and not yields


def _only(port: int) -> range:
    return range(port, port + 1)


def deprecated_names(settings: Settings) -> list[str]:
    """What to write instead of each deprecated name that stands in these settings."""
    used = {name for entity in settings.quotas.entities for name in entity.deprecated_names()}
    return [
        f"`quotas.entities[].{name}` is deprecated: write `{DEPRECATED[name].name}`, as `quotas alter` does"
        for name in sorted(used)
    ]
