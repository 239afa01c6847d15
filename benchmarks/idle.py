"""`python -m benchmarks.idle`: what thousands of silent connections cost the proxy, and those who are not silent.

In: how many. Out: the proxy's memory without and with them, what each takes, whether all of it is used again by the next
thousands; how quick another client is answered meanwhile; the CPU that silence takes. Each connection sends one request first."""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench.__main__ import PROXY, raise_file_limit
from benchmarks.bench.measure import cpu_seconds, in_front, line, loading, memory, silent

CASE, OTHER = "produce-100", "paced-100"
ROUNDS, SECONDS = 3, 3.0
"""measurements of the other client, before and meanwhile; medians count"""
WAVES = 4
"""times that as many silent connections come again"""
MIB = 1 << 20
ALLOWED, ALLOWED_EACH = 90 * MIB, 16 << 10
"""bytes that the proxy may take without connections, and for each: the project's own budget"""
SPARE = 200
"""file descriptors for all else"""
CLOSE_LIMIT = 60.0


@click.command()
@click.option("--count", default=5000, show_default=True, type=click.IntRange(1), help="Silent connections.")
@click.option("--silence", default=20.0, show_default=True, help="Seconds over which the CPU of silence is measured.")
def main(count: int, silence: float) -> None:
    """What thousands of silent connections cost the proxy, and those who are not silent."""
    enough_files(2 * count + SPARE)
    with tempfile.TemporaryDirectory() as folder, in_front(command(Path(folder), count), [CASE]) as parts:
        proxy = Proxy(parts.proxy, parts.listen, count)
        quick_before = proxy.quickness()
        before = proxy.resident
        with proxy.silent_ones():
            meanwhile, waste = proxy.resident, proxy.cpu_per_minute(silence)
            quick_meanwhile = proxy.quickness()
        after = proxy.resident
        again = []
        for _ in range(WAVES):
            with proxy.silent_ones():
                again.append(proxy.resident)
    shown = Table("", "value", title=f"{count:,} silent connections")
    for name, value in (
        ("RSS before", f"{before / MIB:.1f} MiB"),
        ("RSS with them", f"{meanwhile / MIB:.1f} MiB"),
        ("allowed: 90 MiB + 16 KiB each", f"{(ALLOWED + count * ALLOWED_EACH) / MIB:.1f} MiB"),
        ("for each", f"{(meanwhile - before) / count / 1024:.1f} KiB"),
        ("RSS after they closed", f"{after / MIB:.1f} MiB"),
        ("RSS with as many again, and again", ", ".join(f"{each / MIB:.1f}" for each in again) + " MiB"),
        ("grown from the second time to the last", f"{(again[-1] - again[0]) / 1024:+.0f} KiB"),
        ("another client, p50 before", f"{quick_before * 1e6:.0f} µs"),
        ("another client, p50 meanwhile", f"{quick_meanwhile * 1e6:.0f} µs ({quick_meanwhile / quick_before:.2f}x)"),
        ("CPU of silence", f"{waste:.2f} s in a minute"),
    ):
        shown.add_row(name, value)
    Console(width=100).print(shown)


def command(folder: Path, count: int) -> list[str]:
    """The proxy's, with a limit that allows these connections; its files go to `folder`."""
    config = folder / "limits.yaml"
    config.write_text(f"limits: {{max_connections: {count + SPARE}}}\n")
    return [*PROXY, "--logs", str(folder), "--config", str(config)]


class Proxy:
    """The proxy under test: its process, where it listens, and how many silent connections there are to be."""

    def __init__(self, pid: int, listen: int, count: int) -> None:
        self._pid, self._listen, self._count = pid, listen, count

    @property
    def resident(self) -> int:
        """Bytes."""
        return memory(self._pid, "VmRSS")

    def quickness(self) -> float:
        """Seconds in which half of another client's requests are answered, at 2000 in a second."""
        return statistics.median(self._p50() for _ in range(ROUNDS))

    def _p50(self) -> float:
        with loading(self._listen, OTHER, SECONDS) as load:
            took: float = line(load)["p50"]
            return took

    def cpu_per_minute(self, seconds: float) -> float:
        """CPU seconds per minute, measured for `seconds` from now on."""
        before = cpu_seconds(self._pid)
        time.sleep(seconds)
        return (cpu_seconds(self._pid) - before) * 60 / seconds

    @contextmanager
    def silent_ones(self) -> Iterator[None]:
        """The silent connections, from when each was answered once; at the end they are closed, and the proxy has noticed."""
        before = self._open_files()
        with silent(self._listen, CASE, self._count):
            yield
        deadline = time.monotonic() + CLOSE_LIMIT
        while self._open_files() > before + SPARE // 2:
            if time.monotonic() > deadline:
                raise SystemExit(f"{CLOSE_LIMIT:.0f} s after they closed, the proxy still has {self._open_files()} open files")
            time.sleep(0.1)

    def _open_files(self) -> int:
        return len(os.listdir(f"/proc/{self._pid}/fd"))


def enough_files(needed: int) -> None:
    """Allow this process and its children as many open files as may be. A proxy has two sockets for each connection."""
    raise_file_limit()
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if needed > hard_limit:
        fits = max((hard_limit - SPARE) // 2, 1)
        raise click.ClickException(
            f"{needed} open files are needed, {hard_limit} allowed: raise the hard limit (as root `ulimit -Hn {needed}`, "
            f"or `LimitNOFILE={needed}` of a service), or ask for fewer connections: --count {fits}"
        )


if __name__ == "__main__":
    main()
