"""The log lines about volumes. In: checks, and what they changed. Out: lines in the operations log when a volume crosses a limit or
will soon, or when volumes are not known; a line per volume and check in the usage log. All topics of a volume that are known are
named once an hour, so that a report can tell whose all of it is; in between the largest alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf, isfinite
from typing import Any, Final

from proxy.observe.lines import Author, Line, volume_line
from proxy.observe.operations import Log
from proxy.observe.usage_log import UsageLog
from quota.kinds.storage import Check, Event, Happened, Key, Storage, VolumeState

_ALL_TOPICS_EVERY: Final = 3600.0
"""Seconds after which a volume's line names all of its topics again."""
_AT_ONCE: Final = 20
"""Volumes of which all topics are named in one check, so that the lines of one check take no long time to make."""


class VolumeLog:
    """One object per proxy, on the event loop. `writes` False: another worker writes the lines of the usage log, of the same
    volumes."""

    def __init__(self, log: Log, usage: UsageLog, *, writes: bool = True) -> None:
        self._log, self._usage, self._writes = log, usage, writes
        self._named: dict[Key, float] = {}
        """When the line of a volume last named all of its topics."""

    @property
    def wanted(self) -> bool:
        """True if the usage log is written, so that the topics of a volume are needed."""
        return self._usage.on

    def checked(self, check: Check, storage: Storage, events: Sequence[Event], source: str) -> None:
        """A check, and what it changed."""
        for event in events:
            self._say(event, storage)
        if self._writes:
            due = self._due(check, storage)
            self._usage.write(lambda author, at: _lines(author, at, check, storage, source, due))

    def _due(self, check: Check, storage: Storage) -> frozenset[Key]:
        """The volumes whose lines name all topics in this check."""
        known = {seen.volume.key for seen in storage.volumes}
        told = (seen.volume.key for seen in storage.volumes if seen.at == check.at and seen.replicas_told)
        late = (key for key in told if check.at >= self._named.get(key, -inf) + _ALL_TOPICS_EVERY)
        due = frozenset(islice(late, _AT_ONCE))
        self._named = {key: at for key, at in self._named.items() if key in known} | dict.fromkeys(due, check.at)
        return due

    def _say(self, event: Event, storage: Storage) -> None:
        about = {} if event.seen is None else _about(event.seen)
        why = {} if event.gap is None else {"reason": event.gap.reason.value, "detail": event.gap.detail}
        factor = round(storage.lowest, 3)
        match event.what:
            case Happened.WARNING:
                self._log.warning("volume fills", **about)
            case Happened.SLOWED:
                self._log.warning("volume past its soft limit", **about, throttle_factor=factor)
            case Happened.FULL:
                self._log.error("volume at its limit", **about, throttle_factor=factor)
            case Happened.RELEASED:
                self._log.info("volume within its limits", **about, throttle_factor=factor)
            case Happened.FORGOTTEN:
                self._log.warning("volume in trouble not seen", **about, throttle_factor=factor)
            case Happened.INCOMPLETE:
                self._log.warning("volumes not seen", **why, missing=len(storage.missing))
            case Happened.FALLBACK:
                self._log.error("volumes not known", **why, throttle_factor=factor)
            case Happened.KNOWN:
                self._log.info("volumes known again", throttle_factor=factor)


def _about(seen: VolumeState) -> dict[str, Any]:
    left, rate = seen.seconds_left, seen.fill_rate
    return {
        "broker": seen.volume.broker_id,
        "log_dir": seen.volume.log_dir,
        "available_bytes": seen.volume.available,
        "total_bytes": seen.volume.total,
        "limit_bytes": round(seen.hard),
        "soft_limit_bytes": round(seen.soft),
        "fills_by_bytes_per_second": None if rate is None else round(rate),
        "seconds_to_limit": round(left) if isfinite(left) else None,
    }


def _lines(author: Author, at: str, check: Check, storage: Storage, source: str, all_topics: frozenset[Key]) -> list[Line]:
    """Of volumes that told their sizes in this check."""
    if check.parts:  # one limit is for all of them
        return [volume_line(author, volume, at, source, None, storage.lowest, None) for volume in check.parts]
    return [
        volume_line(
            author,
            seen.volume,
            at,
            source,
            (seen.hard, seen.soft),
            seen.factor,
            seen.replicas if seen.replicas_told else None,
            all_topics=seen.volume.key in all_topics,
        )
        for seen in storage.volumes
        if seen.at == check.at
    ]
