"""File: the quotas of a proxy's settings file. In: a path. Out: `QuotaFile`. What else is in the file is the proxy's business, but
a quota that is not known is refused: a report that left it out would be wrong without a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reports.errors import ReportError

DEFAULT = "<default>"
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{end}": base**power for base, end in ((1024, "iB"), (1000, "B")) for power, letter in enumerate("kMGTP", 1)
}
_UNITS |= {"KiB": 1024, "KB": 1000}
_BURST_WINDOWS = 11
"""Seconds of the rate that may come at once where a burst is not set, as the proxy has it."""
_RATES = ("producer_byte_rate", "consumer_byte_rate", "request_rate", "controller_mutations_rate", "producer_ids_rate")
_KEYS = {"user", "client_id", "controller_mutations_burst", *_RATES}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `kind` as it is called in decisions, of whom, and how much: per second, or ids within a window for
    `producer_ids`."""

    kind: str
    user: str | None
    client_id: str | None
    rate: float
    burst: float = 0.0

    @property
    def level(self) -> int:
        """Kafka's order of the levels, the most specific first."""
        user, client = self.user, self.client_id
        with_user = {None: 3, DEFAULT: 2}.get(client, 1) if user is not None else 0
        if user is None:
            return 8 if client == DEFAULT else 7
        return with_user + (3 if user == DEFAULT else 0)


@dataclass(frozen=True, slots=True)
class Available:
    """What has to be left of a volume: bytes, or a part of its size."""

    bytes: int | None
    ratio: float | None

    def of(self, total: int) -> int:
        """In bytes of a volume of `total` bytes."""
        return self.bytes if self.bytes is not None else round((self.ratio or 0) * total)


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """`limits` of users and client ids; bytes into topics per second, in total and by topic; what has to be left of volumes."""

    path: str
    limits: tuple[Limit, ...] = ()
    topics_total: float | None = None
    topics: Mapping[str, float] | None = None
    hard: Available | None = None
    soft: Available | None = None


def read_quotas(path: Path) -> QuotaFile:
    """The quotas of a settings file.

    Raises:
        ReportError: it cannot be read, or something in its quotas is not right; the text names the key.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = f", line {mark.line + 1}" if (mark := getattr(error, "problem_mark", None)) else ""
        raise ReportError(f"{path}{line} is no YAML: {getattr(error, 'problem', None) or 'not UTF-8'}") from error
    try:
        quotas = _mapping(_mapping(found or {}, "the file").get("quotas") or {}, "quotas")
        if not quotas:
            raise _WrongError("`quotas` is missing or empty: without it there is nothing to compare with")
        entities = quotas.get("entities") or []
        if not isinstance(entities, list):
            raise _WrongError("`quotas.entities` has to be a list of users and client ids with their limits")
        limits = [limit for index, item in enumerate(entities) for limit in _limits(item, f"quotas.entities[{index}]")]
        topics = _mapping(quotas.get("topics") or {}, "quotas.topics")
        hard, soft = _storage(_mapping(quotas.get("storage") or {}, "quotas.storage"))
        return QuotaFile(
            str(path),
            tuple(limits),
            _maybe(topics, "total_bytes_in_per_sec", size, "quotas.topics"),
            _by_topic(topics),
            hard,
            soft,
        )
    except _WrongError as error:
        raise ReportError(f"{path}: {error}") from None


class _WrongError(ValueError):
    """Something in the file is not right."""


def size(value: object, key: str) -> float:
    """Bytes: a number, or a text such as 64MiB."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value, key)
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if found is None or found[2] not in _UNITS or found[1].count(".") > 1 or found[1] == ".":
        raise _WrongError(f"`{key}` is {value!r}, and has to be a size such as 64MiB")
    return _number(float(found[1]) * _UNITS[found[2]], key)


def _number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise _WrongError(f"`{key}` is {value!r}, and has to be a number above 0")
    return float(value)


def _mapping(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(f"`{key}` has to be a mapping of keys to values, not {value!r}")
    return value


def _limits(item: object, key: str) -> list[Limit]:
    entry = _mapping(item, key)
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise _WrongError(f"`{key}.{unknown[0]}` is not known; known are {', '.join(sorted(_KEYS))}")
    user, client = entry.get("user"), entry.get("client_id")
    if user is None and client is None:
        raise _WrongError(f"`{key}` has neither user nor client_id: whose limit is it?")
    user, client = (None if name is None else str(name) for name in (user, client))
    found = []
    for name in _RATES:
        if entry.get(name) is None:
            continue
        rate = (size if name.endswith("byte_rate") else _number)(entry[name], f"{key}.{name}")
        kind, burst = name, 0.0
        if name == "controller_mutations_rate":
            kind = "controller_mutations"
            burst = _maybe(entry, "controller_mutations_burst", _number, key) or _BURST_WINDOWS * rate
        found.append(Limit("producer_ids" if name == "producer_ids_rate" else kind, user, client, rate, burst))
    return found


def _maybe(entry: Mapping[str, Any], name: str, read: Callable[[object, str], float], key: str) -> float | None:
    return None if entry.get(name) is None else read(entry[name], f"{key}.{name}")


def _by_topic(topics: Mapping[str, Any]) -> dict[str, float] | None:
    found = topics.get("bytes_in_per_sec")
    if found is None:
        return None
    entries = _mapping(found, "quotas.topics.bytes_in_per_sec")
    return {str(topic): size(value, f"quotas.topics.bytes_in_per_sec.{topic}") for topic, value in entries.items()}


def _storage(storage: Mapping[str, Any]) -> tuple[Available | None, Available | None]:
    hard = _available(storage, "quotas.storage") or _available(_part(storage, "hard"), "quotas.storage.hard")
    soft = _available(_part(storage, "soft"), "quotas.storage.soft")
    return hard, soft


def _part(storage: Mapping[str, Any], name: str) -> dict[str, Any]:
    return _mapping(storage.get(name) or {}, f"quotas.storage.{name}")


def _available(entry: Mapping[str, Any], key: str) -> Available | None:
    found_bytes, ratio = entry.get("min_available_bytes"), entry.get("min_available_ratio")
    if found_bytes is None and ratio is None:
        return None
    if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1):
        raise _WrongError(f"`{key}.min_available_ratio` is {ratio!r}, and has to be from 0 to 1")
    return Available(None if found_bytes is None else round(size(found_bytes, f"{key}.min_available_bytes")), ratio)
