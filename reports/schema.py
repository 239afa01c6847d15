"""The log lines of each version of the format, as data.

In: nothing. Out: the fields of each type of line, the Spark schema they are parsed with, and what is written down about each.
The source is docs/log-format.md; a test compares the two. Left to others: parsing (`reports.parse`), validation
(`reports.validation`).
"""

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import types as t

VERSIONS = (1, 2)
"""Values of `v` that this reader knows: 2 is 1 with more types of lines, and `left` in a decision. Every other version is
quarantined, never guessed at."""

UNPARSED = "unparsed"
"""In the place of a line's type: it was not parsed yet."""

LARGEST_COUNT = 2**50
"""Largest count in one line that is believed (1 PiB in one interval). Beyond it, sums of longs could overflow."""


class Kind(StrEnum):
    """What the value of a field is in JSON, and hence which Spark type parses it."""

    TEXT = "text"
    TIME = "time"  # text until reports.validation has looked at it
    COUNT = "count"  # integer, not negative
    API_KEY = "api_key"  # the same, or -1: of no API, or of many
    NUMBER = "number"  # any finite number
    COUNTS = "counts"  # object: name -> count
    ENTITY = "entity"  # object: ENTITY_PARTS
    TEXTS = "texts"  # array of texts


ENTITY_PARTS = ("user", "client_id", "tenant")
"""Of an object that says whose quota it is, each a text or null; `tenant` is there for tenants alone."""

