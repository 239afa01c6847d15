"""Storage (seeds s0 and s3): no volume of the cluster fills because of clients.

In: what a check of the volumes saw, or that it could not see; the time. Out: the throttle factor, the volumes in trouble, and
what changed, for the log. It leaves to others: asking brokers, and what the factor does to a request.

A volume is a log dir of a broker. Its factor is 1 while more than the soft limit is available, 0 at the hard limit, a straight
line between. With one limit the two are the same. The lowest factor of all volumes decides.

A check is complete when every volume of every active broker told its sizes. What a complete check gave is valid for
`validity` seconds from its tick; then a check that is not complete makes the fallback hold. What is known is never opened by
what is not: a volume seen in trouble stays so until it is seen to be well, or its sighting is no longer valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from quota.ledger import Sums
from quota.limits import Limits
from quota.windows.trend import Trend, seconds_until

NAME: Final = "storage"
TREND: Final = 15
"""sightings of a volume from which its fill rate is told"""
LEAST_RATE: Final = 1 << 20
"""bytes per second that somebody without a byte rate starts from at least when it is slowed"""
LEAST_WAIT: Final = 0.25
LEAST_MARGIN: Final = 0.01
"""of a volume's size: what a margin is a part of where the limit is less"""

Key = tuple[int | None, str]
"""broker id (None where it is not known) and log dir"""
Produced = Callable[[], Mapping[str, float]]
"""users to the bytes per second that they produce"""


class Volume(NamedTuple):
    """A log dir as its broker describes it (KIP-827), or as the file system does. Sizes in bytes."""

    broker_id: int | None
    log_dir: str
    total: int
    available: int

    @property
    def key(self) -> Key:
        return self.broker_id, self.log_dir

    def __str__(self) -> str:
        return self.log_dir if self.broker_id is None else f"{self.log_dir} of broker {self.broker_id}"


class Replicas(NamedTuple):
    """What a volume holds: topic to partitions, topic to bytes of the largest topics, bytes of all."""

    partitions: Mapping[str, frozenset[int]] = {}
    largest: Mapping[str, int] = {}
    size: int = 0


class Reason(Enum):
    """Why the volumes are not known."""

    NOT_YET = "not_yet_known"
    CLUSTER = "cluster_unknown"
    BROKER = "broker_unknown"
    NOT_AUTHORIZED = "not_authorized"
    VOLUME = "volume_unknown"


class Gap(NamedTuple):
    """What a check could not see, for people too. `broker_id` and `log_dir` as far as it is known what is missing."""

    reason: Reason
    detail: str
    broker_id: int | None = None
    log_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What one look at all volumes gave. `at`: the tick that started it, monotonic seconds. `brokers`: those that are active.
    `replicas`: of the volumes that were asked for them. `parts`: what a volume that stands for several is made of, for logs."""

    at: float
    volumes: tuple[Volume, ...] = ()
    parts: tuple[Volume, ...] = ()
    gaps: tuple[Gap, ...] = ()
    brokers: frozenset[int | None] = frozenset()
    replicas: Mapping[Key, Replicas] = field(default_factory=dict)


class Below(NamedTuple):
    """A limit on what is available: `bytes`, or a `ratio` of the volume's size; the other is None."""

    bytes: float | None = None
    ratio: float | None = None

    def of(self, total: int) -> float:
        """In bytes of a volume of that size."""
        return self.bytes if self.bytes is not None else (self.ratio or 0.0) * total


class Scope(Enum):
    """Whom a volume in trouble concerns."""

    CLUSTER = "cluster"
    VOLUME = "volume"


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """What operators set. `soft` is `hard` where there is one limit. `validity` and `warn_before` in seconds. `margin`: the part of
    a limit by which a volume has to be better than that before it is well again. `hold`: at 0 requests wait instead of being
    refused."""

    hard: Below
    soft: Below
    fallback: float = 1.0
    validity: float = 300.0
    scope: Scope = Scope.CLUSTER
    margin: float = 0.1
    warn_before: float = 3600.0
    hold: bool = False
    interval: float = 60.0
    """seconds between two checks"""

    def bytes_of(self, total: int) -> tuple[float, float]:
        """(hard, soft) of a volume of that size."""
        return self.hard.of(total), self.soft.of(total)


class Happened(Enum):
    """What a check changed."""

    WARNING = "a volume will reach its limit soon"
    SLOWED = "a volume is past its soft limit"
    FULL = "a volume is at its hard limit"
    RELEASED = "a volume is within its limits again"
    FORGOTTEN = "a volume in trouble was not seen for longer than its sighting is valid"
    INCOMPLETE = "a check could not see all volumes"
    FALLBACK = "the fallback factor holds"
    KNOWN = "the volumes are known again"


