"""A session between a client and a broker that are lists. In: steps of a dialogue. Out: what each side got.

A `Dialogue` fails at its end if bytes came out that no step asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from proxy.apis.registry import default_handlers, understood
from proxy.hashing import murmur3
from proxy.session.admission import Admission
from proxy.session.budget import Budget, Census
from proxy.session.dynamic_quotas import NO_DYNAMIC_QUOTAS, DynamicQuotas
from proxy.session.plans import Handlers
from proxy.session.port import Bounds, Peer, Services
from proxy.session.requester import Requester
from proxy.session.session import Session, State
from proxy.session.tally import Row, Tally
from proxy.wire.metadata import Broker
from proxy.wire.primitives import BadBytes, Buffer
from quota.confirmed import Confirmations
from quota.decision import Action, Decision, Verdict
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.controller_mutations import MutationLimit
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIdOptions, user_limit_table
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Exempt, Limits
from quota.pair import Pair
from quota.steps import Steps

T = TypeVar("T")
HANDLERS = Handlers(default_handlers())
ALICE = Entity("alice", None)
ANYBODY = Entity("ANONYMOUS", None)


def endpoint(node_id: int | None) -> tuple[str, int]:
    """Broker `id` is shown at port 9200 + id."""
    return "proxy.example", 9192 if node_id is None else 9200 + node_id % 100


def rate_table(rates: Mapping[Entity, float]) -> LimitTable[RateLimit]:
    """Limits of a plain rate."""
    return LimitTable({entity: RateLimit(rate) for entity, rate in rates.items()})


def limits_of(
    *options: object,
    max_throttle: float = 30.0,
    exempt: Exempt = Exempt(),  # noqa: B008
    observed: Mapping[str, Action] = {},
    **tables: LimitTable[Any],
) -> Limits:
    """Limits with these tables by the names of their kinds, and these options."""
    return Limits(tables, options, max_throttle, exempt, observed)


def charge_mutations(
    engine: Engine,
    found: ResolvedLimit[MutationLimit],
    partitions: Sequence[int],
    *,
    refusable: bool,
    now: float,
    mute: bool = True,
) -> Verdict:
    """Charge a request that creates, adds or deletes partitions, as handlers do."""
    return engine.enforce(engine.controller_mutations.charge(found, partitions, now, refusable=refusable), now, mute=mute)


def changed(limits: Limits, *options: object, **tables: LimitTable[Any]) -> Limits:
    """These limits with other tables and options."""
    kept = tuple(option for option in limits.options if not any(isinstance(new, type(option)) for new in options))
    return replace(limits, tables={**limits.tables, **tables}, options=(*kept, *options))


class Cluster:
    """What sessions told of the cluster."""

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        self.metadata: list[tuple[Buffer, int]] = []
        self.names: dict[bytes, str] = {}
        self.sizes: dict[str, int] = {}
        self.default_partitions = 1
        self.sized: Callable[[str, int], None] = lambda _name, _partitions: None

    def learn_brokers(self, brokers: list[Broker]) -> None:
        self.brokers = brokers

    def learn_topics(self, frame: Buffer, version: int) -> None:
        self.metadata.append((frame, version))

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)

    def topic_size(self, name: str) -> int | None:
        return self.sizes.get(name)

    def learn_size(self, name: str, partitions: int) -> None:
        self.sizes[name] = partitions
        self.sized(name, partitions)

    def forget_topic(self, name: str) -> None:
        self.sizes.pop(name, None)
        self.sized(name, 0)

    def learn_default_partitions(self, partitions: int) -> None:
        self.default_partitions = partitions


@dataclass
class Watcher:
    decisions: list[tuple[Decision, Requester]] = field(default_factory=list)
    would: list[tuple[Decision, Requester]] = field(default_factory=list)
    client_failures: list[str] = field(default_factory=list)
    broker_failures: list[str] = field(default_factory=list)
    limits: list[tuple[str, bool]] = field(default_factory=list)
    silent: list[Requester] = field(default_factory=list)

    def decided(self, decision: Decision, request: Requester) -> None:
        self.decisions.append((decision, request))

    def would_have(self, decision: Decision, request: Requester) -> None:
        self.would.append((decision, request))

    def not_told(self, request: Requester) -> None:
        self.silent.append(request)

    def client_failed(self, client_address: str, client_id: str | None, reason: str) -> None:  # noqa: ARG002
        self.client_failures.append(reason)

    def limited(self, limit: str, client_address: str, client_id: str | None, principal: str, *, closed: bool) -> None:  # noqa: ARG002
        self.limits.append((limit, closed))

    def broker_failed(self, client_address: str, reason: str) -> None:  # noqa: ARG002
        self.broker_failures.append(reason)


class Port:
    """Two sockets that are lists of buffers, and a timer that is a number."""

    def __init__(self) -> None:
        self.client: list[Buffer] = []
        self.broker: list[Buffer] = []
        self.connects = 0
        self.reading = self.reading_broker = True
        self.wake: float | None = None
        self.wants_turn = self.out_of_time = False
        self.full_after: int | None = None
        """writes after which the client takes no more for now"""
        self.calls = 0
        """of the system, to send something"""
        self.when_full: Callable[[], None] = lambda: None
        self.closes = 0

    def to_client(self, chunks: list[Buffer]) -> None:
        assert not self.closes, "written after close"
        self.calls += 1
        self.client += chunks
        if self.full_after and len(self.client) % self.full_after == 0:
            self.when_full()

    def to_broker(self, chunks: list[Buffer]) -> None:
        assert not self.closes, "written after close"
        self.calls += 1
        self.broker += chunks

    def connect(self) -> None:
        self.connects += 1

    def stop_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def stop_broker(self) -> None:
        self.reading_broker = False

    def resume_broker(self) -> None:
        self.reading_broker = True

    def wake_at(self, when: float) -> None:
        self.wake = when

    def turn_over(self) -> bool:
        return self.out_of_time

    def next_turn(self) -> None:
        assert not self.wants_turn, "asked for twice"
        self.wants_turn = True

    def close(self) -> None:
        self.closes += 1


class AllConfirmed(Confirmations):
    """Every user has written to every topic before."""

    def find(self, user: str, topic: str) -> Pair:
        found = super().find(user, topic)
        return found if found.confirmed else self.confirm(user, topic, 0.0)


def rows_of(tally: Tally) -> list[Row]:
    """What all sums hold. They begin at zero again."""
    return [row for s in tally.sums() if (row := tally.close(s)) is not None]


@dataclass
class World:
    """What the sessions of one test share."""

    limits: dict[Entity, MutationLimit] = field(default_factory=dict)
    producer_ids: dict[Entity, float] = field(default_factory=dict)
    """new producer ids of a user within an hour"""
    ids_mode: IdMode = IdMode.THROTTLE
    hold_new_ids: bool = False
    produce: dict[Entity, float] = field(default_factory=dict)
    """bytes per second"""
    consume: dict[Entity, float] = field(default_factory=dict)
    requests: dict[Entity, float] = field(default_factory=dict)
    rates: dict[str, dict[Entity, float]] = field(default_factory=dict)
    """other plain rates, by kind"""
    topics: TopicLimits | None = None
    topics_mode: Mode = Mode.TRANSIENT
    observed: Mapping[str, Action] = field(default_factory=dict)
    count_unlimited: bool = True
    exempt: Exempt = field(default_factory=Exempt)
    max_throttle: float = 30.0
    max_frame: int = 1 << 20
    max_held_response: int = 1 << 16
    default_partitions: int = 1
    max_in_flight: int = 1000
    memory_total: int = 1 << 30
    max_connections_per_principal: int | None = None
    dynamic_quotas: DynamicQuotas = NO_DYNAMIC_QUOTAS
    logins: bool = False
    """the cluster wants logins"""
    strangers: bool = False
    """brokers have not confirmed yet that users may write to topics; else they have confirmed it of everybody"""
    handlers: Handlers = field(default_factory=lambda: HANDLERS)
    knows_nothing: bool = False
    """the broker answers the proxy's own questions at once: none of these topics is there"""

    def __post_init__(self) -> None:
        self.cluster, self.watcher, self.tally = Cluster(), Watcher(), Tally()
        self.cluster.default_partitions = self.default_partitions
        rates = {
            "producer_byte_rate": self.produce,
            "consumer_byte_rate": self.consume,
            "request_rate": self.requests,
            **self.rates,
        }
        tables: dict[str, LimitTable[Any]] = {kind: rate_table(limits) for kind, limits in rates.items()}
        tables["controller_mutations"] = LimitTable(self.limits)
        tables["producer_ids"] = user_limit_table(
            {entity: ProducerIdLimit(rate, self.ids_mode) for entity, rate in self.producer_ids.items()}
        )
        options: list[object] = [ProducerIdOptions(self.count_unlimited, hold_new=self.hold_new_ids)]
        if self.topics is not None:
            options.append(replace(self.topics, mode=self.topics_mode))
        limits = limits_of(*options, max_throttle=self.max_throttle, exempt=self.exempt, observed=self.observed, **tables)
        self.engine = Engine(limits, murmur3)
        self.cluster.sized = self.engine.owned.topic_sized
        if not self.strangers:
            self.engine.confirmed = AllConfirmed()
        self.services = Services(
            self.cluster,
            self.engine,
            self.tally,
            self.watcher,
            understood(self.handlers),
            Bounds(self.max_frame, self.max_held_response, self.max_in_flight),
            Budget(self.memory_total),
            Census(1000, per_principal=self.max_connections_per_principal),
            dynamic_quotas=self.dynamic_quotas,
            admission=Admission(logins=self.logins),
        )
        self.services.admission.served(inf)
        self.dialogues: list[Dialogue] = []

    def dialogue(self, user: str = "ANONYMOUS", *, connected: bool = True, broker: int | None = None) -> Dialogue:
        """A client that just connected; `connected`: its broker is reached as soon as it says something; `broker`: the one whose
        address it came to, None for the bootstrap address."""
        made = Dialogue(self, user, connected, broker)
        self.dialogues.append(made)
        return made

    def rows(self) -> list[Row]:
        """The sums of the interval that ends now."""
        return rows_of(self.tally)

    def nothing_left(self) -> None:
        """No bytes came out that no step asked for."""
        for dialogue in self.dialogues:
            assert b"".join(dialogue.port.broker) == b"", "bytes to the broker that no step asked for"
            assert b"".join(dialogue.port.client) == b"", "bytes to the client that no step asked for"


