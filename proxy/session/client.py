"""Who is on the connection, and the sums that its traffic goes to. In: principals and client ids as they are learnt.
Out: sums to add to."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final
from uuid import UUID

from proxy.identity.sasl import SaslExchange
from proxy.session.budget import ANONYMOUS
from proxy.session.port import Peer, Services
from proxy.session.requester import NO_API, Requester
from proxy.session.tally import Sum, TallyKey
from proxy.wire.walk import TopicPart
from quota.catalogue import PRODUCE
from quota.kinds.bytes_in import Flow
from quota.kinds.stored_bytes import StoredTopic
from quota.pair import Pair
from quota.rules import Metered, Rules
from quota.windows.durations import Durations

MAX_TOPIC_SUMS: Final = 1000
"""Sums per connection and API that are kept at hand; a client that names more topics takes them up again as it goes."""

NOT_TOLD: Final = -1
"""Partitions of a topic of which the broker's answer could not be understood."""
HIDDEN: Final = -2
"""Partitions of a topic that the client may not see, there or not."""


MAX_TOPIC_NAME: Final = 249
"""Kafka's own limit. A longer name is of no topic, and not worth remembering in full."""

MAX_CLIENT_ID: Final = 1024
"""Bytes of a client id that are looked at."""

MAX_APIS: Final = 200
"""APIs that a connection has sums of its own for; Kafka has 95. What a client makes up beyond that is summed up."""

MAX_RETIRED_SUMS: Final = 100
"""Sums of earlier client ids of a connection that are kept for answers still to come."""


class TargetTopic:
    """A topic that a client writes to. `name` is its id, in text, where the name of that is not `known`; `meter` is None where
    bytes in are not limited, or brokers have not confirmed the topic yet, that of all topics where they are only counted. `pair`
    says whether brokers let this user write to it, None where that does not matter. `rate`: its own rate, None without one.
    `stored`: what it counts towards stored bytes, None where nothing is limited, or brokers have not confirmed the topic yet.
    `total`: the sum of what is produced to it, None if it has to be asked for."""

    __slots__ = ("complete", "exempt", "known", "limits_stored", "meter", "name", "pair", "rate", "reached", "stored", "total")

    def __init__(self, name: str, known: bool, exempt: bool, meter: Flow | None, pair: Pair | None, rate: Metered | None) -> None:
        self.name, self.known, self.exempt, self.meter, self.pair, self.rate = name, known, exempt, meter, pair, rate
        self.limits_stored = False
        self.stored: StoredTopic | None = None
        self.total: Sum | None = None
        self.complete = False
        """Was everything found that it counts towards, once a broker had confirmed it?"""
        self.reached = False
        """Did a request with acks=0 on this connection write to it?"""

    def may_count(self, client: Client, acks: int, now: float) -> bool:
        """Has a broker confirmed that this client may write to it? Then what it writes counts at once. Requests with acks=0 are
        not answered: their topics are confirmed on each connection anew."""
        pair = self.pair
        if pair is None or (acks and self.complete and pair.confirmed):
            return True
        engine = client.services.engine
        if acks and not pair.confirmed:
            pair = self.pair = engine.confirmed.find(client.user, self.name)
        if not (pair.confirmed if acks else self.reached):
            return False
        if self.meter is None and engine.bytes_in.limits is not None:
            self.meter = engine.bytes_in.topic(self.name, now)
        if self.limits_stored and self.stored is None:
            self.stored = engine.stored.topic(self.name)
        self.complete = True
        return True


class Counted:
    """What was counted for Produce requests that are alike, or for one of several topics, and is not settled yet: when, of which
    topic and with which rate, and the bytes of each request; of several topics: what it has of each, and `targets`."""

    __slots__ = ("_settled", "rate", "sizes", "target", "targets", "topics", "when")

    def __init__(
        self,
        when: float,
        target: TargetTopic,
        sizes: list[int],
        rate: Metered | None,
        topics: list[TopicPart] | None = None,
        targets: list[TargetTopic] | None = None,
    ) -> None:
        self.when, self.target, self.sizes, self.rate = when, target, sizes, rate
        self.topics, self.targets = topics, targets
        self._settled = 0

    def parts(self) -> list[tuple[bytes, TargetTopic, int]]:
        """(topic, target, bytes) of each topic of the first request that is not settled; the only one has no name."""
        if self.topics is None or self.targets is None:
            return [(b"", self.target, self.sizes[self._settled])]
        return [(part.topic, target, part.size) for part, target in zip(self.topics, self.targets, strict=True)]

    def settle(self, count: int) -> bool:
        """So many more requests are settled; True if all are."""
        self._settled += count
        return self._settled == len(self.sizes)


