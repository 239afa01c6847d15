"""Limits that would have fitted, by the arithmetic of `advice`: from what every entity did per interval, and from how it was
held back.

In: folders of usage logs (docs/log-format.md, versions 1 and 2), read line by line. Out: suggestions.

What is limited as it is at a time is read from lines `owned`: in each minute it is the most that one proxy saw.

Several proxies write intervals of the same bounds, which are summed up: files are read side by side in the order of time, and an
interval is closed when all have passed it. Memory is that of one interval, of a bit per line, of a histogram per entity and
quota, and of a bit per interval in which one was held back."""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from advice.limits import NOT_HELD_BACK, HeldBack, rounded, suggested
from advice.use import LEVEL_SECONDS, NOT_USED, Histogram, Use, as_a_level
from quota.catalogue import (
    KEYS,
    LEVELS,
    MUTATIONS_BURST,
    MUTATIONS_RATE,
    STORED,
    TENANT_KINDS,
    TOPIC_MEASURES,
    TOPIC_STORED,
    Key,
    Measure,
)
from quota.entity import Entity
from quota.kinds.controller_mutations import DEFAULT_WINDOWS
from quota.limits import Exempt
from quota.tenants import NO_TENANTS, Tenants, owner_of

VERSIONS: Final = (1, 2)
OTHER: Final = "<other>"
_WORD: Final = 10
"""bits of a number that say which bit of a word it is"""
_SAMPLE: Final = 20_000
"""lines by which the length of intervals is known"""
TOPIC: Final = "topic"
TENANT: Final = "tenant"
_MEASURES: Final = [(key.name, key.measure) for key in KEYS.values() if key.measure is not None]
_TOPIC_MEASURES: Final = [(kind, measure) for kind, (_, measure) in TOPIC_MEASURES.items()]
_TENANT_MEASURES: Final = [(key, measure) for key, measure in _MEASURES if KEYS[key].kind in TENANT_KINDS]
_FIELDS: Final = ("seq", "api_key", *sorted({measure.field for _, measure in (*_MEASURES, *_TOPIC_MEASURES)}))
_OF_TOPICS: Final = frozenset((*TOPIC_MEASURES, TOPIC_STORED))
_BUDGETS: Final = frozenset((TENANT_KINDS[STORED], TOPIC_STORED))
_LEVEL_OF: Final = {kind: row for row in LEVELS for kind in (row.kind, TENANT_KINDS[row.kind])}
_LEVEL_FIELDS: Final = frozenset(row.kind for row in LEVELS)
_KEY_OF: Final = {key.kind: key.name for key in KEYS.values() if key.measure is not None and not key.at_once}
_KEY_OF_TENANTS: Final = {TENANT_KINDS[kind]: name for kind, name in _KEY_OF.items() if kind in TENANT_KINDS}

Which = tuple[Entity, str]
"""An entity, and the name of a limit in the catalogue or the kind of a limit of topics."""


def is_level(key: str) -> bool:
    return key == TOPIC_STORED or (key in KEYS and KEYS[key].level)


