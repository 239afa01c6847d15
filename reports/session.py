"""The Spark session: prints nothing, listens only on loopback, and deletes its files.

In: a master URL. Out: a running session, stopped and cleaned up afterwards. Under `spark-submit` the submitter's session is used,
and its master, network and logging are its business. Left to others: its Java (`reports.java`), whether both are there
(`reports.requirements`).
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import IllegalArgumentException, PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from reports.errors import ReportError
from reports.java import QUICK_BYTES, SUBMITTED, Java, local_settings, start_java

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
    master: str,
    *,
    size: int | None = None,
    memory: str = "800m",
    settings: Mapping[str, str] | None = None,
    java: Java | None = None,
) -> Iterator[SparkSession]:
    """A session for the time of the block: on `master`, or the submitter's own under `spark-submit`.

    `size` is that of the logs in bytes, None for not known: for little work it starts sooner, and is slower in the long run.
    `memory` is the heap of the driver, `settings` are more of Spark's. `java` was started for the same before, or None.

    Raises:
        ReportError: Spark could not start, or ran out of memory; the text has its last words.
    """
    if SUBMITTED:
        session = SparkSession.builder.appName("kafka-quota-proxy report").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield _with_settings(session)
        return
    with ExitStack() as stack:
        used = java or stack.enter_context(start_java(master, size=size, memory=memory, settings=settings))
        session = _start(used, {**local_settings(master, used.scratch), **(settings or {})})
        try:
            # The user's own settings were given to Spark when it started: some cannot be set later.
            small = {name: value for name, value in SMALL.items() if name not in (settings or {})}
            yield _with_settings(session, small if size is not None and size < QUICK_BYTES else {})
        except (Py4JError, PySparkException) as error:
            _explain(error, used)
            raise
        finally:
            _stop(session)


def is_of_this_machine(master: str) -> bool:
    """Whether a session on `master` is our own, and all its work is done here."""
    return master.startswith("local") and not SUBMITTED


def collect_garbage(session: SparkSession) -> None:
    """Let the driver's Java give back what Spark's work has left behind. It would do so only when its heap is full, and what comes
    next is Python's, which needs memory, too."""
    jvm = session.sparkContext._jvm
    if jvm is not None:
        jvm.java.lang.System.gc()


def _explain(error: Exception, java: Java) -> None:
    """Raise ReportError for what its user can mend: a Spark that is out of memory, or gone."""
    said = str(error) + java.said()
    if "OutOfMemoryError" in said or "GC overhead limit" in said:
        raise ReportError(f"Spark ran out of memory with --memory {java.memory}: give it more, such as 2g") from error
    if "No space left on device" in said:
        raise ReportError("the disk is full: Spark needs space in the out folder and in the temporary folder (TMPDIR)") from error
    if isinstance(error, Py4JNetworkError):
        raise ReportError(f"Spark ended before it was done: {java.last_words() or 'it was killed'}") from error


def _forget_java() -> None:
    """Java ends soon. Else py4j would go on telling it from a thread which objects are no longer used, and print a traceback."""
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except (Py4JError, OSError):  # it is gone already; the first error is what counts
        pass


def _with_settings(session: SparkSession, more: Mapping[str, str] | None = None) -> SparkSession:
    for name, value in {**QUERY_SETTINGS, **(more or {})}.items():
        session.conf.set(name, value)
    return session


def _start(java: Java, settings: Mapping[str, str]) -> SparkSession:
    port, secret = java.address()
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    # As `spark-submit` tells PySpark of a Java that is there.
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ |= told
    try:
        session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, IllegalArgumentException) as error:
        reason = java.last_words() or next((line for line in str(error).splitlines() if line.strip()), "")
        _forget_java()
        if "INVALID_DRIVER_MEMORY" in java.said():
            raise ReportError(f"Spark does not start with --memory {java.memory}: give it more, such as 2g") from error
        raise ReportError(f"Spark did not start: {reason}") from error
    finally:
        for name in told:
            del os.environ[name]
    java.keep()
    session.sparkContext.setLogLevel("ERROR")
    return session