class Dialogue:
    """One client, its session and its broker. The time is `now`; steps that take a time move it."""

    def __init__(self, world: World, user: str, connected: bool, broker: int | None = None) -> None:
        self.world, self.port = world, Port()
        self.session = Session(world.services, world.handlers, self.port, Peer("10.0.0.1:1234", endpoint, broker=broker))
        self.session.client.user = user
        self.port.when_full = self.session.client_full
        self.now = 0.0
        self._connected = connected

    def client(self, *data: Buffer) -> Dialogue:
        """The client sends these reads."""
        for read in data:
            self.session.client_bytes(read, self.now)
            if self._connected and self.session.state is State.CONNECTING:
                self.session.broker_connected(self.now)
        return self._take_turns()

    def broker(self, *data: Buffer) -> Dialogue:
        """The broker sends these reads."""
        for read in data:
            self.session.broker_bytes(read, self.now)
        return self._take_turns()

    def told(self, sizes: dict[str, int] | None = None, names: dict[bytes, str] | None = None) -> bytes:
        """The proxy itself asks the broker about topics, which answers with their numbers of partitions; others are not there.
        `names`: of topic ids. What the broker got before that."""
        from tests.apis.topic_frames import sizes_told
        from tests.messages import read_request

        got = self.to_broker
        at = last_frame(got)
        assert got[at + 4 : at + 8] == b"\0\3\0\x0c", "the proxy asks nothing"
        question = read_request(3, 12, got[at:])
        assert not question.allow_auto_topic_creation
        self.broker(sizes_told(correlation_id_of(got[at:]), question.topics, sizes or {}, names or {}))
        return got[:at]

    def turn(self) -> Dialogue:
        """It is the session's turn again."""
        assert self.port.wants_turn, "no turn was asked for"
        self.port.wants_turn = False
        self.session.turn(self.now)
        return self._told_nothing()

    def turns(self) -> int:
        """All turns that the session wants, one by one; how many."""
        taken = 0
        while self.port.wants_turn:
            self.turn()
            taken += 1
        return taken

    def wake(self, when: float | None = None) -> Dialogue:
        """The timer goes off, by default at the time that was asked for."""
        due = when if when is not None else self.port.wake
        assert due is not None, "no timer is set"
        self.now, self.port.wake = due, None
        self.session.wake(self.now)
        return self._told_nothing()

    def _take_turns(self) -> Dialogue:
        """Its turns come at once where there is time, as nobody else has anything to do."""
        while self.port.wants_turn and not self.port.out_of_time:
            self.turn()
        return self._told_nothing()

    def _told_nothing(self) -> Dialogue:
        while self.world.knows_nothing and self.session.state is State.ASKING and self.session.in_flight == 1:
            before = self.told()
            self.port.broker.insert(0, before)
        return self

    @property
    def to_broker(self) -> bytes:
        """What the broker got since the last look."""
        got, self.port.broker = b"".join(self.port.broker), []
        return got

    @property
    def to_client(self) -> bytes:
        """What the client got since the last look."""
        got, self.port.client = b"".join(self.port.client), []
        return got

    def log_in(self, user: str) -> Dialogue:
        """A PLAIN login that the broker accepts."""
        from tests.messages import request, response

        hand, answer = request(17, 1, mechanism="PLAIN"), response(17, 1, error_code=0, mechanisms=("PLAIN",))
        self.client(hand).broker(answer)
        auth = request(36, 2, auth_bytes=f"\0{user}\0secret".encode())
        accepted = response(36, 2, error_code=0, error_message=None, auth_bytes=b"")
        self.client(auth).broker(accepted)
        assert self.to_broker == hand + auth
        assert self.to_client == answer + accepted
        return self

    @property
    def failures(self) -> list[str]:
        return self.world.watcher.client_failures


def last_frame(data: bytes) -> int:
    """Where the last of these whole frames starts."""
    at = end = 0
    while end < len(data):
        at, end = end, end + 4 + int.from_bytes(data[end : end + 4], "big")
    assert end == len(data), "half a frame"
    return at


def correlation_id_of(request: bytes) -> int:
    return int.from_bytes(request[8:12], "big")


def paused(work: Steps[T]) -> tuple[int, T]:
    """(how often others could be served meanwhile, what the work gives)."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


def split(frame: bytes, at: int) -> tuple[bytes, bytes]:
    return frame[:at], frame[at:]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def bad(read: Callable[..., object], *args: object, **named: object) -> bool:
    """Is this refused as bytes that are not what the protocol says?"""
    try:
        read(*args, **named)
    except BadBytes:
        return True
    return False
