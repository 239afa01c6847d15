"""System calls that a request costs, counted by strace. In: a proxy and a case. Out: calls for each request, by name.

strace makes each call slower, so that more requests are read at once than without it: compare proxies, not days. `paced-100` is
nearest to what happens without it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from benchmarks.bench.measure import in_front, line, loading

SHOWN = 0.005
"""Calls for each request, below which a name is left out."""

Calls = dict[str, float]
"""Name to calls for each request."""


def system_calls(proxy: list[str], case: str, seconds: float) -> Calls:
    """Of a proxy between the load and the sink."""
    if shutil.which("strace") is None:
        raise SystemExit("strace was not found: on Debian, apt-get install strace")
    with in_front(proxy, [case]) as parts, tempfile.NamedTemporaryFile("r") as counts:
        with counting(parts.proxy, counts.name), loading(parts.listen, case, seconds) as load:
            answers = line(load)["all"]
        return {name: count / answers for name, count in parse(Path(counts.name).read_text()).items()}


@contextmanager
def counting(pid: int, file: str) -> Iterator[None]:
    """Count the calls of a process and its threads during the block."""
    command = ["strace", "-c", "-f", "-p", str(pid), "-o", file]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        said = strace.stderr.readline()
        if "attached" not in said:
            raise SystemExit(f"strace cannot be used here: {said.strip()}")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)


def parse(report: str) -> dict[str, int]:
    """Name to calls, of what `strace -c` prints: rows of share, seconds, µs for each call, calls, errors if there are any, name."""
    rows = [row.split() for row in report.splitlines()]
    found = {row[-1]: int(row[3]) for row in rows if len(row) in (5, 6) and row[3].isdigit()}
    found.pop("total", None)
    return found


def table(found: dict[str, tuple[Calls, Calls]], beside: str) -> Table:
    """A row for each case, with (baseline, proxy)."""
    shown = Table("case", beside, "proxy", "ratio", f"{beside}, by name", "proxy, by name", title="System calls for each request")
    for case, (base, ours) in found.items():
        sums = sum(base.values()), sum(ours.values())
        shown.add_row(case, f"{sums[0]:.2f}", f"{sums[1]:.2f}", f"{sums[1] / sums[0]:.2f}x", by_name(base), by_name(ours))
    return shown


def by_name(calls: Calls) -> str:
    """The most frequent first."""
    frequent = sorted(((count, name) for name, count in calls.items() if count >= SHOWN), reverse=True)
    return ", ".join(f"{name} {count:.2f}" for count, name in frequent)