class Suggestion(NamedTuple):
    """A limit that would have fitted: what was used, per second, how its owner was held back, and the limit. `key`: its name in the
    catalogue, or the kind of a limit of topics."""

    entity: Entity
    key: str
    use: Use
    held_back: HeldBack
    limit: float

    @property
    def level(self) -> bool:
        """True if it is about what there is at a time."""
        return is_level(self.key)

    def as_json(self) -> dict[str, Any]:
        """For programs, without the entity."""
        used = {"key": self.key, "intervals": self.use.intervals, "used": self.use.percentile, "limit": self.limit}
        return {**used, "held_back": asdict(self.held_back)}


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose limits: `by` "user", "client-id", "both", TOPIC or TENANT. For TENANT alone: who belongs to which of `tenants`, and
    what is `exempt` from being charged to them."""

    by: str
    tenants: Tenants = NO_TENANTS
    exempt: Exempt = field(default_factory=Exempt)

    @property
    def measures(self) -> list[tuple[str, Measure]]:
        """The limits that can be proposed, and what they are about."""
        return {TOPIC: _TOPIC_MEASURES, TENANT: _TENANT_MEASURES}.get(self.by, _MEASURES)

    def has(self, line: dict[str, Any]) -> Iterator[tuple[Which, int]]:
        """What a line `owned` says of limits that can be proposed."""
        if self.by == TOPIC:
            owner, rows = line["topic"], [(TOPIC_STORED, STORED)]
        elif self.by == TENANT:
            known = line["tenant"] in self.tenants.tenants
            owner, rows = line["tenant"] if known else None, [(row.name, row.kind) for row in LEVELS]
        else:
            owner = line["user"] if self.by == "user" else None
            rows = [(row.name, row.kind) for row in LEVELS if not row.tenants_only]
        for key, field_name in rows:
            if owner is not None and line[field_name]:
                yield (self.owner(owner), key), line[field_name]

    def owner(self, name: str) -> Entity:
        """A user, a tenant or a topic, whichever it is whose limits are proposed."""
        of_topic = Entity(None, None, name)
        return {TOPIC: of_topic, TENANT: owner_of(name)}.get(self.by, Entity(name, None))

    def tenant(self, user: str, client_id: str | None) -> Entity | None:
        """To which tenant is charged what a client does?"""
        tenant = None if self.exempt.everywhere(user, client_id or "") else self.tenants.of_user(user)
        return None if tenant is None else owner_of(tenant)


class Numbers:
    """Whole numbers from 0 up, one bit each."""

    def __init__(self) -> None:
        self._words: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(word.bit_count() for word in self._words.values())

    def add(self, number: int) -> bool:
        """True if it is new."""
        place, bit = number >> _WORD, 1 << (number & (1 << _WORD) - 1)
        before = self._words.get(place, 0)
        self._words[place] = before | bit
        return not before & bit


@dataclass(slots=True)
class Hits:
    """How an entity was held back so far, see `HeldBack`."""

    throttled: int = 0
    throttled_ms: int = 0
    refused: int = 0
    held: int = 0
    limit: float | None = None
    intervals: Numbers = field(default_factory=Numbers)

    def add(self, line: dict[str, Any], interval: int, limit: float | None) -> None:
        times = 1 + line["left_out"]
        if line["action"] == "throttle":
            self.throttled += times
            self.throttled_ms += line["throttle_ms"]
        elif line["action"] == "refuse":
            self.refused += times
        else:
            self.held += times
        if limit is not None:
            self.limit = max(limit, self.limit or 0.0)
        self.intervals.add(interval)

    def told(self) -> HeldBack:
        return HeldBack(self.throttled, self.throttled_ms / 1000, self.refused, self.held, len(self.intervals), self.limit)


@dataclass(slots=True)
class Read:
    """What was found. `bad`: lines that are none, or of another version."""

    lines: int = 0
    bad: int = 0
    intervals: int = 0
    first: str = ""
    last: str = ""
    histograms: dict[Which, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    hits: dict[Which, Hits] = field(default_factory=lambda: defaultdict(Hits))


def read(folders: Iterable[Path], whose: Whose) -> Read:
    """The use of each entity; OSError when a file cannot be read."""
    found, measures = Read(), whose.measures
    sums: Counter[Which] = Counter()
    most: dict[Which, int] = {}
    files = [file for folder in folders for file in sorted(folder.glob("usage-*.jsonl"))]
    seconds = _usual_interval(files)
    number: int | None = None
    looked: int | None = None
    for line in _in_order(files, found):
        if line["type"] == "decision":
            for which, limit in _concerned(line, whose):
                length = LEVEL_SECONDS if is_level(which[1]) else seconds
                found.hits[which].add(line, _number_of(line["at"], length), limit)
            continue
        if line["type"] == "owned":
            look = _number_of(line["end"], LEVEL_SECONDS, _MOMENT)
            if looked not in (None, look):
                _add_levels(found, most)
            looked = look
            for which, level in whose.has(line):
                most[which] = max(most.get(which, 0), level)
            continue
        found.first, found.last = found.first or line["start"], max(found.last, line["end"])
        new = _number_of(line["end"], seconds, _MOMENT)
        if number is not None and new != number:
            _close(found, sums, seconds, whose.by)
        number = new
        entity = _entity(line, whose)
        if entity is not None:
            for key, amount in _amounts(line, measures):
                sums[entity, key] += amount
    if number is not None:
        _close(found, sums, seconds, whose.by)
    _add_levels(found, most)
    return found


def _add_levels(found: Read, most: dict[Which, int]) -> None:
    """A look is over."""
    for which, level in most.items():
        found.histograms[which].add(level)
    most.clear()


def suggest(found: Read, *, part: float, headroom: float, least: int) -> list[Suggestion]:
    """What fits entities that did something in at least `least` intervals, or were held back."""
    made = []
    for which in {**found.histograms, **found.hits}:
        entity, key = which
        row = KEYS.get(key)  # None for a limit of topics
        held_back = found.hits[which].told() if which in found.hits else NOT_HELD_BACK
        use = found.histograms[which].use(part) if which in found.histograms else NOT_USED
        if is_level(key):
            use = as_a_level(use.intervals, use.largest)
        if (row is not None and row.at_once) or (use.intervals < least and not held_back):
            continue
        limit = suggested(use, held_back, whole=row is None or row.size or row.whole, headroom=headroom)
        if limit is None:
            continue
        made.append(Suggestion(entity, key, use, held_back, limit))
        burst = found.histograms.get((entity, MUTATIONS_BURST))
        if key == MUTATIONS_RATE and burst is not None and burst.largest > limit * DEFAULT_WINDOWS:
            wanted = rounded(burst.largest * headroom, whole=True)
            at_once = Use(burst.total, burst.largest, burst.largest)
            made.append(Suggestion(entity, MUTATIONS_BURST, at_once, NOT_HELD_BACK, wanted))
    return sorted(made, key=lambda one: (*(part or "" for part in one.entity), one.key))


def _close(found: Read, sums: Counter[Which], seconds: int, by: str) -> None:
    """An interval is over."""
    amounts: dict[Which, float] = {}
    for (entity, key), amount in sums.items():
        if amount > 0:  # under a limit of a client id alone each user has its own share: the largest counts
            which = (Entity(None, entity.client_id) if by == "client-id" else entity), key
            at_once = key in KEYS and KEYS[key].at_once
            amounts[which] = max(amounts.get(which, 0.0), amount if at_once else amount / seconds)
    for which, used in amounts.items():
        found.histograms[which].add(used)
    sums.clear()
    found.intervals += 1


def _concerned(line: dict[str, Any], whose: Whose) -> Iterator[tuple[Which, float | None]]:
    """Whom a decision held back, and the limit, if it is one of this level. A limit of a tenant holds back the user who asked, one
    of a user the client who asked, and its tenant. Reports do the same (`reports/quotas/held_back.py`)."""
    if line["mode"] != "enforce":
        return
    quota, by = line["quota"], whose.by
    # Who is slowed down while a budget fills is so by a rate: that is not the limit of the budget.
    limit = None if quota in _BUDGETS and line["action"] == "throttle" else float(line["limit"])
    if by == TOPIC:
        if quota in _OF_TOPICS:
            for topic in line["topics"]:
                yield (Entity(None, None, topic), quota), limit
        return
    if (level := _LEVEL_OF.get(quota)) is not None:
        yield from _concerned_of(line, level, limit, whose)
        return
    key = _KEY_OF.get(quota) or _KEY_OF_TENANTS.get(quota)
    user = line["entity"]["user"] or line["principal"].partition(":")[2]
    if key is None or line["principal"] == OTHER:
        return
    if by == TENANT:
        of_tenant, tenant = line["entity"].get("tenant"), whose.tenant(user, line["client_id"])
        if tenant is not None and KEYS[key].kind in TENANT_KINDS and of_tenant in (None, tenant.topic):
            yield (tenant, key), None if of_tenant is None else limit
        return
    if by == "user":
        yield (Entity(user, None), key), None if line["entity"]["user"] is None else limit
        return
    client_id = line["entity"]["client_id"] or line["client_id"]
    if client_id and client_id != OTHER:
        of_level = None if line["entity"]["client_id"] is None else limit
        yield (Entity(None if by == "client-id" else user, client_id), key), of_level


def _concerned_of(line: dict[str, Any], level: Key, limit: float | None, whose: Whose) -> Iterator[tuple[Which, float | None]]:
    """The same for what there may be at a time: whom the decision names, as topics are not of who asks."""
    user, tenant = line["entity"]["user"], line["entity"].get("tenant")
    if whose.by == TENANT and tenant in whose.tenants.tenants:
        yield (owner_of(tenant), level.name), limit
    elif whose.by == "user" and user is not None:
        yield (Entity(user, None), level.name), limit


_MOMENT: Final = 0.001
"""Seconds before the end of an interval at which it is looked at: the end itself is the next one's."""


