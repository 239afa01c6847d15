"""Logs in S3: figures are those of the same files in a local folder, and what a person can mend is one clear line."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reports import remote
from reports.cli import report
from reports.errors import ReportError
from reports.log_files import check_logs
from tests.reports.conftest import make_with
from tests.reports.logs import Log
from tests.reports.s3 import BUCKET, KEY, MODULES, REGION, SDK, SDK_VERSION, SECRET, S3Server, connector, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
LOGS = f"s3a://{BUCKET}/logs"


@pytest.mark.spark
def test_without_its_connector_the_line_says_which_to_give(spark: "SparkSession", tmp_path: Path) -> None:
    version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    with pytest.raises(ReportError) as raised:
        make_with(spark, LOGS, tmp_path / "out")
    assert f"{LOGS} cannot be read: Spark has no connector for S3: give it" in str(raised.value)
    assert f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{version} " in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ReportError, match="begins with s3a://"):
        make_with(spark, "s3://bucket/logs", tmp_path / "out", incremental=True)
    assert not list((tmp_path / "out").glob("[!.]*"))


S3A = "An error occurred while calling o55.load.\n: org.apache.hadoop.fs.s3a"
UNREADABLE = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/a.jsonl.\nCaused by: "
"""As Spark says it of a file that may be listed and not read; it names a damaged one in the same way."""


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            UNREADABLE + "java.nio.file.AccessDeniedException: a.jsonl: S3Exception: Forbidden (Status Code: 403)",
            "access is denied",
        ),
        (f"{S3A}.UnknownStoreException: `s3a://b/a': getFileStatus: NoSuchBucket (Status Code: 404)", "there is no such bucket"),
        (f"{S3A}.auth.NoAuthWithAWSException: No AWS Credentials provided by", "no credentials were found: set AWS_ACCESS_KEY_ID"),
        (
            f"{S3A}.AWSBadRequestException: S3Exception: Bad Request (Status Code: 400)",
            "endpoint.region to the region of the bucket",
        ),
        (UNREADABLE + "org.apache.hadoop.fs.s3a.NoVersionAttributeException: `a': no ETag", "S3A says: `a': no ETag"),
        (UNREADABLE + "java.io.IOException: Error accessing s3://b/a.jsonl", "S3A says: Error accessing s3://b/a.jsonl"),
        (
            UNREADABLE + "java.io.EOFException: Unexpected end of input stream\n\tat org.apache.hadoop.fs.s3a.S3AInputStream.read",
            None,
        ),
    ],
)
def test_what_storage_refuses_is_told_from_damage(said: str, meaning: str | None) -> None:
    error = remote.explained(RuntimeError(f"{said}\n\tat x"), "s3a://b")
    assert meaning in str(error) if meaning else error is None


@pytest.mark.spark
def test_a_folder_that_spark_lists_is_read_once(spark: "SparkSession", tmp_path: Path) -> None:
    """As a bucket is: Python does not look at it."""
    logs, out = f"file:{tmp_path}/my logs", tmp_path / "out"
    log = Log().usage(0, request_bytes=1)
    log.write(tmp_path / "my logs" / "eu", 1, compress=True)
    assert make_with(spark, logs, out, incremental=True).report.lines.read == 1
    log.usage(10, request_bytes=2).usage(20, request_bytes=4).write(tmp_path / "my logs" / "day=2", 2)
    made = make_with(spark, logs, out, incremental=True)
    assert made.report.lines.read == 3
    assert sum(size for (size,) in made.rows("traffic", "request_bytes")) == 7


def test_a_report_cannot_be_written_to_s3(tmp_path: Path) -> None:
    result = CliRunner().invoke(report, ["--logs", str(tmp_path), "--out", "s3a://bucket/report"])
    assert result.exit_code == 2
    assert "cannot be written to s3a://bucket/report: --out has to be a folder" in result.stderr
    assert not Path("s3a:").exists()


@pytest.mark.parametrize("logs", ["s3a://key:hush@bucket/logs", "hdfs://me:hush@host:9000/logs"])
def test_credentials_in_an_address_are_refused_and_not_repeated(logs: str) -> None:
    with pytest.raises(ReportError, match="give credentials in the environment") as raised:
        check_logs(logs)
    assert "hush" not in str(raised.value)
    check_logs(logs.replace("me:hush@", "").replace("key:hush@", ""))


def test_documents_and_chart_name_the_connector_of_this_spark() -> None:
    packages = ",".join(
        [f"org.apache.hadoop:hadoop-aws:{remote.hadoop_version()}", *(f"{SDK}:{name}:{SDK_VERSION}" for name in MODULES)]
    )
    assert packages in (ROOT / "docs" / "report.md").read_text()
    values = yaml.safe_load((ROOT / "deploy/helm/kafka-quota-proxy/ci/report-s3-values.yaml").read_text())
    (arguments,) = [each["value"] for each in values["report"]["extraEnv"] if each["name"] == "PYSPARK_SUBMIT_ARGS"]
    assert f"--packages {packages} " in arguments


@dataclass(frozen=True)
class Command:
    """The command with logs in S3, as a user would give it. Credentials are in the environment."""

    server: S3Server
    folder: Path

    def run(self, logs: str, out: str, *options: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
        settings = {
            "spark.jars": ",".join(map(str, connector())),
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.server.address}",
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        given = [text for key, value in settings.items() for text in ("--spark-conf", f"{key}={value}")]
        command = [sys.executable, "-m", "proxy", "report", "--logs", logs, "--out", out, "--master", "local[2]", *given, *options]
        env = os.environ | {"PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret, "COLUMNS": "200"}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=400, check=False)

    def summary(self, logs: str, out: str, *options: str) -> dict[str, Any]:
        """The report's values, without what names its logs and its time."""
        done = self.run(logs, out, *options)
        assert done.returncode == 0, done.stderr[-3000:]
        values: dict[str, Any] = json.loads((self.folder / out / "summary.json").read_text())
        return {name: value for name, value in values.items() if name not in ("logs", "made")}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    connector()
    with s3_server(tmp_path / "objects") as server:
        yield Command(server, tmp_path)


