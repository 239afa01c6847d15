"""Reading of logs: one row for each line of a folder tree or a Kafka topic. No line is lost.

In: the logs, which of them are new. Out: `load`, every line with its fields or with a reason why not, stored; before it, for a
local folder, `parse_local`. Left to others: taking a line apart (`reports.arrow_parse`, `fast_parse`, `parse`), which line is bad
and why (`reports.validation`), sums (`reports.transforms`).
"""

import hashlib
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyarrow import ArrowInvalid
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_parse import LogFile, parse_files
from reports.arrow_rows import local_frame, release_memory
from reports.errors import ReportError
from reports.ingest import TEXTS, Destination, store_lines, store_unparsed
from reports.kafka import is_kafka, read_topic
from reports.log_files import FILES, LOG_FILES, is_local, local_files, no_logs, spark_path
from reports.reasons import Reason
from reports.remote import explained

FAILURES = (PySparkException, Py4JJavaError)  # which of the two comes for a task that failed is up to PySpark's version
_UNREADABLE = "[FAILED_READ_FILE"  # Spark's name for it, with subconditions

_COMPLETE = "complete"
"""Under this name a report keeps for the next one which plain files it read to the end of a line: URI -> how many bytes
were read, and a digest of the last of them."""
_TAIL = 1024
"""Bytes before the end of what was read by which a file is known again."""

Listing = dict[str, list[int]]
"""Log files: URI -> size, and time in milliseconds."""

Paths = Sequence[str] | None
"""Files to read, as URIs; None for all."""


def parse_local(logs: str, now: datetime, destination: Destination) -> bool:
    """Store what is new in a local folder without Spark, which may start meanwhile: lines as proxies write them with their fields,
    others for `load` to parse. False where nothing is stored, as a file is damaged or there is no place: `load` can say which.

    Raises:
        ReportError: there is no log.
    """
    listed = local_files(logs)
    new = _keep_listing(listed, destination)
    if not listed and not destination.incremental:
        raise no_logs(logs)
    known = destination.known.get(_COMPLETE, {}) if destination.incremental else {}
    files = [_what_is_new(uri, listed[uri][0], *known.get(uri, (0, ""))) for uri in new]
    complete = {uri: known[uri] for uri in known if uri in listed and uri not in new}
    for file in files:
        if file.end is not None and (tail := _tail(file.path, file.end)):
            complete[file.name] = [file.end, tail]
    destination.staging.kept[_COMPLETE] = complete
    destination.grown.update(file.name for file in files if file.begin)
    try:
        parse_files(files, now, destination.incoming)
    except (OSError, ArrowInvalid):
        shutil.rmtree(destination.incoming, ignore_errors=True)
        destination.grown.clear()
        return False
    finally:
        release_memory()
    return True


def _what_is_new(uri: str, size: int, read: int, tail: str) -> LogFile:
    """What to read of a file: all of it, unless the last report has read its beginning. Of a plain file that has grown, and whose
    first `read` bytes still end with `tail`, it is what comes after these."""
    path = Path(unquote(uri.removeprefix("file:")))
    if path.suffix != ".jsonl":
        return LogFile(path, uri)
    return LogFile(path, uri, read if 0 < read < size and tail == _tail(path, read) else 0, size)


def _tail(path: Path, size: int) -> str:
    """A digest of the end of the first `size` bytes of a file; empty if they do not end with a line."""
    try:
        with path.open("rb") as file:
            file.seek(max(size - _TAIL, 0))
            end = file.read(min(size, _TAIL))
    except FileNotFoundError:  # rotated away
        return ""
    return hashlib.sha256(end).hexdigest() if end.endswith(b"\n") else ""


