"""The tables are kept current: from a real Kafka topic by Structured Streaming, and from a folder whose files grow."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from localkafka import LocalCluster
from tests.reports.logs import NOON, Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
DEADLINE = 400.0
QUICK = ("--spark-conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1", "--spark-conf", "spark.sql.shuffle.partitions=2")


lacking: list[str] = []
"""What was found to be missing: it is asked for once."""


def skip_without_connector(said: str = "") -> None:
    """Skip where Spark could not fetch its connector, as it `said` now or before."""
    if "unresolved dependency" in said:
        lacking.append("Spark's Kafka connector of this Spark's version cannot be fetched from here")
    if lacking:
        pytest.skip(lacking[0])


@contextmanager
def following(logs: str, out: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, as a user would start and interrupt it."""
    command = [
        sys.executable,
        "-m",
        "proxy",
        "report",
        "--logs",
        logs,
        "--out",
        str(out),
        "--follow",
        "1s",
        "--master",
        "local[2]",
        *QUICK,
    ]
    with (out.parent / "follow.log").open("a") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, text=True, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(out: Path, process: subprocess.Popen[str], done: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """The counts of lines in the summary, as soon as they are `done`."""
    deadline = time.monotonic() + DEADLINE
    lines: dict[str, int] = {}
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = (out.parent / "follow.log").read_text()
            skip_without_connector(said)
            pytest.fail(said[-3000:])
        try:
            lines = json.loads((out / "summary.json").read_text())["lines"]
        except OSError:
            pass
        if lines and done(lines):
            return lines
        time.sleep(0.2)
    raise AssertionError(f"still {lines}: {(out.parent / 'follow.log').read_text()[-3000:]}")


def test_a_stream_adds_what_comes_and_drops_what_came_before(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Structured Streaming with its checkpoint, from files in the place of a topic, which needs a connector."""
    from pyspark.sql import functions as F  # noqa: N812

    from reports import follow
    from reports.pipeline import Options

    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.setattr(
        follow,
        "stream_topic",
        lambda session, _logs: session.readStream.text(str(source)).select(
            F.lit("kafka:t/0").alias("file"), F.col("value").alias("raw")
        ),
    )
    log, out, told = Log(), tmp_path / "out", []
    first = log.usage(0, request_bytes=1).usage(10, request_bytes=1).lines[:]
    (source / "1.txt").write_bytes(b"\n".join([*first, b"torn", b""]))
    options = Options(logs="kafka://127.0.0.1:9/t", out=out, made=NOON)
    query = follow.follow_topic(spark, options, 1, told.append)
    try:
        query.processAllAvailable()
        assert counts(out) == (3, 2, 0, 1)
        (source / "2.txt").write_bytes(b"\n".join([first[0], *log.usage(86_400, request_bytes=1).lines[2:], b""]))
        query.processAllAvailable()
    finally:
        query.stop()
    assert counts(out) == (5, 3, 1, 1)
    assert len(told) == 2
    java = spark.sparkContext._jsc
    assert java is not None
    assert java.getPersistentRDDs().isEmpty()  # or a stream would keep something of each batch for good
    assert spark.read.parquet(str(out / "traffic")).selectExpr("sum(request_bytes)").collect()[0][0] == 3


def counts(out: Path) -> tuple[int, int, int, int]:
    """Lines read, usage lines, copies, lines in quarantine."""
    lines = json.loads((out / "summary.json").read_text())["lines"]
    return lines["read"], lines["usage"], lines["duplicates"], lines["quarantined"]


@pytest.mark.kafka
def test_a_topic_is_followed_and_no_line_counts_twice_after_a_kill(
    kafka1: LocalCluster, spark: "SparkSession", tmp_path: Path
) -> None:
    skip_without_connector()
    producer = Producer({"bootstrap.servers": kafka1.bootstrap_servers, "partitioner": "random"})

    def send(lines: list[bytes]) -> None:
        for line in lines:
            producer.produce("usage-log", line)
        assert producer.flush(90) == 0

    log, out = Log(), tmp_path / "out"
    for at in range(50):
        log.usage(at * 10, request_bytes=1)
    send([*log.lines, b"torn"])
    logs = f"kafka://{kafka1.bootstrap_servers}/usage-log"
    with following(logs, out) as process:
        first = wait_for(out, process, lambda lines: lines["read"] == 51)
        assert (first["usage"], first["quarantined"]) == (50, 1)
        old = log.lines[:20]
        log.lines.clear()
        for at in range(30):
            log.usage(5000 + at * 10, request_bytes=1)
        send([*log.lines, *old])  # twenty are shipped once more
        wait_for(out, process, lambda lines: lines["read"] == 101)
    log.lines.clear()
    send(log.usage(9000, request_bytes=1).lines)
    with following(logs, out) as process:
        last = wait_for(out, process, lambda lines: lines["read"] >= 102)
    assert (last["usage"], last["duplicates"], last["quarantined"]) == (81, 20, 1)
    assert spark.read.parquet(str(out / "traffic")).selectExpr("sum(request_bytes)").collect()[0][0] == 81


@pytest.mark.kafka
def test_a_topic_is_read_once_and_then_from_where_it_was_left(kafka1: LocalCluster, tmp_path: Path) -> None:
    skip_without_connector()
    producer = Producer({"bootstrap.servers": kafka1.bootstrap_servers, "partitioner": "random"})
    log, out, topic = Log(), tmp_path / "out", f"usage-{tmp_path.name.replace('_', '-')}"
    command = [sys.executable, "-m", "proxy", "report", "--logs", f"kafka://{kafka1.bootstrap_servers}/{topic}", "--out", str(out)]
    for round_, at in enumerate((0, 10), 1):
        log.lines.clear()
        for line in [*log.usage(at, request_bytes=1).lines, b"torn"]:
            producer.produce(topic, line)
        assert producer.flush(90) == 0
        done = subprocess.run(
            [*command, "--incremental", "--master", "local[2]", *QUICK],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        skip_without_connector(done.stderr)
        assert done.returncode == 0, done.stderr
        assert counts(out) == (2 * round_, round_, 0, round_)


@pytest.mark.nightly  # the stream above adds files to the same tables; what the command adds is its loop and its end
def test_a_folder_is_followed_while_its_file_grows_until_it_is_interrupted(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself, with a Spark that runs already; between two looks at the folder, instead of a pause, the file grows."""
    from reports import follow
    from reports.cli import report

    log, logs, out = Log(), tmp_path / "logs", tmp_path / "out"
    first = log.usage(0).usage(10).lines[:]
    path = log.write(logs)
    found: list[tuple[int, int, int, int]] = []

    def pause(_seconds: float) -> None:
        found.append(counts(out))
        if len(found) == 2:
            raise KeyboardInterrupt
        path.write_bytes(b"\n".join([*first, *log.usage(20).lines, b""]))

    monkeypatch.setattr(follow, "spark_session", lambda _master, **_: nullcontext(spark))
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    result = CliRunner().invoke(report, ["--logs", str(logs), "--out", str(out), "--follow", "1s"])
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "stopped")
    assert found == [(2, 2, 0, 0), (3, 3, 0, 0)]