class Event(NamedTuple):
    """A change, about a volume or about all."""

    what: Happened
    seen: VolumeState | None = None
    gap: Gap | None = None


class VolumeState:
    """A volume, as it was seen last. `factor` is what it asks for; `hard` and `soft` are in bytes of it; `at` is when."""

    __slots__ = ("_trend", "at", "factor", "hard", "released", "replicas", "replicas_at", "soft", "volume", "warned")

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.at = -inf
        self.factor = 1.0
        self.hard = self.soft = 0.0
        self.released = 0.0
        """bytes that have to be available before anything is produced again"""
        self.replicas = Replicas()
        self.replicas_at = -inf
        self.warned = False
        self._trend = Trend(TREND)

    def see(self, volume: Volume, at: float, limits: StorageLimits) -> None:
        """It is like this now."""
        self._trend.see(volume.available, at)
        self.volume, self.at = volume, at
        self.judge(limits)

    def judge(self, limits: StorageLimits) -> None:
        """The factor sinks with what is available, and rises only by what the volume is better than that by the margin:
        otherwise it would come and go with every segment that is deleted."""
        hard, soft = limits.bytes_of(self.volume.total)
        total, available = self.volume.total, self.volume.available
        margin = min(limits.margin * max(hard, LEAST_MARGIN * total), max(total - max(hard, soft), 0) / 2)
        least = line(available, hard + margin, soft + margin)
        self.factor = min(max(self.factor, least), line(available, hard, soft))
        self.hard, self.soft, self.released = hard, soft, hard + margin

    @property
    def replicas_told(self) -> bool:
        """Did anybody tell what it holds?"""
        return self.replicas_at > -inf

    @property
    def breached(self) -> bool:
        """Is it at or below a limit?"""
        return self.volume.available <= max(self.hard, self.soft)

    @property
    def fill_rate(self) -> float | None:
        """Bytes per second by which it fills; None while that cannot be told."""
        slope = self._trend.slope()
        return None if slope is None else -slope

    @property
    def seconds_left(self) -> float:
        """Until the limit that comes next, if it goes on like this: the soft one, or the hard one below that. Infinity where it
        does not fill."""
        available = self.volume.available
        return seconds_until(available, self.soft if available > self.soft else self.hard, self._trend.slope())


@dataclass(slots=True)
class Counts:
    """For metrics: ticks at which the fallback was applied, by reason; and volumes at or below a limit, summed over the ticks."""

    fallbacks: Counter[Reason] = field(default_factory=Counter)
    violations: int = 0


