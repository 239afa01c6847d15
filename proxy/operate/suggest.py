"""Limits that would have fitted: for every entity the 99th percentile of what it did per
interval, times a headroom.

In: folders of usage logs (docs/log-format.md, version 1), read line by line. Out: suggestions.

Several proxies write intervals of the same bounds, which are summed up: files are read side by side in the order of time, and an
interval is closed when all have passed it. Memory is that of one interval, of a bit per line, and of a histogram per entity and
quota, whose buckets are 2% wide: a percentile is up to 2% too high, never too low."""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil, floor, log, log10
from pathlib import Path
from typing import Any, Final, NamedTuple

from quota.catalogue import KEYS, MUTATIONS_BURST, MUTATIONS_RATE, TOPIC_MEASURES, Measure
from quota.entity import Entity
from quota.kinds.controller_mutations import DEFAULT_WINDOWS

VERSIONS: Final = (1, 2)
OTHER: Final = "<other>"
_STEP: Final = log(1.02)
_WORD: Final = 10
"""bits of a number that say which bit of a word it is"""
TOPIC: Final = "topic"
_MEASURES: Final = [(key.name, key.measure) for key in KEYS.values() if key.measure is not None]
_TOPIC_MEASURES: Final = [(kind, measure) for kind, (_, measure) in TOPIC_MEASURES.items()]
_FIELDS: Final = ("seq", "api_key", *sorted({measure.field for _, measure in (*_MEASURES, *_TOPIC_MEASURES)}))


class Suggestion(NamedTuple):
    """A limit that would have fitted: the percentile of what was used, per second, in so many intervals, and the limit. `key`: its
    name in the catalogue, or the kind of a rate of topics."""

    entity: Entity
    key: str
    intervals: int
    used: float
    limit: float


class Histogram:
    """Amounts above 0, in buckets of 2%."""

    __slots__ = ("_counts", "largest", "total")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.total = 0
        self.largest = 0.0

    def add(self, amount: float) -> None:
        self._counts[ceil(log(amount) / _STEP)] += 1
        self.total += 1
        self.largest = max(self.largest, amount)

    def percentile(self, part: float) -> float:
        """What this part of all amounts, 0 to 1, is at most."""
        left = part * self.total
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 1e-9:
                return min(1.02**bucket, self.largest)
        return self.largest


@dataclass(slots=True)
class Read:
    """What was found. `bad`: lines that are none, or of another version."""

    lines: int = 0
    bad: int = 0
    intervals: int = 0
    first: str = ""
    last: str = ""
    histograms: dict[tuple[Entity, str], Histogram] = field(default_factory=lambda: defaultdict(Histogram))


def read(folders: Iterable[Path], by: str) -> Read:
    """The use of each entity, `by` "user", "client-id", "both" or "topic"; OSError when a file cannot be read."""
    found, measures = Read(), _TOPIC_MEASURES if by == TOPIC else _MEASURES
    sums: Counter[tuple[Entity, str]] = Counter()
    start = end = ""
    for line in _in_order([file for folder in folders for file in sorted(folder.glob("usage-*.jsonl"))], found):
        if line["start"] != start:
            _close(found, sums, start, end, by)
            start = line["start"]
            end = line["end"]
        end = max(end, line["end"])
        entity = _entity(line, by)
        if entity is not None:
            for key, amount in _amounts(line, measures):
                sums[entity, key] += amount
    _close(found, sums, start, end, by)
    return found


def suggest(found: Read, *, part: float, headroom: float, least: int) -> list[Suggestion]:
    """What fits entities that did something in at least `least` intervals."""
    made = []
    for (entity, key), histogram in found.histograms.items():
        row = KEYS.get(key)  # None for a rate of topics
        if (row is not None and row.at_once) or histogram.total < least:
            continue
        used = histogram.percentile(part)
        limit = _rounded(used * headroom, whole=row is None or row.size)
        made.append(Suggestion(entity, key, histogram.total, used, limit))
        burst = found.histograms.get((entity, MUTATIONS_BURST))
        if key == MUTATIONS_RATE and burst is not None and burst.largest > limit * DEFAULT_WINDOWS:
            wanted = _rounded(burst.largest * headroom, whole=True)
            made.append(Suggestion(entity, MUTATIONS_BURST, burst.total, burst.largest, wanted))
    return sorted(made, key=lambda one: (*(part or "" for part in one.entity), one.key))


