"""How tests are shared out to workers: each cluster is started once, as long as that keeps nobody waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests import conftest
from tests.parallel import (
    CLUSTERS,
    KAFKA,
    MOSTLY_WAIT,
    PARTS,
    SECONDS,
    SPARK,
    TOGETHER,
    WAITING,
    choose,
    clusters_of,
    needs_of,
    unit_of,
)
from tests.real import conftest as real

ROOT = Path(__file__).parents[2]
NOBODYS = frozenset[str]()
LONG, MIDDLE, BRIEF = "tests/real/test_loadtest.py", "tests/real/test_storage.py", "tests/wire/test_fetch.py"


def needing(**needs: str) -> dict[str, frozenset[str]]:
    """Units by their short names → the clusters that they need."""
    units = {"long": LONG, "middle": MIDDLE, "brief": BRIEF}
    return {units[name]: frozenset(clusters.split()) for name, clusters in needs.items()}


@pytest.mark.parametrize(
    ("left", "own", "others", "chosen"),
    [
        (needing(brief="", long="", middle=""), "", [""], LONG),
        (needing(brief="", long="kafka3", middle="kafka1"), "", [""], LONG),
        (needing(brief="", long="kafka3", middle="kafka1"), "kafka1", ["kafka3"], MIDDLE),
        (needing(brief="kafka1", long="", middle="kafka3"), "kafka1", [""], BRIEF),
        (needing(long="", middle="kafka3"), "kafka1", [""], LONG),
        (needing(brief="kafka1", long="kafka3 kafka1", middle="kafka1"), "", [""], MIDDLE),
        (needing(brief="kafka3", long="", middle="kafka3"), "", ["", "", ""], LONG),
    ],
)
def test_files_of_a_cluster_come_one_after_the_other_and_the_longest_first(
    left: dict[str, frozenset[str]], own: str, others: list[str], chosen: str
) -> None:
    assert choose(left, frozenset(own.split()), [frozenset(it.split()) for it in others]) == chosen


CLIENTS, MUTATIONS, RATES = (f"tests/real/test_{name}.py" for name in ("clients", "mutations", "rates"))
KAFKA3 = frozenset({"kafka3"})


@pytest.mark.parametrize(
    ("left", "chosen"),
    [
        ({CLIENTS: KAFKA3, MUTATIONS: NOBODYS, RATES: NOBODYS}, MUTATIONS),
        ({CLIENTS: KAFKA3, MUTATIONS: KAFKA3, RATES: NOBODYS}, CLIENTS),
    ],
)
def test_a_second_worker_gets_a_cluster_where_the_first_would_be_the_last_to_end(
    left: dict[str, frozenset[str]], chosen: str
) -> None:
    assert choose(left, NOBODYS, [KAFKA3]) == chosen


def test_many_files_of_a_cluster_come_before_a_longer_one() -> None:
    """Together they take longest."""
    assert choose({LONG: NOBODYS, CLIENTS: KAFKA3, MUTATIONS: KAFKA3, RATES: KAFKA3}, NOBODYS, [NOBODYS]) == CLIENTS


def test_what_needs_spark_is_one_unit() -> None:
    marked = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/test_*.py")
        if "mark.spark" in path.read_text() and path != Path(__file__)
    }
    assert {unit_of(path) for path in marked} == {SPARK}


def test_the_clusters_of_a_file_are_found() -> None:
    assert clusters_of("def test(kafka3: LocalCluster, kafka1: LocalCluster)") == {"kafka1", "kafka3"}
    assert clusters_of("from tests.kafka33 import kafka") == NOBODYS
    assert clusters_of("def test_it(proxy: ProxyProcess, name: str) -> None:") == {"kafka3"}, "which that fixture needs"
    assert clusters_of("def proxy() -> ProxyProcess:\ndef test_it(proxy: ProxyProcess)") == NOBODYS, "a proxy of its own"
    assert all(hasattr(conftest, name) or hasattr(real, name) for name in CLUSTERS)


def test_a_file_needs_its_clusters_and_one_that_mostly_waits_the_time_for_it() -> None:
    assert needs_of("tests/clients/test_limits.py", ROOT) == {WAITING}
    assert needs_of("tests/clients/test_tls.py", ROOT) == needs_of(SPARK, ROOT) == NOBODYS
    assert needs_of(LONG, ROOT) == clusters_of((ROOT / LONG).read_text()) != NOBODYS
    assert needs_of(str(Path(__file__).relative_to(ROOT)), ROOT) == NOBODYS, "it names them only"


def test_what_needs_a_cluster_is_marked() -> None:
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        text = path.read_text()
        assert not clusters_of(text) or KAFKA in text or path == Path(__file__), path


def run_pytest(folder: Path, workers: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder that is none of this project's."""
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


