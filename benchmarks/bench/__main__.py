"""`python -m benchmarks.bench`: the proxy beside the baseline, in turn. In: options. Out: a table, and JSON if wanted."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench.frames import CASES
from benchmarks.bench.history import FILE, Entry, HistoryError, append, entry, last_like, worse
from benchmarks.bench.measure import Figure, measure, memory_per_idle_connection
from benchmarks.local_proxy import serve_command

T = TypeVar("T")

BASELINE = [sys.executable, "-m", "benchmarks.bench.baseline", "{listen}", "{upstream}"]
LISTEN = ["--listen", "127.0.0.1:{listen}", "--admin", "127.0.0.1:{admin}"]
PROXY = serve_command("--upstream", "127.0.0.1:{upstream}", *LISTEN)

EVERYBODY = {
    "user": "<default>",
    "cluster_producer_byte_rate": 1 << 50,
    "cluster_consumer_byte_rate": 1 << 50,
    "cluster_request_rate": 1e9,
    "producer_ids_rate": 1e6,
    "controller_mutations_rate": 1e6,
}
EVERY_QUOTA = {
    "exempt": {"users": ["operator"], "client_ids": ["operator"], "topics": ["__consumer_offsets", "__transaction_state"]},
    "quotas": {
        "entities": [EVERYBODY],
        "topics": {"total_bytes_in_per_sec": 1 << 50, "bytes_in_per_sec": {"t1": 1 << 40, "orders": 1 << 40}},
        "storage": {
            "source": "local",
            "log_dirs": [tempfile.gettempdir()],
            "check_interval": "PT1S",
            "soft": {"min_available_bytes": 2},
            "hard": {"min_available_bytes": 1},
        },
    },
}
"""every kind of quota, and nothing over it"""

IDLE_CASE = "produce-100"


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="May be given several times; all by default.")
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of each.")
@click.option("--idle", default=400, show_default=True, help="Silent connections whose memory is measured; 0 for none.")
@click.option("--quotas", is_flag=True, help="Instead: the proxy with every kind of quota, nothing exceeded, beside one without.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--record", is_flag=True, help="Append the ratios to the history.")
@click.option("--check", is_flag=True, help="Exit code 1 if a ratio is over 10% above the last of such a machine in the history.")
@click.option("--history", type=click.Path(path_type=Path), default=FILE, help="The file of the history.")
def main(
    cases: tuple[str, ...],
    rounds: int,
    seconds: float,
    idle: int,
    quotas: bool,
    json_file: Path | None,
    record: bool,
    check: bool,
    history: Path,
) -> None:
    """What the proxy costs, beside a pass-through of raw sockets in the same run."""
    table = Table(
        *(
            "case",
            "frames/s",
            "CPU s/100k",
            "baseline",
            "ratio",
            "p50 µs",
            "baseline",
            "ratio",
            "p99 µs",
            "baseline",
            "ratio",
            "peak MiB",
        ),
        title=f"The proxy {'with every quota beside one without' if quotas else 'beside a pass-through'}, usage log on."
        " CPU, time to the answer, memory",
    )
    measured = partial(side_by_side, quotas=quotas)
    figures: dict[str, Any] = {}
    found: dict[str, list[tuple[Figure, Figure]]] = {}
    sizes: list[tuple[float, float]] = []
    for case in cases or CASES:
        pairs = [measured(partial(measure, case=case, seconds=seconds)) for _ in range(rounds)]
        found[case] = pairs
        figures[case] = [[asdict(figure) for figure in pair] for pair in pairs]
        table.add_row(case, *row(pairs, seconds))
    if idle:
        raise_file_limit()
        sizes = [measured(partial(memory_per_idle_connection, case=IDLE_CASE, count=idle)) for _ in range(rounds)]
        figures["idle"] = sizes
    Console(width=140).print(table)
    if idle:
        ours, base, ratio = compare(sizes, lambda size: size / 1024)
        print(f"memory per idle connection: {ours:.1f} KiB, pass-through {base:.1f} KiB: {ratio:.2f}x (of {idle})")
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1))
    if record or check:
        sys.exit(in_history(entry(found, sizes, quotas=quotas, seconds=seconds), history, record=record, check=check))


def in_history(new: Entry, history: Path, *, record: bool, check: bool) -> int:
    """The exit code: 0, 1 for a regression, 2 if the file is not right."""
    try:
        last = last_like(history, new)
    except HistoryError as e:
        print(e, file=sys.stderr)
        return 2
    if record:
        append(history, new)
    if not check:
        return 0
    if last is None:
        print("the history has no measurement of such a machine: nothing to compare")
        return 0
    regressions = worse(last, new)
    for regression in regressions:
        print(f"slower than {last.commit} of {last.date}: {regression}")
    print(f"{len(regressions)} regressions since {last.commit} of {last.date}")
    return 1 if regressions else 0


def side_by_side(measured: Callable[[list[str]], T], *, quotas: bool) -> tuple[T, T]:
    """(the pass-through, or the proxy without quotas; the proxy), one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        logging = [*PROXY, "--logs", f"{folder}/logs"]
        if not quotas:
            return measured(BASELINE), measured(logging)
        settings = Path(folder) / "settings.json"
        settings.write_text(json.dumps(EVERY_QUOTA))  # JSON is YAML
        return measured(logging), measured([*logging, "--config", str(settings)])


PICKS: tuple[tuple[Callable[[Figure], float], int], ...] = (
    (lambda figure: figure.cpu_per_100k, 3),
    (lambda figure: figure.p50 * 1e6, 0),
    (lambda figure: figure.p99 * 1e6, 0),
)
"""what the cells of a case show, and with how many digits"""


def row(pairs: list[tuple[Figure, Figure]], seconds: float) -> list[str]:
    """The cells of a case."""
    cells = [f"{statistics.median(ours.frames for _, ours in pairs) / seconds:,.0f}"]
    for pick, digits in PICKS:
        ours, base, ratio = compare(pairs, pick)
        cells += [f"{ours:.{digits}f}", f"{base:.{digits}f}", f"{ratio:.2f}x"]
    return [*cells, f"{max(ours.peak for _, ours in pairs) / 2**20:.0f}"]


def compare(pairs: Sequence[tuple[T, T]], pick: Callable[[T], float]) -> tuple[float, float, float]:
    """Medians of the proxy, of the pass-through, and of the ratios within a round."""
    ours, base = (statistics.median(pick(pair[i]) for pair in pairs) for i in (1, 0))
    return ours, base, statistics.median(pick(b) / pick(a) for a, b in pairs)


def raise_file_limit() -> None:
    """A proxy has two sockets for each connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