class Storage:
    """The state of all volumes, and what follows. `limits` None: the quota is off.

    `calm`: no client is slowed or refused, so nothing else is asked. `factor`: that of everybody; with scope `volume` it is below 1
    only while the fallback holds, and `trouble` tells of partitions."""

    name: Final = NAME
    title: Final = "storage"

    def __init__(self, limits: StorageLimits | None = None) -> None:
        self.limits: StorageLimits | None = None
        self.calm = True
        self.factor = 1.0
        self.lowest = 1.0
        """the lowest factor that holds for anybody"""
        self.counts = Counts()
        self.worst: VolumeState | None = None
        """the volume that most recently and severely was at or below a limit"""
        self.brokers = 0
        """active brokers of the last check that knew them"""
        self.gap: Gap | None = None
        """why the fallback holds; None when it does not"""
        self.missing: tuple[Gap, ...] = ()
        """what the last check could not see"""
        self._volumes: dict[Key, VolumeState] = {}
        self._troubled: list[VolumeState] = []
        self._known: tuple[float, float] | None = None
        """tick of the last complete check, and the factor that it gave"""
        self._rates: Mapping[str, float] = {}
        self._tick = -inf
        """of the last check"""
        self.change(limits)

    def __len__(self) -> int:
        """Volumes that are known."""
        return len(self._volumes)

    @property
    def volumes(self) -> Iterable[VolumeState]:
        """All that are known, in no order."""
        return self._volumes.values()

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on, see `change`."""
        self.change(limits.option(StorageLimits))

    def sweep(self, _now: float, /) -> None:
        """Nothing: checks forget volumes."""

    def publish(self) -> Sequence[Sums]:
        """Nothing is shared: each proxy looks at the volumes itself."""
        return ()

    def change(self, limits: StorageLimits | None) -> None:
        """These limits hold from now on, for what was seen last; before anything was seen, the fallback."""
        if limits != self.limits:
            self._change(limits)

    def _change(self, limits: StorageLimits | None) -> None:
        self.limits = limits
        if limits is None:
            self._volumes.clear()
            self._known, self.gap, self.worst, self._rates, self.missing = None, None, None, {}, ()
            self._settle(1.0)
            return
        for seen in self._volumes.values():
            seen.factor = 1.0  # a margin is for what a volume does, not for what operators do
            seen.judge(limits)
        lowest = min((seen.factor for seen in self._volumes.values()), default=1.0)
        if self._known is None:
            self.gap = self.gap or Gap(Reason.NOT_YET, "no check has succeeded yet")
            self._settle(min(limits.fallback, lowest))
        elif self.gap is None:
            self._known = self._known[0], lowest
            self._settle(lowest)
        else:
            self._settle(min(limits.fallback, lowest))

    def observe(self, check: Check, produced: Produced = dict) -> list[Event]:
        """What a check gave; what that changed. `produced` is asked when somebody begins to be slowed."""
        limits = self.limits
        if limits is None:
            return []
        self._tick = check.at
        was_calm, before = self.calm, {key: seen.factor for key, seen in self._volumes.items()}
        self._see(check, limits)
        events = self._forget(check, limits)
        lowest = min((seen.factor for seen in self._volumes.values()), default=1.0)
        events += self._judge_knowledge(check, limits, lowest)
        events += self._judge_volumes(check.at, limits, before)
        if was_calm and not self.calm:
            self._rates = dict(produced())
        elif self.calm:
            self._rates = {}
        return events

    def concerns(self, topic: str) -> bool:
        """Has anybody who writes to this topic to be looked at? To be asked where this is not `calm`."""
        return self.factor < 1 or any(topic in seen.replicas.partitions for seen in self._troubled)

    def asks(self, topic: str | None, partition: int) -> tuple[float, VolumeState | None]:
        """(the factor for what goes to a partition, the volume that it is for; None for the fallback). A topic that is None is one
        whose name is not known: it may be anywhere."""
        limits = self.limits
        worst = self._troubled[0] if self._troubled else None
        if limits is not None and limits.scope is Scope.VOLUME and topic is not None:
            worst = self.trouble(topic, partition)
        if worst is not None and worst.factor <= self.factor:
            return worst.factor, worst
        return self.factor, None

    def why(self, seen: VolumeState | None) -> str:
        """The reason, for a client that is refused or slowed down."""
        if seen is None:
            detail = "they are not known" if self.gap is None else self.gap.detail
            return f"The volumes of the cluster cannot be seen ({detail}); the throttle factor is {self.factor:.3g} meanwhile."
        volume = seen.volume
        figures = f"{size(volume.available)} of {size(volume.total)} available"
        if seen.factor == 0:
            return f"Volume {volume} is at its limit: {figures}, limit {size(seen.hard)}, released above {size(seen.released)}."
        return (
            f"Volume {volume} is past its soft limit: {figures}, soft limit {size(seen.soft)}, hard limit {size(seen.hard)};"
            f" the throttle factor is {seen.factor:.3g}."
        )

    def trouble(self, topic: str, partition: int) -> VolumeState | None:
        """The volume in the worst trouble that holds a replica of this partition, for scope `volume`; None when it may go on."""
        for seen in self._troubled:
            partitions = seen.replicas.partitions.get(topic)
            if partitions is not None and partition in partitions:
                return seen
        return None

    def next_check(self, now: float) -> float:
        """Seconds until volumes are looked at again, `LEAST_WAIT` at least, as it takes a moment."""
        interval = 0.0 if self.limits is None else self.limits.interval
        return max(self._tick + interval - now, LEAST_WAIT)

    def rate_of(self, user: str) -> float:
        """Bytes per second that a user without a byte rate is slowed from: what it produced when the limit was crossed."""
        return max(self._rates.get(user, 0.0), LEAST_RATE)

    def wants_replicas(self, broker_id: int | None, now: float, every: float) -> bool:
        """Is a broker to be asked for its replicas? Where a volume is in trouble, or near it, at every check; else when what is
        known is older than `every` seconds."""
        seen = [each for each in self._volumes.values() if each.volume.broker_id == broker_id]
        return not seen or any(
            each.factor < 1 or each.volume.available <= 1.5 * each.soft or now - each.replicas_at >= every for each in seen
        )

    def _see(self, check: Check, limits: StorageLimits) -> None:
        """The volumes that told their sizes."""
        if check.brokers:
            self.brokers = len(check.brokers)
        for volume in check.volumes:
            seen = self._volumes.get(volume.key)
            if seen is None:
                seen = self._volumes[volume.key] = VolumeState(volume)
            elif seen.at == check.at and seen.volume.available <= volume.available:
                continue  # told twice: what is worse is believed
            seen.see(volume, check.at, limits)
            replicas = check.replicas.get(volume.key)
            if replicas is not None:
                seen.replicas, seen.replicas_at = replicas, check.at
        self.counts.violations += sum(seen.at == check.at and seen.breached for seen in self._volumes.values())

    def _forget(self, check: Check, limits: StorageLimits) -> list[Event]:
        """Volumes that were not seen are dropped when they are known to be gone. One in trouble stays while its sighting is valid,
        wherever it went, and so does one that could not be asked."""
        events = []
        for key, seen in list(self._volumes.items()):
            if seen.at == check.at:
                continue
            missing = any(_covers(gap, key) for gap in check.gaps)
            if check.at - seen.at <= limits.validity and (seen.factor < 1 or missing):
                continue
            del self._volumes[key]
            if seen.factor < 1:
                events.append(Event(Happened.FORGOTTEN, seen))
        return events

    def _judge_knowledge(self, check: Check, limits: StorageLimits, lowest: float) -> list[Event]:
        """Is what is known enough?"""
        before, events, saw_all = self.gap, [], not self.missing
        self.missing = check.gaps
        if check.gaps and saw_all:
            events.append(Event(Happened.INCOMPLETE, gap=check.gaps[0]))
        if not check.gaps:
            self._known, self.gap = (check.at, lowest), None
            self._settle(lowest)
        elif self._known is not None and check.at - self._known[0] <= limits.validity:
            self._settle(min(self._known[1], lowest))
            return events
        else:
            self.gap = check.gaps[0]
            self.counts.fallbacks[self.gap.reason] += 1
            self._settle(min(limits.fallback, lowest))
        if self.gap is not None and (before is None or before.reason is not self.gap.reason):
            events.append(Event(Happened.FALLBACK, gap=self.gap))
        elif not (check.gaps or saw_all):
            events.append(Event(Happened.KNOWN))
        return events

    def _judge_volumes(self, at: float, limits: StorageLimits, before: Mapping[Key, float]) -> list[Event]:
        """Which volumes crossed a limit, and which will."""
        events = []
        for key, seen in self._volumes.items():
            if seen.at != at:
                continue
            was = before.get(key, 1.0)
            if seen.factor == 0 < was:
                events.append(Event(Happened.FULL, seen))
            elif seen.factor < 1 and was in (0.0, 1.0) and was != seen.factor:
                events.append(Event(Happened.SLOWED, seen))
            elif was < 1 == seen.factor:
                events.append(Event(Happened.RELEASED, seen))
            left = seen.seconds_left
            if seen.factor == 1 and left <= limits.warn_before and not seen.warned:
                seen.warned = True
                events.append(Event(Happened.WARNING, seen))
            elif seen.factor < 1 or left > 2 * limits.warn_before:
                seen.warned = False
        if self._troubled:
            self.worst = self._troubled[0]
        return events

    def _settle(self, lowest: float) -> None:
        """What follows of the lowest factor, and of the volumes as they are."""
        limits = self.limits
        by_volume = limits is not None and limits.scope is Scope.VOLUME
        self._troubled = sorted((seen for seen in self._volumes.values() if seen.factor < 1), key=lambda seen: seen.factor)
        self.lowest = lowest
        if by_volume and limits is not None:
            self.factor = limits.fallback if self.gap is not None else 1.0
            self.calm = self.factor == 1 and not self._troubled
        else:
            self.factor = lowest
            self.calm = lowest == 1


def line(available: float, hard: float, soft: float) -> float:
    """1 at `soft` and above, 0 at `hard` and below, straight between; where soft <= hard, 0 at `hard`, else 1."""
    if available <= hard:
        return 0.0
    return 1.0 if available >= soft else (available - hard) / (soft - hard)


def size(value: float) -> str:
    """Bytes for people: 1.5 GiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    power = 0
    while value >= 1024 and power < len(units) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} {units[power]}" if value >= 100 else f"{value:.3g} {units[power]}"


def _covers(gap: Gap, key: Key) -> bool:
    """May this gap be why a volume was not seen?"""
    broker_id, log_dir = key
    return (gap.broker_id is None or gap.broker_id == broker_id) and gap.log_dir in (None, log_dir)
