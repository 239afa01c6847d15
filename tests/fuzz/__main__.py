"""`python -m tests.fuzz --frames 1000000 --seed 1`: as many broken dialogues as you have time for.

Exit code 1 when the invariant broke."""

import argparse
import sys
from collections import Counter

from tests.fuzz.sessions import Broken, dialogues, one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Break valid frames and feed them to sessions.")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    ends: Counter[str] = Counter()
    broken: dict[str, str] = {}
    for key, seed in dialogues(given.frames, given.seed):
        try:
            ends[one(key, seed)] += 1
        except Broken as e:
            ends["broken"] += 1
            broken.setdefault(f"{key} {e.__cause__!r}", str(e))
    print(dict(ends))
    for line in broken.values():
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
