"""Results of real runs: drivers whose shares become one, endpoints in turn, a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.results.files import read
from loadtest.results.model import Comparison, RunResult, Sweep
from localkafka import LocalCluster
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess

pytestmark = pytest.mark.kafka

LOADTEST = [sys.executable, "-m", "proxy", "loadtest"]
QUICK = ["--duration-scale", "0.05", "--set", "rate=200"]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*LOADTEST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """What a command writes to standard output."""
    run = run_command(["loadtest", *arguments], 300)
    assert run.returncode in codes, (run.stdout, run.stderr)
    return run.stdout


def test_two_drivers_are_one_run(proxy: ProxyProcess, tmp_path: Path) -> None:
    whose = ["--driver-count", "2", "--run-id", "8f14e45f-ceea-467f-a9d5-e8f1c1f5d9f3"]
    shared = [*whose, "--json", "-", "--watch", f"proxy={proxy.process.pid}"]
    where = ["run", "produce", "--bootstrap", proxy.bootstrap, *QUICK]
    drivers = [start(*where, "--driver-index", str(index), *shared) for index in range(2)]
    said = [driver.communicate(timeout=120) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    logs = tmp_path / "pods.log"
    logs.write_text("".join(f"[pod/load-{index}/load] {out}" for index, (out, _) in enumerate(said)))
    finished("merge", str(logs), "--json", str(tmp_path / "whole.json"), "--html", str(tmp_path / "page.html"), codes=(0, 1))
    whole = read(str(tmp_path / "whole.json"))
    assert isinstance(whole, RunResult)
    parts = [json.loads(out) for out, _ in said]
    (phase,) = whole.phases
    shares = [tenant for part in parts for tenant in part["phases"][0]["tenants"]]
    (tenant,) = phase.tenants
    assert tenant.acknowledged == sum(share["acknowledged"] for share in shares) > 0
    assert tenant.latency.count == sum(share["latency"]["count"] for share in shares) >= tenant.acknowledged
    assert [(found.lost, found.acknowledged - found.consumed) for found in whole.verification] == [(0, 0)]
    assert [assertion.name for assertion in whole.assertions if not assertion.passed] == []
    assert [watched.name for watched in phase.watched] == ["proxy", "proxy (2)"]
    assert phase.watched[0].cpu_s > 0
    assert phase.watched[0].memory_bytes > 10 << 20
    assert (tmp_path / "page.html").read_text().count("<svg") > 4


def test_endpoints_take_turns(kafka3: LocalCluster, proxy: ProxyProcess, tmp_path: Path) -> None:
    direct = kafka3.bootstrap_servers.split(",")[0]
    file = str(tmp_path / "both.json")
    both = ["--bootstrap", direct, "--compare", proxy.bootstrap, "--rounds", "1"]
    finished("run", "produce", *both, *QUICK, "--json", file, codes=(0, 1))
    found = read(file)
    assert isinstance(found, Comparison)
    assert [run.endpoint.bootstrap for run in found.runs] == [direct, proxy.bootstrap]
    assert {"rate", "p50", "p99"} <= {measure.name for measure in found.measures}
    assert all(ratio.verdict == "unsure" for measure in found.measures if measure.name == "p50" for ratio in measure.ratios)
    assert "0 regressions" in finished("diff", file, file)


def test_a_sweep_ends_at_the_highest_rate(proxy: ProxyProcess, tmp_path: Path) -> None:
    file = str(tmp_path / "sweep.json")
    rates = ["--from", "50", "--to", "100", "--duration-scale", "0.05"]
    for _ in range(3):  # seconds of a busy machine are enough for a rate that is not reached
        finished("sweep", "produce", "--bootstrap", proxy.bootstrap, *rates, "--json", file, codes=(0, 1))
        found = read(file)
        assert isinstance(found, Sweep)
        if found.knee == 100:
            break
    assert (found.knee, found.bounded) == (100, False)


def test_another_cluster_is_no_endpoint_to_compare_with(kafka1: LocalCluster, kafka3: LocalCluster) -> None:
    run = start("run", "produce", "--bootstrap", kafka3.bootstrap_servers, "--compare", kafka1.bootstrap_servers, *QUICK)
    assert "are two clusters: their figures do not compare" in "".join(run.communicate(timeout=120))
    assert run.returncode == 2
