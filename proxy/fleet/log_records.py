"""The records of a ledger topic. In: what a proxy writes. Out: bytes, and back; `BadRecord` for what makes no sense, as somebody
else may have written it.

A record is a JSON array that begins with the version and a letter; one of more than `PLAIN` bytes is compressed (zlib).

- `[1,"u",proxy,shard,number,generation,count_for,[[key,delta,level,keep],…]]`: an update (`quota.ledger.Update`) without what it
  only asks for; `count_for` as in `store.Store.send`
- `[1,"g",base,generation]`: a new generation, in which nothing is known. Its writer has read the records up to offset `base`, and
  found no state there
- `[1,"s",name,part,parts,base,rows]`: a part of a snapshot, of the state after the record at offset `base`
- `[1,"t"]`: nothing but its time

Events are a JSON object of texts each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import orjson

from quota.ledger import Change, Update

VERSION: Final = 1
PLAIN: Final = 400
MAX_SIZE: Final = 4 << 20
"""Bytes of a record that is not compressed any more."""
MAX_DELTA: Final = 2**60
MAX_KEEP: Final = 90 * 86_400.0
"""Seconds: more than any window has."""
MAX_TEXT: Final = 1000
MAX_CHANGES: Final = 10_000
TICK: Final = orjson.dumps([VERSION, "t"])


class BadRecord(Exception):
    """The record makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class LogUpdate:
    """An update of a proxy."""

    boot: str
    update: Update
    count_for: float

    def encoded(self) -> bytes:
        """Without changes that change nothing."""
        shard, number, generation, changes = self.update
        rows = [[it.key, it.delta, it.level, it.keep] for it in changes if writes(it)]
        return _packed([VERSION, "u", self.boot, shard, number, generation, self.count_for, rows])


@dataclass(frozen=True, slots=True)
class Genesis:
    """Nothing is known from here on."""

    base: int
    generation: str

    def encoded(self) -> bytes:
        return _packed([VERSION, "g", self.base, self.generation])


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Part `part`, from 0 on, of `parts`. `rows`: what `Replica.snapshot` gave."""

    name: str
    part: int
    parts: int
    base: int
    rows: list[Any]

    def encoded(self) -> bytes:
        return _packed([VERSION, "s", self.name, self.part, self.parts, self.base, self.rows])


@dataclass(frozen=True, slots=True)
class Tick:
    """A time."""


def writes(change: Change) -> bool:
    """True if the change has to be written; others only ask."""
    return change.delta != 0 or change.level is not None


def decode(value: bytes) -> LogUpdate | Genesis | SnapshotPart | Tick:
    """What a record says."""
    match _unpacked(value):
        case [1, "u", str(boot), int(shard), int(number), str(generation), float() | int() as count, [*rows]] if (
            len(boot) <= MAX_TEXT and 0 <= shard < 256 and 0 < number < 2**53 and 0 <= count <= 60 and len(rows) <= MAX_CHANGES
        ):
            return LogUpdate(boot, Update(shard, number, generation, [_change(row) for row in rows]), float(count))
        case [1, "g", int(base), str(generation)] if -1 <= base < 2**63 and 0 < len(generation) <= MAX_TEXT:
            return Genesis(base, generation)
        case [1, "s", str(name), int(part), int(parts), int(base), [*rows]] if 0 <= part < parts <= 10_000 and base >= 0:
            return SnapshotPart(name, part, parts, base, rows)
        case [1, "t"]:
            return Tick()
    raise BadRecord("it is no record of this version")


def is_update(value: bytes) -> bool:
    """True for a record that changes nothing where no state is yet."""
    try:
        return isinstance(decode(value), LogUpdate | Tick)
    except BadRecord:
        return False


def encode_event(fields: Mapping[str, str]) -> bytes:
    return _compressed(orjson.dumps(dict(fields)))


def decode_event(value: bytes) -> dict[str, str]:
    """The fields of an event."""
    found = _unpacked(value)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise BadRecord("it is no event")
    return found


def _change(row: Any) -> Change:
    match row:
        case [str(key), int(delta), (float() | int() | None) as level, (float() | int()) as keep] if (
            len(key) <= MAX_TEXT and type(delta) is int and abs(delta) <= MAX_DELTA and 0 <= keep <= MAX_KEEP
        ):
            if level is None or (isfinite(level) and abs(level) <= MAX_DELTA):
                return Change(key, delta, None if level is None else float(level), False, float(keep))
    raise BadRecord("a change in it makes no sense")


def _packed(told: Sequence[Any]) -> bytes:
    return _compressed(orjson.dumps(told))


def _compressed(data: bytes) -> bytes:
    return data if len(data) <= PLAIN else zlib.compress(data, 1)


def _unpacked(value: bytes) -> Any:
    try:
        if value[:1] not in (b"[", b"{"):
            reader = zlib.decompressobj()
            value = reader.decompress(value, MAX_SIZE)
            if not reader.eof:
                raise BadRecord("it is too long, or not whole")
        return orjson.loads(value)
    except (zlib.error, orjson.JSONDecodeError, RecursionError):
        raise BadRecord("it is not JSON") from None
