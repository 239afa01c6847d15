"""StreamsGroupHeartbeat: key 88, version 0 (KIP-1071). A member that joins sends the topology of its application; the group's
coordinator has the internal topics created that are missing, in the name of the member whose heartbeat comes next. They are
charged to `controller_mutations`, as if the member had created them itself.

- What is there costs nothing; the broker is asked about names that the proxy does not know. While a source topic is missing,
  brokers create nothing.
- A repartition topic costs the partitions that the topology names. Where brokers decide, it costs those of the largest source
  topic, and so does a changelog topic; what turns out to be less is given back. Each is charged once, however many members
  join, until it was seen to exist.
- A topology is admitted as a whole, as a part of it would be no use. When the quota is exhausted the heartbeat is held, 10 s at
  most, then answered with an error after which members try again: 14 COORDINATOR_LOAD_IN_PROGRESS.
- A topology whose topics would pass a number of topics or partitions of their owner (`violations`) is refused as a whole with 44
  POLICY_VIOLATION, which ends the member.
- A group's topology is remembered while heartbeats come, as a later one creates topics too. Where there is no room for it, the
  member is told to try again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from itertools import chain

from proxy.apis import violations
from proxy.apis.asking import Told, ask_sizes, came
from proxy.session.client import Client
from proxy.session.expected import Charge
from proxy.session.held_answers import LARGE, Answer, InSteps
from proxy.session.plans import FORWARD, Decided, Forward, Handling, Hold, Pause, Request, given_back
from proxy.session.topologies import MOST_OF_A_GROUP
from proxy.wire import streams_group_heartbeat as wire
from proxy.wire.items import NO_ID
from proxy.wire.primitives import Buffer
from proxy.wire.steps import FEW, MANY
from proxy.wire.streams_group_heartbeat import Topology
from quota.decision import Action, Decision
from quota.engine import MAX_HOLD
from quota.kinds.controller_mutations import MutationLimit, Receipt
from quota.limit_table import ResolvedLimit
from quota.owned_topics import RESERVED_FOR, WantedTopic

NO_ROOM = "The topology names too many topics, or those of all Streams groups of this principal do; try again later."


class StreamsGroupHeartbeat:
    key = wire.KEY
    versions = wire.VERSIONS

    def request(self, client: Client, request: Request) -> Decided | Handling:
        return FORWARD if _limit(client) is None and not violations.limits_names(client) else self._judged(client, request)

    def _judged(self, client: Client, request: Request) -> Handling:
        request.join()
        reading = wire.read_heartbeat(request.buf, request.body, request.end, request.version, MOST_OF_A_GROUP)
        heartbeat, too_many = yield from reading
        if too_many:
            return Answer(wire.try_again(request.correlation_id, request.version, heartbeat, NO_ROOM))
        topologies = client.services.topologies
        if heartbeat.topology is None:
            topology = topologies.get(client.user, heartbeat.group, client.now)
            if topology is None:
                return FORWARD
        else:
            topology = topologies.join(client.user, heartbeat.group, heartbeat.topology, client.now)
            if topology is None:
                return Answer(wire.try_again(request.correlation_id, request.version, heartbeat, NO_ROOM))
        missing: dict[str, int] | None = None
        if violations.limits_names(client):
            missing = yield from _missing(client, request, topology)
            refused = yield from _too_many(client, request, missing)
            if refused is not None:
                return Answer(wire.violation(request.correlation_id, request.version, heartbeat, refused.message))
        held = False
        while (found := _limit(client)) is not None:
            if missing is None:
                missing = yield from _missing(client, request, topology)
            new, missing = (yield from _new(client, missing)), None
            if not new:
                return FORWARD
            decision = _over(client, new, found)
            if decision is None:
                return (yield from self._charge(client, request, new, found))
            by = client.requester(self.key, request.version, tuple(new))
            if held:
                client.services.watcher.decided(decision, by)
                client.api_sum(self.key).refuse(decision.quota, len(new))
                return Answer(wire.try_again(request.correlation_id, request.version, heartbeat, decision.message))
            wait = replace(decision, action=Action.HOLD, throttle=min(decision.throttle, MAX_HOLD))
            client.services.watcher.decided(wait, by)
            yield Hold(wait.throttle)
            held = True
        return FORWARD

    def _charge(self, client: Client, request: Request, new: dict[str, int], found: ResolvedLimit[MutationLimit]) -> Handling:
        engine, expected, now, receipt = client.services.engine, client.services.expected, client.now, Receipt(found, {})
        for i, name in enumerate(new):
            if i % FEW == FEW - 1:
                yield None
            if (before := expected.drop(client.user, name)) is not None:
                engine.controller_mutations.credit(before.receipt, (before.item,))
        charges = {name: Charge(receipt, i, cost, now, until_seen=True) for i, (name, cost) in enumerate(new.items())}
        plan = _Settle(client, request.version, charges)
        with given_back(client, plan.undo):
            costs = list(new.values())
            charging = engine.controller_mutations.charging(found, costs, refusable=False, now=now, receipt=receipt)
            plan.charged = engine.enforce((yield from charging), now, mute=False).charged
            if engine.would:  # before somebody else is judged
                client.would_have(self.key, request.version)
            for i, (name, charge) in enumerate(charges.items()):
                if i % FEW == FEW - 1:
                    yield None
                expected.add(client.user, name, charge)
        return Forward(plan)


def _limit(client: Client) -> ResolvedLimit[MutationLimit] | None:
    engine = client.services.engine
    return engine.find(engine.controller_mutations, client.user, client.client_id or "")


def _new(client: Client, missing: Mapping[str, int]) -> Generator[Pause, None, dict[str, int]]:
    """Those of these internal topics that are not charged yet, with their partitions."""
    free = client.services.engine.limits.exempt.topics
    yield None
    return {name: cost for name, cost in missing.items() if name not in free and cost > _charged(client, name, client.now)}


def _missing(client: Client, request: Request, topology: Topology) -> Generator[Pause, None, dict[str, int]]:
    """Internal topics that are created for this topology, with their partitions."""
    told: Told = {}
    sizes = yield from _sizes(client, topology)
    if missing := [(name, NO_ID) for name, size in sizes.items() if size is None]:
        yield from ask_sizes(client, request, missing, told)
        sizes = yield from _sizes(client, topology)
    known = {name: size or max(told.get((name, NO_ID), 0), 0) for name, size in sizes.items()}
    if not all(known[name] for part in topology for name in part.sources):
        return {}
    yield None
    return (yield from _wanted(topology, known, client.services.cluster.default_partitions))


def _too_many(client: Client, request: Request, missing: Mapping[str, int]) -> Generator[Pause, None, Decision | None]:
    """The decision if these internal topics would pass a number of topics or partitions of their owner; else they are reserved."""
    wanted = [WantedTopic(name, partitions, True) for name, partitions in missing.items()]
    refused = yield from violations.admit(client, request, wanted, RESERVED_FOR, whole=True)
    return next(iter(refused.values()), None)


def _over(client: Client, new: Mapping[str, int], found: ResolvedLimit[MutationLimit]) -> Decision | None:
    """The refusal if these topics do not fit into the quota now; None if they do."""
    engine, now = client.services.engine, client.now
    more = sum(cost - _charged(client, name, now) for name, cost in new.items())
    mutations = engine.controller_mutations
    if not mutations.refuses(found, [more], now):
        return None
    return engine.enforce(mutations.charge(found, [more], now), now, mute=False).decision  # records nothing, as it refuses


class _Settle(InSteps):
    """The answer to a heartbeat for which topics were charged: after an error none is created."""

    __slots__ = ("_charges", "_client", "_total", "_user", "_version", "charged")

    def __init__(self, client: Client, version: int, charges: dict[str, Charge]) -> None:
        super().__init__()
        self._client, self._user, self._version = client, client.user, version
        self._charges, self._total = charges, client.api_sum(wire.KEY)
        self.charged = 0

    def in_steps(self, size: int) -> bool:
        return size > LARGE or len(self._charges) > FEW

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        if wire.error_of(frame, self._version):
            for i, (name, charge) in enumerate(self._charges.items()):
                if i % FEW == FEW - 1:
                    yield
                self._give_back(name, charge)
        self._total.mutations += self.charged
        return [frame]

    def undo(self, _now: float, /) -> None:
        """The heartbeat does not go on, as its connection ends."""
        for name, charge in self._charges.items():
            self._give_back(name, charge)

    def _give_back(self, name: str, charge: Charge) -> None:
        services = self._client.services
        self.charged -= services.engine.controller_mutations.credit(charge.receipt, (charge.item,))
        if services.expected.still(self._user, name, charge.when) is charge:
            services.expected.drop(self._user, name)


def _sizes(client: Client, topology: Topology) -> Generator[None, None, dict[str, int | None]]:
    """Partitions of all topics of a topology, None of those that are not known to exist. In steps."""
    sizes: dict[str, int | None] = {}
    looked = 0
    for part in topology:
        for name in chain(part.sources, (topic.name for topic in part.repartitions), (topic.name for topic in part.changelogs)):
            looked += 1
            if looked % MANY == 0:
                yield
            size = sizes[name] = client.services.cluster.topic_size(name)
            if size is not None:
                came(client, name, size)
    return sizes


def _wanted(topology: Topology, known: Mapping[str, int], default: int) -> Generator[None, None, dict[str, int]]:
    """Partitions of the internal topics that are not there, as many as there may be (RepartitionTopics and ChangelogTopics of the
    group coordinator). In steps."""
    read = [known[name] for part in topology for name in part.sources]
    named = [topic.partitions for part in topology for topic in part.repartitions]
    largest = max([default, *read, *named])
    wanted: dict[str, int] = {}
    for i, part in enumerate(topology):
        if i % FEW == FEW - 1:
            yield
        repartitions = {topic.name: known[topic.name] or topic.partitions or largest for topic in part.repartitions}
        tasks = max([*(known[name] for name in part.sources), *repartitions.values()], default=largest)
        for name, partitions in (*repartitions.items(), *((topic.name, tasks) for topic in part.changelogs)):
            if not known[name]:
                wanted[name] = max(partitions, wanted.get(name, 0))
    return wanted


def _charged(client: Client, name: str, now: float) -> int:
    """Partitions for which its principal was charged already."""
    before = client.services.expected.still(client.user, name, now)
    return 0 if before is None else before.amount
