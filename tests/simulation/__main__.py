"""`make simulate`: runs with new seeds for two minutes, or `ARGS="--seconds 3600"`; `ARGS="--seed 17"` repeats one, `--faults 3,9`
with these of its faults only. Exit code 1 if anything is wrong; then it says with which seed and which faults."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
from itertools import count

FIXED = {"PYTHONHASHSEED": "0", "KAFKA_QUOTA_PROXY_PURE": "1"}
"""What makes a run the same each time: sets of texts have one order; compiled classes cannot be given one."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU seconds to go on for")
    parser.add_argument("--seed", type=int, help="repeat this run, and no other")
    parser.add_argument("--first", type=int, help="begin with this seed instead of a new one")
    parser.add_argument("--faults", help="the faults that happen, such as 3,9; none for an empty text")
    parser.add_argument("--runs", type=int, help="end after so many runs")
    parser.add_argument("--repeat", action="store_true", help="run each seed twice: both have to be the same")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for fewer faults")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, **FIXED})  # noqa: S606
    from tests.simulation import runs

    if options.seed is not None:
        kept = None if options.faults is None else [int(it) for it in options.faults.split(",") if it]
        return _tell_of_one(runs.run(options.seed, kept))
    first = secrets.randbelow(1_000_000_000) if options.first is None else options.first
    print(f"seeds from {first} on", flush=True)
    total = runs.Total()
    seeds = count(first) if options.runs is None else range(first, first + options.runs)
    with contextlib.suppress(KeyboardInterrupt):
        for outcome in runs.until(options.seconds, seeds):
            total.add(outcome)
            if options.repeat and (again := runs.run(outcome.seed)).digest != outcome.digest:
                print(f"seed {outcome.seed} fails: it gave {outcome.digest}, and then {again.digest}")
                return 1
            if outcome.wrong:
                print(total)
                return _tell_of_failure(outcome, shrink=not options.no_shrink)
    print(total)
    return 0


def _tell_of_one(outcome: object) -> int:
    from tests.simulation.world import Outcome

    assert isinstance(outcome, Outcome)
    for i, fault in enumerate(outcome.faults):
        print(f"{i:4} {fault}")
    for wrong in outcome.wrong:
        print(f"wrong: {wrong}")
    print(f"digest {outcome.digest}, {outcome.seconds:.1f} simulated seconds, {outcome.figures}")
    return 1 if outcome.wrong else 0


def _tell_of_failure(outcome: object, *, shrink: bool) -> int:
    from tests.simulation import runs
    from tests.simulation.world import Outcome

    assert isinstance(outcome, Outcome)
    print(f"seed {outcome.seed} fails: {outcome.wrong[0]}", flush=True)
    if shrink:
        kept, smallest = runs.shrink(outcome, lambda rest: runs.run(outcome.seed, rest))
        faults = ",".join(map(str, kept))
        print(f"with {len(kept)} of {len(outcome.faults)} faults:")
        for fault in smallest.faults:
            print(f"  {fault}")
        for wrong in smallest.wrong[:10]:
            print(f"wrong: {wrong}")
        print(f"to repeat it: make simulate ARGS='--seed {outcome.seed} --faults \"{faults}\"'")
    else:
        print(f"to repeat it: make simulate ARGS='--seed {outcome.seed}'")
    return 1


if __name__ == "__main__":
    sys.exit(main())
