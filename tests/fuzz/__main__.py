"""`python -m tests.fuzz --frames 1000000 --seed 1`: as many broken frames of each API as you have time for.

In: how many, and a seed. Out: a line for each API: frames, what became of them, the slowest dialogue, memory. Exit code 1
when the invariant broke. The work is done in processes of their own, one after the other, so that a crash or a hang is
told with its seeds, and memory that grows is seen."""

import argparse
import faulthandler
import json
import os
import resource
import sys
import time
from collections import Counter
from typing import Any

from tests.fuzz.sessions import KEYS, PER_CORPUS, Broken, one

HANG = 30.0
"""Seconds for so many dialogues that something hangs."""
ALIVE = 500


def dialogues(key: int, first: int, frames: int) -> dict[str, Any]:
    """Dialogues from this seed on, until there were so many broken frames, or the next corpus is due."""
    faulthandler.enable()
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"frames": done, "ends": ends, "broken": list(broken.values()), "slowest": slowest, "peak": peak}


def apart(key: int, first: int, frames: int) -> dict[str, Any]:
    """The same in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(dialogues(key, first, frames), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or not text:
        ended = f"API {key}, seeds from {first}: the process ended with {status}"
        return {"frames": 0, "ends": {"broken": 1}, "broken": [ended], "slowest": (0.0, first), "peak": 0}
    found: dict[str, Any] = json.loads(text)
    return found


def fuzz(key: int, frames: int, seed: int) -> bool:
    """One API; prints its line, and at once what broke. Whether it held."""
    ends: Counter[str] = Counter()
    broken: list[str] = []
    done, peak, slowest, first = 0, 0, (0.0, 0), seed
    while done < frames and len(broken) < 10:
        part = apart(key, first, frames - done)
        done += part["frames"]
        ends.update(part["ends"])
        broken += part["broken"]
        for line in part["broken"]:
            print(line, file=sys.stderr, flush=True)
        peak, slowest = max(peak, part["peak"]), max(slowest, tuple(part["slowest"]))
        first += PER_CORPUS
    told = " ".join(f"{name} {count:,}" for name, count in sorted(ends.items()))
    what = f"API {key:2}: {done:,} frames, seeds {seed} to {first}; {told}"
    print(f"{what}; slowest {slowest[0] * 1000:.0f} ms (seed {slowest[1]}), peak {peak >> 10} MiB", flush=True)
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Break valid frames and feed them to sessions.")
    parser.add_argument("--frames", type=int, default=10_000, help="of each API")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--api", type=int, action="append", choices=KEYS, help="may be given several times; all by default")
    given = parser.parse_args()
    held = [fuzz(key, given.frames, given.seed * 1_000_000_000) for key in given.api or KEYS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
