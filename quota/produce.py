"""A Produce request is judged by one judge after the other, in the order of `JUDGES`:

1. `BehindRefused`    what is behind a refused batch of its producer is refused with the same error: the fence
2. `Full`             refuses what goes to a volume at its hard limit, or does not fit a budget of stored bytes
3. `NewProducerIds`   counts producer ids, and refuses or throttles new ones over the limit
4. `TopicBytes`       counts bytes towards topics, and refuses or throttles those over their threshold
5. `TopicRate`        counts bytes towards the rates of topics by themselves, and refuses or throttles what is above
6. `SlowedRate`       counts bytes towards volumes and budgets past their soft limit, and towards what is stored
7. `ByteRate`         counts bytes towards the byte rate of the client

Each sees what those before it let go on, so that what is refused counts towards nothing behind. In: batches with the names of their
topics, the rules of the client, the time. Out: which batches are refused, with which error code and why; and for how long the
client is throttled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from quota.batch import NOT_ENOUGH_REPLICAS, POLICY_VIOLATION, Batch, Refused
from quota.decision import Action, Decision, Verdict, figure
from quota.engine import MAX_HOLD, Engine
from quota.entity import Entity
from quota.fence import Fenced
from quota.kinds.bytes_in import OTHERS, Mode
from quota.kinds.slowed_rates import SlowedRates
from quota.kinds.topic_rates import TOPIC_IN, Above, TopicRateOptions
from quota.rules import Metered, Rules

MAX_IDS: Final = 10
"""Producer ids of one request that are counted; a producer has one."""
MAX_TOLD: Final = 10
"""Topics of one request that a quota tells of one by one; what is to be said of others is said of `OTHERS`, all together."""
FENCE: Final = "sequence_fence"


@dataclass(slots=True)
class Judgement:
    """What becomes of a request. `refused` by the index of the batch; `throttle` in seconds, capped."""

    refused: dict[int, Refused] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def throttle(self) -> float:
        """The longest of those told: the most constraining quota wins."""
        return max((decision.throttle for decision in self.decisions), default=0.0)


class Judging:
    """One request on its way through the judges, piece by piece in its order. Each piece is judged as a request of its own would
    be: what its batches count is counted when it is decided that they go on, so others may be judged between two pieces.

    `confirmed` False: no broker has confirmed that the user may write to all of these topics. Then bytes count for the user alone
    until the broker has answered; what it has written is counted with `count` of another, confirmed one. `answered` False: the
    client gets no answer (acks=0), so what is refused would be lost; only quotas whose setting says so refuse it."""

    __slots__ = ("_judges", "answered", "at", "batches", "confirmed", "engine", "pieces", "refused", "rules")

    def __init__(
        self, engine: Engine, rules: Rules, batches: Sequence[Batch], *, confirmed: bool = True, answered: bool = True
    ) -> None:
        self.engine, self.rules, self.batches, self.confirmed = engine, rules, batches, confirmed
        self.answered = answered
        self.at = 0
        """the batch that is next"""
        self.refused: dict[int, Refused] = {}
        self.pieces: list[tuple[int, float]] = []
        """the batch before which each piece ends, and when it was judged"""
        self._judges: list[Judge] = [
            *(BehindRefused(self), *(Full(self, rates) for rates in engine.slowing), NewProducerIds(self)),
            *(TopicBytes(self), TopicRate(self), *(SlowedRate(self, rates) for rates in engine.slowing), ByteRate(self)),
        ]

    @property
    def done(self) -> bool:
        """Is the whole request judged?"""
        return self.at >= len(self.batches)

    def hold(self, now: float, *, held: bool = False) -> Decision | None:
        """Why the request has to wait before it is judged; None when it need not. `held`: it has waited before."""
        waits = [judge.hold(now, held) for judge in self._judges]
        return max((wait for wait in waits if wait is not None), key=lambda wait: wait.throttle, default=None)

    def judge(self, count: int, now: float) -> None:
        """Judge the next piece, of this number of batches. Throttles are capped at `max_throttle`, and their owners muted."""
        start, self.at = self.at, min(self.at + count, len(self.batches))
        self.pieces.append((self.at, now))
        going: Sequence[int] = range(start, self.at)
        for judge in self._judges:
            going = judge.judge(going, now)
        for i in going:
            batch = self.batches[i]
            if batch.producer_id >= 0:
                for topic in batch.names:
                    self.engine.fence.admitted(
                        self.rules.user, batch.producer_id, batch.epoch, batch.sequence, (topic, batch.partition)
                    )

    def count(self, items: Sequence[int], now: float) -> None:
        """Count batches that brokers have written by now. They were judged before a broker had confirmed that the user may write to
        their topics; of confirmed ones `judge` does this. Nothing is refused any more."""
        for judge in self._judges:
            judge.count(items, now)

    def credit(self, items: Sequence[int], now: float) -> None:
        """Give back what these batches have counted: brokers did not write them; or, if not `confirmed`, have answered."""
        for judge in self._judges:
            judge.credit(items, now)

    def give_up(self, now: float) -> None:
        """The request does not go on after all, judged as far as it was."""
        self.credit([i for i in range(self.at) if i not in self.refused], now)

    def refuse(self, i: int, code: int, message: str, quota: str) -> None:
        """A judge refuses batch i."""
        batch = self.batches[i]
        part = batch.topic, batch.partition
        self.engine.fence.refused(
            self.rules.user, batch.producer_id, batch.epoch, batch.sequence, part, code, quota, self.pieces[-1][1]
        )
        self.refused[i] = Refused(code, message)

    def when(self, i: int) -> float:
        """When batch i was judged, and counted if it was."""
        return next(when for stop, when in self.pieces if i < stop)

    @property
    def counted(self) -> bool:
        """Has anything been counted that may be given back?"""
        return any(judge.counted for judge in self._judges)

    def limited(self, items: Iterable[int]) -> list[int]:
        """Those of these batches whose topics are not exempt."""
        exempt = self.engine.limits.exempt.topics
        return [i for i in items if self.batches[i].topic not in exempt]

    def finish(self) -> Judgement:
        """What becomes of the request, all of it judged."""
        return Judgement(self.refused, [decision for judge in self._judges for decision in judge.decisions()])


class Judge:
    """One step of the pipeline, for one request. The methods here do nothing."""

    def __init__(self, judging: Judging) -> None:
        self.judging, self.engine, self.rules = judging, judging.engine, judging.rules
        self.batches = judging.batches
        self.told: list[Decision] = []

    @property
    def counted(self) -> bool:
        """Has it counted anything that may be given back?"""
        return False

    def hold(self, now: float, held: bool) -> Decision | None:  # noqa: ARG002
        """Why the request waits before it is judged; None when it need not."""
        return None

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:  # noqa: ARG002
        """Returns those of these batches that go on."""
        return items

    def count(self, items: Sequence[int], now: float) -> None:
        """`Judging.count`"""

    def credit(self, items: Sequence[int], now: float) -> None:
        """`Judging.credit`"""

    def decisions(self) -> Sequence[Decision]:
        """What was decided about the pieces so far."""
        return as_one(self.told)


class BehindRefused(Judge):
    """The fence: what is behind a refused batch of its producer has to wait for it."""

    def __init__(self, judging: Judging) -> None:
        super().__init__(judging)
        self._fenced: dict[tuple[str, bool], list[int]] = {}

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        return [i for i in items if not self._behind(i, now)]

    def _behind(self, i: int, now: float) -> bool:
        batch, user = self.batches[i], self.rules.user
        if batch.producer_id < 0:
            return False
        for topic in batch.names:
            part = topic, batch.partition
            fenced = self.engine.fence.blocks(user, batch.producer_id, batch.epoch, batch.sequence, part, now)
            if fenced is not None:
                self.judging.refused[i] = Refused(fenced.code, self._why(batch, fenced))
                self._fenced.setdefault((fenced.quota, fenced.unsure), []).append(i)
                return True
        return False

    def _why(self, batch: Batch, fenced: Fenced) -> str:
        if fenced.unsure and fenced.sequence >= batch.sequence:
            return (
                f"More batches of user {self.rules.user} were refused than the proxy remembers for one user. Until some minutes"
                " after the last of these, only producers that begin with sequence 0 go on."
            )
        quota = f"the {fenced.quota} quota" if fenced.quota else "the proxy"
        return (
            f"An earlier batch of this producer for {batch.topic}-{batch.partition}, sequence {fenced.sequence}, was refused by"
            f" {quota} and has to be written first."
        )

    def decisions(self) -> Sequence[Decision]:
        """What was refused, by the quota that was the cause."""
        refused, owner = self.judging.refused, self.rules.owner
        return [
            Decision(FENCE, Action.REFUSE, owner, tuple(items), len(items), 0, 0.0, refused[items[0]].message)
            for items in self._fenced.values()
        ]


class Full(Judge):
    """Nothing is written to what is at its hard limit: a volume, or a budget of stored bytes."""

    def __init__(self, judging: Judging, rates: SlowedRates) -> None:
        super().__init__(judging)
        self._rates = rates

    def hold(self, now: float, held: bool) -> Decision | None:  # noqa: ARG002
        if self._rates.filling.calm or self.rules.exempt:
            return None
        return self._rates.wait(self.rules.owner, self.batches, self.judging.limited(range(len(self.batches))), now)

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        if self.rules.exempt or self._rates.filling.calm:
            return items
        judging = self.judging
        limited, confirmed = judging.limited(items), judging.confirmed
        for found in self._rates.refuse(self.rules.owner, self.batches, limited, judging.refuse, now, confirmed=confirmed):
            decision = self.engine.enforce(Verdict(0, found), now, mute=False).decision
            if decision is not None:
                self.told.append(decision)
        return [i for i in items if i not in self.judging.refused]

    def decisions(self) -> Sequence[Decision]:
        by_place: dict[object, list[Decision]] = {}
        for decision in self.told:  # of volumes, the message has the place
            key = decision.message if decision.entity is self.rules.owner else decision.entity
            by_place.setdefault(key, []).append(decision)
        return [it for told in by_place.values() for it in as_one(told)]


class NewProducerIds(Judge):
    """Producer ids that are new to the user."""

    def hold(self, now: float, held: bool) -> Decision | None:
        """Who is known to the user already goes on at once, and is throttled when it is charged."""
        ids = self.engine.producer_ids
        found = None if held or self._exempt() else ids.find(self.rules.user)
        if found is None or not ids.over(self.rules.user, now):
            return None
        if not ids.new(self.rules.user, [batch.producer_id for batch in self.batches], now):
            return None
        return self.engine.hold(ids, found, range(len(self.batches)), now)

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        quota = self.engine.producer_ids
        ids = [self.batches[i].producer_id for i in items]
        if all(id <= quota.unchecked for id in ids) or len(set(ids)) > MAX_IDS:
            return items
        decision = charge_producer_ids(self.engine, self.rules.user, ids, now, exempt=self._exempt()).decision
        if decision is None or not decision.items:
            return items
        concerned = tuple(items[i] for i in decision.items)
        self.told.append(replace(decision, items=concerned))
        if decision.action is not Action.REFUSE:
            return items
        for i in concerned:
            self.judging.refuse(i, NOT_ENOUGH_REPLICAS, decision.message, decision.quota)
        return [i for i in items if i not in self.judging.refused]

    def _exempt(self) -> bool:
        exempt = self.engine.limits.exempt.topics
        return self.rules.exempt or all(batch.topic in exempt for batch in self.batches)


class TopicBytes(Judge):
    """Bytes of each topic, and of all together. Their client is not muted where a topic is refused: other topics share the
    connection."""

    def __init__(self, judging: Judging) -> None:
        super().__init__(judging)
        self._over = Over()
        self._counts = judging.confirmed and self.engine.bytes_in.limits is not None

    @property
    def counted(self) -> bool:
        return self._counts

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        limits = self.engine.bytes_in.limits
        if limits is None:
            return items
        take = self._take if self.judging.confirmed else self._may_go
        going = [i for i in items if take(self.batches[i], i, limits.mode, now)]
        if not self.judging.confirmed:
            self.engine.bytes_in.expect(self.rules.user, sum(self.batches[i].size for i in going), now)
        return going

    def count(self, items: Sequence[int], now: float) -> None:
        limits = self.engine.bytes_in.limits
        if limits is not None and self._counts:
            for i in items:
                self._charge(self.batches[i], i, limits.mode, now)

    def credit(self, items: Sequence[int], now: float) -> None:
        bytes_in, judging = self.engine.bytes_in, self.judging
        if not judging.confirmed:
            sizes = dict.fromkeys((when for _, when in judging.pieces), 0)
            for i in items:
                sizes[judging.when(i)] += self.batches[i].size
            for when, size in sizes.items():
                bytes_in.answered(self.rules.user, size, when, now)
        elif self._counts:
            for i in items:
                batch = self.batches[i]
                meter = None if self.rules.exempt or not batch.known else bytes_in.meters.get(batch.topic)
                (meter or bytes_in.total).give_back(batch.size, now, judging.when(i))

    def decisions(self) -> Sequence[Decision]:
        return self._over.decisions()

    def _take(self, batch: Batch, i: int, mode: Mode, now: float) -> bool:
        """Count a batch; False when it is refused, and not counted."""
        bytes_in, topic, over = self.engine.bytes_in, batch.topic, self._over
        if self.rules.exempt or not batch.known:
            return bytes_in.total.take(batch.size, now)
        if bytes_in.topic(topic, now).take(batch.size, now):
            return True
        if mode is Mode.THROTTLE:
            self._charge(batch, i, mode, now)
            return True
        told = over.find(topic)
        if not told:
            alone = over.alone(topic)
            found = bytes_in.explain(topic, batch.size, now) if alone else bytes_in.decline(self.rules.user, topic, now)
            told.append(replace(found, throttle=0.0, entity=Entity(None, None, topic)))
        bytes_in.refused.record(batch.size, now)
        self._refuse(topic, i, told[0], mode)
        return False

    def _may_go(self, batch: Batch, i: int, mode: Mode, now: float) -> bool:
        """The same before a broker has confirmed that the user may write all of this: nothing is counted."""
        bytes_in, topic, slowed = self.engine.bytes_in, batch.topic, mode is Mode.THROTTLE
        if self.rules.exempt or not bytes_in.is_over(self.rules.user, topic, now):
            return True
        key = topic if bytes_in.knows(topic) else ""
        told = self._over.find(key)
        if not told:
            found = bytes_in.decline(self.rules.user, topic, now)
            told.append(self._throttled(found, now) if slowed else replace(found, throttle=0.0))
        (bytes_in.throttled if slowed else bytes_in.refused).record(batch.size, now)
        if slowed:
            self._over.add(key, told[0], i)
        else:
            self._refuse(key, i, told[0], mode)
        return slowed

    def _refuse(self, key: str, i: int, told: Decision | None, mode: Mode) -> None:
        assert told is not None
        code = NOT_ENOUGH_REPLICAS if mode is Mode.TRANSIENT else POLICY_VIOLATION
        self.judging.refuse(i, code, told.message, told.quota)
        self._over.add(key, told, i)

    def _throttled(self, decision: Decision, now: float) -> Decision | None:
        """What is told of a throttle that begins now."""
        return self.engine.enforce(Verdict(0, replace(decision, action=Action.THROTTLE)), now).decision

    def _charge(self, batch: Batch, i: int, mode: Mode, now: float) -> None:
        """Count a batch that goes on, or has gone on, whatever the rates are."""
        bytes_in, topic = self.engine.bytes_in, batch.topic
        if self.rules.exempt or not batch.known:
            bytes_in.total.take(batch.size, now)
            return
        bytes_in.written(topic, now)
        told = self._over.find(topic)
        decision = bytes_in.charge(topic, batch.size, now, explain=not told).decision
        if mode is not Mode.THROTTLE:
            return
        if told:
            self._over.add(topic, told[0], i)
        elif decision is not None:
            self._over.add(topic, self._throttled(replace(decision, entity=Entity(None, None, topic)), now), i)


class TopicRate(Judge):
    """Bytes towards the rate of each topic by itself. Where what is above is refused, the batch that exceeds the rate still goes
    on, and makes a debt that time pays: so a topic gets its rate in the long run, whatever the size of batches.

    Where producers are slowed down, a topic may owe more than the longest throttle can pay, as each of many connections brings a
    request per throttle. Then batches are refused with the error that every client retries, and their clients are throttled, until
    the debt is below that: otherwise it would grow for ever, and the topic would get more than its rate."""

    def __init__(self, judging: Judging) -> None:
        super().__init__(judging)
        options = self.engine.limits.option(TopicRateOptions) or TopicRateOptions()
        self._above = options.above
        self._over = Over()

    @property
    def counted(self) -> bool:
        return self.judging.confirmed and any(self._rate(i) is not None for i in range(len(self.batches)))

    def hold(self, now: float, held: bool) -> Decision | None:
        if self._above is not Above.THROTTLE or not self.engine.limits_topic_in:
            return None
        waits = [rate.hold(now, held=held, items=items) for rate, items in self._by_rate(range(len(self.batches)))]
        return max((wait for wait in waits if wait is not None), key=lambda wait: wait.throttle, default=None)

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        if not self.engine.limits_topic_in:
            return items
        going = [i for i in items if not self._refuses(i, now)]
        if self.judging.confirmed and self._above is Above.THROTTLE:
            self.count(going, now)
        return going

    def count(self, items: Sequence[int], now: float) -> None:
        if not self.engine.limits_topic_in:
            return
        for rate, mine in self._by_rate(items):
            size = sum(self.batches[i].size for i in mine)
            if rate.take(size, now):
                continue
            if self._above is not Above.THROTTLE:
                rate.record(size, now)
            elif (decision := rate.charge(size, now)) is not None:
                for i in mine:
                    self._over.add(self.batches[i].topic, decision, i)

    def credit(self, items: Sequence[int], now: float) -> None:
        if self.judging.confirmed and self.engine.limits_topic_in:
            for rate, mine in self._by_rate(items):
                rate.refund(sum(self.batches[i].size for i in mine), now)

    def decisions(self) -> Sequence[Decision]:
        return self._over.decisions()

    def _refuses(self, i: int, now: float) -> bool:
        """Refuse a batch if its topic owes too much; else count it where batches are counted one by one, if it is confirmed."""
        rate, batch = self._rate(i), self.batches[i]
        if rate is None:
            return False
        slows = self._above is Above.THROTTLE
        wait = rate.meter.wait(now)
        if wait <= (self._longest_throttle() if slows else 0.0):
            if self.judging.confirmed and not slows:
                rate.record(batch.size, now)
            return False
        told = self._over.find(batch.topic)
        turn = rate.meter.turn(batch.size, now, self._longest_throttle()) if slows else 0.0
        decision = (told and told[0]) or self._declined(rate, batch.topic, turn, now)
        code = POLICY_VIOLATION if self._above is Above.FAIL else NOT_ENOUGH_REPLICAS
        self.judging.refuse(i, code, decision.message, TOPIC_IN)
        self._over.add(batch.topic, decision, i)
        return True

    def _longest_throttle(self) -> float:
        """Seconds that a topic may owe before its batches are refused although its producers are slowed down."""
        limits = self.engine.limits
        if not self.judging.answered or TOPIC_IN in limits.observed:
            return inf
        return max(limits.max_throttle - MAX_HOLD, MAX_HOLD)

    def _declined(self, rate: Metered, topic: str, throttle: float, now: float) -> Decision:
        """Why a batch is refused, and for how long its client is throttled. A client that may not see the topic is told no
        figures."""
        usage, limit = rate.meter.average(now), rate.meter.limit
        figures = f": {figure(usage)} bytes/s on average, limit {figure(limit)}/s" if self.judging.confirmed else ""
        message = f"The {rate.rates.title} quota of topic {topic} is exceeded{figures}."
        decision = Decision(TOPIC_IN, Action.REFUSE, rate.found.owner, (), usage, limit, throttle, message)
        return self.engine.enforce(Verdict(0, decision), now, mute=False).decision or decision

    def _rate(self, i: int) -> Metered | None:
        batch = self.batches[i]
        return self.rules.topic_in(batch.topic) if batch.known and self.engine.limits_topic_in else None

    def _by_rate(self, items: Iterable[int]) -> list[tuple[Metered, list[int]]]:
        """The rates of these batches, each with its batches."""
        found: dict[str, tuple[Metered, list[int]]] = {}
        for i in items:
            rate = self._rate(i)
            if rate is not None:
                found.setdefault(self.batches[i].topic, (rate, []))[1].append(i)
        return list(found.values())


class SlowedRate(Judge):
    """Bytes to volumes and budgets past their soft limit, and bytes that are stored."""

    def __init__(self, judging: Judging, rates: SlowedRates) -> None:
        super().__init__(judging)
        self._rates = rates
        self._recorded: set[int] = set()
        self._owner: Entity | None = None
        self._weights: dict[int, float] = {}
        """against whose slowed rate something was counted, and how much for each batch"""

    @property
    def counted(self) -> bool:
        return self._owner is not None or bool(self._recorded)

    def hold(self, now: float, held: bool) -> Decision | None:
        rates = self._rates
        if held or self.rules.exempt or rates.filling.calm:
            return None
        if not rates.weights(self.batches, self.judging.limited(range(len(self.batches)))):
            return None
        found = rates.find(self.rules.user, self.rules.client_id, client_ids=self.rules.by_client_id)
        return None if found is None else self.engine.hold(rates, found, range(len(self.batches)), now)

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        if self.judging.confirmed:
            self.count(items, now)
        return items

    def count(self, items: Sequence[int], now: float) -> None:
        rates = self._rates
        limited = [] if self.rules.exempt or rates.filling.calm else self.judging.limited(items)
        if not limited:
            return
        if weights := rates.weights(self.batches, limited):
            self._slow(limited, weights, now)
        rates.filling.record(self.batches, limited)
        self._recorded.update(limited)

    def _slow(self, items: Sequence[int], weights: dict[int, float], now: float) -> None:
        """Count these against the slowed rate of the client."""
        rates = self._rates
        found = rates.find(self.rules.user, self.rules.client_id, client_ids=self.rules.by_client_id)
        if found is None:
            return
        self._owner = found.owner
        self._weights |= weights
        decision = self.engine.enforce(Verdict(0, rates.slow(found, self.batches, items, now)), now).decision
        if decision is not None:
            self.told.append(decision)

    def credit(self, items: Sequence[int], now: float) -> None:
        for i in items if self._owner is not None else ():
            if i in self._weights and self._owner is not None:
                self._rates.refund(self._owner, self._weights[i], now)
        self._rates.filling.give_back(self.batches, [i for i in items if i in self._recorded])


class ByteRate(Judge):
    """Bytes of the client."""

    def __init__(self, judging: Judging) -> None:
        super().__init__(judging)
        self._counted: list[int] = []

    @property
    def counted(self) -> bool:
        return self.rules.produce is not None

    def hold(self, now: float, held: bool) -> Decision | None:
        if self.rules.produce is None or not self.judging.limited(range(len(self.batches))):
            return None
        return self.rules.produce.hold(now, held=held, items=range(len(self.batches)))

    def judge(self, items: Sequence[int], now: float) -> Sequence[int]:
        if self.judging.confirmed:
            self.count(items, now)
        return items

    def count(self, items: Sequence[int], now: float) -> None:
        limited = self.judging.limited(items)
        self._counted += limited
        size = sum(self.batches[i].size for i in limited)
        if self.rules.produce is not None and size and (decision := self.rules.produce.charge(size, now)) is not None:
            self.told.append(decision)

    def credit(self, items: Sequence[int], now: float) -> None:
        size = sum(self.batches[i].size for i in self.judging.limited(items))
        if self.rules.produce is not None and self.judging.confirmed and size:
            self.rules.produce.refund(size, now)

    def decisions(self) -> Sequence[Decision]:
        return [replace(decision, items=tuple(self._counted)) for decision in as_one(self.told)]


class Over:
    """What is to be said of the topics of one request that are over their thresholds."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Decision | None, list[int]]] = {}

    def alone(self, topic: str) -> bool:
        """Is this topic one of those that are told of one by one?"""
        return topic in self._told or len(self._told) < MAX_TOLD

    def find(self, topic: str) -> list[Decision | None]:
        """What is said of this topic already, None for nothing; no element if it was not asked yet."""
        found = self._told.get(topic if self.alone(topic) else OTHERS)
        return [] if found is None else [found[0]]

    def add(self, topic: str, decision: Decision | None, item: int) -> None:
        """This is said of a topic if it is the first, and concerns this item."""
        key = topic if self.alone(topic) else OTHERS
        told = self._told.get(key)
        if told is None:
            if decision is not None and key == OTHERS:
                decision = replace(decision, entity=Entity(None, None, OTHERS))
            told = self._told[key] = decision, []
        told[1].append(item)

    def decisions(self) -> list[Decision]:
        """One for each topic, with its items."""
        return [replace(decision, items=tuple(items)) for decision, items in self._told.values() if decision is not None]


def charge_producer_ids(engine: Engine, user: str, ids: Sequence[int], now: float, *, exempt: bool = False) -> Verdict:
    """Count the new producer ids of one Produce request; `ids[i]` is that of item i. `exempt`: what it is about is never limited.
    The throttle is capped at `max_throttle`, and the user is muted for it, but not where new ids are refused: known ones go on."""
    quota = engine.producer_ids
    verdict = quota.count(user, ids, now, exempt=exempt)
    throttled = verdict.decision is not None and verdict.decision.action is Action.THROTTLE
    verdict = engine.enforce(verdict, now, mute=throttled)
    if verdict.decision is not None:
        quota.told(user, verdict.decision.throttle, now)
    return verdict


def as_one(decisions: Sequence[Decision]) -> Sequence[Decision]:
    """What was said of the same at several pieces of a request: how it stands in the end, and the longest throttle."""
    if len(decisions) < 2:
        return decisions
    items = tuple(i for decision in decisions for i in decision.items)
    return [replace(decisions[-1], items=items, throttle=max(decision.throttle for decision in decisions))]
