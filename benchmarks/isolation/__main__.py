"""`python -m benchmarks.isolation`: what each attack costs alice, cell by cell, in one run (`make bench-isolation`).

In: options. Out: a table of attacks and quota kinds: her throughput under the attack as a part of what it is alone, and her p99 as
a multiple; then what pipelined small requests do to new connections. Each attack alternates with peace, on one real broker behind
one proxy. Attacks at another proxy of a fleet are left out: tests have them.

The broker, the proxy, alice and who attacks share this machine, and an attack costs the broker too. So an attack that misses a
target is measured once more with alice and the attack directly at the broker: the proxy is not to make it worse than that."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.isolation.attack import LISTENER, Attack
from benchmarks.isolation.attacker import AttackProcess, Target
from benchmarks.isolation.attacks import ATTACKS, BY_NAME
from benchmarks.isolation.small_requests import ENDLESS, Waits, measure
from benchmarks.isolation.tenants import Tenants, settings, sharing, until
from benchmarks.isolation.victims import KINDS, Noticed, Victims
from benchmarks.local_proxy import LocalProxy, proxy_with

THROUGHPUT, P99 = 0.95, 2.0
"""Targets: at least this part of her throughput, at most this multiple of her p99."""
LEAST: Final = 0.005
"""Seconds: a p99 below this is taken for this, as the machine's own noise is as large."""
SETTLING: Final = 0.3
"""Seconds that an attack has before alice is measured, and that peace has after it."""


@dataclass(slots=True)
class Side:
    """What one workload did, alone or under an attack, summed over all turns."""

    steps: int = 0
    seconds: float = 0.0
    took: list[float] = field(default_factory=list)
    hurt: int = 0
    """errors, throttles and wrong answers"""

    def add(self, noticed: Noticed, seconds: float) -> None:
        self.steps += noticed.steps
        self.seconds += seconds
        self.took += noticed.took
        self.hurt += len(noticed.hurt)

    @property
    def rate(self) -> float:
        return self.steps / self.seconds

    @property
    def p99(self) -> float:
        return max(statistics.quantiles(self.took, n=100, method="inclusive")[98] if len(self.took) > 1 else 0.0, LEAST)


@dataclass(slots=True)
class Cell:
    """`direct`: the same at the broker itself, where this cell missed a target."""

    alone: Side = field(default_factory=Side)
    attacked: Side = field(default_factory=Side)
    direct: Cell | None = None

    @property
    def throughput(self) -> float:
        return self.attacked.rate / self.alone.rate

    @property
    def p99(self) -> float:
        return self.attacked.p99 / self.alone.p99

    @property
    def met(self) -> bool:
        """Within the targets by itself."""
        return self.throughput >= THROUGHPUT and self.p99 <= P99 and not self.attacked.hurt

    @property
    def good(self) -> bool:
        """Within the targets, or no worse than at the broker itself."""
        lowest, highest = THROUGHPUT, P99
        if self.direct is not None:
            lowest, highest = min(lowest, self.direct.throughput), max(highest, self.direct.p99)
        return self.throughput >= lowest and self.p99 <= highest and not self.attacked.hurt

    def __str__(self) -> str:
        shown = f"{self.throughput:.2f} {self.p99:.1f}x" + f" {self.attacked.hurt}!" * bool(self.attacked.hurt)
        if self.direct is not None:
            shown += f" ({self.direct.throughput:.2f} {self.direct.p99:.1f}x)"
        return shown if self.good else f"[red]{shown}[/red]"


class Bench:
    """One cluster, and a proxy that is replaced when somebody was hurt, so that this does not count for the next attack."""

    def __init__(self, tenants: Tenants, attackers: AttackProcess, folder: Path, kinds: tuple[str, ...]) -> None:
        self._tenants, self._attackers, self._folder, self._kinds = tenants, attackers, folder, kinds
        self._stack = ExitStack()
        self._proxy: LocalProxy | None = None
        self._number = 0

    def cells(self, attack: Attack, pairs: int, seconds: float) -> dict[str, Cell]:
        """By quota kind."""
        found = {kind: Cell() for kind in self._kinds}
        for _ in range(pairs):
            at = self._running().listeners
            self._turn(attack, found, seconds, self._running().bootstrap, (at["main"], at["other"], at["balanced"]))
            if any(cell.attacked.hurt for cell in found.values()):
                self.close()
        if attack.way != LISTENER and not all(cell.met for cell in found.values()):
            direct = {kind: Cell() for kind in self._kinds}
            for _ in range(pairs):
                self._turn(attack, direct, seconds, self._tenants.address, (self._tenants.address,) * 3)
            for kind, cell in found.items():
                cell.direct = None if cell.met else direct[kind]
        return found

    def _turn(self, attack: Attack, found: dict[str, Cell], seconds: float, address: str, listeners: tuple[str, str, str]) -> None:
        """Peace, and the attack."""
        for kind, noticed in self._watch(address, seconds).items():
            found[kind].alone.add(noticed, seconds)
        with self._attacked(attack, listeners):
            for kind, noticed in self._watch(address, seconds).items():
                found[kind].attacked.add(noticed, seconds)

    def close(self) -> None:
        """The next attack gets a new proxy."""
        self._stack.close()
        self._proxy = None

    def _watch(self, address: str, seconds: float) -> dict[str, Noticed]:
        """What alice does within this time, from when each workload has done a round."""
        victims = Victims(address, self._tenants.written, self._kinds)
        victims.start()
        victims.forget()
        time.sleep(seconds)
        return victims.finish()

    @contextlib.contextmanager
    def _attacked(self, attack: Attack, listeners: tuple[str, str, str]) -> Iterator[None]:
        user = f"mallory-{ATTACKS.index(attack)}"
        target = Target(*listeners, None, user, self._tenants.new_id(), ENDLESS)
        self._attackers.begin(attack.name, target)
        time.sleep(SETTLING)
        try:
            yield
        finally:
            self._attackers.end()
            self._tenants.remove(user + "-")
            time.sleep(SETTLING)

    def _running(self) -> LocalProxy:
        if self._proxy is None:
            self._number += 1
            folder = self._folder / f"proxy-{self._number}"
            folder.mkdir()
            proxy = self._stack.enter_context(proxy_with(settings(self._tenants), self._tenants.address, folder))
            until(lambda: proxy.metrics().get("storage_throttle_factor") == 0, "the full volume to be seen")
            self._proxy = proxy
        return self._proxy


