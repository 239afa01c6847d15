"""How many seeded defects the quick tests catch: `make mutants`, or `python -m tests.mutants --sample 300 --seed 1`.

In: the sources of quota/ and proxy/wire/, and the quick tests that call them (`TESTS`). Out: the share of defects that a test
caught, the names of the others, and exit code 1 below `WANTED`. mutmut makes the defects (another operator, number, text or
argument in each) in a copy in `build/mutants`, and finds out which tests reach which function. There are some 15,000 defects, so
a sample is tried; the same seed takes the same ones as long as the sources are the same.

A defect is tried in a process that is forked from one that has imported all tests. It runs tests that reach the function, the
quickest first and those of its own folder before others, until one fails or `SECONDS` are used up: so a defect may count as not
caught that a slower test would catch. Where none fails, and the function is called while modules are imported, they run again in a
new process, which imports everything with the defect. Who ends the program early gets the share of those that were tried.

`mutmut show NAME`, called in `build/mutants`, prints a defect."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

import psutil

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "build" / "mutants"
SOURCES: Final = ("quota", "proxy/wire")
TESTS: Final = (
    *("tests/quota", "tests/wire", "tests/session", "tests/apis", "tests/fuzz/test_sessions.py"),
    *("tests/cluster", "tests/config", "tests/fleet", "tests/observe", "tests/operate", "tests/upstream"),
)
STATS: Final = FOLDER / "mutants" / "mutmut-stats.json"
"""Which test reaches which function, and how long it takes."""
BUSY: Final = FOLDER / "busy"
"""How much longer everything took than it had the CPU, as mutmut learned that: other programs ran beside it."""
BESIDE: Final = ("proxy", "quota", "configfile", "localkafka", "loadtest", "benchmarks", "tests", "docs", "pyproject.toml")
"""What the copy consists of."""
SETTINGS: Final = f"""
[tool.mutmut]
source_paths = {list(SOURCES)}
also_copy = {[*BESIDE]}
pytest_add_cli_args = ["--quick", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {list(TESTS)}
"""
WANTED: Final = 0.9
SECONDS: Final = 30.0
"""How long the tests of one defect may take, by what mutmut measured: it counts calls meanwhile, which makes them slower."""
OTHERS: Final = 4
"""Tests of other folders come behind those of the defect's own that take this many times longer, and these behind those of its
own file."""
LIMIT: Final = 60
"""CPU seconds after which the tests of one defect are ended: it makes something go on for ever."""
PATIENCE: Final = 600.0
"""Seconds after which they are ended if they do not even use the CPU."""
QUIET: Final = ("--quick", "-q", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:warnings")
OUTCOME: Final = "outcome "
"""How lines of a process begin that are not pytest's."""
CAUGHT, SURVIVED, ENDED, NOT_REACHED = "caught", "survived", "ended after the time limit", "reached by no test"


def copy_sources() -> None:
    """Make `build/mutants` anew if anything that it is made of has changed."""
    digest = hashlib.sha256()
    for name in BESIDE:
        for path in sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]:
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    mark = FOLDER / "made-of"
    if mark.exists() and mark.read_text() == digest.hexdigest():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in BESIDE:
        source, target = ROOT / name, FOLDER / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "_hot"))
        else:
            shutil.copy2(source, target)
    with (FOLDER / "pyproject.toml").open("a") as settings:
        settings.write(SETTINGS)
    make_defects()
    mark.write_text(digest.hexdigest())


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"KAFKA_QUOTA_PROXY_PURE": "1"}


def make_defects() -> None:
    """mutmut makes them, and learns which test reaches what: six minutes. It is ended before it tries any by itself."""
    command = [sys.executable, "-m", "mutmut", "run", "quota.entity.*"]
    with (FOLDER / "mutmut.log").open("w") as log:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=FOLDER, env=environment(), stdout=log, stderr=log)
        while not STATS.exists() and process.poll() is None:
            time.sleep(1)
        time.sleep(2)  # it is written in one go
        used = psutil.Process(process.pid).cpu_times()
        process.kill()
        process.wait()
        BUSY.write_text(str(max(1.0, (time.monotonic() - began) / (used.user + used.system + used.children_user))))
    if not STATS.exists():
        sys.exit(f"mutmut failed:\n{(FOLDER / 'mutmut.log').read_text()[-2000:]}")


def defects() -> list[str]:
    """The names of all defects."""
    files = FOLDER.glob("mutants/**/*.meta")
    return sorted(name for path in files for name in json.loads(path.read_text())["exit_code_by_key"])


