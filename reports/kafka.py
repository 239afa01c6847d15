"""A Kafka topic whose records are log lines, one each, through Spark's own connector.

In: `kafka://HOST:PORT[,HOST:PORT…]/TOPIC`. Out: the rows that `reports.parse` takes, of what is there now or as a stream. What was
read to which offset is kept, so that the next report begins there. `file` names topic and partition.
"""

import json
import re
from typing import Any, NamedTuple

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import local_frame
from reports.errors import ReportError

_OFFSETS = "offsets"
_POSITION = re.compile(r"kafka://([^/\s]+)/([A-Za-z0-9._-]{1,249})")


class Topic(NamedTuple):
    """Where a topic is."""

    servers: str
    name: str


def is_kafka(logs: str) -> bool:
    """Whether `logs` is meant to be a topic."""
    return logs.startswith("kafka://")


def topic_of(logs: str) -> Topic:
    """The topic of an address; ReportError where it is none."""
    found = _POSITION.fullmatch(logs)
    if found is None:
        raise ReportError(f"{logs} is not the address of a topic, such as kafka://HOST:PORT,HOST:PORT/TOPIC")
    return Topic(found[1], found[2])


def packages(logs: str) -> dict[str, str]:
    """The settings with which Spark fetches the connector that fits it, where `logs` is a topic; without what Spark has itself."""
    if not is_kafka(logs):
        return {}
    topic_of(logs)
    return {
        "spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
        "spark.jars.excludes": "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime",
    }


def read_topic(spark: SparkSession, logs: str, kept: dict[str, Any]) -> DataFrame:
    """What is in the topic now, from the offsets in `kept` on, where there are any; those to begin at next are put there."""
    topic = topic_of(logs)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.servers).option("subscribe", topic.name)
    ends = _offsets(reader.load())
    begin = {**dict.fromkeys(ends, -2), **kept.get(_OFFSETS, {})}
    if not ends:
        return local_frame(spark, [], "file string, raw string")
    reader = reader.option("startingOffsets", json.dumps({topic.name: begin})).option(
        "endingOffsets", json.dumps({topic.name: ends})
    )
    kept[_OFFSETS] = ends
    return lines_of(reader.load())


def stream_topic(spark: SparkSession, logs: str) -> DataFrame:
    """The topic from its beginning on, as a stream. Where it was read to is in the stream's checkpoint."""
    topic = topic_of(logs)
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", topic.servers).option("subscribe", topic.name)
    return lines_of(stream.option("startingOffsets", "earliest").option("failOnDataLoss", "false").load())


def lines_of(records: DataFrame) -> DataFrame:
    """`file`, `raw` of records; a record without a value is an empty line."""
    name = F.concat(F.lit("kafka:"), F.col("topic"), F.lit("/"), F.col("partition").cast("string"))
    return records.select(name.alias("file"), F.coalesce(F.col("value").cast("string"), F.lit("")).alias("raw"))


def _offsets(records: DataFrame) -> dict[str, int]:
    rows = records.groupBy("partition").agg((F.max("offset") + 1).alias("end")).collect()
    return {str(row["partition"]): row["end"] for row in rows}
