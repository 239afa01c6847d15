"""Bytes in, in total and per topic (seed s4). When the total is too high, topics above their threshold are refused or slowed.

In: the topic and bytes of each batch in its order, the time; which topics there are. Out: whether it is admitted, and why not.
It leaves to others: which error a refusal is, caps and mutes, the fence behind what is refused, how an answer looks.

A batch is refused iff the total rate is above the total threshold and the rate of its topic above that of the topic, both
strictly. Only what is accepted is recorded, in both. A topic without a threshold of its own has the default share: what the
thresholds of all configured topics leave of the total, divided by the number of topics without one. Exempt topics have no
threshold and no share; they are metered, in the total too.

Rates are one-minute averages that move every 5 s on one grid (`quota/windows/ewma.py`), so a verdict changes only there, or with
the limits; or, as `meter` says, Kafka's samples (`quota/windows/rate.py`), where each record may change it. Both are kept as
limits change.

The fast path is `TopicMeter.take`: a connection keeps the meters of its topics. One that was dropped is `gone` and safe to use:
it passes on to the one that took its place.

Names count only once brokers have confirmed them: `topic` is called for what a broker has written, or said to be there. Bytes that
no broker has confirmed yet count only for their user (`expect`): for that user all goes on as if they were written, for
others as if they were not. They are taken back when the broker answers; of what is never answered the rate decays.

Memory: a meter for each topic that somebody produces to; dropped when its rate is below 1 byte/s. A topic that is deleted keeps it
until then, so that one that comes back has what was charged. Topics that only a broker's answer to a producer told of, no
`topics_are` or `topic_came`, have `MAX_CLAIMED` meters at most, and share one beyond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from math import exp, fsum, inf
from typing import Final, Literal, NamedTuple

from quota.decision import Action, Decision, Verdict, figure
from quota.entity import Entity
from quota.ledger import Sums
from quota.limits import Limits
from quota.round_robin import RoundRobin
from quota.steps import Steps, largest
from quota.windows.ewma import MINUTE, Meter
from quota.windows.rate import RateWindow

NAME: Final = "bytes_in"
SAMPLES: Final = 11
SECONDS: Final = 1.0
MAX_CLAIMED = 10_000
"""Topics that were written to, and are not known otherwise."""
MAX_EXPECTED: Final = 10_000
"""Users with bytes that no broker has confirmed; those beyond share a meter."""
OTHERS: Final = "<others>"
"""The name of the meter that claimed topics share where there are too many; no topic can have it."""
IDLE: Final = 1.0
"""Bytes per second under which a topic is forgotten."""
SWEEP: Final = 60.0
"""seconds between two looks at all topics"""
LOOKED_AT: Final = 10_000
"""Topics among which those nearest to their threshold are looked for."""
SWEPT: Final = 300
"""Topics that one sweep looks at; the next goes on from there."""
NOBODY: Final = Entity(None, None)
"""Whose limit it is: no client's."""


