"""What every record of a run carries, and how sets of them are kept. In: run, producer, sequence. Out: bytes, and back.

A record's value begins with a header of 36 bytes: magic, run, producer, sequence, when it was due. Sequences count from 0 for each
producer and partition, so that loss, repetition and order can be told from the log alone."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">4s8siqq4x")
HEADER_SIZE: Final = _HEADER.size
MAGIC: Final = b"kqpL"
_POOL: Final = 1 << 22
"""Bytes that do not compress, of which records are cut."""


class Header(NamedTuple):
    """`due_ns`: on the monotonic clock of the machine that wrote it."""

    producer: int
    sequence: int
    due_ns: int


class Writer:
    """Records of one run, of one size."""

    def __init__(self, run: bytes, size: int) -> None:
        self._run, self._body = run, size - HEADER_SIZE
        self._pool = os.urandom(min(self._body + 4096, self._body + _POOL)) if self._body else b""
        self._spare = max(len(self._pool) - self._body, 1)

    def record(self, producer: int, sequence: int, due_ns: int) -> bytes:
        """The value of a record."""
        at = sequence * 61 % self._spare
        return _HEADER.pack(MAGIC, self._run, producer, sequence, due_ns) + self._pool[at : at + self._body]


def header_of(value: bytes | None, run: bytes) -> Header | None:
    """None: not a record of this run."""
    if value is None or len(value) < HEADER_SIZE:
        return None
    magic, of, producer, sequence, due_ns = _HEADER.unpack_from(value)
    return Header(producer, sequence, due_ns) if magic == MAGIC and of == run else None


def run_bytes(run_id: str) -> bytes:
    """The run as records carry it."""
    return run_id.encode()[:8].ljust(8, b"\0")


class Runs:
    """A set of sequences as runs of consecutive ones: a few numbers, as long as few are missing."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """`pairs`: (first, one behind the last), in order."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in pairs:
            self._starts.append(start)
            self._ends.append(end)

    def add(self, number: int) -> bool:
        """Whether it is new."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1]:  # nearly always
            ends[-1] += 1
            return True
        i = bisect_right(starts, number)  # the run before it is i - 1
        if i and number < ends[i - 1]:
            return False
        before, behind = i > 0 and ends[i - 1] == number, i < len(starts) and starts[i] == number + 1
        if before and behind:
            ends[i - 1] = ends.pop(i)
            del starts[i]
        elif before:
            ends[i - 1] += 1
        elif behind:
            starts[i] -= 1
        else:
            starts.insert(i, number)
            ends.insert(i, number + 1)
        return True

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def highest(self) -> int:
        """-1: empty."""
        return self._ends[-1] - 1 if self._ends else -1

    def without(self, other: Runs) -> list[tuple[int, int]]:
        """What the other one has not, as runs."""
        left: list[tuple[int, int]] = []
        theirs = other.pairs()
        j = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            at = start
            while j < len(theirs) and theirs[j][1] <= at:
                j += 1
            k = j
            while k < len(theirs) and theirs[k][0] < end:
                if theirs[k][0] > at:
                    left.append((at, theirs[k][0]))
                at = max(at, theirs[k][1])
                k += 1
            if at < end:
                left.append((at, end))
        return left

    def __len__(self) -> int:
        return sum(end - start for start, end in zip(self._starts, self._ends, strict=True))


def size_of(runs: Iterable[tuple[int, int]]) -> int:
    """How many sequences runs have."""
    return sum(end - start for start, end in runs)
