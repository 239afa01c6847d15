"""`python -m tests.fuzz --frames 1000000 --seed 1`: as many broken frames of each API as you have time for.

In: how many, and a seed. Out: a line for each API: frames, what became of them, the slowest dialogue (no frame took longer), by
how much memory grew after the first corpus. Exit code 1 when the invariant broke. Each API has a process of its own, so that a
crash or a hang is told with its seeds, and memory that grows is seen."""

import argparse
import faulthandler
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proxy.compiled import hot_path
from tests.fuzz.sessions import KEYS, PER_CORPUS, Broken, one

HANG = 30.0
"""Seconds for so many dialogues that something hangs."""
ALIVE = 500
MOST_BROKEN = 10
"""An API with more findings is given up."""


def dialogues(key: int, first: int, frames: int) -> dict[str, Any]:
    """Dialogues from this seed on, until there were so many broken frames, or the next corpus is due."""
    ends: Counter[str] = Counter()
    broken: dict[str, str] = {}
    done, slowest, seed = 0, (0.0, first), first
    while done < frames and seed < first + PER_CORPUS:
        if seed % ALIVE == 0:
            faulthandler.dump_traceback_later(HANG, exit=True)
        began = time.process_time()
        try:
            outcome = one(key, seed)
        except Broken as e:
            ends["broken"] += 1
            done += 1
            broken.setdefault(repr(e.__cause__), str(e))
        else:
            ends[outcome.end] += 1
            done += outcome.frames
        if seed > first:  # the first makes the corpus
            slowest = max(slowest, (time.process_time() - began, seed))
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"frames": done, "ends": ends, "broken": list(broken.values()), "slowest": slowest, "rss": memory(), "peak": peak}


def memory() -> int:
    """What this process has, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def apart(key: int, first: int, frames: int) -> Iterator[dict[str, Any]]:
    """The same in a process of its own, one corpus after the other."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            work(key, first, frames, out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        for line in told:
            yield json.loads(line)
            first += PER_CORPUS
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        ended = f"API {key}, seeds from {first}: the process ended with {status}"
        yield {"frames": 0, "ends": {"broken": 1}, "broken": [ended], "slowest": (0.0, first), "rss": 0, "peak": 0}


def work(key: int, first: int, frames: int, out: Any) -> None:
    """A line of JSON to `out` for each corpus."""
    faulthandler.enable()
    broken = 0
    while frames > 0 and broken < MOST_BROKEN:
        part = dialogues(key, first, frames)
        print(json.dumps(part), file=out, flush=True)
        frames -= part["frames"]
        broken += len(part["broken"])
        first += PER_CORPUS


def fuzz(key: int, frames: int, seed: int) -> bool:
    """One API; prints its line, and at once what broke. Whether it held."""
    ends: Counter[str] = Counter()
    broken: list[str] = []
    done, sizes, peak, slowest, first = 0, list[int](), 0, (0.0, 0), seed
    while done < frames and len(broken) < MOST_BROKEN:
        for part in apart(key, first, frames - done):
            done += part["frames"]
            ends.update(part["ends"])
            broken += part["broken"]
            for line in part["broken"]:
                print(line, file=sys.stderr, flush=True)
            peak, slowest = max(peak, part["peak"]), max(slowest, tuple(part["slowest"]))
            sizes.append(part["rss"])
            first += PER_CORPUS
    told = " ".join(f"{name} {count:,}" for name, count in sorted(ends.items()))
    what = f"API {key:2}: {done:,} frames, seeds {seed} to {first}; {told}"
    grown = (sizes[-1] - sizes[0]) / 1024
    print(
        f"{what}; slowest {slowest[0] * 1000:.1f} ms (seed {slowest[1]}), grew by {grown:,.0f} KiB, peak {peak >> 20} MiB",
        flush=True,
    )
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Break valid frames and feed them to sessions.")
    parser.add_argument("--frames", type=int, default=10_000, help="of each API")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--api", type=int, action="append", choices=KEYS, help="may be given several times; all by default")
    given = parser.parse_args()
    print(f"hot path: {hot_path()}", flush=True)
    held = [fuzz(key, given.frames, given.seed * 1_000_000_000) for key in given.api or KEYS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
