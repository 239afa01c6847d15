"""Following room: the tables are kept current while the proxies log on.

In: `Options`, how often. Out: a report that is made anew every so often, of the days that changed alone. Ends when it is
interrupted. A topic is read by a stream of Spark's (Structured Streaming), which keeps in a checkpoint where it was. A folder is
looked at for files that are new or grew: Spark's own file stream takes a file as it is when it is first seen, and would never read
what a proxy writes to it later. Either way lines that come again are dropped, so that nothing counts twice, wherever a run was
killed.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reports.absorb import store_lines
from reports.errors import ReportError
from reports.folder import check_logs
from reports.job import OUTCOME, Options, draw, make_from_stored, place_of
from reports.kafka import is_kafka, packages, stream_topic
from reports.read import load
from reports.session import spark_session
from reports.write import replacing

CHECKPOINT = ".kafka-quota-proxy-stream"
"""Folder in the out folder where the stream notes how far it is."""

Tell = Callable[[str], None]


def follow(options: Options, every: int, tell: Tell) -> None:
    """Keep the report of a folder or topic current, until it is interrupted."""
    with ExitStack() as stack:
        if not is_kafka(options.logs):
            check_logs(options.logs)
        settings = {**packages(options.logs), **(options.settings or {})}
        spark = stack.enter_context(spark_session(options.master, memory=options.memory, settings=settings))
        try:
            if is_kafka(options.logs):
                follow_topic(spark, options, every, tell).awaitTermination()
            while True:
                begin = time.monotonic()  # noqa: TID251  how long to wait is all that it is for
                follow_folder(spark, replace(options, made=datetime.now(UTC), incremental=True), tell)
                time.sleep(max(0.0, every - (time.monotonic() - begin)))  # noqa: TID251
        except KeyboardInterrupt:
            tell("stopped")


def follow_folder(spark: SparkSession, options: Options, tell: Tell) -> None:
    """One look at the folder: add what is new."""
    with replacing(options.out, OUTCOME) as staging:
        place = place_of(options, staging)
        load(spark, options.logs, options.made, place)
        made = make_from_stored(spark, place, options, options.wanted(), lambda _: None)
        draw(made, staging.path)
        tell(f"{options.made:%H:%M:%S} {made.lines.read:,} lines")


def follow_topic(spark: SparkSession, options: Options, every: int, tell: Tell) -> StreamingQuery:
    """A stream that adds what comes, in batches `every` so many seconds."""

    def add(records: DataFrame, number: int) -> None:
        now = datetime.now(UTC)
        current = replace(options, made=now, incremental=True)
        with replacing(options.out, OUTCOME) as staging:
            place = place_of(current, staging, rereads=False)
            store_lines(records, now, place)
            made = make_from_stored(records.sparkSession, place, current, current.wanted(), lambda _: None)
            draw(made, staging.path)
            tell(f"{now:%H:%M:%S} batch {number}: {made.lines.read:,} lines")

    writer = stream_topic(spark, options.logs).writeStream.foreachBatch(add).queryName("kafka-quota-proxy report")
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = f"file:{(options.out / CHECKPOINT).absolute()}"
    try:
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime=f"{every} seconds").start()
    except OSError as error:
        raise ReportError(f"the stream cannot start: {error}") from error