def _close(found: Read, sums: Counter[tuple[Entity, str]], start: str, end: str, by: str) -> None:
    """An interval is over."""
    if not start:
        return
    seconds = max((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 0.001)
    amounts: dict[tuple[Entity, str], float] = {}
    for (entity, key), amount in sums.items():
        if amount > 0:  # under a limit of a client id alone each user has its own share: the largest counts
            which = (Entity(None, entity.client_id) if by == "client-id" else entity), key
            at_once = key in KEYS and KEYS[key].at_once
            amounts[which] = max(amounts.get(which, 0.0), amount if at_once else amount / seconds)
    for which, used in amounts.items():
        found.histograms[which].add(used)
    sums.clear()
    found.intervals += 1
    found.first, found.last = found.first or start, end


def _amounts(line: dict[str, Any], measures: Iterable[tuple[str, Measure]]) -> Iterator[tuple[str, int]]:
    """What a line adds to which quota, as the proxy counts it."""
    api, by_topic = line["api_key"], line["topic"] is not None
    for key, measure in measures:
        if measure.by_topic == by_topic and (not measure.apis or api in measure.apis):
            yield key, line[measure.field]


def _entity(line: dict[str, Any], by: str) -> Entity | None:
    principal, client_id, topic = line["principal"], line["client_id"], line["topic"]
    if by == TOPIC:  # one that is known by its id alone cannot be named in settings
        return None if topic in (None, OTHER) or line.get("topic_id") is not None else Entity(None, None, topic)
    if principal == OTHER:
        return None
    user = principal.partition(":")[2]
    if by == "user":
        return Entity(user, None)
    if not client_id or client_id == OTHER:
        return None
    return Entity(user, client_id)


def _rounded(value: float, *, whole: bool) -> float:
    """Up to two significant digits."""
    scale = 10.0 ** (floor(log10(value)) - 1)
    rounded = ceil(round(value / scale, 6)) * scale
    return float(ceil(rounded)) if whole else float(f"{rounded:.6g}")


def _in_order(files: list[Path], found: Read) -> Iterator[dict[str, Any]]:
    """The usage lines of all files by their start. A file is opened when its first line is due, so that few are open at once. Lines
    that come twice are read once."""
    waiting: list[tuple[str, int, Iterator[dict[str, Any]] | None, dict[str, Any]]] = []
    for number, file in enumerate(files):
        first = next(_lines(file, Read()), None)
        if first is not None:
            waiting.append((first["start"], number, None, {}))
        else:
            for _ in _lines(file, found):
                pass
    heapq.heapify(waiting)
    seen = _Seen()
    while waiting:
        _, number, lines, line = heapq.heappop(waiting)
        if lines is None:
            lines = _lines(files[number], found)
        elif seen.is_new(line["proxy"], line["boot"], line["seq"]):
            found.lines += 1
            yield line
        following = next(lines, None)
        if following is not None:
            heapq.heappush(waiting, (following["start"], number, lines, following))


class _Seen:
    """Which lines were read, one bit each. Their numbers need not grow with their times, as a wall clock may have been set back."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str, int], int] = {}

    def is_new(self, proxy: str, boot: str, seq: int) -> bool:
        key, bit = (proxy, boot, seq >> _WORD), 1 << (seq & (1 << _WORD) - 1)
        before = self._words.get(key, 0)
        self._words[key] = before | bit
        return not before & bit


def _lines(file: Path, found: Read) -> Iterator[dict[str, Any]]:
    """The usage lines of a file."""
    with file.open("rb") as source:
        for raw in source:
            try:
                line = json.loads(raw)
                good = line["v"] in VERSIONS and (line["type"] != "usage" or _is_usage(line))
            except (ValueError, KeyError, TypeError):
                good = False
            if not good:
                found.bad += 1
            elif line["type"] == "usage":
                yield line


def _is_usage(line: dict[str, Any]) -> bool:
    """Has it what is looked at?"""
    texts = ("proxy", "boot", "start", "end", "principal")
    datetime.fromisoformat(line["start"]), datetime.fromisoformat(line["end"])
    return (
        all(isinstance(line[name], int) and line[name] >= 0 for name in _FIELDS)
        and all(isinstance(line[name], str) for name in texts)
        and all(line[name] is None or isinstance(line[name], str) for name in ("client_id", "topic"))
    )
