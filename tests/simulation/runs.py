"""Many runs, and what is done with one that fails. In: seeds, a time. Out: outcomes; for a failure the fewest faults that still
show it, found by leaving out more and more of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import Final

from tests.simulation.world import Outcome, Shape, World

SHAPES: Final = (
    Shape(some_kinds=True),
    Shape(seconds=20.0, proxies=3, producers=8, fault_every=0.7),
    Shape(seconds=30.0, proxies=1, brokers=1, producers=3),
    Shape(fault_every=1e9),
    Shape(),
    Shape(proxies=3, some_kinds=True),
    Shape(seconds=30.0, proxies=1, brokers=1, producers=3, some_kinds=True),
    Shape(some_kinds=True),
)
"""What a seed stands for: the seed modulo their number. Without faults, all has to be within narrower bounds."""
TRIES: Final = 40
"""Runs that are spent on making a failure smaller."""


def run(seed: int, kept: Sequence[int] | None = None) -> Outcome:
    """One run; `kept`: the places of the faults that happen, all of them if None."""
    return World(seed, SHAPES[seed % len(SHAPES)], kept).run()


def shrink(outcome: Outcome, again: Callable[[Sequence[int]], Outcome], tries: int = TRIES) -> tuple[list[int], Outcome]:
    """The fewest faults that were found to fail, and how: halves are left out, then quarters, then single ones."""
    kept, smallest = list(range(len(outcome.faults))), outcome
    size = max(len(kept) // 2, 1)
    while tries > 0 and kept:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            tries -= 1
            found = again(rest)
            if found.wrong:
                kept, smallest = rest, found
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                break
            size = max(size // 2, 1)
            continue
        size = min(size, max(len(kept) // 2, 1))
    return kept, smallest


@dataclass
class Total:
    """What runs have shown together."""

    runs: int = 0
    seconds: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.seconds += outcome.seconds
        for name, value in outcome.figures.items():
            self.figures[name] = (
                max(self.figures[name], value) if name.startswith(("longest", "closest")) else self.figures[name] + value
            )  # type: ignore[assignment]

    def __str__(self) -> str:
        faults = sum(int(count) for name, count in self.figures.items() if name.startswith("fault: "))
        lines = [f"{self.runs} runs, {self.seconds / 3600:.2f} simulated hours, {faults} faults"]
        return "\n".join(lines + [f"  {value:>12g}  {name}" for name, value in sorted(self.figures.items())])


def until(seconds: float, seeds: Iterable[int]) -> Iterator[Outcome]:
    """Runs of these seeds, until so many CPU seconds have passed."""
    ends = process_time() + seconds
    for seed in seeds:
        yield run(seed)
        if process_time() >= ends:
            return
