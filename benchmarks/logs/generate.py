"""Generate: files of lines. In: how many lines over how many days, of how many tenants and proxies, a folder. Out: files named and
rotated as the proxy does it, plain, gzip or zstd, and how many lines and bytes they have.

The interval follows from the lines wanted: the number of lines over the number of days.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from benchmarks.logs.lines import Times, Writer
from benchmarks.logs.plan import DAY, Plan

Form = Literal["plain", "gzip"]
START = 1_772_409_600
"""2026-03-02, a Monday, 00:00 UTC, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to generate. `duplicates` is how many of a thousand lines are written twice, `bad` how many of a million are cut."""

    lines: int
    days: int
    proxies: int = 2
    interval: int = 10
    owned_interval: int = 0
    duplicates: int = 0
    bad: int = 0
    rotate_bytes: int = 128 << 20
    form: Form = "plain"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: lines with their copies, bytes of text."""

    lines: int
    text_bytes: int


def generate(plan: Plan, wanted: Wanted, folder: Path) -> Written:
    """Write the logs. Every proxy logs the same intervals, each a part of the traffic, in files of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = text_bytes = 0
    for number in range(wanted.proxies):
        interval = _interval(plan, wanted)
        times = Times(START, interval, max(600, interval), max(600, interval), wanted.owned_interval)
        boot = f"{random.Random(wanted.seed * 100 + number).getrandbits(64):016x}"
        writer = Writer(plan, times, f"proxy-{number}", boot, 1 / wanted.proxies, wanted.seed + number)
        texts = _texts(writer, wanted.days * DAY // interval, wanted)
        wrote = _files(texts, folder / f"usage-proxy-{number}-{boot}", wanted)
        lines, text_bytes = lines + wrote.lines, text_bytes + wrote.text_bytes
    return Written(lines, text_bytes)


def _interval(plan: Plan, wanted: Wanted) -> int:
    """Seconds of an interval, so that there are about as many lines as wanted; ten at least, as a proxy's."""
    each = Writer(plan, Times(START, 60), "", "", 1, 0).lines_per_interval * wanted.proxies
    return max(wanted.interval, wanted.days * DAY * each // wanted.lines)


def _texts(writer: Writer, intervals: int, wanted: Wanted) -> Iterator[bytes]:
    chance = random.Random(wanted.seed)
    for number in range(intervals):
        batch = list(writer.interval(number))
        if wanted.duplicates:
            batch += [line for line in batch if chance.random() * 1000 < wanted.duplicates]
        if wanted.bad:
            batch = [line[:90] if chance.random() * 1_000_000 < wanted.bad else line for line in batch]
        yield ("\n".join(batch) + "\n").encode()


def _files(texts: Iterator[bytes], stem: Path, wanted: Wanted) -> Written:
    lines = text_bytes = 0
    with ExitStack() as stack:
        file: IO[bytes] | None = None
        size = number = 0
        for text in texts:
            if file is None or size > wanted.rotate_bytes:
                stack.close()
                number, size = number + 1, 0
                file = stack.enter_context(_open(stem, number, wanted.form))
            file.write(text)
            size, text_bytes, lines = size + len(text), text_bytes + len(text), lines + text.count(b"\n")
    return Written(lines, text_bytes)


def _open(stem: Path, number: int, form: Form) -> IO[bytes]:
    name = stem.parent / f"{stem.name}-{number:06d}.jsonl{'.gz' if form == 'gzip' else ''}"
    if form == "gzip":
        return cast("IO[bytes]", gzip.open(name, "wb", compresslevel=1))
    return name.open("wb")
