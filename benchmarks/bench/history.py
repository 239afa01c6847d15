"""History of the bench: ratios to the baseline of the same run, so that a regression is seen.

In: the pairs of a run (`side_by_side`). Out: a line of JSON in a file, which is outside the repository as it is about one machine;
and what is worse than in the last quiet line of the same kind (`--check`). Ratios compare, absolute figures do not. CPU and memory
are judged, and at a fixed rate the time to the answer; other times are those of a saturated machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.bench.frames import CASES
from benchmarks.bench.measure import Figure
from loadtest.results.checks import machine
from loadtest.results.model import Machine

QUIET: Final = 0.1
"""Share of all processors that others may have in a quiet measurement."""
SAME_HOP: Final = 2.0
"""Processors of runs that compare are about as far from each other: the one distance is at most this number of times the other."""
LEAST_NOISE: Final = 0.03
NOISE_OF_FEW: Final = 0.1
FEW: Final = 3
"""Noise that is assumed at least, as a share of the ratio: runs differ more than the rounds of one. With fewer rounds than `FEW`,
which tell little about noise, more is assumed."""

Ratios = dict[str, list[float]]
"""Of a case: figure to its ratio in each round, and `others`: the share of the machine that others had."""


class HistoryError(Exception):
    """The file is not what the bench writes."""


class Entry(BaseModel):
    """One run."""

    model_config = ConfigDict(extra="forbid")

    commit: str = Field(description="What was measured; `+` behind it: with changes that are not committed.")
    date: str
    beside: str = Field(description="What the proxy was measured beside.")
    seconds: float = Field(description="Length of each measurement.")
    machine: Machine
    hop_ns: int = Field(description="How long a cache line took from one processor to the other and back; 0: not known.")
    cases: dict[str, Ratios]

    def like(self, other: Entry) -> bool:
        """Whether their ratios compare: one kind of machine, one Python, one comparison, processors as far from each other."""
        ours, theirs = self.machine, other.machine
        python = [one.python.rpartition(".")[0] for one in (ours, theirs)]
        alike = (ours.processor, ours.cpus, python[0], self.beside) == (theirs.processor, theirs.cpus, python[1], other.beside)
        near, far = sorted((self.hop_ns, other.hop_ns))
        return alike and far <= near * SAME_HOP

    def quiet(self, case: str) -> bool:
        """Whether others left the machine alone while this case was measured. Memory is the same on a busy machine."""
        others = self.cases[case].get("others")
        return not others or median(others) <= QUIET


@dataclass(frozen=True, slots=True)
class Worse:
    """A ratio that grew by more than the noise of both runs."""

    case: str
    figure: str
    before: float
    after: float
    noise: float
    since: str

    def __str__(self) -> str:
        grown = self.after / self.before - 1
        ratios = f"{self.before:.2f}x of the baseline became {self.after:.2f}x"
        return f"{self.case}, {self.figure}: {ratios}, {grown:+.0%} since {self.since} (noise {self.noise:.2f})"


def entry(
    pairs: Mapping[str, Sequence[tuple[Figure, Figure]]],
    idle: Sequence[tuple[float, float]],
    *,
    beside: str,
    seconds: float,
    hop_ns: int,
) -> Entry:
    """What this run found, here and now. A pair is (baseline, proxy)."""
    cases: dict[str, Ratios] = {}
    for case, several in pairs.items():
        cases[case] = {
            "cpu": [ours.cpu_per_100k / base.cpu_per_100k for base, ours in several],
            "p50": [ours.p50 / base.p50 for base, ours in several],
            "p99": [ours.p99 / base.p99 for base, ours in several],
            "others": [max(base.others, ours.others) for base, ours in several],
        }
    if idle:
        cases["idle"] = {"memory": [ours / base for base, ours in idle]}
    rounded = {case: {name: [round(ratio, 3) for ratio in some] for name, some in found.items()} for case, found in cases.items()}
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Entry(commit=_commit(), date=date, beside=beside, seconds=seconds, machine=machine(), hop_ns=hop_ns, cases=rounded)


def append(path: Path, new: Entry) -> None:
    """One line more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(new.model_dump_json() + "\n")


def read(path: Path) -> list[Entry]:
    """All of a file, oldest first; nothing if there is none. Raises HistoryError, naming the line."""
    return list(_read(path)) if path.exists() else []


def _read(path: Path) -> Iterator[Entry]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield Entry.model_validate_json(line)
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise HistoryError(f"{path.name}, line {number}: {where}{': ' if where else ''}{first['msg']}") from None


def last_quiet(history: Sequence[Entry], new: Entry, case: str) -> Entry | None:
    """The last one that has this case, compares with `new`, and was quiet then."""
    return next((old for old in reversed(history) if case in old.cases and old.like(new) and old.quiet(case)), None)


def noise(ratios: Sequence[float]) -> float:
    """By how much the median of these rounds may be off: half of the distance between the lowest and the highest."""
    least = LEAST_NOISE if len(ratios) >= FEW else NOISE_OF_FEW
    return max((max(ratios) - min(ratios)) / 2, least * median(ratios))


def worse(history: Sequence[Entry], new: Entry) -> list[Worse]:
    """What grew since the last quiet run by more than the noise of both."""
    found = []
    for case, ratios in sorted(new.cases.items()):
        before = last_quiet(history, new, case)
        for figure in judged(case):
            if before is None or not (old := before.cases[case].get(figure)) or not (now := ratios.get(figure)):
                continue
            both = noise(old) + noise(now)
            if median(now) - median(old) > both:
                found.append(Worse(case, figure, median(old), median(now), both, f"{before.commit} of {before.date}"))
    return found


def judged(case: str) -> tuple[str, ...]:
    """The figures of a case that are compared."""
    at_a_rate = case in CASES and CASES[case].rate is not None
    return ("cpu", "memory", "p50") if at_a_rate else ("cpu", "memory")


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return run.stdout.strip()
