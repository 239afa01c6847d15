"""`--follow`: the report is updated while the proxies go on logging.

In: `Options`, how often. Out: a report that is made anew every so often, of the days that changed alone. Ends when it is
interrupted. A topic is read by a stream of Spark's (Structured Streaming), which keeps in a checkpoint where it was. A folder is
looked at for files that are new or grew: Spark's own file stream takes a file as it is when it is first seen, and would never read
what a proxy writes to it later. Either way lines that come again are dropped, so that nothing counts twice, wherever a run was
killed.
"""

import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reports.errors import ReportError
from reports.ingest import store_lines
from reports.java import Java
from reports.kafka import is_kafka, packages, stream_topic
from reports.log_files import check_logs
from reports.pipeline import (
    OUTCOME,
    Options,
    Progress,
    destination_of,
    draw,
    make_again,
    make_from_stored,
    parse_ahead,
    read_and_make,
)
from reports.publish import replacing
from reports.session import spark_session

CHECKPOINT = ".kafka-quota-proxy-stream"
"""Folder in the out folder where the stream notes how far it is."""


def follow(options: Options, every: int, progress: Progress, java: Java | None = None) -> None:
    """Keep the report of a folder or topic current, until it is interrupted; `java` was started for it, or None."""
    with ExitStack() as stack:
        if not is_kafka(options.logs):
            check_logs(options.logs)
        settings = {**packages(options.logs), **(options.settings or {})}
        spark = stack.enter_context(spark_session(options.master, memory=options.memory, settings=settings, java=java))
        try:
            if is_kafka(options.logs):
                follow_topic(spark, options, every, progress).awaitTermination()
            while True:
                begin = time.monotonic()  # noqa: TID251  how long to wait is all that it is for
                follow_folder(spark, replace(options, made=datetime.now(UTC), incremental=True), progress)
                time.sleep(max(0.0, every - (time.monotonic() - begin)))  # noqa: TID251
        except KeyboardInterrupt:
            progress("stopped")


def follow_folder(spark: SparkSession, options: Options, progress: Progress) -> None:
    """One look at the folder: add what is new."""
    inputs = options.inputs()
    with replacing(options.out, OUTCOME) as staging:
        made = make_again(options, inputs, staging)
        if made is None:
            destination = destination_of(options, staging)
            parsed = parse_ahead(options, destination)
            made = read_and_make(spark, destination, options, inputs, lambda _: None, parsed=parsed)
            draw(made, staging.path)
        progress(f"{options.made:%H:%M:%S} {made.lines.read:,} lines")


def follow_topic(spark: SparkSession, options: Options, every: int, progress: Progress) -> StreamingQuery:
    """A stream that adds what comes, in a batch every `every` seconds."""

    def add(records: DataFrame, number: int) -> None:
        now = datetime.now(UTC)
        current = replace(options, made=now, incremental=True)
        with replacing(options.out, OUTCOME) as staging:
            destination = destination_of(current, staging, replaces_files=False)
            store_lines(records, now, destination)
            made = make_from_stored(records.sparkSession, destination, current, current.inputs(), lambda _: None)
            draw(made, staging.path)
            progress(f"{now:%H:%M:%S} batch {number}: {made.lines.read:,} lines")

    writer = stream_topic(spark, options.logs).writeStream.foreachBatch(add).queryName("kafka-quota-proxy report")
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = f"file:{(options.out / CHECKPOINT).absolute()}"
    try:
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime=f"{every} seconds").start()
    except OSError as error:
        raise ReportError(f"the stream cannot start: {error}") from error