ASKS = """
import pathlib
import pytest
from tests.cluster_pool import ClusterPool

pytestmark = pytest.mark.parametrize("name", {names})

class Cluster:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        self.say("starts")
        return self
    def __exit__(self, *_):
        self.say("ends")
    def say(self, what):
        with pathlib.Path("said").open("a") as said:
            said.write(f"{{self.name}} {{what}}\\n")

@pytest.fixture(scope="module")
def pool(pytestconfig):
    return pytestconfig.pluginmanager.get_plugin("clusters")

def test_it(name, pool):
    pool.get(name, lambda: Cluster(name)).say("is used")
"""
POOLS = """
from tests import parallel
from tests.cluster_pool import ClusterPool

def pytest_configure(config):
    config.pluginmanager.register(ClusterPool(), "clusters")
"""


ONE, BOTH, OTHER = ["kafka1 is used"], ["kafka1 is used", "kafka3 starts", "kafka3 is used"], ["kafka3 is used"]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (1, ["kafka1 starts", *ONE, *BOTH, "kafka1 ends", *OTHER, "kafka3 ends"]),
        (0, ["kafka1 starts", *ONE, *BOTH, *OTHER]),
    ],
)
def test_a_cluster_ends_before_a_file_that_does_not_ask_for_it(tmp_path: Path, workers: int, said: list[str]) -> None:
    """Without workers all last to the end."""
    (tmp_path / "conftest.py").write_text(POOLS)
    for file, names in {"test_a": ["kafka1"], "test_b": ["kafka1", "kafka3"], "test_c": ["kafka3"]}.items():
        (tmp_path / f"{file}.py").write_text(ASKS.format(names=names))
    run = run_pytest(tmp_path, workers, "--dist", "load")
    assert run.returncode == 0, run.stdout
    lines = (tmp_path / "said").read_text().splitlines()
    assert lines[: len(said)] == said
    assert sorted(lines[len(said) :]) == ([] if workers else ["kafka1 ends", "kafka3 ends"])


TWO_PARTS = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with pathlib.Path(os.environ["PYTEST_XDIST_WORKER"]).open("a") as ran:
        ran.write(f"{number}\\n")
"""


def test_tests_of_one_file_are_dealt_to_workers_where_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"{SHARES_OUT}\nparallel.PARTS['tests/test_a.py'] = 2\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TWO_PARTS)
    run = run_pytest(tmp_path, 2)
    assert run.returncode == 0, run.stdout
    assert sorted((tmp_path / f"gw{worker}").read_text().split() for worker in (0, 1)) == [list("0246"), list("1357")]


def test_all_that_is_named_is_there() -> None:
    for path in chain(*TOGETHER.values(), MOSTLY_WAIT, PARTS, (start for start in SECONDS if start != SPARK)):
        assert (ROOT / path).exists(), path


CRASHES_ONCE = """
import os, pathlib

def test_before(): pass

def test_it():
    if not (there := pathlib.Path("crashed")).exists():
        there.touch()
        os.abort()
"""
PASSES = "def test_one(): pass\ndef test_other(): pass\n"
SHARES_OUT = """
from tests import parallel

def pytest_xdist_make_scheduler(config, log):
    return parallel.scheduler(config, log)
"""


@pytest.mark.parametrize(("workers", "passing"), [(1, 0), (1, 1), (2, 11)])
def test_a_run_ends_although_a_worker_crashed(tmp_path: Path, workers: int, passing: int) -> None:
    """Every test has run at the end, and the one that crashed is told as failed."""
    (tmp_path / "conftest.py").write_text(SHARES_OUT)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(CRASHES_ONCE)
    for number in range(passing):
        (tmp_path / "tests" / f"test_b{number}.py").write_text(PASSES)
    run = run_pytest(tmp_path, workers, "-v")
    assert f"1 failed, {2 * (passing + 1)} passed" in run.stdout, run.stdout