SPARK_TYPES: dict[Kind, t.DataType] = {
    Kind.TEXT: t.StringType(),
    Kind.TIME: t.StringType(),
    Kind.COUNT: t.LongType(),
    Kind.API_KEY: t.LongType(),
    Kind.NUMBER: t.DoubleType(),
    Kind.COUNTS: t.MapType(t.StringType(), t.LongType()),
    Kind.ENTITY: t.StructType([t.StructField(part, t.StringType()) for part in ENTITY_PARTS]),
    Kind.TEXTS: t.ArrayType(t.StringType()),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a line: its name, kind, whether a value must be there, and its meaning (with unit)."""

    name: str
    kind: Kind
    required: bool
    meaning: str


def _must(name: str, kind: Kind, meaning: str) -> Field:
    return Field(name, kind, required=True, meaning=meaning)


def _may(name: str, kind: Kind, meaning: str) -> Field:
    return Field(name, kind, required=False, meaning=meaning)


COMMON = (
    _must("v", Kind.COUNT, "version of the format"),
    _must("type", Kind.TEXT, "usage, decision, volume, producer_ids, owned, latency or gap"),
    _must("proxy", Kind.TEXT, "which proxy wrote the line"),
    _must("boot", Kind.TEXT, "new at each start of the proxy"),
    _must("seq", Kind.COUNT, "number of the line within (proxy, boot), from 1"),
)

USAGE = (
    _must("start", Kind.TIME, "start of the interval"),
    _must("end", Kind.TIME, "end of the interval, excluded"),
    _must("principal", Kind.TEXT, "Kafka principal, User:alice"),
    _may("client_id", Kind.TEXT, "what the client claims to be"),
    _may("topic", Kind.TEXT, "null: the line is about whole requests; set: about the part of them for this topic"),
    _may("topic_id", Kind.TEXT, "UUID, where the topic's name is not known"),
    _must("api", Kind.TEXT, "Kafka's name of the API"),
    _must("api_key", Kind.API_KEY, "Kafka's key of the API"),
    _must("requests", Kind.COUNT, "requests, or requests that named the topic"),
    _must("request_bytes", Kind.COUNT, "bytes of whole request frames; 0 in lines about a topic"),
    _must("response_bytes", Kind.COUNT, "bytes of whole response frames; 0 in lines about a topic"),
    _must("record_bytes", Kind.COUNT, "bytes of record batches as sent, compressed; only in lines about a topic"),
    _may("records", Kind.COUNT, "records in those batches; only for Produce"),
    _must("mutations", Kind.COUNT, "partition mutations charged"),
    _must("throttle_ms", Kind.COUNT, "throttle time that the proxy's quotas asked for, milliseconds"),
    _must("refused", Kind.COUNTS, "quota -> items (topics, partitions) refused"),
)

DECISION = (
    _must("at", Kind.TIME, "when it was decided"),
    _must("quota", Kind.TEXT, "name of the quota"),
    _must("action", Kind.TEXT, "refuse, throttle or hold"),
    _must("mode", Kind.TEXT, "enforce, or observe where the quota only watches"),
    _must("entity", Kind.ENTITY, "whose quota: user, client_id and tenant, null where not part of its level"),
    _must("principal", Kind.TEXT, "who sent the request"),
    _may("client_id", Kind.TEXT, "what the client claims to be"),
    _must("client_address", Kind.TEXT, "host:port of the client"),
    _must("api", Kind.TEXT, "Kafka's name of the API"),
    _must("api_key", Kind.API_KEY, "Kafka's key of the API"),
    _must("api_version", Kind.COUNT, "version of the request"),
    _must("items", Kind.COUNT, "topics or partitions refused or throttled in this request"),
    _must("topics", Kind.TEXTS, "the first 10 of their topics"),
    _must("usage", Kind.NUMBER, "usage when it was decided, in the quota's unit"),
    _must("limit", Kind.NUMBER, "limit when it was decided, in the quota's unit"),
    _may("left", Kind.NUMBER, "what was left until the limit when it was decided; null in version 1"),
    _must("throttle_ms", Kind.COUNT, "throttle time that the client was told, milliseconds"),
    _may("message", Kind.TEXT, "what the client was told, where the API has a message"),
    _must("left_out", Kind.COUNT, "decisions of this quota and entity not written since the last line about it"),
)

VOLUME = (
    _must("at", Kind.TIME, "when the check was done"),
    _must("source", Kind.TEXT, "cluster or local: who told"),
    _may("broker_id", Kind.COUNT, "whose log dir"),
    _must("log_dir", Kind.TEXT, "path on that broker"),
    _must("total_bytes", Kind.COUNT, "size of the file system"),
    _must("usable_bytes", Kind.COUNT, "what is left of it"),
    _may("limit_bytes", Kind.COUNT, "usable bytes at or below which nothing may be produced"),
    _may("soft_limit_bytes", Kind.COUNT, "usable bytes at or below which producing is slowed"),
    _must("factor", Kind.NUMBER, "throttle factor that this volume asks for, 0 to 1"),
    _may("replica_bytes", Kind.COUNT, "bytes of all replicas on it"),
    _must("topic_bytes", Kind.COUNTS, "topic -> bytes of its replicas there, the largest topics"),
    _may("more_topic_bytes", Kind.COUNTS, "the same of further topics; null where the line names the largest alone"),
)

PRODUCER_IDS = (
    _must("start", Kind.TIME, "start of the interval"),
    _must("end", Kind.TIME, "end of the interval, excluded"),
    _must("user", Kind.TEXT, "whose producers"),
    _must("active", Kind.COUNT, "about how many different producer ids there were within the window"),
    _must("counted", Kind.COUNT, "new ones within the window, what the quota counts"),
    _must("window_ms", Kind.COUNT, "length of the window that ends with the interval"),
    _may("limit", Kind.NUMBER, "of that user, where there is one"),
)

OWNED = (
    _must("start", Kind.TIME, "start of the interval"),
    _must("end", Kind.TIME, "end of the interval, excluded"),
    _may("tenant", Kind.TEXT, "who has it: a tenant,"),
    _may("user", Kind.TEXT, "or a user,"),
    _may("topic", Kind.TEXT, "or a topic; one of the three"),
    _may("topic_count", Kind.COUNT, "topics that it has, of a user those that it created, at the end of the interval"),
    _may("partition_count", Kind.COUNT, "partitions of these topics"),
    _may("stored_bytes", Kind.COUNT, "bytes that its topics have stored, as the quota counts them"),
)

LATENCY = (
    _must("start", Kind.TIME, "start of the interval"),
    _must("end", Kind.TIME, "end of the interval, excluded"),
    _must("part", Kind.TEXT, "what took the time: broker, wait, proxy or quota"),
    _may("broker_id", Kind.COUNT, "which broker"),
    _must("api", Kind.TEXT, "Kafka's name of the API"),
    _may("api_key", Kind.API_KEY, "Kafka's key of the API"),
    _must("requests", Kind.COUNT, "requests that were measured"),
    _must("p10_ms", Kind.NUMBER, "a tenth took at most so long, milliseconds"),
    _must("p50_ms", Kind.NUMBER, "a half"),
    _must("p90_ms", Kind.NUMBER, "nine of ten"),
    _must("p99_ms", Kind.NUMBER, "99 of 100"),
    _must("max_ms", Kind.NUMBER, "all of them"),
)

GAP = (
    _must("at", Kind.TIME, "when the loss was noticed"),
    _must("lines", Kind.COUNT, "lines that were dropped"),
)

FIELDS: dict[str, tuple[Field, ...]] = {
    "usage": USAGE,
    "decision": DECISION,
    "volume": VOLUME,
    "producer_ids": PRODUCER_IDS,
    "owned": OWNED,
    "latency": LATENCY,
    "gap": GAP,
}
"""Type of line -> its fields beyond `COMMON`."""


def distinct_fields() -> tuple[Field, ...]:
    """Every field of every type of line, once. Fields that types share have one kind."""
    found: dict[str, Field] = {}
    for field in (*COMMON, *USAGE, *DECISION, *VOLUME, *PRODUCER_IDS, *OWNED, *LATENCY, *GAP):
        found.setdefault(field.name, field)
    return tuple(found.values())


def column_type(field: Field) -> t.DataType:
    """The type of a field in the tables."""
    return t.TimestampType() if field.kind is Kind.TIME else SPARK_TYPES[field.kind]


def line_schema() -> t.StructType:
    """The explicit schema of a line: all types in one struct, nullable, so that a bad value never fails the parse."""
    return t.StructType([t.StructField(f.name, SPARK_TYPES[f.kind], metadata={"comment": f.meaning}) for f in distinct_fields()])
