"""How many seeded defects the quick tests catch: `make mutants`, or `python -m tests.mutants --sample 300 --seed 1`.

In: the sources of quota/ and proxy/wire/, and the tests of quota, wire, session and apis. Out: the share of defects that a test
caught, the names of the others, and exit code 1 below `WANTED`. mutmut makes the defects (another operator, number, text or
argument in each) in a copy in `build/mutants`, and runs for each the tests that reach its function. There are some 14,000, so
a sample is tried; the same seed takes the same ones as long as the sources are the same.

`mutmut show NAME`, called in `build/mutants`, prints a defect."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "mutants"
SOURCES = ("quota", "proxy/wire")
TESTS = ("tests/quota", "tests/wire", "tests/session", "tests/apis")
BESIDE = ("proxy", "quota", "configfile", "localkafka", "tests", "docs", "pyproject.toml")
"""What the copy consists of."""
SETTINGS = f"""
[tool.mutmut]
source_paths = {list(SOURCES)}
also_copy = {[*BESIDE]}
pytest_add_cli_args = ["-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {list(TESTS)}
"""
WANTED = 0.9
NOT_CAUGHT, NOT_REACHED = 0, 33
"""Exit codes of mutmut for one defect: all tests passed; no test reaches the function."""


def copy_sources() -> None:
    """Make `build/mutants`. What mutmut knows of earlier runs is kept."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in BESIDE:
        source, target = ROOT / name, FOLDER / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "_hot"))
        else:
            shutil.copy2(source, target)
    with (FOLDER / "pyproject.toml").open("a") as settings:
        settings.write(SETTINGS)


def mutmut(*arguments: str) -> None:
    """Run it in the copy. It ends with 0 however many defects were caught."""
    environment = os.environ | {"KAFKA_QUOTA_PROXY_PURE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "mutmut", *arguments]
    run = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"mutmut failed:\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}")


def outcomes() -> dict[str, int | None]:
    """Defect → exit code of the tests, None where it was not tried."""
    found: dict[str, int | None] = {}
    for path in sorted(FOLDER.glob("mutants/**/*.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="How many seeded defects the quick tests catch.")
    parser.add_argument("--sample", type=int, default=300, help="defects to try (default: 300, some 8 minutes)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    options = parser.parse_args()
    copy_sources()
    names = sorted(outcomes())
    if not names:
        mutmut("run", "quota.entity.*")  # makes the defects of all files, and learns which test reaches what
        names = sorted(outcomes())
    chosen = random.Random(options.seed).sample(names, min(options.sample, len(names)))
    mutmut("run", "--max-children", str(os.cpu_count() or 1), *chosen)
    codes = {name: code for name, code in outcomes().items() if name in set(chosen)}
    return report(codes)


def report(codes: dict[str, int | None]) -> int:
    """Print what became of these defects. The exit code."""
    counts = Counter(codes.values())
    caught = len(codes) - counts[NOT_CAUGHT] - counts[NOT_REACHED] - counts[None]
    for name in sorted(name for name, code in codes.items() if code in (NOT_CAUGHT, NOT_REACHED, None)):
        print(f"not caught: {name}" + (", which no test reaches" if codes[name] == NOT_REACHED else ""))
    share = caught / len(codes)
    print(f"{caught} of {len(codes)} defects caught: {share:.1%}; at least {WANTED:.0%} wanted")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