def load(spark: SparkSession, logs: str, now: datetime, destination: Destination, *, parsed: bool = False) -> None:
    """Store every line of `logs`, parsed (see `reports.parse`); where the report adds to the last one, only those of files that are
    new or have changed since. `parsed`: `parse_local` did most of it.

    A file that is damaged, as a cut .gz, is read as far as it goes, and is one more bad row. Raises ReportError where there is no
    log.
    """
    if parsed:
        store_unparsed(spark, now, destination)
        return
    if is_kafka(logs):
        store_lines(read_topic(spark, logs, destination.staging.kept), now, destination)
        return
    destination.staging.kept.pop(_COMPLETE, None)
    new = _keep_listing(_listing(spark, logs), destination)
    paths = new if destination.incremental else None
    try:
        store_lines(read_lines(spark, logs, paths), now, destination)
    except FAILURES as error:
        # Storage that refuses a file, or is gone, must not count as a damaged file.
        if not is_local(logs) and (explanation := explained(error, logs)):
            raise explanation from error
        if _UNREADABLE not in str(error):
            raise
        store_lines(read_lines(spark, logs, paths, to_the_damage=True), now, destination, damaged_files(spark, logs, paths))


def _keep_listing(listed: Listing, destination: Destination) -> list[str]:
    """Which of the log files are to be read now. They are listed before they are read, and that is kept for the next
    report, so that it reads again what was written meanwhile."""
    known = destination.known.get(FILES, {}) if destination.incremental else {}
    destination.staging.kept[FILES] = listed
    return [uri for uri, state in listed.items() if known.get(uri) != state]


def _listing(spark: SparkSession, logs: str) -> Listing:
    """Every log file: its URI -> its size and the time it was written to, in milliseconds."""
    if is_local(logs):
        return local_files(logs)
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", LOG_FILES)
    try:
        rows = reader.load(spark_path(logs)).select(
            F.col("_metadata.file_path").alias("uri"),
            F.col("_metadata.file_size").alias("size"),
            F.unix_millis("_metadata.file_modification_time").alias("modified"),
        )
    except FAILURES as error:
        _explain(logs, error)
        raise
    return {row["uri"]: [row["size"], row["modified"]] for row in rows.toLocalIterator()}


def read_lines(spark: SparkSession, logs: str, paths: Paths = None, *, to_the_damage: bool = False) -> DataFrame:
    """Every line of the log files below `logs`, or of `paths` alone: `file` (URI), `raw` (text, may be invalid UTF-8).

    Files that vanish meanwhile (rotation) are passed over; their lines show up as missing numbers. A damaged file fails the query,
    unless `to_the_damage`: then its lines before the damage are read. Raises ReportError where there is no log file.
    """
    if paths is not None and not paths:
        return local_frame(spark, [], TEXTS)
    text = _text(spark, logs, _spark_paths(logs, paths), to_the_damage)
    if paths is None and not text.inputFiles():
        raise no_logs(logs)
    return text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("raw"))


def damaged_files(spark: SparkSession, logs: str, paths: Paths = None) -> DataFrame:
    """The files that cannot be read to their end: `file`, `reason`. Reads each file once more."""
    files = _text(spark, logs, _spark_paths(logs, paths), to_the_damage=True).inputFiles()
    damaged = [name for name in files if not _readable(spark, logs, name)]
    rows = local_frame(spark, [(name,) for name in damaged], "file string")
    return rows.select("file", F.lit(Reason.DAMAGED_FILE.value).alias("reason"))


def _spark_paths(logs: str, paths: Paths) -> list[str]:
    return [spark_path(logs)] if paths is None else [spark_path(unquote(path)) for path in paths]


def _readable(spark: SparkSession, logs: str, uri: str) -> bool:
    try:
        _text(spark, logs, _spark_paths(logs, [uri]), to_the_damage=False).write.format("noop").mode("overwrite").save()
    except FAILURES:
        return False
    return True


def _text(spark: SparkSession, logs: str, paths: list[str], to_the_damage: bool) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", LOG_FILES)
    reader = reader.option("ignoreMissingFiles", "true").option("ignoreCorruptFiles", str(to_the_damage).lower())
    try:
        # Only \n ends a line: a \r inside a torn line must not make two of it.
        return reader.text(paths, lineSep="\n")
    except FAILURES as error:
        _explain(logs, error)
        raise


def _explain(logs: str, error: Exception) -> None:
    """Raise ReportError for a folder that cannot be listed, where it is known why."""
    if not is_local(logs) and (explanation := explained(error, logs)):
        raise explanation from error
    if isinstance(error, AnalysisException):
        raise ReportError(f"the logs folder {logs} cannot be read: {error.getCondition()}") from error
