"""Room demo, figures: percentiles and waits.

In: what the load's programs said. Out: figures as values. Arithmetic only. Leaves to others: what they mean (verdict), how they
look (tables).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

from demo.events import Event


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share (0 to 1) of the values does not exceed; `ordered` is ascending and not empty."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


@dataclass(frozen=True)
class Latencies:
    """Produce latencies in ms, from the moment a record was due to its acknowledgement.

    `seconds`: p99 of the records that were due in each second.
    """

    count: int
    p50: float
    p99: float
    worst: float
    seconds: tuple[float, ...]

    @property
    def typical(self) -> float:
        """The p99 of a typical second, the median of `seconds`: one second in which the machine hung does not show in it."""
        return percentile(sorted(self.seconds), 0.5)


def latencies(samples: Iterable[tuple[float, float]]) -> Latencies | None:
    """Of pairs (due, in seconds since the begin; latency in ms). None without any."""
    buckets: dict[int, list[float]] = {}
    for due, ms in samples:
        buckets.setdefault(floor(due), []).append(ms)
    if not buckets:
        return None
    ordered = sorted(ms for bucket in buckets.values() for ms in bucket)
    seconds = tuple(percentile(sorted(buckets[second]), 0.99) for second in sorted(buckets))
    return Latencies(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1], seconds)


@dataclass(frozen=True)
class Waits:
    """How many seconds it took until new topics could be written to.

    `pending`: how many could not yet at the end; they count with the time until then. `failed`: how many were refused or given up;
    they count in no other figure.
    """

    count: int
    median: float
    worst: float
    pending: int
    failed: int
    seconds: tuple[float, ...]


def waits(asked: Iterable[tuple[str, float]], usable: dict[str, float], failed: set[str], end: float) -> Waits | None:
    """`asked`: topics and when, in order; `usable`: topic to seconds. None when there is none to count."""
    given_up = pending = 0
    seconds: list[float] = []
    for topic, at in asked:
        if topic in failed:
            given_up += 1
        elif topic in usable:
            seconds.append(usable[topic])
        else:
            pending += 1
            seconds.append(max(0.0, end - at))
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Waits(len(ordered), percentile(ordered, 0.5), ordered[-1], pending, given_up, tuple(seconds))


@dataclass(frozen=True)
class StormFigures:
    """What became of one storm client's requests: partitions, and the longest time in seconds without an answer."""

    requests: int
    created: int
    refused: int
    failed: int
    longest_wait: float

    @property
    def asked(self) -> int:
        """Partitions in all requests that were answered."""
        return self.created + self.refused + self.failed


def storm_figures(sent: Sequence[Event], answered: Sequence[Event], end: float) -> StormFigures:
    """Of the events of one client; a request without an answer has waited until `end`."""
    longest = [float(event["seconds"]) for event in answered]
    longest += [max(0.0, end - event["at"]) for event in sent[len(answered) :]]
    created, refused, failed = (sum(int(event[what]) for event in answered) for what in ("created", "refused", "failed"))
    return StormFigures(len(answered), created, refused, failed, max(longest, default=0.0))


@dataclass(frozen=True)
class Felt:
    """What the ordinary clients felt in a phase or a part of it; None where nothing was measured."""

    produce: Latencies | None
    new_topics: Waits | None


@dataclass(frozen=True)
class PhaseFigures:
    """One phase. The storm takes effect from its begin on; in the second half the bursts of a quota are over."""

    seconds: float
    whole: Felt
    first_half: Felt
    second_half: Felt
    storms: dict[str, StormFigures]


@dataclass(frozen=True)
class Delivery:
    """Records of all phases: acknowledged, refused (the producer was told), and acknowledged but never read."""

    acknowledged: int
    refused: int
    lost: int


def delivery(records: Iterable[Event], read: set[str]) -> Delivery:
    """Of the producers' events and the ids that were read."""
    acknowledged, refused = set(), 0
    for event in records:
        if event["error"]:
            refused += 1
        else:
            acknowledged.add(event["id"])
    return Delivery(len(acknowledged), refused, len(acknowledged - read))