class Mode(Enum):
    """What happens to a batch of a topic that is over its threshold."""

    TRANSIENT = "transient"
    """refused with an error that every client retries"""
    FAIL = "fail"
    """refused with one that none does"""
    THROTTLE = "throttle"
    """taken, and the client throttled"""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Bytes per second: `total`, and `explicit` thresholds by topic. ValueError for one that is not above 0, and for thresholds
    that are more than the total in sum."""

    total: float
    explicit: Mapping[str, float] = field(default_factory=dict)
    meter: Literal["ewma", "window"] = "ewma"
    mode: Mode = Mode.TRANSIENT

    def __post_init__(self) -> None:
        if not 0 < self.total < inf:
            raise ValueError(f"need a total threshold above 0 bytes/s, got {self.total:g}")
        for topic, threshold in self.explicit.items():
            if not 0 < threshold < inf:
                raise ValueError(f"need a threshold above 0 bytes/s for topic {topic}, got {threshold:g}")
        if self.rest < 0:
            raise ValueError(
                f"the thresholds of topics are {_plain(fsum(self.explicit.values()))} bytes/s in sum, which is {_plain(-self.rest)}"
                f" more than the total of {_plain(self.total)}; raise the total, or lower thresholds of topics"
            )

    @property
    def rest(self) -> float:
        """What the explicit thresholds leave of the total."""
        return fsum([self.total, *(-threshold for threshold in self.explicit.values())])


class Flow(Meter):
    """The bytes of all topics, or of one: the average, and the samples where they are what counts."""

    __slots__ = ("_changed", "_elsewhere", "_passed_on", "window")

    def __init__(self, epoch: float, sampled: bool) -> None:
        super().__init__(epoch)
        self._elsewhere = self._passed_on = 0.0
        """what was learned of others, and what they were told"""
        self.window = RateWindow(inf, SAMPLES, SECONDS) if sampled else None
        self._changed = False
        """Have the samples still to become what the average is?"""

    def put(self, size: float, now: float) -> None:
        """Count bytes."""
        if self.window is not None:
            self._begin(self.window, now)
            self.window.record(size, now)
        self.record(size, now)

    def take(self, size: float, now: float) -> bool:
        """Count bytes that nothing limits."""
        self.put(size, now)
        return True

    def give_back(self, size: float, now: float, when: float | None = None) -> None:
        """Bytes that were taken at `when`, or just now, did not come after all."""
        self.take_back(size, now if when is None else when, now)
        if self.window is not None:
            self.window.refund(size, now)

    def charged(self) -> float:
        """What was counted here since the last call."""
        charged = self.count - self._elsewhere - self._passed_on
        self._passed_on += charged
        return charged

    def learn(self, size: float, now: float) -> None:
        """Count what came elsewhere, or, below 0, did not come after all."""
        self._elsewhere += size
        if size >= 0:
            self.put(size, now)
        else:
            Flow.give_back(self, -size, now)

    def resume(self, rate: float, now: float) -> None:
        """Have this rate at least, as if it had come evenly."""
        if rate > self.rate(now):
            self._resume(rate, now)
        if self.window is not None and rate > self.measured(now):
            self.window.fill(rate, now)

    def measured(self, now: float) -> float:
        """The rate that counts."""
        if self.window is None:
            return self.rate(now)
        self._begin(self.window, now)
        return self.window.average(now)

    def below_in(self, limit: float, now: float) -> float:
        """Seconds until the rate is not above a limit, if nothing more comes."""
        return self.wait(limit, now) if self.window is None else self.window.wait_for(limit, now)

    def sampled(self, wanted: bool) -> None:
        """Count by samples from now on, or no more. Samples begin as if the average had come evenly."""
        if not wanted:
            self.window = None
        elif self.window is None:
            self.window, self._changed = RateWindow(inf, SAMPLES, SECONDS), True

    def _begin(self, window: RateWindow, now: float) -> None:
        if self._changed:
            self._changed = False
            window.fill(self.rate(now), now)


class TopicMeter(Flow):
    """The bytes of one topic."""

    __slots__ = ("_quota", "_total", "explicit", "gone", "name", "until")

    def __init__(self, quota: BytesIn, name: str, epoch: float, sampled: bool) -> None:
        super().__init__(epoch, sampled)
        self._quota, self._total = quota, quota.total
        self.name = name
        self.explicit = -1.0
        """its own threshold, infinite if it is exempt; below 0 for the default share"""
        self.until = -inf
        """until then all is accepted, whatever is recorded: the next tick, if the total is within its threshold"""
        self.gone = False

    def take(self, size: float, now: float) -> bool:
        """Accept and record a batch; False if it has to be refused or throttled, and nothing is recorded."""
        if now < self.until:
            self.fresh += size
            self._total.fresh += size
            return True
        return self._quota.admit(self, size, now)

    def give_back(self, size: float, now: float, when: float | None = None) -> None:
        meter = self._quota.meters.get(self.name) if self.gone else self
        if meter is not None:
            Flow.give_back(meter, size, now, when)
            self._quota.touch(meter)
        self._total.give_back(size, now, when)


class Stands(NamedTuple):
    """How a topic stands, in bytes per second."""

    topic: str
    rate: float
    threshold: float


class BytesIn:
    """The thresholds and meters of all topics."""

    name: Final = NAME
    title: Final = "bytes in"

    def __init__(self, limits: TopicLimits | None = None, exempt_topics: Iterable[str] = (), epoch: float = 0.0) -> None:
        """`epoch`: an instant of the grid on which averages move."""
        self._epoch = epoch
        self._limits, self._exempt = limits, frozenset(exempt_topics)
        self._rest = inf if limits is None else limits.rest
        self.total = Flow(epoch, self._sampled)
        """bytes that were accepted"""
        self.refused, self.throttled = Meter(epoch), Meter(epoch)
        """bytes that were not, and bytes that were slowed"""
        self._topics: set[str] = set()
        """that the cluster is known to have"""
        self._claimed: set[str] = set()
        """that were written to and are not among them; each has a meter"""
        self._sharing = 0
        """topics of both without a threshold of their own"""
        self.meters: dict[str, TopicMeter] = {}
        self._expected: dict[str, Flow] = {}
        """by user: bytes that no broker has confirmed"""
        self._sweeps: RoundRobin[str] = RoundRobin(SWEEP, SWEPT)
        self._users: RoundRobin[str] = RoundRobin(SWEEP, SWEPT)
        self._shared = False
        self._touched: set[TopicMeter] = set()

    @property
    def limits(self) -> TopicLimits | None:
        return self._limits

    @property
    def share(self) -> float:
        """The default threshold, as topics and limits are now; infinite without limits."""
        return self._rest / max(self._sharing, 1)

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on, see `change`."""
        self.change(limits.option(TopicLimits), limits.exempt.topics)

    def change(self, limits: TopicLimits | None, exempt_topics: Iterable[str]) -> None:
        """These limits hold from now on. Meters stay, but without limits those of topics are gone."""
        self._limits, self._exempt = limits, frozenset(exempt_topics)
        self._rest = inf if limits is None else limits.rest
        self.total.sampled(self._sampled)
        if limits is None:
            self._expected.clear()
        for flow in self._expected.values():
            flow.sampled(self._sampled)
        for meter in list(self.meters.values()):
            if limits is None:
                self._drop(meter)
            else:
                meter.sampled(self._sampled)
                meter.explicit, meter.until = self._explicit(meter.name), -inf
        self._count()

    def topics_are(self, names: Iterable[str]) -> None:
        """The topics of the cluster. Those that it had and has no more are gone; claimed ones stay until they are idle."""
        topics = set(names)
        self._topics = topics
        self._claimed -= topics
        self._count()
        others = self.meters.get(OTHERS)
        if others is not None and len(self._claimed) < MAX_CLAIMED:
            self._drop(others)  # its topics ask again, and some of them are known by now

    def topic_came(self, name: str) -> None:
        """The cluster has this topic."""
        if name not in self._topics:
            self._topics.add(name)
            if name in self._claimed:
                self._claimed.remove(name)
            else:
                self._sharing += self._shares(name)

    def topic_went(self, name: str) -> None:
        """It has it no more, as somebody was told. Its meter stays: it may come back, or be there all the time."""
        if name in self._topics:
            self._topics.remove(name)
            self._sharing -= self._shares(name)
        elif name in self._claimed:
            self._claimed.remove(name)
            self._sharing -= self._shares(name)

    def topic(self, name: str, now: float) -> TopicMeter:  # noqa: ARG002
        """The meter of a topic that a broker has confirmed; it is made if it does not exist. A new topic counts as known from now
        on."""
        meter = self.meters.get(name)
        if meter is None:
            if name not in self._topics:
                if len(self._claimed) >= MAX_CLAIMED or name == OTHERS:
                    name = OTHERS
                    if name in self.meters:
                        return self.meters[name]
                else:
                    self._claim(name)
            meter = self.meters[name] = TopicMeter(self, name, self._epoch, self._sampled)
            meter.explicit = self._explicit(name)
        return meter

    def written(self, name: str, now: float) -> TopicMeter:
        """The meter of a topic to which a broker has just written: so it is there, whatever was said before."""
        meter = self.topic(name, now)
        if meter.name == name and name not in self._topics and name not in self._claimed and len(self._claimed) < MAX_CLAIMED:
            self._claim(name)
        return meter

    def _claim(self, name: str) -> None:
        self._claimed.add(name)
        self._sharing += self._shares(name)

    def knows(self, name: str) -> bool:
        """True if a broker has confirmed that there is such a topic."""
        return name in self._topics or name in self.meters

    def expect(self, user: str, size: float, now: float) -> None:
        """Bytes of a user go on, and no broker has confirmed yet that this user may write to their topics."""
        flow = self._expected.get(user)
        if flow is None:
            if len(self._expected) >= MAX_EXPECTED:
                user = OTHERS
            flow = self._expected.setdefault(user, Flow(self._epoch, self._sampled))
        flow.put(size, now)

    def answered(self, user: str, size: float, when: float, now: float) -> None:
        """The broker has answered about bytes that were expected at `when`."""
        flow = self._expected_of(user)
        if flow is not None:
            flow.give_back(size, now, when)

    def _expected_of(self, user: str) -> Flow | None:
        return self._expected.get(user, self._expected.get(OTHERS)) if self._expected else None

    def is_over(self, user: str, name: str, now: float) -> bool:
        """Would a batch for this topic be refused if what is expected of the user had been written to it? Nothing is recorded."""
        flow = self._expected_of(user)
        expected = 0.0 if flow is None else flow.measured(now)
        if self._limits is None or self.total.measured(now) + expected <= self._limits.total:
            return False
        meter = self.meters.get(name)
        if meter is not None:
            return meter.measured(now) + expected > self.threshold(meter)
        explicit = self._explicit(name)
        return expected > (explicit if explicit >= 0 else self.share)

    def decline(self, user: str, name: str, now: float) -> Decision:
        """What to say of a batch that `is_over`. The message has no figures, as it may go to somebody who may not write to that
        topic. Names that no broker has confirmed are not told: the decision is about the user."""
        meter = self.meters.get(name)
        threshold = self.share if meter is None else self.threshold(meter)
        turn = max(flow.turn for flow in (self.total, self._expected_of(user)) if flow is not None)
        wait = max(turn - now, 0.0) if self.total.window is None else SECONDS
        entity = Entity(None, None, name) if self.knows(name) else Entity(user, None)
        message = f"Too many bytes in: this topic is above its threshold, and so are all topics; try again in {figure(wait)} s."
        return Decision(NAME, Action.REFUSE, entity, (), 0.0 if meter is None else meter.measured(now), threshold, wait, message)

    def threshold(self, meter: TopicMeter) -> float:
        """Bytes per second of a topic, above which it may be refused; infinite if it is exempt."""
        return meter.explicit if meter.explicit >= 0 else self.share

    def admit(self, meter: TopicMeter, size: float, now: float) -> bool:
        """`TopicMeter.take` where it has to look."""
        if meter.gone:
            return self.topic(meter.name, now).take(size, now)
        over = self._total_over(now)
        if over and meter.measured(now) > self.threshold(meter):
            return False
        self._put(meter, size, now)
        if not over and meter.window is None:
            meter.until = meter.turn  # that of the total too
        return True

    def charge(self, name: str, size: float, now: float, *, explain: bool = True) -> Verdict:
        """Record a batch whatever the rates are. The decision slows down what `take` would not have accepted, for as long as it
        would not, not capped; None if no explanation is wanted."""
        meter = self.topic(name, now)
        decision = None
        if self._total_over(now) and meter.measured(now) > self.threshold(meter):
            decision = self._decision(meter, name, size, Action.THROTTLE, now) if explain else None
            self.throttled.record(size, now)
        self._put(meter, size, now)
        return Verdict(int(size), decision)

    def refuse(self, name: str, size: float, now: float) -> Decision:
        """What to say of a batch that `take` did not accept; its bytes count as refused."""
        self.refused.record(size, now)
        return self.explain(name, size, now)

    def explain(self, name: str, size: float, now: float) -> Decision:
        """How a topic stands that is over its threshold, and the earliest end of that. Nothing is recorded."""
        return self._decision(self.topic(name, now), name, size, Action.REFUSE, now)

    def standings(self, now: float) -> Iterator[Stands]:
        """How every topic stands that has a meter."""
        return (Stands(meter.name, meter.measured(now), self.threshold(meter)) for meter in list(self.meters.values()))

    def nearest(self, count: int, now: float) -> Steps[list[Stands]]:
        """How those stand that are nearest to their threshold, or most above it: `count` of `LOOKED_AT`; in steps."""
        found = yield from largest(
            count, islice(self.standings(now), LOOKED_AT), lambda it: it.rate / it.threshold if it.threshold else inf
        )
        return found

    def sweep(self, now: float) -> None:
        """Forget topics with next to no traffic, and users of whom next to nothing is expected. `SWEPT` of each are looked at each
        time, all of them once in `SWEEP` seconds at most."""
        for name in self._sweeps.turn(self.meters, now):
            meter = self.meters.get(name)
            if meter is not None and meter.idle(now, IDLE) and meter.measured(now) < IDLE:
                self._drop(meter)
        for user in self._users.turn(self._expected, now):
            flow = self._expected.get(user)
            if flow is not None and flow.idle(now, IDLE) and flow.measured(now) < IDLE:
                del self._expected[user]

    def publish(self) -> Sequence[Sums]:
        """Proxies add up what they accept. Owners are topics, and `NOBODY` for all of them together."""
        self._shared = True
        return (self,)

    def touch(self, meter: TopicMeter) -> None:
        """Something was counted of this topic."""
        if self._shared:
            self._touched.add(meter)

    def take_charged(self) -> list[tuple[Entity, float]]:
        """What was accepted here since the last time."""
        taken = [(NOBODY, self.total.charged())]
        for meter in self._touched:
            taken.append((Entity(None, None, meter.name), meter.charged()))
            meter.until = -inf  # so that what comes next touches it
        self._touched.clear()
        return [(owner, amount) for owner, amount in taken if amount]

    def learn(self, owner: Entity, amount: float, now: float) -> None:
        """Another proxy has accepted this number of bytes."""
        if self._limits is not None:
            self._flow(owner, now).learn(amount, now)

    def level(self, owner: Entity, now: float) -> float:
        """Bytes of a minute at the rate that counts, what has come since the last tick included."""
        flow = self._flow(owner, now)
        return (flow.coming(now) if flow.window is None else flow.measured(now)) * MINUTE

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:  # noqa: ARG002
        """On another proxy the level was this high `age` seconds ago."""
        if self._limits is not None:
            self._flow(owner, now).resume(level / MINUTE * exp(-age / MINUTE), now)
            for meter in self.meters.values():
                meter.until = -inf  # what was promised until the next tick rested on a lower rate

    def weighs_for(self, owner: Entity, now: float) -> float:  # noqa: ARG002
        """Seconds for which what came last is of interest."""
        return SAMPLES * SECONDS if self._sampled else MINUTE

    def capacity(self, owner: Entity) -> float:  # noqa: ARG002
        """The bytes of a minute at the threshold of all topics, which no topic can exceed for long."""
        return inf if self._limits is None else self._limits.total * MINUTE

    def _flow(self, owner: Entity, now: float) -> Flow:
        return self.total if owner.topic is None else self.topic(owner.topic, now)

    @property
    def _sampled(self) -> bool:
        return self._limits is not None and self._limits.meter == "window"

    def _total_over(self, now: float) -> bool:
        return self._limits is not None and self.total.measured(now) > self._limits.total

    def _put(self, meter: TopicMeter, size: float, now: float) -> None:
        meter.put(size, now)
        self.total.put(size, now)
        self.touch(meter)

    def _explicit(self, name: str) -> float:
        if name in self._exempt:
            return inf
        return -1.0 if self._limits is None else self._limits.explicit.get(name, -1.0)

    def _shares(self, name: str) -> bool:
        """Has a topic the default share?"""
        return name not in self._exempt and (self._limits is None or name not in self._limits.explicit)

    def _count(self) -> None:
        self._sharing = sum(self._shares(name) for names in (self._topics, self._claimed) for name in names)

    def _drop(self, meter: TopicMeter) -> None:
        """Drop the meter of a topic without producers, and what the topic has claimed."""
        del self.meters[meter.name]
        meter.gone, meter.until = True, -inf
        if meter.name in self._claimed:
            self._claimed.remove(meter.name)
            self._sharing -= self._shares(meter.name)

    def _decision(self, meter: TopicMeter, name: str, size: float, action: Action, now: float) -> Decision:
        total, rate, threshold = self.total.measured(now), meter.measured(now), self.threshold(meter)
        limit = inf if self._limits is None else self._limits.total
        wait = min(meter.below_in(threshold, now), self.total.below_in(limit, now))
        if action is Action.REFUSE and meter.window is None:
            wait = max(self.total.turn - now, 0.0)
        done = "refused" if action is Action.REFUSE else "slowed down"
        message = (
            f"Too many bytes in: topic {name} has {figure(rate)} bytes/s, threshold {figure(threshold)},"
            f" and all topics {figure(total)} bytes/s, threshold {figure(limit)};"
            f" {size:.0f} bytes were {done}, try again in {figure(wait)} s."
        )
        return Decision(NAME, action, NOBODY, (), rate, threshold, wait, message)


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.3f}"
