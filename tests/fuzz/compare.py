"""`python -m tests.fuzz.compare --frames 1000000`: the compiled hot path beside the same sources as pure Python.

In: how many frames of each API that compiled modules read, and a seed. Out: a line for each API; exit code 1 when anything is
different. Both run the same dialogues (`sessions`, `pipelined`), each in a process of its own, and everything that comes out
is compared: forwarded bytes, decisions, reports, sums, throttle times. With `--dialogue SEED` one of them is shown."""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from proxy.compiled import PURE, ROOT, hot_path
from tests.fuzz import pipelined, sessions
from tests.fuzz.sessions import Broken

PIPELINED = 16
"""One in this number of dialogues is pipelined. It has some 50 frames, and another has two."""
MOST_DIFFERENT = 5
"""An API with more findings is given up."""


class Line(NamedTuple):
    """What a dialogue gave: the number of its frames, and a digest of all that came out."""

    seed: int
    frames: int
    digest: str


def told(key: int, seed: int) -> tuple[int, object]:
    """(frames, what came out) of the dialogue of this seed."""
    try:
        outcome = (sessions if seed % PIPELINED else pipelined).one(key, seed)
    except Broken as e:
        return 1, f"broken: {e}"
    return outcome.frames, (outcome.end, *outcome.transcript)


def work(key: int, first: int, frames: int) -> None:
    """A line for each dialogue, until there were enough frames."""
    faulthandler.enable()
    print(hot_path(), flush=True)
    seeds = count(first)
    while frames > 0:
        seed = next(seeds)
        done, came_out = told(key, seed)
        frames -= done
        print(seed, done, sha256(repr(came_out).encode()).hexdigest())


class Difference(NamedTuple):
    """A dialogue that gave different things, or a process that ended early."""

    key: int
    seed: int
    what: str


def compare(key: int, first: int, frames: int, python: str = sys.executable) -> tuple[int, list[Difference]]:
    """(frames, what is different) of one API. `python`: how the compiled one is started."""
    found: list[Difference] = []
    done = 0
    with ExitStack() as stack:
        numbers = str(key), str(first), str(frames)
        compiled = stack.enter_context(_worker("0", python, *numbers))
        pure = stack.enter_context(_worker("1", sys.executable, *numbers))
        names = next(compiled, ""), next(pure, "")
        if names[0] != "compiled" or not names[1].startswith("pure Python"):
            raise SystemExit(f"nothing to compare: {names[0]}, {names[1]}")
        seed = first
        while len(found) < MOST_DIFFERENT:
            ours, theirs = next(compiled, ""), next(pure, "")
            if not ours and not theirs:
                break
            if not ours or not theirs:
                found.append(Difference(key, seed, f"{'pure Python' if ours else 'compiled'} ended early"))
                break
            line = _line(ours)
            seed, done = line.seed + 1, done + line.frames
            if ours != theirs:
                found.append(Difference(key, line.seed, "another outcome"))
    return done, found


def _line(text: str) -> Line:
    seed, frames, digest = text.split()
    return Line(int(seed), int(frames), digest)


@contextmanager
def _worker(pure: str, python: str, *arguments: str) -> Iterator[Iterator[str]]:
    """The lines of a process, which ends with the block."""
    command = [*python.split(), "-m", "tests.fuzz.compare", "--work", *arguments]
    environment = os.environ | {PURE: pure, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, env=environment, cwd=ROOT.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            # Of a process that is killed, the last line may lack its end.
            yield (line.rstrip("\n") for line in process.stdout if line.endswith("\n"))
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.compare", description="Compiled and pure Python, on the same bytes."
    )
    parser.add_argument("--frames", type=int, default=10_000, help="of each API")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--api", type=int, action="append", choices=pipelined.KEYS, help="may be given several times; all by default"
    )
    parser.add_argument("--python", default=sys.executable, help="how the compiled one is started")
    parser.add_argument("--dialogue", type=int, metavar="SEED", help="show what comes out of one, in this process")
    parser.add_argument("--work", nargs=3, type=int, metavar=("KEY", "SEED", "FRAMES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
        return 0
    keys = given.api or pipelined.KEYS
    if given.dialogue is not None:
        print(*(told(key, given.dialogue) for key in keys), sep="\n")
        return 0
    different = 0
    for key in keys:
        frames, found = compare(key, given.seed * 1_000_000_000, given.frames, given.python)
        print(f"API {key}: {frames:,} frames, {len(found)} differences", flush=True)
        for each in found:
            print(f"  seed {each.seed}: {each.what}", flush=True)
        different += len(found)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
