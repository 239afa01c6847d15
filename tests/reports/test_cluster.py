"""On a real cluster: a standalone master and two workers on loopback, and the job by spark-submit."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from localkafka.guard import Guard
from localkafka.ports import HeldPort
from tests.reports.sample import write_sample

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DEADLINE = 120.0
WORKERS = ("work-1", "work-2")
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's quick compiler, and the collector that costs least: few rows in JVMs that live for seconds."""


def environment() -> dict[str, str]:
    """Of every process: this checkout importable, loopback only."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "COLUMNS": "200"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of a core each."""
    home = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    rpc, page = HeldPort(), HeldPort()
    url = f"spark://127.0.0.1:{rpc.number}"
    env = environment() | {"SPARK_HOME": home, "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
    spark_class = str(Path(home) / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    with Guard() as guard, (tmp_path / "cluster.log").open("wb") as log:
        ports = ["--host", "127.0.0.1", "--port", str(rpc.number), "--webui-port", str(page.number)]
        guard.popen([spark_class, f"{deploy}.master.Master", *ports], env=env, stdout=log, stderr=log)
        size = ["--cores", "1", "--memory", "1g"]
        for name in WORKERS:
            work = ["--host", "127.0.0.1", *size, "--webui-port", "0", "--work-dir", str(tmp_path / name)]
            guard.popen([spark_class, f"{deploy}.worker.Worker", *work, url], env=env, stdout=log, stderr=log)
        _await_workers(f"http://127.0.0.1:{page.number}/json/", tmp_path / "cluster.log")
        yield url


def _await_workers(page: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            said = urllib.request.urlopen(page, timeout=60).read()  # noqa: S310  our own page
            if said.count(b'"ALIVE"') >= 3:  # the master and both workers
                return
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail(f"not two workers in {DEADLINE:.0f} s: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.nightly
def test_spark_submit_runs_the_job_on_a_standalone_cluster(cluster: str, tmp_path: Path) -> None:
    write_sample(tmp_path / "logs", minutes=1)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "800m",
        "spark.executor.cores": "1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{tmp_path}/events",
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    (tmp_path / "events").mkdir()
    confs = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    job = str(ROOT / "reports" / "job.py")
    command = [
        str(BIN / "spark-submit"),
        "--master",
        cluster,
        *confs,
        job,
        "--logs",
        str(tmp_path / "logs"),
        "--out",
        str(tmp_path / "out"),
    ]
    run = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "2 proxies passed" in run.stdout
    assert list((tmp_path / "out" / "traffic").glob("date=*/*.parquet"))
    events = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert events.count('"Event":"SparkListenerExecutorAdded"') == 2
    for name in WORKERS:
        assert list((tmp_path / name).glob("app-*/*/stdout")), "each worker has run an executor"
    assert '"Executor ID":"0"' in events
    assert '"Executor ID":"1"' in events
