"""The one object that the proxy asks. In: who does what, when. Out: verdicts, and how long an entity still has to keep quiet.

It owns one object per kind and the mutes: since KIP-219 a throttle mutes the connection it came on; the debt belongs to
the entity, so a charged request of the same kind from the same entity on another connection waits for what is left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import Final, Protocol, TypeVar

from quota.confirmed import Confirmations
from quota.decision import Action, Decision, Standing, Verdict
from quota.entity import Entity
from quota.fence import Fence
from quota.kinds.bytes_in import BytesIn, TopicLimits
from quota.kinds.controller_mutations import ControllerMutations, MutationLimit, Receipt
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIds, Windows, user_limit_table
from quota.kinds.rates import RateLimit, RateMeter, Rates
from quota.kinds.storage import Check, Event, Produced, Storage, StorageLimits
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.produce import MAX_IDS, NOT_ENOUGH_REPLICAS, POLICY_VIOLATION, Batch, Judgement, Judging, Over, Refusals
from quota.shares import Share
from quota.slowing import Slowing
from quota.steps import finish_at_once
from quota.windows.bloom import Hash

L = TypeVar("L")

HOURS: Final = Windows()
MAX_WOULD: Final = 1000
MAX_HOLD = 10.0
"""Seconds that a request on another connection is held at most."""
AFTER: Final = 0.1
"""Seconds by which who has had more of a shared rate lets the others go first."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """Who and what is never limited. A client id is whatever a client claims: alone it exempts from limits of client ids only."""

    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    clients: frozenset[tuple[str, str]] = frozenset()
    """(user, client id)"""

    def everywhere(self, user: str, client_id: str) -> bool:
        """Is this client not limited by anything?"""
        return user in self.users or (user, client_id) in self.clients


class Mode(Enum):
    """What happens to a batch of a topic that is over its threshold."""

    TRANSIENT = "transient"
    """refused with an error that every client retries"""
    FAIL = "fail"
    """refused with one that none does"""
    THROTTLE = "throttle"
    """taken, and the client throttled"""


def no_rates() -> LimitTable[RateLimit]:
    """Nobody is limited."""
    return LimitTable({})


@dataclass(frozen=True, slots=True)
class Limits:
    """All that operators limit, and `max_throttle`: seconds that any throttle lasts at most. Debt beyond it stays in its window."""

    controller_mutations: LimitTable[MutationLimit]
    max_throttle: float = 30.0
    exempt: Exempt = Exempt()
    producer_ids: LimitTable[ProducerIdLimit] = field(default_factory=lambda: user_limit_table({}))
    count_unlimited: bool = True
    """Are producer ids of users without a limit counted too, for metrics?"""
    cleanup_interval: float = 60.0
    """seconds between two looks at all users whose producer ids may be past"""
    storage: StorageLimits | None = None
    hold_new_ids: bool = False
    """Does InitProducerId wait while its user is over the limit?"""
    producer_byte_rate: LimitTable[RateLimit] = field(default_factory=no_rates)
    consumer_byte_rate: LimitTable[RateLimit] = field(default_factory=no_rates)
    request_rate: LimitTable[RateLimit] = field(default_factory=no_rates)
    topics: TopicLimits | None = None
    topics_mode: Mode = Mode.TRANSIENT
    observed: Mapping[str, Action] = field(default_factory=dict)
    """quotas that are computed and not enforced, by name, and what each would do. Where that is to refuse, limits have to be such
    that nothing is refused: what goes on all the same counts all the same"""


class Kind(Protocol[L]):
    """What `Engine.hold` has to know of a kind."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def stands(self, found: ResolvedLimit[L], now: float) -> Standing:
        """How the owner of a limit stands."""


class Rules:
    """What holds for a user with a client id until `Engine.limits_version` changes: a rate is None where there is no limit.
    `exempt`: nothing holds; `by_client_id`: limits of client ids alone do."""

    __slots__ = ("by_client_id", "client_id", "consume", "exempt", "limits_version", "owner", "produce", "request", "user")

    def __init__(self, engine: Engine, user: str, client_id: str, now: float) -> None:
        self.user, self.client_id = user, client_id
        self.limits_version = engine.limits_version
        self.owner = Entity(user, client_id)
        free = engine.limits.exempt
        self.exempt = free.everywhere(user, client_id)
        self.by_client_id = client_id not in free.client_ids
        self.produce, self.consume, self.request = (
            None if self.exempt or found is None else Metered(rates, found, now)
            for rates in (engine.producer_rate, engine.consumer_rate, engine.request_rate)
            for found in (rates.find(user, client_id, client_ids=self.by_client_id),)
        )


