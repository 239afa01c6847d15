"""`python -m benchmarks.bench`: the proxy beside the baseline, in turn. In: options. Out: a table, a line in the
history, and JSON if wanted."""

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
from benchmarks.bench.history import Entry, HistoryError, append, entry, last_quiet, read, worse
from benchmarks.bench.measure import Figure, hop_ns, measure, memory_per_idle_connection
from benchmarks.bench.native import program
from benchmarks.bench.syscalls import system_calls
from benchmarks.bench.syscalls import table as table_of_calls
from benchmarks.local_proxy import serve_command
from localkafka.jars import cache_dir

T = TypeVar("T")
Settings = dict[str, Any]

LISTEN = ["--listen", "127.0.0.1:{listen}", "--admin", "127.0.0.1:{admin}"]
PROXY = serve_command("--upstream", "127.0.0.1:{upstream}", *LISTEN)

RATES = {
    "cluster_producer_byte_rate": 1 << 50,
    "cluster_consumer_byte_rate": 1 << 50,
    "cluster_request_rate": 1e9,
    "cluster_cold_read_rate": 1 << 50,
    "cluster_connection_rate": 1e9,
    **{f"cluster_{group}_request_rate": 1e9 for group in ("metadata", "fetch", "produce", "transaction")},
}
EVERYBODY = {"user": "<default>", "producer_ids_rate": 1e6, "controller_mutations_rate": 1e6, **RATES}
QUOTAS: Settings = {
    "exempt": {"users": ["operator"], "client_ids": ["operator"], "topics": ["__consumer_offsets", "__transaction_state"]},
    "quotas": {
        "entities": [EVERYBODY],
        "topics": {"total_bytes_in_per_sec": 1 << 50, "bytes_in_per_sec": {"t1": 1 << 40, "orders": 1 << 40}},
        "topic_rates": {"topics": {f"t{i}": {"bytes_in": 1 << 40, "bytes_out": 1 << 40} for i in range(10)}},
        "connections": {"per_address": 1e9},
        "storage": {
            "source": "local",
            "log_dirs": [tempfile.gettempdir()],
            "check_interval": "PT1S",
            "soft": {"min_available_bytes": 2},
            "hard": {"min_available_bytes": 1},
        },
    },
}
"""every kind of quota of users, client ids, topics and volumes, and nothing over it"""
OWNED = {"stored_bytes_hard": 1 << 49, "max_topics": 1_000_000, "max_partitions": 1_000_000}
EVERY_QUOTA: Settings = {
    **QUOTAS,
    "tenants": {"bench": {"users": ["ANONYMOUS"], "topic_prefixes": ["t"], **RATES, **OWNED}},
    "quotas": {
        **QUOTAS["quotas"],
        "stored_bytes": {"topics": {f"t{i}": {"hard": 1 << 49} for i in range(10)}},
        "topic_policy": {"partitions": {"max": 1_000_000}},
    },
}
"""those of tenants and stored bytes too"""
BESIDE: dict[str, Settings | None] = {"C": None, "no-quotas": {}, "no-tenants": QUOTAS}
"""What the proxy with every quota is measured beside: the pass-through in C, or a proxy with these settings."""

