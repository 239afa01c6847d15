"""What the image of the report runs, as Spark on Kubernetes starts it: a driver makes a report, an executor asks for its driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import CHART
from tests.reports.sample import write_sample

ROOT = CHART.parents[2]
PROGRAM = ROOT / "deploy" / "image" / "entrypoint.py"
BIN = Path(sys.executable).parent


def run(*arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    plain["PATH"] = f"{BIN}{os.pathsep}{plain['PATH']}"
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, env=plain | env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_without_spark_it_is_the_program(tmp_path: Path) -> None:
    assert run("report", "--help", folder=tmp_path).stdout.startswith("Usage: kafka-quota-proxy report")
    assert run("report", "--logs", "nowhere", "--out", "x", folder=tmp_path).returncode == 2


@pytest.mark.spark
@pytest.mark.nightly  # tests/reports/test_command.py makes a report by the command; the tests above hold what a driver is given
def test_a_driver_makes_the_report(tmp_path: Path) -> None:
    """With the arguments that Spark gives the pod of a driver, but for the master. The job is a link, as in the
    image."""
    write_sample(tmp_path / "logs", minutes=2)
    job = tmp_path / "report.py"
    job.symlink_to(ROOT / "reports" / "job.py")
    properties = tmp_path / "spark.properties"
    settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    submitted = ("--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner", f"local://{job}")
    options = ("--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out"))
    done = run("driver", *submitted, *options, folder=tmp_path, SPARK_DRIVER_BIND_ADDRESS="127.0.0.1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_an_executor_looks_for_its_driver(tmp_path: Path) -> None:
    """All its options are understood: it goes as far as the driver's address, where nobody is."""
    options = ("-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dtried=1")
    told = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "300m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
    }
    done = run("executor", folder=tmp_path, **told)
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr
    assert "Unrecognized options" not in done.stderr


def test_the_chart_names_the_spark_of_the_image() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert yaml.safe_load((CHART / "values.yaml").read_text())["report"]["spark"]["version"] == pinned["pyspark"]
