"""Quota files: read as the proxy reads them, refused with the key; and what their limits would have done."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reports.errors import ReportError

pytest.importorskip("pyspark")
from reports.quotas.file import Limit, read_quotas
from tests.reports.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(tmp_path: Path, text: str) -> Any:
    """The quotas of a file."""
    (tmp_path / "proxy.yaml").write_text(text)
    return read_quotas(tmp_path / "proxy.yaml")


def test_the_quotas_of_a_settings_file_are_read_and_the_rest_is_left(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        upstream: {bootstrap_servers: ["kafka-0:9092"]}
        quotas:
          entities:
            - {user: alice, controller_mutations_rate: 5, producer_byte_rate: 20MiB}
            - {user: "<default>", producer_ids_rate: 100}
            - {client_id: etl, consumer_byte_rate: 1000}
          topics: {total_bytes_in_per_sec: 200MiB, bytes_in_per_sec: {orders: 50MB}}
          topic_rates: {topics: {orders: {bytes_in: 1MiB}, bills: {bytes_in: 5, bytes_out: 10MB}}, mode: fail}
          storage: {soft: {min_available_ratio: 0.2}, hard: {min_available_bytes: 1GiB}}
        """,
    )
    assert found.limits == (
        Limit("producer_byte_rate", "alice", None, 20 * 2**20),
        Limit("controller_mutations", "alice", None, 5, 55),
        Limit("producer_ids", "<default>", None, 100),
        Limit("consumer_byte_rate", None, "etl", 1000),
    )
    assert (found.topics_total, found.topics) == (200 * 2**20, {"orders": 50e6})
    assert found.topic_rates == {
        "topic_producer_byte_rate": {"orders": 2**20, "bills": 5},
        "topic_consumer_byte_rate": {"bills": 10e6},
    }
    assert (found.soft.of(1000), found.hard.of(1000)) == (200, 2**30)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "quotas: {entities: [{user: a, producer_byte_rat: 1}]}",
            r"line 1: `quotas.entities\[0\].producer_byte_rat`: there is no such setting; `producer_byte_rate` is probably meant",
        ),
        ("quotas: {entities: [{producer_byte_rate: 1}]}", r"`quotas.entities\[0\]`: an entity needs `user`, `client_id` or both"),
        ("quotas: {entities: [{user: a, producer_byte_rate: 5 apples}]}", "'5 apples' is not right: a size, such as 64MiB"),
        ("quotas: {entities: [{user: a, producer_ids_rate: -1}]}", "-1 is not right: Input should be greater than 0"),
        ("quotas: {entities: {user: a}}", "`quotas.entities`: .* is not right: a list"),
        ("quotas: {storage: {min_available_ratio: 10}}", "`quotas.storage.min_available_ratio`: 10 is not right"),
        ("listen: {}", "`quotas` is missing or empty"),
        ("quotas: [", "line 1: is not YAML"),
        ("- a", "line 1: must be a mapping of settings"),
    ],
)
def test_what_is_not_right_is_told_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ReportError, match=says):
        read(tmp_path, text)
    with pytest.raises(ReportError, match="nowhere: cannot be read: No such file"):
        read_quotas(tmp_path / "nowhere")


def test_levels_are_in_the_order_of_kafka() -> None:
    named: tuple[str | None, ...] = ("x", "<default>", None)
    limits = [Limit("k", user, client, 1) for user in named for client in named if user or client]
    assert [limit.level for limit in limits] == [1, 2, 3, 4, 5, 6, 7, 8]


def told(spark: "SparkSession", tmp_path: Path, log: Log, quotas: str) -> dict[tuple[str, str | None, str | None], Any]:
    """Owner -> its row of the replay, in buckets of 60 s."""
    from reports.ingest import Destination, store_lines
    from reports.line_store import stored_schema
    from reports.publish import Staging
    from reports.quotas.replay import replay
    from tests.reports.logs import NOON

    destination = Destination(tmp_path, Staging(tmp_path / "staging"), "logs")
    rows = spark.createDataFrame([("f", line.decode()) for line in log.lines], "file string, raw string")
    store_lines(rows, NOON, destination)
    lines = spark.read.schema(stored_schema()).parquet(str(destination.staging.path / "incoming"))
    rows = replay(spark, lines, read(tmp_path, quotas), 60).collect()
    return {(row["kind"], row["owner_user"] or row["topic"], row["owner_client"]): row for row in rows}