IDLE_CASE = "produce-100"


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="May be given several times; all by default.")
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of each.")
@click.option("--idle", default=400, show_default=True, help="Silent connections whose memory is measured; 0 for none.")
@click.option("--beside", type=click.Choice(list(BESIDE)), default="C", help="The pass-through in C, or a proxy with fewer quotas.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--check", is_flag=True, help="Exit code 1 if a case became worse than in the last quiet run, by more than noise.")
@click.option("--history", type=click.Path(path_type=Path), help="The file of the history [default: in the cache folder].")
@click.option("--syscalls", is_flag=True, help="Instead: count the system calls of a request (needs strace).")
def main(
    cases: tuple[str, ...],
    rounds: int,
    seconds: float,
    idle: int,
    beside: str,
    json_file: Path | None,
    check: bool,
    history: Path | None,
    syscalls: bool,
) -> None:
    """What the proxy costs with every kind of quota, nothing exceeded, beside a pass-through in the same run."""
    console, chosen = Console(width=140), cases or tuple(CASES)
    measured = partial(side_by_side, beside=BESIDE[beside])
    if syscalls:
        console.print(
            table_of_calls({case: measured(partial(system_calls, case=case, seconds=seconds)) for case in chosen}, beside)
        )
        return
    hop = hop_ns()
    found = {case: [measured(partial(measure, case=case, seconds=seconds)) for _ in range(rounds)] for case in chosen}
    console.print(table(found, beside, seconds))
    figures: dict[str, Any] = {case: [[asdict(figure) for figure in pair] for pair in pairs] for case, pairs in found.items()}
    sizes: list[tuple[float, float]] = []
    if idle:
        raise_file_limit()
        sizes = [measured(partial(memory_per_idle_connection, case=IDLE_CASE, count=idle)) for _ in range(rounds)]
        figures["idle"] = sizes
        ours, base, ratio = compare(sizes, lambda size: size / 1024)
        print(f"memory per idle connection: {ours:.1f} KiB, {beside} {base:.1f} KiB: {ratio:.2f}x (of {idle})")
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1))
    new = entry(found, sizes, beside=beside, seconds=seconds, hop_ns=hop)
    sys.exit(in_history(new, history or cache_dir() / "bench" / "history.jsonl", check=check))


def in_history(new: Entry, file: Path, *, check: bool) -> int:
    """Append to the file. The exit code: 0, 1 if something is worse, 2 if the file is not right."""
    try:
        history = read(file)
    except HistoryError as e:
        print(e, file=sys.stderr)
        return 2
    append(file, new)
    if busy := [case for case in new.cases if not new.quiet(case)]:
        print(f"not quiet, so later runs are not compared with it: {', '.join(busy)}")
    if not check:
        return 0
    if unknown := [case for case in new.cases if last_quiet(history, new, case) is None]:
        print(f"no quiet run of such a machine to compare with: {', '.join(unknown)}")
    found = worse(history, new)
    for each in found:
        print(f"worse: {each}")
    if not found:
        print(f"nothing is worse in {len(new.cases) - len(unknown)} compared cases")
    return 1 if found else 0


def side_by_side(measured: Callable[[list[str]], T], *, beside: Settings | None) -> tuple[T, T]:
    """(the pass-through, or the proxy with these settings; the proxy with every quota), one after the other."""
    with tempfile.TemporaryDirectory() as folder:

        def proxy(name: str, settings: Settings) -> list[str]:
            file = Path(folder) / f"{name}.json"
            file.write_text(json.dumps(settings))  # JSON is YAML
            return [*PROXY, "--logs", f"{folder}/logs", "--config", str(file)]

        base = [program("baseline"), "{listen}", "{upstream}"] if beside is None else proxy("beside", beside)
        return measured(base), measured(proxy("every", EVERY_QUOTA))


PICKS: tuple[tuple[Callable[[Figure], float], int], ...] = (
    (lambda figure: figure.cpu_per_100k, 3),
    (lambda figure: figure.p50 * 1e6, 0),
    (lambda figure: figure.p99 * 1e6, 0),
)
"""what the cells of a case show, and with how many digits"""


def table(found: dict[str, list[tuple[Figure, Figure]]], beside: str, seconds: float) -> Table:
    """A row for each case."""
    compared = (column for name in ("CPU s/100k", "p50 µs", "p99 µs") for column in (name, beside, "ratio"))
    shown = Table("case", "frames/s", *compared, "peak MiB", "others", title=f"With every quota beside {beside}, usage log on")
    for case, pairs in found.items():
        shown.add_row(case, *row(pairs, seconds))
    return shown


def row(pairs: list[tuple[Figure, Figure]], seconds: float) -> list[str]:
    """The cells of a case."""
    cells = [f"{statistics.median(ours.frames for _, ours in pairs) / seconds:,.0f}"]
    for pick, digits in PICKS:
        ours, base, ratio = compare(pairs, pick)
        cells += [f"{ours:.{digits}f}", f"{base:.{digits}f}", f"{ratio:.2f}x"]
    others = statistics.median(max(base.others, ours.others) for base, ours in pairs)
    return [*cells, f"{max(ours.peak for _, ours in pairs) / 2**20:.0f}", f"{others:.0%}"]


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
