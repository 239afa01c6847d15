"""The Spark session: starts fast, prints nothing, listens only on loopback, and deletes its files.

In: a master URL. Out: a running session, stopped and cleaned up afterwards. Under `spark-submit` the submitter's session is used,
and its master, network and logging are its business. Left to others: whether Spark and Java are there (`reports.requirements`).
"""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import IllegalArgumentException, PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from reports.class_archive import java_options
from reports.errors import ReportError

# PySpark warns of pandas 3 wherever it is installed. Nothing of it goes through Spark.
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)

QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # The error on a line is a long expression. In one method it passes the size that Java compiles, and runs at half speed: this
    # makes Spark cut it up.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    # Single days of a table are replaced by us, by whole folders.
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The text of a plan is for Spark's web UI. It is made for each query and each of its steps, and ours are long.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.ui.explainMode": "simple",
}
"""Settings that the queries rest on, wherever they run."""

_LOG = "spark.log"

_JAVA = "spark.driver.extraJavaOptions"

_C1_ONLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java's C1 compiler only. Its default code cache is a fifth of this size; when that is full, Java stops compiling."""
QUICK = {_JAVA: f"{_C1_ONLY} -XX:+UseSerialGC"}
QUICK_BYTES = 64 * 2**20
"""Logs of fewer bytes are read by a Spark that is configured for small queries."""
BRISK = {_JAVA: f"{_C1_ONLY} -XX:+UseParallelGC"}
"""Java for logs that are read before the slow compiler has paid for itself: what waits for it counts its calls, and runs slower
than what C1 compiles for good."""
BRISK_BYTES = 2 * 2**30

_TIER4_FACTOR = 16
STEADY = {
    _JAVA: "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:+UseTransparentHugePages "
    f"-XX:Tier4InvocationThreshold={5000 * _TIER4_FACTOR} -XX:Tier4MinInvocationThreshold={600 * _TIER4_FACTOR} "
    f"-XX:Tier4CompileThreshold={15_000 * _TIER4_FACTOR} -XX:Tier4BackEdgeThreshold={40_000 * _TIER4_FACTOR}"
}
"""Java for large logs on few cores. The C2 compiler would take a fifth of all CPU time: it compiles only what is _TIER4_FACTOR
times hotter than by default. The parallel collector costs least CPU."""

_PLANNERS = (
    "org/codehaus/*.*",  # compiles the Java that Spark makes of a query
    "org/apache/xbean/*.*",
    "jdk/internal/org/objectweb/*.*",
    "org/antlr/*.*",
    *[f"org/apache/spark/sql/catalyst/{part}/*.*" for part in ("analysis", "optimizer", "plans", "rules", "trees")],
    "java/io/Object*.*",
)
_DIRECTIVES = "planners.json"

_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the Java that only makes Spark's command line: half of its time."""

SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For queries of few rows: planned once, in one piece, interpreted rather than compiled. What else they cost is more than their
work: a sixth of the CPU time of a report of few lines."""


@contextmanager
def spark_session(
    master: str, *, size: int | None = None, memory: str = "1500m", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the time of the block: on `master`, or the submitter's own under `spark-submit`.

    `size` is that of the logs in bytes, None for not known: for little work it starts sooner, and is slower in the long run.
    `memory` is the heap of the driver, `settings` are more of Spark's.

    Raises:
        ReportError: Spark could not start, or ran out of memory; the text has its last words.
    """
    if _is_submitted():
        session = SparkSession.builder.appName("kafka-quota-proxy report").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield _with_settings(session)
        return
    with tempfile.TemporaryDirectory(prefix="kafka-quota-proxy-report-") as scratch:
        more = {"spark.driver.memory": memory, **_java(size, Path(scratch)), **(settings or {})}
        session = _start(master, Path(scratch), more)
        try:
            # The user's own settings were given to Spark when it started: some cannot be set later.
            small = {name: value for name, value in SMALL.items() if name not in (settings or {})}
            yield _with_settings(session, small if size is not None and size < QUICK_BYTES else {})
        except (Py4JError, PySparkException) as error:
            _explain(error, Path(scratch) / _LOG, memory)
            raise
        finally:
            _stop(session)


def is_of_this_machine(master: str) -> bool:
    """Whether a session on `master` is our own, and all its work is done here."""
    return master.startswith("local") and not _is_submitted()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit


def _java(size: int | None, scratch: Path) -> dict[str, str]:
    return {name: f"{value} {java_options()}" for name, value in _for_size(size, scratch).items()}


def _for_size(size: int | None, scratch: Path) -> dict[str, str]:
    if size is None or size >= BRISK_BYTES:
        return _steady(scratch)
    return QUICK if size < QUICK_BYTES else BRISK


def _steady(scratch: Path) -> dict[str, str]:
    """STEADY, and the slow compiler is kept from planners altogether: they are hot by the number of queries, and never again.

    To say that, Java has a file of directives, which is for diagnosis by its name, and says so unless told not to.
    """
    directives = scratch / _DIRECTIVES
    directives.write_text(json.dumps([{"match": _PLANNERS, "c2": {"Exclude": True}}]), encoding="utf-8")
    options = f'-XX:+UnlockDiagnosticVMOptions "-XX:CompilerDirectivesFile={directives}" -XX:+DisplayVMOutputToStderr'
    return {_JAVA: f"{STEADY[_JAVA]} {options}"}


def _explain(error: Exception, log: Path, memory: str) -> None:
    """Raise ReportError for what its user can mend: a Spark that is out of memory, or gone."""
    said = str(error) + log.read_text(errors="replace")
    if "OutOfMemoryError" in said or "GC overhead limit" in said:
        raise ReportError(f"Spark ran out of memory with --memory {memory}: give it more, such as 2g") from error
    if "No space left on device" in said:
        raise ReportError("the disk is full: Spark needs space in the out folder and in the temporary folder (TMPDIR)") from error
    if isinstance(error, Py4JNetworkError):
        raise ReportError(f"Spark ended before it was done: {_last_words(log) or 'it was killed'}") from error


def _last_words(log: Path) -> str:
    """The last line of the log that says something: not the frames of a stack."""
    lines = (line.strip() for line in log.read_text(errors="replace").splitlines())
    return next(reversed([line for line in lines if line and not line.startswith(("at ", "..."))]), "")


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except (Py4JError, OSError):  # it is gone already; the first error is what counts
        pass


def _with_settings(session: SparkSession, more: Mapping[str, str] | None = None) -> SparkSession:
    for name, value in {**QUERY_SETTINGS, **(more or {})}.items():
        session.conf.set(name, value)
    return session


def local_settings(scratch: Path) -> dict[str, str]:
    """Settings of a session of our own: loopback only, no web UI, all files in `scratch`, sized for one machine."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        # A report has more queries than Spark keeps compiled code of by default (100), and `--follow` has the same ones each time.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }


def _start(master: str, scratch: Path, more: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("kafka-quota-proxy report").master(master)
    for name, value in {**local_settings(scratch), **more}.items():
        builder = builder.config(name, value)
    log = scratch / _LOG
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    try:
        with _standard_error_to(log):
            session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, IllegalArgumentException) as error:
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ReportError(f"Spark did not start: {_last_words(log) or said}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Send file descriptor 2 to `log` for the time of the block: the Java process that starts in it keeps writing there.

    Java and Spark warn on the terminal before any setting of theirs is read, so that no setting can stop it. What goes wrong in a
    query comes back as an exception all the same.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
