"""Reading room: a folder tree of log files becomes one row a line, and no line is lost on the way.

In: the logs folder. Out: `load`, every line with its fields or with a reason why not. Left to others: taking a line apart
(`reports.parse`), which line is bad and why (`reports.verdict`), sums (`reports.transforms`).
"""

from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.errors import ReportError
from reports.folder import LOG_FILES, no_logs, spark_path
from reports.parse import parse
from reports.reasons import Reason

_FAILURES = (PySparkException, Py4JJavaError)  # which of the two comes for a task that failed is up to PySpark's version
_UNREADABLE = "[FAILED_READ_FILE"  # Spark's name for it, with subconditions


def load(spark: SparkSession, logs: str) -> DataFrame:
    """Every line below `logs`, parsed (see `reports.parse.parse`) and kept, so that a file that still grows is read once.

    A file that is damaged, as a cut .gz, is read as far as it goes, and is one more bad row. Raises ReportError where there is no
    log.
    """
    parsed = parse(read_lines(spark, logs)).persist()
    try:
        parsed.count()
    except _FAILURES as error:
        if _UNREADABLE not in str(error):
            raise
        parsed.unpersist()
        parsed = parse(read_lines(spark, logs, to_the_damage=True))
        parsed = parsed.unionByName(damaged_files(spark, logs), allowMissingColumns=True).persist()
    return parsed


def read_lines(spark: SparkSession, logs: str, *, to_the_damage: bool = False) -> DataFrame:
    """Every line of every log file below `logs`: `file` (URI), `raw` (text, may be invalid UTF-8).

    Files that vanish meanwhile (rotation) are passed over; their lines show up as missing numbers. A damaged file fails the query,
    unless `to_the_damage`: then its lines before the damage are read. Raises ReportError where there is no log file.
    """
    text = _text(spark, logs, spark_path(logs), to_the_damage)
    if not text.inputFiles():
        raise no_logs(logs)
    return text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("raw"))


def damaged_files(spark: SparkSession, logs: str) -> DataFrame:
    """The files that cannot be read to their end: `file`, `reason`. Reads each file once more."""
    files = _text(spark, logs, spark_path(logs), to_the_damage=True).inputFiles()
    damaged = [name for name in files if not _readable(spark, logs, name)]
    rows = spark.createDataFrame([(name,) for name in damaged], "file string")
    return rows.select("file", F.lit(Reason.DAMAGED_FILE.value).alias("reason"))


def _readable(spark: SparkSession, logs: str, uri: str) -> bool:
    path = unquote(uri)
    try:
        _text(spark, logs, spark_path(path), to_the_damage=False).write.format("noop").mode("overwrite").save()
    except _FAILURES:
        return False
    return True


def _text(spark: SparkSession, logs: str, path: str, to_the_damage: bool) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", LOG_FILES)
    reader = reader.option("ignoreMissingFiles", "true").option("ignoreCorruptFiles", str(to_the_damage).lower())
    try:
        # Only \n ends a line: a \r inside a torn line must not make two of it.
        return reader.text(path, lineSep="\n")
    except AnalysisException as error:
        raise ReportError(f"the logs folder {logs} cannot be read: {error.getCondition()}") from error