def upload(command: Command, name: str, data: bytes) -> None:
    """Put a log into the bucket, and into the local folder."""
    path = command.folder / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    command.server.put(f"logs/{name}", data)


@pytest.mark.spark
@pytest.mark.nightly
def test_logs_in_s3_give_the_figures_of_a_local_folder_and_are_read_once(command: Command) -> None:
    """Defects that quick tests find: an address that is taken for a local folder, a connector of another version or with other
    parts than the documents name; and, with remote listing by Spark of local files, files that are read twice or not at all."""
    a, b = Log("proxy-a"), Log("proxy-b", "00000000000000b2")
    for at in range(0, 1200, 10):
        a.usage(at, request_bytes=1000 + at, record_bytes=900, topic="orders").decision(at + 1)
        b.usage(at, principal="User:bob", requests=3, request_bytes=7).volume(at)
    first = [b"\n".join(log.lines) + b"\n" for log in (a, b)]
    upload(command, "eu/day=2026-03-01/usage-proxy-a-1.jsonl", first[0])
    upload(command, "us east/usage-proxy-b-1.jsonl.gz", gzip.compress(first[1]))
    upload(command, "us east/notes.txt", b"no log")
    bucket = ("--bucket", "1m")
    assert command.summary(LOGS, "out", "--incremental", *bucket)["lines"]["read"] == 480
    a.lines.clear()
    new = b"\n".join(a.usage(1200, request_bytes=5).raw(b"torn").lines) + b"\n"
    upload(command, "eu/usage-proxy-a-2.jsonl", new)
    upload(command, "eu/day=2026-03-01/usage-proxy-a-1.jsonl", first[0] + new.splitlines()[0] + b"\n")  # replaced, and a copy in it
    added = command.summary(LOGS, "out", "--incremental", *bucket)
    assert added == command.summary("logs", "local", *bucket)
    assert added["lines"]["read"] == 483
    assert (added["lines"]["usage"], added["lines"]["duplicates"], added["lines"]["quarantined"]) == (241, 1, 1)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_bucket_that_is_not_there_and_wrong_credentials_are_one_clear_line(command: Command) -> None:
    """Defects that quick tests find: errors that are not told apart by the text that Spark gave for them on this server."""
    command.server.put("logs/usage-proxy-a-1.jsonl", b"\n".join(Log().usage().lines))
    cases = {
        "there is no such bucket": command.run("s3a://nobody-has-this/logs", "out"),
        "PATH_NOT_FOUND": command.run(f"s3a://{BUCKET}/nowhere", "out"),
        "access is denied": command.run(LOGS, "out", secret="hush-but-wrong"),
    }
    for text, done in cases.items():
        assert done.returncode == 2, done.stderr[-3000:]
        assert text in done.stderr
        assert done.stderr.count("\n") == 1
        assert "hush" not in done.stderr + done.stdout
    assert not list((command.folder / "out").glob("[!.]*"))