def tests_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Defect → tests that reach its function, in the order in which they are to run. What is called while modules are imported is
    reached by no test, or by that which ran first: all tests count for it that reach something else in its module."""
    known = json.loads(STATS.read_text())
    busy = float(BUSY.read_text())
    seconds: Mapping[str, float] = {test: took / busy for test, took in known["duration_by_test"].items()}
    reached: defaultdict[str, set[str]] = defaultdict(set)
    of_module: defaultdict[str, set[str]] = defaultdict(set)
    for function, tests in known["tests_by_mangled_function_name"].items():
        reached[function].update(tests)
        of_module[function.partition(".x")[0]].update(tests)
    found = {}
    for name in names:
        own = "tests/quota/" if name.startswith("quota") else "tests/wire/"

        file = f"{own}test_{name.partition('.x')[0].rpartition('.')[2]}"

        def rank(test: str, own: str = own, file: str = file) -> float:
            return seconds.get(test, 0.0) * (1 if test.startswith(file) else OTHERS if test.startswith(own) else OTHERS**2)

        reaching = reached[name.rpartition("__mutmut_")[0]]
        if len(reaching) <= 1:
            reaching = of_module[name.partition(".x")[0]]
        ordered = sorted(reaching, key=rank)
        total = accumulate(seconds.get(test, 0.0) for test in ordered)
        found[name] = [test for test, until in zip(ordered, total, strict=True) if until <= SECONDS] or ordered[:1]
    return found


def outcomes(jobs: Mapping[str, Sequence[str]], workers: int) -> Iterator[tuple[str, str]]:
    """(Defect, what became of it) as they come, by several processes."""
    yield from ((name, NOT_REACHED) for name, tests in jobs.items() if not tests)
    waiting = iter([job for job in jobs.items() if job[1]])
    found = SimpleQueue[str]()
    folder = FOLDER / "mutants"

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.mutants", "--worker"]
        own = environment() | {"PYTHONPATH": str(folder)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=own, stdin=pipe, stdout=pipe, text=True, start_new_session=True)

    def feed(process: subprocess.Popen[str]) -> None:
        """Give a process one defect after the other, as those of others may take longer."""
        assert process.stdin is not None
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.startswith(OUTCOME))
        for job in waiting:
            print(json.dumps(job), file=process.stdin, flush=True)
            line = next(lines, "")
            found.put(line)
            if not line:  # it has ended
                break

    processes = [begin() for _ in range(workers)]
    try:
        for process in processes:
            Thread(target=feed, args=[process], daemon=True).start()
        for _ in filter(None, jobs.values()):
            line = found.get()
            if not line:
                sys.exit("the tests of defects could not be run")
            name, _, outcome = line.removeprefix(OUTCOME).strip().partition(" ")
            yield name, outcome
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def work() -> None:
    """A process that tries defects: a job in each line of standard input, what became of it in one of standard output."""
    import pytest
    from mutmut.state import state

    os.environ["MUTANT_UNDER_TEST"] = "stats"  # functions that are called say so
    pytest.main([*QUIET, "--collect-only", *TESTS])  # so that a fork finds everything imported
    os.environ["MUTANT_UNDER_TEST"] = ""
    called = frozenset(state()._stats)
    for line in sys.stdin:
        name, tests = json.loads(line)
        print(f"{OUTCOME}{name} {_tried(name, tests, anew=name.rpartition('__mutmut_')[0] in called)}", flush=True)


def _tried(name: str, tests: Sequence[str], *, anew: bool) -> str:
    """Run tests with this defect, first in a fork; `anew`: then in a new process, too. Returns what became of it."""
    outcome = _ran(name, tests, imported=True)
    if outcome != SURVIVED or not anew or _ran(name, tests, imported=False) == SURVIVED:
        return outcome
    return CAUGHT if _ran("", tests, imported=False) == SURVIVED else SURVIVED


def _ran(name: str, tests: Sequence[str], *, imported: bool) -> str:
    import pytest

    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.environ["MUTANT_UNDER_TEST"] = name
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if not imported:
            os.execv(sys.executable, [sys.executable, "-m", "pytest", *QUIET, *tests])  # noqa: S606
        os._exit(int(pytest.main([*QUIET, *tests])))
    for code in _waits(child):
        if code is not None:
            return SURVIVED if code == 0 else ENDED if code == -signal.SIGXCPU else CAUGHT
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return ENDED


def _waits(child: int) -> Iterator[int | None]:
    """The exit code of a process, None while it runs; ends after `PATIENCE`."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        pid, status = os.waitpid(child, os.WNOHANG)
        yield os.waitstatus_to_exitcode(status) if pid else None
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description="How many seeded defects the quick tests catch.")
    parser.add_argument("--sample", type=int, default=300, help="defects to try (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    copy_sources()
    names = defects()
    chosen = random.Random(options.seed).sample(names, min(options.sample, len(names)))
    found: dict[str, str] = {}
    for name in (signal.SIGINT, signal.SIGTERM):  # the first is ignored where a shell started this in the background
        signal.signal(name, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        for name, outcome in outcomes(tests_of(chosen), os.cpu_count() or 1):
            found[name] = outcome
            if outcome != CAUGHT:
                print(f"{outcome}: {name} ({len(found)} tried, {share_of(found):.1%} caught)", flush=True)
    return report(found)


def share_of(found: Mapping[str, str]) -> float:
    """How much of these was caught. Where a defect makes something go on for ever, that is noticed, too."""
    return sum(outcome in {CAUGHT, ENDED} for outcome in found.values()) / max(1, len(found))


def report(found: Mapping[str, str]) -> int:
    """Print how many of these defects were caught. The exit code."""
    counts, share = Counter(found.values()), share_of(found)
    print(
        f"{counts[CAUGHT] + counts[ENDED]} of {len(found)} defects caught ({counts[ENDED]} by the time limit),"
        f" {counts[NOT_REACHED]} reached by no test: {share:.1%}; at least {WANTED:.0%} wanted"
    )
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
