"""The figures and the plot of docs/fleet.md: `python -m benchmarks.fleet_simulation` (`make simulate-fleet`); about 20 minutes.

In: nothing. Out: docs/fleet.json with what was simulated, docs/fleet.svg, and tables on standard output for the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fleet_simulation.fleet import Plan, bound, overshoot, run
from quota.ledger import Away

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS: Final = Path(__file__).parents[2] / "docs"
PROXIES: Final = (2, 4, 10, 20, 50, 100, 200, 500)
INTERVALS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
SHOWN: Final = (4, 20, 100, 500)
TENANTS: Final = 100_000
LOADED: Final = ((4, 0.1), (4, 1.0), (100, 0.1), (100, 1.0), (500, 0.1), (500, 1.0))

Rows = list[dict[str, Any]]


def accuracy() -> Iterator[dict[str, Any]]:
    """One busy user at all proxies."""
    for proxies in PROXIES:
        connections = max(64, 2 * proxies)
        for interval in INTERVALS:
            plan = Plan(proxies, interval=interval, connections=connections, requests=8.0 * connections, seconds=100, warm=40)
            found = run(plan)
            told = {"rate": found.rate, "overshoot": overshoot(plan, found), "bound": bound(plan)}
            yield {"proxies": proxies, "interval": interval, **told}


def faults() -> Iterator[dict[str, Any]]:
    """Faults from second 40 on, with four proxies and 64 connections unless the name says otherwise."""
    plain = Plan(4, seconds=100, warm=40)
    wrong = {
        "each counts for itself (`kind: local`)": replace(plain, shared=False),
        "nothing": plain,
        "half of the connections at one proxy": replace(plain, skew=2.0),
        "20 proxies, each connection moves every 5 s": replace(plain, proxies=20, moves=0.2),
        "100 proxies, 8 connections, each moves every second": replace(plain, proxies=100, connections=8, moves=1.0),
        "one batch in ten is lost, and one answer in ten": replace(plain, loss=0.1),
        "the store restarts empty": replace(plain, flush=60.0),
        "the store is away for 20 s, `when_away: share`": replace(plain, away=(60.0, 80.0)),
        "the store is away for 20 s, `when_away: split`": replace(plain, away=(60.0, 80.0), when_away=Away.SPLIT),
    }
    for name, plan in wrong.items():
        found = run(plan)
        away, after = found.pieces[62:80], found.pieces[81:]
        told = {
            "rate": found.rate,
            "overshoot": overshoot(plan, found),
            "away": sum(away) / len(away),
            "after": sum(after) / len(after),
        }
        yield {"what": name, **told}


def load() -> Iterator[dict[str, Any]]:
    """Many users, each at two proxies on average, one request per second at each."""
    for proxies, interval in LOADED:
        found = run(Plan(proxies, interval=interval, busy=0, quiet=TENANTS, seconds=5, warm=3))
        told = {"batches": found.batches, "items": found.items, "sent": found.sent, "got": found.got}
        yield {"proxies": proxies, "interval": interval, **told}


PARTS: Final[dict[str, Callable[[], Iterator[dict[str, Any]]]]] = {"accuracy": accuracy, "faults": faults, "load": load}


def tables(data: dict[str, Rows]) -> Iterator[str]:
    yield "| proxies | " + " | ".join(f"every {interval:g} s" for interval in INTERVALS) + " |"
    yield "|" + "---|" * (len(INTERVALS) + 1)
    for proxies in PROXIES:
        cells = [row for row in data["accuracy"] if row["proxies"] == proxies]
        yield (
            f"| {proxies} | "
            + " | ".join(f"{row['rate']:.3f}, {row['overshoot']:.2f} ({row['bound']:.2f})" for row in cells)
            + " |"
        )
    yield ""
    yield "| what goes wrong | accepted / quota | overshoot | meanwhile | afterwards |"
    yield "|---|---|---|---|---|"
    for row in data["faults"]:
        yield f"| {row['what']} | {row['rate']:.3f} | {row['overshoot']:.2f} s | {row['away']:.2f} | {row['after']:.2f} |"
    yield ""
    yield "| proxies | sync every | batches/s | owners/s | to Redis | back |"
    yield "|---|---|---|---|---|---|"
    for row in data["load"]:
        traffic = f"{row['sent'] / 1e6:.1f} MB/s | {row['got'] / 1e6:.1f} MB/s"
        yield f"| {row['proxies']} | {row['interval']:g} s | {row['batches']:,.0f} | {row['items']:,.0f} | {traffic} |"


def draw(data: dict[str, Rows]) -> None:
    """docs/fleet.svg."""
    import matplotlib as mpl  # here, as it takes longer than all else that tests import
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "fleet"  # the same drawing for the same figures
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, proxies in enumerate(SHOWN):
        rows = [row for row in data["accuracy"] if row["proxies"] == proxies]
        _line(left, rows, "overshoot", number, f"{proxies} proxies")
        left.plot([row["interval"] for row in rows], [row["bound"] for row in rows], ":", color=f"C{number}", linewidth=1)
        rows = [row for row in data["load"] if row["proxies"] == proxies]
        if rows:
            _line(right, [row | {"owners": row["items"] / 1000} for row in rows], "owners", number, f"{proxies} proxies")
    left.set_yscale("log")
    right.set_ylim(bottom=0)
    _axes(left, "Accepted beyond one proxy's, in seconds of the quota (dotted: the bound)")
    _axes(right, f"Thousand owners per second that Redis adds up, of {TENANTS:,}")
    figure.savefig(DOCS / "fleet.svg", metadata={"Date": None})


def _line(axes: Axes, rows: Rows, name: str, number: int, label: str) -> None:
    axes.plot([row["interval"] for row in rows], [row[name] for row in rows], "o-", color=f"C{number}", label=label)


def _axes(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log")
    axes.set_xticks(INTERVALS, [f"{interval:g}" for interval in INTERVALS])
    axes.set_xlabel("sync_interval in seconds")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def main(parts: list[str]) -> None:
    file = DOCS / "fleet.json"
    data: dict[str, Rows] = json.loads(file.read_text()) if file.exists() else {}
    for name in parts or PARTS:
        data[name] = []
        for row in PARTS[name]():
            print(row, file=sys.stderr)
            data[name].append({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
            file.write_text(json.dumps(data, indent=1) + "\n")
    if data.keys() == PARTS.keys():
        draw(data)
        print("\n".join(tables(data)))


if __name__ == "__main__":
    main(sys.argv[1:])