@pytest.mark.spark
def test_a_limit_is_a_queue_that_empties_at_its_rate(spark: "SparkSession", tmp_path: Path) -> None:
    log = Log()
    # 200 B/s for a minute, 100 B/s for one, nothing for two, 50 B/s for one: at 100 B/s 6000 B wait, for the
    # second minute, too, and are gone a minute later.
    for at, size in ((0, 12_000), (60, 6000), (240, 3000)):
        log.usage(at, 60, topic="logs", record_bytes=size).usage(at, 60, request_bytes=10 * size)
    log.usage(0, 60, principal="User:bob", client_id=None, topic="logs", record_bytes=30_000)
    log.usage(0, 60, principal="User:carol", client_id="etl", request_bytes=600, api="Fetch", api_key=1, response_bytes=600)
    log.usage(0, 60, principal="User:dave", client_id="etl", request_bytes=600, api="Fetch", api_key=1, response_bytes=3000)
    log.usage(0, 60, principal="User:dave", client_id="etl", api="ShareFetch", api_key=78, response_bytes=6000)
    log.usage(0, 60, principal="User:carol", client_id="etl", request_bytes=600, api="CreateTopics", api_key=19, mutations=6000)
    for topic, size in (("orders", 12_000), ("clicks", 600)):
        log.usage(0, 60, principal="User:erin", topic=topic, record_bytes=size)
    log.usage(0, 60, principal="User:frank", topic="orders", record_bytes=6000)
    log.usage(0, 60, principal="User:frank", topic="orders", api="Fetch", api_key=1, record_bytes=6000)
    log.usage(0, 60, principal="User:frank", topic="orders", api="ShareFetch", api_key=78, record_bytes=600)
    log.producer_ids(0, 60, counted=150).producer_ids(60, 60, counted=20)
    found = told(
        spark,
        tmp_path,
        log,
        """
        quotas:
          entities:
            - {user: "<default>", producer_byte_rate: 1000, controller_mutations_rate: 50, producer_ids_rate: 100}
            - {user: alice, producer_byte_rate: 5000}
            - {user: alice, client_id: app, producer_byte_rate: 100}
            - {client_id: etl, consumer_byte_rate: 100}
          topics: {total_bytes_in_per_sec: 150, bytes_in_per_sec: {orders: 100}}
          topic_rates: {topics: {orders: {bytes_in: 150, bytes_out: 1000}, nowhere: {bytes_in: 1}}}
        """,
    )
    alice = found["producer_byte_rate", "alice", "app"]  # the most specific level, not the others
    assert (alice["limit"], alice["peak"], alice["total"], alice["seconds"]) == (100, 200, 21_000, 180)
    assert (alice["seconds_over"], alice["seconds_throttled"], alice["longest_wait"], alice["waiting"]) == (60, 180, 60, 0)
    bob = found["producer_byte_rate", "bob", None]
    assert (bob["limit"], bob["peak"], bob["seconds_throttled"], bob["waiting"]) == (1000, 500, 0, 0)
    etl = found["consumer_byte_rate", "carol", "etl"]  # each user has a window of its own
    assert (etl["peak"], etl["seconds_throttled"]) == (10, 0)
    assert found["consumer_byte_rate", "dave", "etl"]["seconds_throttled"] > 0
    carol = found["controller_mutations", "carol", None]  # 6000 in a minute at 50 a second with a burst of 550
    assert (carol["burst"], carol["waiting"], carol["longest_wait"]) == (550, 6000 - 3000 - 550, (6000 - 3000 - 550) / 50)
    ids = found["producer_ids", "alice", None]
    assert (ids["peak"], ids["seconds_over"], ids["seconds_throttled"]) == (150, 60, 60)
    orders = found["bytes_in", "orders", None]
    assert (orders["limit"], orders["waiting"]) == (100, 12_000)
    written = found["topic_producer_byte_rate", "orders", None]  # of everybody: 300 B/s for a minute, at 150 B/s
    assert (written["limit"], written["peak"], written["waiting"], written["longest_wait"]) == (150, 300, 9000, 60)
    read_from = found["topic_consumer_byte_rate", "orders", None]
    assert (read_from["limit"], read_from["total"], read_from["seconds_throttled"]) == (1000, 6600, 0)
    assert found["bytes_in", "clicks", None]["waiting"] == 0  # it has half of what `orders` leaves of the total
    assert found["producer_byte_rate", "erin", None]["total"] == 12_600
    assert ("bytes_in", "logs", None) in found
    assert len(found) == 13
