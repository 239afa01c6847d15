"""The command: a clear line for what a person can mend, a quiet Spark, a report for the rest."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reports import requirements
from reports.cli import report
from reports.java import Java, start_java
from tests.reports.sample import write_sample

ROOT = Path(__file__).parents[2]


def fails(*arguments: str) -> str:
    """Run the command in this process; it is to end with code 2 and one line, which is returned."""
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_logs_folder_that_cannot_give_a_report_is_one_clear_line(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert "nowhere does not exist" in fails("--logs", str(tmp_path / "nowhere"), "--out", out)
    assert f"no *.jsonl, *.jsonl.gz or *.jsonl.zst file in {tmp_path}" in fails("--logs", str(tmp_path), "--out", out)
    (tmp_path / "file.jsonl").touch()
    assert "file.jsonl is not a folder" in fails("--logs", str(tmp_path / "file.jsonl"), "--out", out)
    assert not (tmp_path / "out").exists()


def test_missing_packages_and_java_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--logs", str(tmp_path), "--out", str(tmp_path / "out"))
    (tmp_path / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs Java >= 17, and " in fails(*options)
    monkeypatch.setenv("PATH", "")
    assert "needs Java >= 17: install a JRE" in fails(*options)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "needs Java >= 17: install a JRE" in fails(*options)
    monkeypatch.setattr(requirements, "find_spec", lambda _name: None)
    needed = "pyspark and pyarrow and matplotlib and jinja2"
    assert f"needs {needed}: pip install 'kafka-quota-proxy[report]'" in fails(*options)


@pytest.mark.parametrize("bucket", ["0s", "5", "1w", "-1m", "999d", ""])
def test_a_bucket_that_is_no_length_is_refused(tmp_path: Path, bucket: str) -> None:
    result = CliRunner().invoke(report, ["--logs", str(tmp_path), "--out", str(tmp_path), "--bucket", bucket])
    assert result.exit_code == 2
    assert "not a length of time" in result.stderr


def test_the_command_is_known_without_importing_what_is_large() -> None:
    program = "import sys, reports.cli; sys.exit(any(name in sys.modules for name in ('pyspark', 'matplotlib', 'py4j')))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` with this checkout importable."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False)


NOT_LATER = ("--spark-conf", "spark.executor.memory=1g")
"""A setting that can be given to Spark only at its start."""


@pytest.mark.spark
def test_the_command_makes_a_report_and_is_quiet_about_spark(tmp_path: Path) -> None:
    write_sample(tmp_path / "logs", minutes=1)
    program = "from reports.cli import report; report()"
    result = run(tmp_path, sys.executable, "-c", program, "--logs", "logs", "--out", "out", "--bucket", "1m", *NOT_LATER)
    assert (result.returncode, result.stderr) == (0, "")
    assert "2 proxies passed" in result.stdout
    assert "User:clickstream produced most" in result.stdout
    assert "out/report.html" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "out"}  # no spark-warehouse, no metastore
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["seconds"] == 60


@pytest.mark.spark
def test_a_driver_with_too_little_memory_is_one_clear_line_and_leaves_no_table(tmp_path: Path) -> None:
    write_sample(tmp_path / "logs", minutes=1)
    result = run(tmp_path, sys.executable, "-m", "proxy", "report", "--logs", "logs", "--out", "out", "--memory", "100m")
    assert result.returncode == 2
    assert result.stderr == "kafka-quota-proxy report: Spark does not start with --memory 100m: give it more, such as 2g\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".kafka-quota-proxy-report.json"}


@pytest.mark.spark
def test_why_spark_does_not_start_is_one_line(tmp_path: Path) -> None:
    write_sample(tmp_path / "logs", minutes=1)
    result = run(tmp_path, sys.executable, "-m", "proxy", "report", "--logs", "logs", "--out", "out", "--master", "nowhere")
    assert result.returncode == 2
    assert result.stderr.startswith("kafka-quota-proxy report: Spark did not start: ")
    assert "Master must" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("memory", ["2", "0g", "2t", "-1g", "much"])
def test_a_memory_that_is_no_size_is_refused(tmp_path: Path, memory: str) -> None:
    result = CliRunner().invoke(report, ["--logs", str(tmp_path), "--out", str(tmp_path), "--memory", memory])
    assert result.exit_code == 2
    assert "not a size of memory" in result.stderr


def test_options_that_are_not_right_are_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "quotas.yaml").write_text("quotas: {entities: [{user: a, speed: 3}]}")
    given = ("--logs", str(tmp_path), "--out", str(tmp_path / "out"))
    assert "`quotas.entities[0].speed`: there is no such setting" in fails(*given, "--what-if", str(tmp_path / "quotas.yaml"))
    assert "--spark-conf fast is not a setting" in fails(*given, "--spark-conf", "fast")
    assert "kafka://nowhere is not the address of a topic" in fails("--logs", "kafka://nowhere", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_an_out_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "a.jsonl").touch()
    assert "cannot be made: Not a directory" in fails("--logs", str(tmp_path), "--out", str(tmp_path / "a.jsonl" / "out"))


def test_java_which_starts_first_is_gone_when_the_command_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    started: list[Java] = []

    @contextmanager
    def watched(*given: Any, **more: Any) -> Iterator[Java]:
        with start_java(*given, **more) as java:
            started.append(java)
            yield java

    monkeypatch.setattr("reports.cli.start_java", watched)
    (tmp_path / "a.jsonl").touch()
    assert "nowhere.yaml" in fails(
        "--logs", str(tmp_path), "--out", str(tmp_path / "out"), "--quotas", str(tmp_path / "nowhere.yaml")
    )
    assert started[0].process.poll() is not None
    assert not started[0].scratch.exists()