class Metered:
    """A rate that is limited, the window of its owner, and what one connection has of it."""

    __slots__ = ("found", "meter", "rates", "share", "since")

    def __init__(self, rates: Rates, found: ResolvedLimit[RateLimit], now: float) -> None:
        self.meter: RateMeter = rates.meter(found.owner, now)
        self.rates, self.found = rates, ResolvedLimit(found.limit, self.meter.owner)
        self.share = Share(self.meter.shares)
        self.since = -inf
        """when the request that waits was held first"""

    def may_wait(self, held: bool, now: float) -> float:
        """Seconds that a request may be held: once, but for who is ahead of the others, who waits for them again and again, for
        `MAX_HOLD` in all."""
        if not held:
            self.since = now
            return MAX_HOLD
        return max(self.since + MAX_HOLD - now, 0.0) if self.share.ahead(now) else 0.0


class Mutes:
    """Until when each entity is to keep quiet, per quota. Seconds are monotonic."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, Entity], float] = {}
        self.tell: Callable[[str, Entity, float], None] | None = None
        """who else wants to know of a mute that starts"""

    def start(self, quota: str, entity: Entity, until: float) -> None:
        self.learn(quota, entity, until)
        if self.tell is not None:
            self.tell(quota, entity, until)

    def learn(self, quota: str, entity: Entity, until: float) -> None:
        """The same of an entity that another proxy has muted."""
        key = (quota, entity)
        self._until[key] = max(until, self._until.get(key, until))

    def left(self, quota: str, entity: Entity, now: float) -> float:
        """Seconds left, 0 when the entity may speak."""
        until = self._until.get((quota, entity))
        return 0.0 if until is None or until <= now else until - now

    def active(self, now: float) -> dict[tuple[str, Entity], float]:
        """(quota, entity) to seconds left."""
        return {key: until - now for key, until in self._until.items() if until > now}

    def sweep(self, now: float) -> None:
        for key in [key for key, until in self._until.items() if until <= now]:
            del self._until[key]


class Engine:
    """Every quota of one proxy. `hash128` hashes producer ids, `windows` say how long they are remembered."""

    def __init__(self, limits: Limits, hash128: Hash, windows: Windows = HOURS) -> None:
        self.limits = limits
        self.mutes = Mutes()
        self.controller_mutations = ControllerMutations(limits.controller_mutations)
        self.producer_ids = ProducerIds(
            limits.producer_ids, hash128, windows, exempt=limits.exempt.users, count_unlimited=limits.count_unlimited
        )
        self.storage = Storage(limits.storage)
        self.slowing = Slowing(self.storage, limits.producer_byte_rate)
        self.producer_rate = Rates("producer_byte_rate", "producer byte rate", "bytes", limits.producer_byte_rate)
        self.consumer_rate = Rates("consumer_byte_rate", "consumer byte rate", "bytes", limits.consumer_byte_rate)
        self.request_rate = Rates("request_rate", "request rate", "requests", limits.request_rate)
        self.bytes_in = BytesIn(limits.topics, limits.exempt.topics)
        self.fence = Fence()
        self.confirmed = Confirmations()
        """which users brokers have let write to which topics"""
        self.would: list[Decision] = []
        """what observed quotas would have done since somebody last took it from here; `MAX_WOULD` at most"""
        self.limits_version = 0
        """another number whenever limits change"""
        self.looks_at_produce = False
        """Does anything but `producer_ids` and the fence have to see Produce requests?"""
        self._settle()
        self._next_cleanup = 0.0

    def _settle(self) -> None:
        self.limits_version += 1
        self._look()

    def _look(self) -> None:
        limits = self.limits
        rates = bool(limits.producer_byte_rate) or limits.topics is not None
        self.looks_at_produce = rates or not self.storage.calm

    def publish(self) -> list[Sums]:
        """What is charged here concerns other proxies from now on. The kinds that add up."""
        kinds: list[Sums] = []
        for kind in (
            *(self.producer_rate, self.consumer_rate, self.request_rate, self.slowing.rates),
            *(self.bytes_in, self.controller_mutations),
        ):
            kind.publish()
            kinds.append(kind)
        return kinds

    def change(self, limits: Limits) -> None:
        """These limits hold from now on. What entities have used stays used; mutes that began go on."""
        self.limits = limits
        self.producer_rate.limits = limits.producer_byte_rate
        self.consumer_rate.limits = limits.consumer_byte_rate
        self.request_rate.limits = limits.request_rate
        self.bytes_in.change(limits.topics, limits.exempt.topics)
        self.storage.change(limits.storage)
        self.slowing.change(limits.producer_byte_rate)
        self._settle()
        self.controller_mutations.limits = limits.controller_mutations
        self.producer_ids.change(limits.producer_ids, limits.exempt.users, limits.count_unlimited)
        self._next_cleanup = 0.0

    def observe(self, check: Check, produced: Produced) -> list[Event]:
        """What a look at the volumes gave; what that changed. `produced`: users to the bytes per second."""
        events = self.storage.observe(check, produced)
        self.slowing.change(self.limits.producer_byte_rate)
        self._look()
        return events

    def find_mutation_limit(self, user: str, client_id: str) -> ResolvedLimit[MutationLimit] | None:
        """The controller mutation limit of a client, None when it has none or is exempt."""
        exempt = self.limits.exempt
        if exempt.everywhere(user, client_id):
            return None
        return self.controller_mutations.find(user, client_id, client_ids=client_id not in exempt.client_ids)

    def hold(self, kind: Kind[L], found: ResolvedLimit[L], items: Sequence[int], now: float) -> Decision | None:
        """A charged request of an entity that this kind mutes on some connection waits, `MAX_HOLD` at most; None when it need
        not."""
        left = min(self.mutes.left(kind.name, found.owner, now), MAX_HOLD)
        if left <= 0:
            return None
        usage, limit, room = kind.stands(found, now)
        message = f"{found.owner} is muted on another connection by its {kind.title} quota for {left:.1f} s more."
        return Decision(kind.name, Action.HOLD, found.owner, tuple(items), usage, limit, left, message, room)

    def refuses_mutations(self, found: ResolvedLimit[MutationLimit], partitions: Sequence[int], now: float) -> bool:
        """Would `charge_mutations` refuse any of these now, if the client's version can be refused? Nothing is recorded, and
        `charge_mutations` with the same arguments and time refuses iff this is true."""
        if self.controller_mutations.name in self.limits.observed:
            return False
        return self.controller_mutations.refuses(found, partitions, now)

    def charge_mutations(
        self, found: ResolvedLimit[MutationLimit], partitions: Sequence[int], *, refusable: bool, now: float, mute: bool = True
    ) -> Verdict:
        """Charge a request that creates, adds or deletes partitions. The throttle is capped at `max_throttle`, and the entity
        is muted for it, but for `mute` False: where no answer tells of a throttle and no connection is muted."""
        return finish_at_once(self.charging_mutations(found, partitions, refusable=refusable, now=now, mute=mute))

    def charging_mutations(
        self,
        found: ResolvedLimit[MutationLimit],
        partitions: Sequence[int],
        *,
        refusable: bool,
        now: float,
        mute: bool = True,
        receipt: Receipt | None = None,
    ) -> Generator[None, None, Verdict]:
        """The same in steps, for very many items. What others charge meanwhile takes room from the items that are left.
        `receipt`: as in `ControllerMutations.charging`."""
        enforced = refusable and self.controller_mutations.name not in self.limits.observed
        verdict = yield from self.controller_mutations.charging(found, partitions, refusable=enforced, now=now, receipt=receipt)
        if refusable and not enforced and verdict.decision is not None:
            verdict = replace(verdict, decision=replace(verdict.decision, action=Action.REFUSE))
        return self._capped(verdict, now, mute)

    def hold_rate(self, metered: Metered, now: float, *, held: bool = False, items: Sequence[int] = ()) -> Decision | None:
        """`hold` for what counts against a rate; `held`: it was held before, and is only if its connection is ahead of others that
        share the rate, and these have not caught up yet."""
        most = metered.may_wait(held, now)
        wait = self.hold(metered.rates, metered.found, items, now) if most > 0 else None
        return None if wait is None else replace(wait, throttle=min(self._after(metered, wait.throttle, now), most))

    def charge_rate(self, metered: Metered, amount: float, now: float) -> Decision | None:
        """Count what was done against a rate. The throttle is capped at `max_throttle`, and the entity is muted for it; the
        connection a little longer if it is ahead of others."""
        metered.share.add(amount, now)
        slowed = self._capped(metered.rates.charge(metered.found, amount, now), now).decision
        if slowed is None:
            return None
        return replace(slowed, throttle=min(self._after(metered, slowed.throttle, now), self.limits.max_throttle))

    def _after(self, metered: Metered, seconds: float, now: float) -> float:
        """So long, and for who is ahead until the others had their turn."""
        return seconds + AFTER if metered.share.ahead(now) else seconds

    def judge_produce(self, rules: Rules, batches: Sequence[Batch], now: float, *, confirmed: bool = True) -> Judgement:
        """What becomes of a Produce request: batch by batch in its order, by the fence, then by each kind. What is refused counts
        towards no rate; what goes on is counted, and throttled by whatever is exceeded. Throttles are capped at `max_throttle`,
        and their owners muted. `confirmed` False: no broker has confirmed that the user may write to all of these topics. Then
        bytes count for the user alone until the broker has answered, see `count_written`."""
        judging = self.begin_produce(rules, batches, confirmed=confirmed)
        self.judge_some(judging, rules, len(batches), now)
        return judging.finish()

    def begin_produce(self, rules: Rules, batches: Sequence[Batch], *, confirmed: bool = True) -> Judging:
        """The same piece by piece, for very many batches. What others do between two pieces is done before the second of them."""
        in_topics = confirmed and self.limits.topics is not None
        return Judging(self.fence, rules.owner, batches, confirmed=confirmed, in_topics=in_topics)

    def judge_some(self, judging: Judging, rules: Rules, most: int, now: float) -> None:
        """Judge the next piece of a request, of `most` batches."""
        batches, refusals, judgement = judging.batches, judging.refusals, judging.judgement
        first, free = judging.at, self.limits.exempt.topics
        judging.at = stop = min(first + most, len(batches))
        judgement.pieces.append((stop, now))
        refusals.now = now
        limited = [i for i in range(first, stop) if not refusals.behind(i)]
        stored = [] if rules.exempt or self.storage.calm else [i for i in limited if batches[i].topic not in free]
        enforced = self.storage.name not in self.limits.observed
        found = self.slowing.refuse(rules.owner, batches, stored, refusals, now, enforced=enforced)
        for each in found:
            decision = self._capped(Verdict(0, each), now, mute=False).decision
            if decision is not None:
                judging.full.append(decision)
        limited = [i for i in limited if i not in refusals.refused]
        judging.ids += self._judge_ids(rules, batches, limited, refusals, now)
        accepted = 0
        for i in limited:
            batch = batches[i]
            take = self._take_topic if judging.confirmed else self._may_go
            if i in refusals.refused or not take(rules, batch, i, refusals, judging.over, now):
                continue
            refusals.admit(i)
            if batch.topic not in free:
                accepted += batch.size
        if judging.confirmed:
            self._slow(rules, batches, [i for i in stored if i not in refusals.refused], judgement, judging.slowed, now)
            judging.counted += [i for i in range(first, stop) if i not in refusals.refused]
            if rules.produce is not None and accepted and (slowed := self.charge_rate(rules.produce, accepted, now)) is not None:
                judging.rates.append(slowed)
        elif self.limits.topics is not None:
            going = sum(batches[i].size for i in range(first, stop) if i not in refusals.refused)
            self.bytes_in.expect(rules.user, going, now)

    def give_up_produce(self, rules: Rules, judging: Judging, now: float) -> None:
        """A request does not go on after all, judged as far as it was: give back what was counted."""
        charged, judgement = judging.charged(), judging.judgement
        if judging.confirmed:
            self.credit_produce(rules, judging.batches, judgement, charged, now)
        else:
            self.answered_produce(rules, judging.batches, judgement, charged, now)

    def answered_produce(
        self, rules: Rules, batches: Sequence[Batch], judgement: Judgement, items: Iterable[int], now: float
    ) -> None:
        """The broker has answered about these batches, of which nobody had confirmed before that the user may write them."""
        sizes = dict.fromkeys((when for _, when in judgement.pieces), 0)
        for i in items:
            sizes[judgement.when(i)] += batches[i].size
        for when, size in sizes.items():
            self.bytes_in.answered(rules.user, size, when, now)

    def count_written(self, rules: Rules, batches: Sequence[Batch], items: Sequence[int], now: float) -> Judgement:
        """Count batches that were judged while nobody had confirmed that the user may write to their topics, and that brokers have
        written by now: what `judge_produce` does of confirmed ones. Nothing is refused any more."""
        judging = self.begin_produce(rules, batches)
        self.count_some(judging, rules, items, now)
        return judging.finish()

    def count_some(self, judging: Judging, rules: Rules, items: Sequence[int], now: float) -> None:
        """The same piece by piece, after `begin_produce`: count these of the batches."""
        batches, judgement = judging.batches, judging.judgement
        for i in items if judgement.in_topics else ():
            self._count_topic(rules, batches[i], i, judging.over, now)
        limited = [i for i in items if batches[i].topic not in self.limits.exempt.topics]
        self._slow(rules, batches, [] if rules.exempt else limited, judgement, judging.slowed, now)
        judging.counted += limited
        carried = sum(batches[i].size for i in limited)
        if rules.produce is not None and carried and (slowed := self.charge_rate(rules.produce, carried, now)) is not None:
            judging.rates.append(slowed)

    def credit_produce(
        self, rules: Rules, batches: Sequence[Batch], judgement: Judgement, items: Iterable[int], now: float
    ) -> None:
        """Brokers did not write these batches, which were counted when they were judged: give back what they counted."""
        carried = 0
        for i in items:
            batch = batches[i]
            if judgement.in_topics:
                meter = None if rules.exempt or not batch.known else self.bytes_in.meters.get(batch.topic)
                (meter or self.bytes_in.total).give_back(batch.size, now, judgement.when(i))
            if judgement.slowed is not None and i in judgement.weights:
                self.slowing.rates.refund(judgement.slowed, judgement.weights[i], now)
            if batch.topic not in self.limits.exempt.topics:
                carried += batch.size
        if rules.produce is not None and carried:
            rules.produce.rates.refund(rules.produce.found.owner, carried, now)

    def _slow(
        self,
        rules: Rules,
        batches: Sequence[Batch],
        items: Sequence[int],
        judgement: Judgement,
        decisions: list[Decision],
        now: float,
    ) -> None:
        """Slow down who writes to a volume past its soft limit."""
        found = None
        if items and not self.storage.calm:
            found = self.slowing.rates.find(rules.user, rules.client_id, client_ids=rules.by_client_id)
        if found is None:
            return
        judgement.slowed = found.owner
        judgement.weights |= self.slowing.weights(batches, items)
        capped = self._capped(Verdict(0, self.slowing.slow(found, batches, items, now)), now).decision
        if capped is not None:
            decisions.append(capped)

    def _judge_ids(
        self, rules: Rules, batches: Sequence[Batch], limited: Sequence[int], refusals: Refusals, now: float
    ) -> list[Decision]:
        """Charge the producer ids of these batches."""
        ids = [batches[i].producer_id for i in limited]
        if all(id <= self.producer_ids.unchecked for id in ids) or len(set(ids)) > MAX_IDS:
            return []
        exempt = rules.exempt or all(b.topic in self.limits.exempt.topics for b in batches)
        decision = self.charge_producer_ids(rules.user, ids, now, exempt=exempt).decision
        if decision is None:
            return []
        items = tuple(limited[i] for i in decision.items)
        if decision.action is Action.REFUSE:
            for i in items:
                refusals.refuse(i, NOT_ENOUGH_REPLICAS, decision.message, decision.quota)
        return [replace(decision, items=items)] if items else []

    def _take_topic(self, rules: Rules, batch: Batch, i: int, refusals: Refusals, over: Over, now: float) -> bool:
        """Count a batch towards its topic; False when it is refused, and not counted. `over`: what is said of topics."""
        bytes_in, topic = self.bytes_in, batch.topic
        if self.limits.topics is None:
            return True
        if rules.exempt or not batch.known:
            return bytes_in.total.take(batch.size, now)
        if bytes_in.topic(topic, now).take(batch.size, now):
            return True
        if self.limits.topics_mode is Mode.THROTTLE:
            self._count_topic(rules, batch, i, over, now)
            return True
        said = over.find(topic)
        if not said:
            alone = over.alone(topic)
            found = bytes_in.explain(topic, batch.size, now) if alone else bytes_in.decline(rules.user, topic, now)
            said.append(replace(found, throttle=0.0, entity=Entity(None, None, topic)))
        bytes_in.refused.record(batch.size, now)
        self._refuse_topic(topic, i, said[0], refusals, over)
        return False

    def _may_go(self, rules: Rules, batch: Batch, i: int, refusals: Refusals, over: Over, now: float) -> bool:
        """The same for a user of whom nobody has confirmed that all of this may be written: nothing is counted."""
        bytes_in, topic, slowed = self.bytes_in, batch.topic, self.limits.topics_mode is Mode.THROTTLE
        if rules.exempt or not bytes_in.is_over(rules.user, topic, now):
            return True
        key = topic if bytes_in.knows(topic) else ""
        said = over.find(key)
        if not said:
            found = bytes_in.decline(rules.user, topic, now)
            said.append(self._throttled(found, now) if slowed else replace(found, throttle=0.0))
        (bytes_in.throttled if slowed else bytes_in.refused).record(batch.size, now)
        if slowed:
            over.add(key, said[0], i)
        else:
            self._refuse_topic(key, i, said[0], refusals, over)
        return slowed

    def _refuse_topic(self, key: str, i: int, said: Decision | None, refusals: Refusals, over: Over) -> None:
        """Its client is not muted: other topics share the connection."""
        assert said is not None
        code = NOT_ENOUGH_REPLICAS if self.limits.topics_mode is Mode.TRANSIENT else POLICY_VIOLATION
        refusals.refuse(i, code, said.message, said.quota)
        over.add(key, said, i)

    def _throttled(self, decision: Decision | None, now: float) -> Decision | None:
        """What is told of a throttle that begins now."""
        return None if decision is None else self._capped(Verdict(0, replace(decision, action=Action.THROTTLE)), now).decision

    def _count_topic(self, rules: Rules, batch: Batch, i: int, over: Over, now: float) -> None:
        """Count a batch that goes on, or has gone on, whatever the rates are."""
        bytes_in, topic = self.bytes_in, batch.topic
        if rules.exempt or not batch.known:
            bytes_in.total.take(batch.size, now)
            return
        bytes_in.written(topic, now)
        said = over.find(topic)
        decision = bytes_in.charge(topic, batch.size, now, explain=not said).decision
        if self.limits.topics_mode is not Mode.THROTTLE:
            return
        if said:
            over.add(topic, said[0], i)
        elif decision is not None:
            over.add(topic, self._throttled(replace(decision, entity=Entity(None, None, topic)), now), i)

    def hold_produce(self, rules: Rules, batches: Sequence[Batch], now: float, *, held: bool = False) -> Decision | None:
        """`hold` for a Produce request: of an entity over its byte rate, or with ids that are new to a user over its limit. Whoever
        is known to that user already goes on at once, and is throttled when it is charged. `held`: as in `hold_rate`."""
        if rules.exempt or all(batch.topic in self.limits.exempt.topics for batch in batches):
            return None
        everything = tuple(range(len(batches)))
        if held:
            return None if rules.produce is None else self.hold_rate(rules.produce, now, held=True, items=everything)
        waits: list[Decision | None] = []
        calm, rates = self.storage.calm, self.slowing.rates
        slowed = None if calm else rates.find(rules.user, rules.client_id, client_ids=rules.by_client_id)
        if slowed is not None and self.slowing.slows(batches, self._limited(batches)):
            waits.append(self.hold(rates, slowed, everything, now))
        if rules.produce is not None:
            waits.append(self.hold_rate(rules.produce, now, items=everything))
        ids = self.producer_ids.find(rules.user)
        if ids is not None and self.producer_ids.over(rules.user, now):
            new = self.producer_ids.new(rules.user, [batch.producer_id for batch in batches], now)
            waits.append(self.hold(self.producer_ids, ids, everything, now) if new else None)
        return max((wait for wait in waits if wait is not None), key=lambda wait: wait.throttle, default=None)

    def hold_full(self, rules: Rules, batches: Sequence[Batch], now: float) -> Decision | None:
        """A Produce request to a volume at its limit waits, where settings say so, again and again; None when it need not."""
        if self.storage.calm or rules.exempt or self.storage.name in self.limits.observed:
            return None
        return self.slowing.wait(rules.owner, batches, self._limited(batches), now)

    def _limited(self, batches: Sequence[Batch]) -> list[int]:
        """The batches of topics that are not exempt."""
        return [i for i, batch in enumerate(batches) if batch.topic not in self.limits.exempt.topics]

    def hold_new_id(self, user: str, client_id: str, current: int, now: float) -> Decision | None:
        """A client that wants a producer id of a user over its limit waits, `MAX_HOLD` at most; None when it need not. `current`:
        the id that it has, -1 for none; one that is known gets another epoch, and is not born."""
        found = self.producer_ids.find(user)
        if found is None or not self.limits.hold_new_ids or self.limits.exempt.everywhere(user, client_id):
            return None
        if self.producer_ids.name in self.limits.observed:
            return None
        if not self.producer_ids.over(user, now, one_more=True):
            return None
        if current >= 0 and not self.producer_ids.new(user, (current,), now):
            return None
        usage, limit, room = self.producer_ids.stands(found, now)
        message = f"{found.owner} has used up its producer id quota: a new id waits for {MAX_HOLD:g} s."
        return Decision(self.producer_ids.name, Action.HOLD, found.owner, (0,), usage, limit, MAX_HOLD, message, room)

    def charge_producer_ids(self, user: str, ids: Sequence[int], now: float, *, exempt: bool = False) -> Verdict:
        """Count the new producer ids of one Produce request; `ids[i]` is that of item i. `exempt`: whatever it is about is never
        limited. The throttle is capped at `max_throttle`, and the user is muted for it, but not where new ids are refused: known
        ones go on."""
        verdict = self.producer_ids.charge(user, ids, now, exempt=exempt)
        slowed = verdict.decision is not None and verdict.decision.action is Action.THROTTLE
        verdict = self._capped(verdict, now, mute=slowed)
        if verdict.decision is not None:
            self.producer_ids.told(user, verdict.decision.throttle, now)
        return verdict

    def _capped(self, verdict: Verdict, now: float, mute: bool = True) -> Verdict:
        """A verdict whose throttle is `max_throttle` at most, and starts a mute."""
        if verdict.decision is None:
            return verdict
        decision = replace(verdict.decision, throttle=min(verdict.decision.throttle, self.limits.max_throttle))
        action = self.limits.observed.get(decision.quota)
        if action is not None:
            if len(self.would) < MAX_WOULD:
                self.would.append(decision if action is Action.THROTTLE else replace(decision, action=action))
            return replace(verdict, decision=None)
        if mute:
            self.mutes.start(decision.quota, decision.entity, now + decision.throttle)
        return replace(verdict, decision=decision)

    def give_up_mutations(self, receipt: Receipt, now: float) -> None:  # noqa: ARG002
        """A request does not go on after all: take back all that was recorded of it."""
        self.controller_mutations.credit(receipt, list(receipt.parts))

    def credit_mutations(self, receipt: object, items: Iterable[int]) -> int:
        """Take back what `Verdict.receipt` has recorded for these items, as it did not happen. Units that did not happen,
        whether or not they weighed still; 0 for items that were refused, free, or credited already."""
        return self.controller_mutations.credit(receipt, items) if isinstance(receipt, Receipt) else 0

    def correct_mutations(self, receipt: object, item: int, actual: int, now: float) -> int:
        """An item of `Verdict.receipt` has cost `actual` >= 0 units instead of what was charged: the rest is recorded as of
        now, or what was too much taken back. The difference; 0 for items that were refused, free, or credited."""
        return self.controller_mutations.correct(receipt, item, actual, now) if isinstance(receipt, Receipt) else 0

    def sweep(self, now: float) -> None:
        """Forget what has passed; call it now and then, memory is bounded by what is in force."""
        self.mutes.sweep(now)
        self.controller_mutations.sweep(now)
        for rates in (self.producer_rate, self.consumer_rate, self.request_rate, self.slowing.rates):
            rates.sweep(now)
        self.bytes_in.sweep(now)
        self.confirmed.sweep(now)
        self.fence.sweep(now)
        if now >= self._next_cleanup:
            self._next_cleanup = now + self.limits.cleanup_interval
            self.producer_ids.sweep(now)