def _number_of(time: str, seconds: int, before: float = 0.0) -> int:
    """Which interval `before` seconds before a time is in, counted from the epoch, as proxies end theirs at multiples of their
    length."""
    return int((datetime.fromisoformat(time).timestamp() - before) // seconds)


def _usual_interval(files: Iterable[Path]) -> int:
    """Length of intervals in whole seconds: the median, as the first and last of a proxy are shorter. 10 without a line."""
    lines = (line for file in files for line in _lines(file, Read()) if line["type"] == "usage")
    lengths = [_seconds(line) for line in islice(lines, _SAMPLE)]
    return max(1, round(median(lengths))) if lengths else 10


def _seconds(line: dict[str, Any]) -> float:
    return (datetime.fromisoformat(line["end"]) - datetime.fromisoformat(line["start"])).total_seconds()


def _amounts(line: dict[str, Any], measures: Iterable[tuple[str, Measure]]) -> Iterator[tuple[str, int]]:
    """What a line adds to which quota, as the proxy counts it."""
    api, by_topic = line["api_key"], line["topic"] is not None
    for key, measure in measures:
        if measure.by_topic == by_topic and (not measure.apis or api in measure.apis):
            yield key, line[measure.field]


def _entity(line: dict[str, Any], whose: Whose) -> Entity | None:
    by = whose.by
    principal, client_id, topic = line["principal"], line["client_id"], line["topic"]
    if by == TOPIC:  # one that is known by its id alone cannot be named in settings
        return None if topic in (None, OTHER) or line.get("topic_id") is not None else Entity(None, None, topic)
    if principal == OTHER:
        return None
    user = principal.partition(":")[2]
    if by == TENANT:
        return None if topic in whose.exempt.topics else whose.tenant(user, client_id)
    if by == "user":
        return Entity(user, None)
    if not client_id or client_id == OTHER:
        return None
    return Entity(user, client_id)


def _in_order(files: list[Path], found: Read) -> Iterator[dict[str, Any]]:
    """The usage lines of all files by their end, and decisions when they are met. A file is opened when its first line is due, so
    that few are open at once. Lines that come twice are read once."""
    waiting: list[tuple[str, int, Iterator[dict[str, Any]] | None, dict[str, Any]]] = []
    for number, file in enumerate(files):
        first = next(_lines(file, Read()), None)
        if first is not None:
            waiting.append((_time(first), number, None, {}))
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
            found.lines += line["type"] == "usage"
            yield line
        following = next(lines, None)
        if following is not None:
            heapq.heappush(waiting, (_time(following), number, lines, following))


def _time(line: dict[str, Any]) -> str:
    time: str = line["at"] if line["type"] == "decision" else line["end"]
    return time


class _Seen:
    """Which lines were read. Their numbers need not grow with their times, as a wall clock may have been set back."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], Numbers] = defaultdict(Numbers)

    def is_new(self, proxy: str, boot: str, seq: int) -> bool:
        return self._numbers[proxy, boot].add(seq)


def _lines(file: Path, found: Read) -> Iterator[dict[str, Any]]:
    """The lines of a file that are about usage and what owners have, and decisions."""
    with file.open("rb") as source:
        for raw in source:
            try:
                line = json.loads(raw)
                kind = line["type"]
                good = line["v"] in VERSIONS and (kind not in _ARE or _ARE[kind](line))
            except (ValueError, KeyError, TypeError):
                good = False
            if not good:
                found.bad += 1
            elif kind in _ARE:
                yield line


def _is_usage(line: dict[str, Any]) -> bool:
    """Has it what is looked at?"""
    datetime.fromisoformat(line["start"]), datetime.fromisoformat(line["end"])
    texts = ("proxy", "boot", "start", "end", "principal")
    return _has(line, numbers=_FIELDS, texts=texts, names=(line["client_id"], line["topic"]))


def _is_decision(line: dict[str, Any]) -> bool:
    datetime.fromisoformat(line["at"])
    texts, entity = ("proxy", "boot", "at", "quota", "mode", "action", "principal"), line["entity"]
    names = (line["client_id"], entity["user"], entity["client_id"], entity.get("tenant"), *line["topics"])
    return _has(line, numbers=("seq", "throttle_ms", "left_out"), texts=texts, names=names) and isinstance(
        line["limit"], int | float
    )


def _is_owned(line: dict[str, Any]) -> bool:
    datetime.fromisoformat(line["start"]), datetime.fromisoformat(line["end"])
    names = (line["tenant"], line["user"], line["topic"])
    levels = [line[name] for name in _LEVEL_FIELDS if line[name] is not None]
    right = all(isinstance(level, int) and level >= 0 for level in levels)
    return right and _has(line, numbers=("seq",), texts=("proxy", "boot"), names=names)


_ARE: Final = {"usage": _is_usage, "decision": _is_decision, "owned": _is_owned}
"""The types of lines that are looked at, and what each has to have."""


def _has(line: dict[str, Any], *, numbers: Iterable[str], texts: Iterable[str], names: Iterable[object]) -> bool:
    """Numbers from 0 up, texts, and texts or nothing."""
    return (
        all(isinstance(line[name], int) and line[name] >= 0 for name in numbers)
        and all(isinstance(line[name], str) for name in texts)
        and all(name is None or isinstance(name, str) for name in names)
    )
