"""History of the bench: ratios to the baseline of the same run, kept in the repository, so that a review sees what got slower.

In: the pairs of a run (`side_by_side`). Out: a line of JSON (`--record`), and what got worse since the last line of the same kind
of machine (`--check`). Ratios compare, absolute figures do not. CPU and memory are judged; times to the answer are recorded alone,
as they depend on the other load of the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.bench.measure import Figure
from loadtest.results.checks import machine
from loadtest.results.model import Machine
from loadtest.results.statistics import LEVEL, rank_sum

FILE: Final = Path(__file__).with_name("history.jsonl")
ALLOWED: Final = 0.1
"""Share by which a ratio may grow."""
JUDGED: Final = ("cpu", "memory")

Ratios = dict[str, list[float]]
"""Of a case: figure to its ratio in each round."""


class HistoryError(Exception):
    """The file is not what `--record` writes."""


class Entry(BaseModel):
    """One run."""

    model_config = ConfigDict(extra="forbid")

    commit: str = Field(description="What was measured; `+` behind it: with changes that are not committed.")
    date: str
    quotas: bool = Field(description="Every quota beside none, instead of the proxy beside a pass-through.")
    seconds: float = Field(description="Length of each measurement.")
    machine: Machine
    cases: dict[str, Ratios]

    def like(self, other: Entry) -> bool:
        """Whether their ratios compare: one kind of machine, one Python, one comparison."""
        ours, theirs = self.machine, other.machine
        python = [one.python.rpartition(".")[0] for one in (ours, theirs)]
        return (ours.processor, ours.cpus, python[0], self.quotas) == (theirs.processor, theirs.cpus, python[1], other.quotas)


@dataclass(frozen=True, slots=True)
class Worse:
    """A ratio that grew by more than is allowed."""

    case: str
    figure: str
    before: float
    after: float

    def __str__(self) -> str:
        grown = self.after / self.before - 1
        return f"{self.case}, {self.figure}: {self.before:.2f}x of the baseline became {self.after:.2f}x, {grown:+.0%}"


def entry(
    pairs: Mapping[str, Sequence[tuple[Figure, Figure]]], idle: Sequence[tuple[float, float]], *, quotas: bool, seconds: float
) -> Entry:
    """What this run found, here and now. A pair is (baseline, proxy)."""
    cases: dict[str, Ratios] = {}
    for case, several in pairs.items():
        cases[case] = {
            "cpu": [ours.cpu_per_100k / base.cpu_per_100k for base, ours in several],
            "p50": [ours.p50 / base.p50 for base, ours in several],
            "p99": [ours.p99 / base.p99 for base, ours in several],
        }
    if idle:
        cases["idle"] = {"memory": [ours / base for base, ours in idle]}
    rounded = {case: {name: [round(ratio, 3) for ratio in some] for name, some in found.items()} for case, found in cases.items()}
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Entry(commit=_commit(), date=date, quotas=quotas, seconds=seconds, machine=machine(), cases=rounded)


def append(path: Path, new: Entry) -> None:
    """One line more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(new.model_dump_json() + "\n")


def last_like(path: Path, new: Entry) -> Entry | None:
    """The last one that compares with `new`, if any. Raises HistoryError, naming the line."""
    found = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), 1):
        try:
            old = Entry.model_validate_json(line)
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise HistoryError(f"{path.name}, line {number}: {where}{': ' if where else ''}{first['msg']}") from None
        found = old if old.like(new) else found
    return found


def worse(before: Entry, after: Entry, allowed: float = ALLOWED) -> list[Worse]:
    """What grew by more than is allowed, and not by chance where there are rounds enough to tell."""
    found = []
    for case in before.cases.keys() & after.cases.keys():
        for figure in JUDGED:
            old, new = before.cases[case].get(figure), after.cases[case].get(figure)
            if not old or not new or median(new) <= median(old) * (1 + allowed):
                continue
            chance = rank_sum(old, new)
            if chance is None or chance < LEVEL:
                found.append(Worse(case, figure, median(old), median(new)))
    return sorted(found, key=lambda one: (one.case, one.figure))


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=FILE.parent, capture_output=True, text=True, check=True)
    return run.stdout.strip()