def bench(folder: Path, attacks: list[Attack], kinds: tuple[str, ...], pairs: int, seconds: float) -> dict[str, dict[str, Cell]]:
    """By attack and quota kind."""
    found = {}
    with sharing(folder / "kafka") as tenants, AttackProcess() as attackers:
        made = Bench(tenants, attackers, folder, kinds)
        try:
            made.cells(attacks[0], 1, seconds)  # the broker's compiler has done its work then
            for attack in attacks:
                found[attack.name] = made.cells(attack, pairs, seconds)
                click.echo(f"{attack.name}: {sum(cell.good for cell in found[attack.name].values())} of {len(kinds)}", err=True)
        finally:
            made.close()
    return found


def show(console: Console, found: dict[str, dict[str, Cell]]) -> None:
    said = (
        f"throughput as a part of alone, at least {THROUGHPUT}; p99 as a multiple, at most {P99:g}x; N!: so often was alice hurt; "
        "in brackets what the same attack does to her directly at the broker"
    )
    kinds = list(next(iter(found.values())))
    table = Table("attack", *kinds, title=said)
    for name, cells in found.items():
        table.add_row(name, *(str(cell) for cell in cells.values()))
    console.print(table)
    every = [cell for cells in found.values() for cell in cells.values()]
    met, good = sum(cell.met for cell in every), sum(cell.good for cell in every)
    console.print(f"{met} of {len(every)} cells within the targets, {good - met} more no worse than directly at the broker")


def show_small(console: Console, found: list[Waits]) -> None:
    table = Table("pipelined", "connections", "way", "sent/s", "p50 ms", "p99 ms", "max ms", title="Metadata on new connections")
    for waits in found:
        figures = (waits.quantile(0.5), waits.quantile(0.99), max(waits.took))
        row = [waits.sort, str(waits.connections), waits.way, f"{waits.sent:,.0f}"]
        table.add_row(*row, *(f"{figure * 1000:.1f}" for figure in figures))
    console.print(table)


def as_json(found: dict[str, dict[str, Cell]], small: list[Waits]) -> str:
    """What was measured, for comparison with another run."""
    cells = {
        name: {kind: _figures(cell) | {"direct": cell.direct and _figures(cell.direct)} for kind, cell in row.items()}
        for name, row in found.items()
    }
    new = [
        {"way": w.way, "pipelined": w.sort, "connections": w.connections, "p50": w.quantile(0.5), "p99": w.quantile(0.99)}
        for w in small
    ]
    return json.dumps({"cells": cells, "new_connections": new}, indent=1)


def _figures(cell: Cell) -> dict[str, float]:
    return {"throughput": cell.throughput, "p99": cell.p99, "hurt": cell.attacked.hurt}


@click.command()
@click.option(
    "--attack", "names", multiple=True, type=click.Choice(list(BY_NAME)), help="May be given several times; all by default."
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="May be given several times; all by default.")
@click.option("--pairs", default=2, show_default=True, type=click.IntRange(1), help="Turns of peace and attack.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of each turn.")
@click.option(
    "--pipelining", "counts", multiple=True, type=int, default=(5, 100), show_default=True, help="Connections that pipeline."
)
@click.option("--only-pipelining", is_flag=True, help="Leave the table of attacks out.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file.")
def main(
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    pairs: int,
    seconds: float,
    counts: tuple[int, ...],
    only_pipelining: bool,
    out: Path | None,
) -> None:
    """What each attack costs an ordinary tenant, and what pipelined small requests do to new connections."""
    attacks = [attack for attack in ATTACKS if not attack.fleet and (not names or attack.name in names)]
    console = Console(width=200)
    with tempfile.TemporaryDirectory() as folder:
        found = {} if only_pipelining else bench(Path(folder), attacks, kinds or KINDS, pairs, seconds)
        if found:
            show(console, found)
        small = measure(Path(folder), counts, seconds) if only_pipelining or not names else []
        if small:
            show_small(console, small)
    if out is not None:
        out.write_text(as_json(found, small))


if __name__ == "__main__":
    main()
