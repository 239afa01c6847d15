"""`python -m loadtest.bench`: the proxy beside the baseline, in turn. In: options. Out: a table, and JSON if wanted."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from loadtest.bench.frames import CASES
from loadtest.bench.measure import Figure, measure

BASELINE = [sys.executable, "-m", "loadtest.bench.baseline", "{listen}", "{upstream}"]
LISTEN = ["--listen", "127.0.0.1:{listen}", "--admin", "127.0.0.1:{admin}"]
PROXY = [sys.executable, "-m", "proxy", "serve", "--upstream", "127.0.0.1:{upstream}", *LISTEN]


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="May be given several times; all by default.")
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of each.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
def main(cases: tuple[str, ...], rounds: int, seconds: float, json_file: Path | None) -> None:
    """What the proxy costs, beside a pass-through of raw sockets in the same run."""
    table = Table("case", "frames/s", "CPU s/100k", "baseline", "ratio", "peak MiB", title="CPU of the proxy, usage log on")
    figures = {}
    for case in cases or CASES:
        pairs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as logs:
                pairs.append((measure(BASELINE, case, seconds), measure([*PROXY, "--logs", logs], case, seconds)))
        figures[case] = [[vars_of(figure) for figure in pair] for pair in pairs]
        base, ours = ([pair[i] for pair in pairs] for i in (0, 1))
        ratio = statistics.median(b.cpu_per_100k / a.cpu_per_100k for a, b in pairs)
        table.add_row(
            case,
            f"{statistics.median(f.frames for f in ours) / seconds:,.0f}",
            f"{statistics.median(f.cpu_per_100k for f in ours):.3f}",
            f"{statistics.median(f.cpu_per_100k for f in base):.3f}",
            f"{ratio:.2f}x",
            f"{max(f.peak for f in ours) / 2**20:.0f}",
        )
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1))


def vars_of(figure: Figure) -> dict[str, float]:
    """A figure as JSON has it."""
    return {"cpu": figure.cpu, "frames": figure.frames, "peak": figure.peak}


if __name__ == "__main__":
    main()
