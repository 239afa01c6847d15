"""The bench runs: its programs in C, the figures of a short run, system calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench import native
from benchmarks.bench.frames import CASES, PRODUCER_ID
from benchmarks.bench.history import read
from benchmarks.bench.measure import in_front, line, loading, machine_seconds, measure, memory_per_idle_connection
from benchmarks.bench.native import program
from benchmarks.bench.syscalls import Calls, by_name, parse, table

STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600           3       200           sendto
 30.00    0.000300           1       250        50 recvfrom
 10.00    0.000100           1         1           epoll_ctl
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000           2       451        50 total
"""

with_compiler = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("idempotent")])
def test_a_producer_id_is_set_in_every_batch(case: str) -> None:
    chosen = CASES[case]
    request, offsets = chosen.request(), chosen.producer_offsets()
    assert len(offsets) == chosen.topics**2
    assert {request[at : at + 14] for at in offsets} == {PRODUCER_ID.to_bytes(8, "big") + bytes(6)}


@with_compiler
@pytest.mark.parametrize("case", ["fetch-1m", "idempotent-10x10", "paced-100"])
def test_requests_pass_the_baseline(case: str) -> None:
    found = measure([program("baseline"), "{listen}", "{upstream}"], case, 0.2)
    assert found.frames > 0
    assert found.cpu > 0
    assert 0 < found.p50 <= found.p99
    assert 0 <= found.others <= 1
    assert machine_seconds() > 0


@with_compiler
def test_silent_connections_take_memory_of_the_baseline() -> None:
    assert memory_per_idle_connection([program("baseline"), "{listen}", "{upstream}"], "produce-100", 100) > 0


@with_compiler
def test_an_answer_that_was_changed_on_the_way_ends_the_load() -> None:
    """The sink answers Produce of one topic; the load waits for answers of ten times ten."""
    with (
        in_front([program("baseline"), "{listen}", "{upstream}"], ["produce-100"]) as parts,
        pytest.raises(SystemExit, match="the load failed"),
        loading(parts.listen, "produce-10x10", 0.2) as load,
    ):
        line(load)


@with_compiler
def test_a_run_gives_ratios_and_a_line_of_history(tmp_path: Path) -> None:
    history, figures = tmp_path / "history.jsonl", tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.bench", "--case", "paced-16k", "--rounds", "1"]
    options = ["--seconds", "0.2", "--idle", "0", "--history", str(history), "--json", str(figures), "--check"]
    run = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "paced-16k" in run.stdout
    (entry,) = read(history)
    assert set(entry.cases) == {"paced-16k"}
    (base, ours) = json.loads(figures.read_text())["paced-16k"][0]
    assert entry.cases["paced-16k"]["p50"] == [round(ours["p50"] / base["p50"], 3)]


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    native.program.cache_clear()
    with pytest.raises(SystemExit, match="no-such-compiler was not found"):
        program("hop")


def test_system_calls_are_read_from_the_report_of_strace() -> None:
    assert parse(STRACE) == {"sendto": 200, "recvfrom": 250, "epoll_ctl": 1}
    ours: Calls = {name: count / 100 for name, count in parse(STRACE).items()}
    assert by_name({**ours, "rare": 0.001}) == "recvfrom 2.50, sendto 2.00, epoll_ctl 0.01"
    assert table({"produce-100": (ours, ours)}, "C").row_count == 1
