"""What a session needs of the outside. `clients.connection` implements it on sockets, tests on lists.

A session never waits: it changes its state, then says what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from proxy.session.admission import Admission
from proxy.session.budget import Budget, Census, Guest
from proxy.session.dynamic_quotas import NO_DYNAMIC_QUOTAS, DynamicQuotas
from proxy.session.expected import Expected
from proxy.session.latencies import Latencies
from proxy.session.requester import Requester
from proxy.session.tally import Tally
from proxy.session.topologies import Topologies
from proxy.wire.metadata import Broker
from proxy.wire.primitives import Buffer
from quota.decision import Decision
from quota.engine import Engine


class Port(Protocol):
    """The two sockets of one client and a timer. Times are monotonic seconds."""

    def to_client(self, chunks: list[Buffer]) -> None: ...
    def to_broker(self, chunks: list[Buffer]) -> None: ...
    @property
    def reading(self) -> bool:
        """Is the client read now? Not while the session stopped it, nor while its broker does not take what was written."""

    def connect(self) -> None:
        """Open the connection to the broker; `Session.broker_connected` or `broker_lost` follows."""

    def stop_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def stop_broker(self) -> None:
        """Read nothing more from the broker, for want of memory."""

    def resume_broker(self) -> None: ...
    def wake_at(self, when: float) -> None:
        """Call `Session.wake` at that time; replaces an earlier wish."""

    def turn_over(self) -> bool:
        """True if this connection has kept the others waiting for long enough."""

    def next_turn(self) -> None:
        """Call `Session.turn` when others had their turn."""

    def close(self) -> None:
        """Close both sockets once what was written to the client has gone out."""


class Gone:
    """The port of a session that is over, so that it does not keep the connection that it had."""

    reading = False

    def to_client(self, chunks: list[Buffer]) -> None: ...
    def to_broker(self, chunks: list[Buffer]) -> None: ...
    def connect(self) -> None: ...
    def stop_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def stop_broker(self) -> None: ...
    def resume_broker(self) -> None: ...
    def wake_at(self, when: float) -> None: ...
    def turn_over(self) -> bool:
        return False

    def next_turn(self) -> None: ...
    def close(self) -> None: ...


GONE: Final[Port] = Gone()


class Cluster(Protocol):
    """What sessions learn about the cluster, and ask of it."""

    def learn_brokers(self, brokers: list[Broker]) -> None:
        """A broker said that these are the live brokers."""

    def learn_topics(self, frame: Buffer, version: int) -> None:
        """A Metadata response to learn topic ids from, when there is time for it."""

    def topic_name(self, topic_id: bytes) -> str | None: ...
    def topic_size(self, name: str) -> int | None:
        """The number of its partitions when it was last heard of; None of one that is not known to exist."""

    def learn_size(self, name: str, partitions: int) -> None:
        """A topic has this number of partitions from now on; brokers may hear of it later."""

    def forget_topic(self, name: str) -> None:
        """It was deleted."""

    @property
    def default_partitions(self) -> int:
        """What a topic gets whose creator leaves it to the cluster."""

    def learn_default_partitions(self, partitions: int) -> None:
        """A topic that was created without a number of partitions got this many."""


class Watcher(Protocol):
    """Is told, and changes nothing."""

    def decided(self, decision: Decision, request: Requester) -> None:
        """A request was throttled, refused or held."""

    def would_have(self, decision: Decision, request: Requester) -> None:
        """A quota that is only observed would have throttled or refused a request."""

    def not_told(self, request: Requester) -> None:
        """The broker has not said for `ask_timeout` how large these topics are, or nothing that can be understood."""

    def client_failed(self, client_address: str, client_id: str | None, reason: str) -> None:
        """A connection is closed because of what its client sent."""

    def limited(self, limit: str, client_address: str, client_id: str | None, principal: str, *, closed: bool) -> None:
        """A limit bites, named as its setting: the connection is closed, or has to wait."""

    def broker_failed(self, client_address: str, reason: str) -> None:
        """A connection is closed because of what its broker sent, or because it could not be reached."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a client's connection, and what it is shown."""

    address: str
    """host:port, for logs"""
    endpoint: Callable[[int | None], tuple[str, int]]
    """(host, port) under which this client is shown a broker; the bootstrap address for None"""
    guest: Guest | None = None
    """how the connection is counted; `Census.let_in` has to be told when it is let in"""
    broker: int | None = None
    """the node id of the broker whose address it came to; None for the bootstrap address"""
    lifetime: float = 1.0
    """its part of `Bounds.max_connection_age`: each connection has another, so that not all end at once"""


@dataclass(slots=True)
class Bounds:
    """What one connection may take; operators may change it at any time. Sizes in bytes, times in seconds."""

    max_frame: int = 104_857_600
    max_held_response: int = 4_194_304
    max_in_flight: int = 1000
    first_request_timeout: float = 30.0
    request_timeout: float = 120.0
    idle_timeout: float = 600.0
    ask_timeout: float = 5.0
    max_connection_age: float = inf


@dataclass(frozen=True, slots=True)
class Services:
    """What all sessions of a proxy share."""

    cluster: Cluster
    engine: Engine
    tally: Tally
    watcher: Watcher
    understood: Mapping[int, tuple[int, int]]
    bounds: Bounds = field(default_factory=Bounds)
    budget: Budget = field(default_factory=lambda: Budget(1 << 30))
    census: Census = field(default_factory=lambda: Census(10_000))
    expected: Expected = field(default_factory=Expected)
    topologies: Topologies = field(default_factory=Topologies)
    dynamic_quotas: DynamicQuotas = NO_DYNAMIC_QUOTAS
    admission: Admission = field(default_factory=Admission)
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def max_held_response(self) -> int:
        """The largest response that is held whole although it could stream."""
        return self.bounds.max_held_response