class Client:
    """The client of one connection. `user` is the name of its principal, `client_id` what it claims; `endpoint` says under
    which (host, port) it is shown a broker, the bootstrap address for None. `broker` is the one whose address it came to, None for
    the bootstrap address. `too_many`: its user has too many connections."""

    __slots__ = (
        "_api_sums",
        "_retired",
        "_rules",
        "_targets",
        "_times",
        "_topic_sums",
        "address",
        "broker",
        "charged",
        "client_id",
        "counted",
        "endpoint",
        "exchange",
        "guest",
        "let_in",
        "now",
        "raw_client_id",
        "remembered",
        "services",
        "tokens",
        "too_many",
        "unsettled",
        "user",
        "versions_told",
    )

    def __init__(self, services: Services, peer: Peer) -> None:
        self.services = services
        self.address = peer.address
        self.endpoint = peer.endpoint
        self.broker = peer.broker
        self.guest = peer.guest
        self.user = ANONYMOUS
        self.let_in = False
        """A broker serves this connection: its requests are judged and counted in the name of `user` (`admission`)."""
        self.counted = False
        """It was charged to the connection rate of its user."""
        self.versions_told = False
        """It was told the versions of APIs, which it may be once without a charge."""
        self.too_many = False
        self.client_id: str | None = None
        self.raw_client_id = b""
        self._api_sums: dict[int, Sum] = {}
        self._retired: list[Sum] = []
        self._topic_sums: dict[int, dict[bytes, Sum]] = {}
        self._times: dict[int, Durations] = {}
        self._rules: Rules | None = None
        self._targets: dict[bytes, TargetTopic] = {}
        self.exchange: SaslExchange | None = None
        self.tokens = False
        """What comes next are SASL tokens without headers: the handshake was of version 0."""
        self.charged: deque[Counted] = deque()
        """What was counted for Produce requests that are within their limits and not answered yet, oldest first."""
        self.unsettled = 0
        """Batches and topics of all requests that are not answered yet and settle something then, but for those of one topic."""
        self.remembered: dict[int, object] = {}
        """What handlers with a short cut remember of this connection, by API and version: key << 8 | version."""
        self.now = 0.0
        """The time of what is looked at now: a request, or something that the broker said."""

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    @property
    def arrived(self) -> bool:
        """True if it was let in, or is in an exchange whose end the proxy cannot see."""
        return self.let_in or (self.exchange is not None and not self.exchange.counted)

    def come_in(self) -> None:
        """A broker serves this connection."""
        if not self.let_in:
            self._retire()
            self.let_in = True
            if self.guest is not None:
                self.services.census.let_in(self.guest)

    def exchange_answered(self, exchange: SaslExchange, error_code: int, token: bytes) -> None:
        """The broker answered a token of an exchange."""
        user = exchange.broker_answer(error_code, token)
        if user is not None:
            self.identify(user)
        if not error_code and exchange.over:
            self.services.admission.logged_in(self.now)
            self.come_in()

    def identify(self, user: str) -> None:
        """The broker accepted this user, or its certificate says so."""
        if user != self.user:
            self._retire()
            self.too_many = not self.services.census.identify(self.user, user)
            self.user = user

    def claim(self, raw: bytes) -> None:
        """A client id other than before came: the bytes of its header, length included."""
        self._retire()
        self.raw_client_id = raw
        self.client_id = None if raw[:2] == b"\xff\xff" else raw[2 : 2 + MAX_CLIENT_ID].decode(errors="replace")

    def rules(self, now: float) -> Rules:
        """The limits that hold for this client now."""
        engine, rules = self.services.engine, self._rules
        if rules is None or rules.limits_version != engine.limits_version:
            self._targets.clear()
            self._times.clear()
            rules = self._rules = Rules(engine, self.user, self.client_id or "", now, self.broker)
        return rules

    def target(self, topic: bytes, by_id: bool) -> TargetTopic:
        """What a limit of topics is about, for a topic named as the request names it. Call `rules` first."""
        found = self._targets.get(topic)
        if found is None:
            services = self.services
            name = services.cluster.topic_name(topic) if by_id else topic[: MAX_TOPIC_NAME + 1].decode(errors="replace")
            known = name is not None
            name = str(UUID(bytes=topic)) if name is None else name
            engine, rules = services.engine, self._rules
            limited = engine.bytes_in.limits is not None
            meter = engine.bytes_in.total if limited and (not known or (rules is not None and rules.exempt)) else None
            pair = engine.confirmed.find(self.user, name) if engine.counts_topics else None
            rate = rules.topic_in(name) if known and rules is not None and engine.limits_topic_in else None
            exempt = name in engine.limits.exempt.topics
            found = TargetTopic(name, known, exempt, meter, pair, rate)
            found.limits_stored = known and not exempt and bool(engine.stored) and not (rules is not None and rules.exempt)
            if known:  # else its name may be learnt any time
                if len(self._targets) >= MAX_TOPIC_SUMS:
                    self._targets.clear()
                self._targets[topic] = found
        return found

    def api_sum(self, key: int) -> Sum:
        """The sum of whole requests of one API."""
        found = self._api_sums.get(key)
        if found is None:
            if len(self._api_sums) >= MAX_APIS and key != NO_API:
                return self.api_sum(NO_API)
            tally = self.services.tally
            client_id = self.client_id if self.let_in else None  # anybody may claim one
            found = self._api_sums[key] = tally.take(TallyKey(self.principal, client_id, None, None, key))
        return found

    def times(self, key: int) -> Durations:
        """Where it is counted how long its broker takes for an API."""
        found = self._times.get(key)
        if found is None:
            if len(self._times) >= MAX_APIS and key != NO_API:
                return self.times(NO_API)
            found = self.services.latencies.of(self.broker, key)
            if key == PRODUCE and self.broker is not None and self.let_in:
                found = self.services.engine.overload.times(self.user, self.broker, found)
            self._times[key] = found
        return found

    def topic_sum(self, key: int, topic: bytes, *, by_id: bool) -> Sum:
        """The sum of one API for a topic, named as the request names it: UTF-8 or a 16-byte id."""
        sums = self._topic_sums.get(key)
        if sums is None:
            sums = self._topic_sums[key] = {}
        found = sums.get(topic)
        if found is None:
            if len(topic) > MAX_TOPIC_NAME:
                return self.topic_sum(key, topic[:MAX_TOPIC_NAME], by_id=by_id)
            if len(sums) >= MAX_TOPIC_SUMS:
                self._give_back(sums)
            name = self.services.cluster.topic_name(topic) if by_id else topic.decode(errors="replace")
            found = sums[topic] = self._take(key, name, topic)
        elif found.unnamed and (name := self.services.cluster.topic_name(topic)) is not None:
            self.services.tally.give_back(found)
            found = sums[topic] = self._take(key, name, topic)
        return found

    def produced(self, target: TargetTopic, topic: bytes, by_id: bool) -> Sum:
        """The sum of Produce for what `target` found for this topic."""
        total = target.total
        if total is None:
            total = self.topic_sum(PRODUCE, topic, by_id=by_id)
            if target.known:
                target.total = total
        return total

    def _take(self, key: int, name: str | None, topic_id: bytes) -> Sum:
        """A sum by the topic's name, by its id while the name is not known."""
        known = TallyKey(self.principal, self.client_id, name or "", None if name is not None else topic_id, key)
        return self.services.tally.take(known)

    def hold_rate(self, rate: Metered, key: int, version: int, now: float, *, held: bool = False) -> float:
        """Seconds that a request is held, as its entity is muted on another connection; 0 when it is not. `held`: it was before."""
        wait = rate.hold(now, held=held)
        if wait is None:
            return 0.0
        self.services.watcher.decided(wait, self.requester(key, version))
        return wait.throttle

    def charge_rate(self, rate: Metered, amount: float, key: int, version: int, now: float) -> float:
        """Count what was done against a rate; seconds of the throttle that follows, 0 for none."""
        decision = rate.charge(amount, now)
        if decision is None:
            return 0.0
        self.api_sum(key).throttle_ms += ceil(decision.throttle * 1000)
        self.services.watcher.decided(decision, self.requester(key, version, rate.topics))
        return decision.throttle

    def charge_connection(self, now: float) -> float:
        """Count a connection that was let in, once; seconds until its requests are looked at."""
        if self.counted or not self.let_in:
            return 0.0
        self.counted = True
        rate = self.rules(now).connection
        if rate is None or rate.take(1, now):
            return 0.0
        decision = rate.charge(1, now)
        if decision is None:
            self.would_have(NO_API, 0)
            return 0.0
        self.services.watcher.decided(decision, self.requester(NO_API, 0))
        return decision.throttle

    def would_have(self, key: int, version: int) -> None:
        """Tell what observed quotas would have done just now about a request of this client."""
        would, by = self.services.engine.would, self.requester(key, version)
        for decision in would:
            self.services.watcher.would_have(decision, by)
        would.clear()

    def requester(self, key: int, version: int, topics: tuple[str, ...] = ()) -> Requester:
        """The client as the author of a request."""
        return Requester(self.principal, self.client_id, self.address, key, version, topics, self.broker)

    def _retire(self) -> None:
        """The sums so far are of somebody else from now on; answers to earlier requests still go to them."""
        self._rules = None
        self._times.clear()
        self._retired += self._api_sums.values()
        self._api_sums.clear()
        self._forget_topics()
        while len(self._retired) > MAX_RETIRED_SUMS:
            self.services.tally.give_back(self._retired.pop(0))

    def _forget_topics(self) -> None:
        for sums in self._topic_sums.values():
            self._give_back(sums)

    def _give_back(self, sums: dict[bytes, Sum]) -> None:
        for s in sums.values():
            self.services.tally.give_back(s)
        sums.clear()
        for target in self._targets.values():
            target.total = None  # all else that is known of it stays

    def forget(self) -> None:
        """The end: give all sums back."""
        self.services.census.forget(self.user)
        self._retire()
        for s in self._retired:
            self.services.tally.give_back(s)
        self._retired.clear()
        self.remembered.clear()  # plans in it refer to this client
        self.charged.clear()
