"""Quota files: read as the proxy reads them, refused with the key; and what their limits would have done."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from localkafka import LocalCluster
from proxy.config.models import Settings
from proxy.operate import foreseen
from quota.entity import Entity
from quota.limit_table import LimitTable
from quota.overrides import Difference
from quota.tenants import Tenant, Tenants, owner_of
from reports.errors import ReportError
from tests.real.proxies import ProxyProcess

pytest.importorskip("pyspark")
from reports.arrow_rows import local_frame
from reports.ingest import Destination, store_lines
from reports.line_store import stored_schema
from reports.publish import Staging
from reports.quotas import foresee
from reports.quotas.file import OF_THE_PROXY, read_quotas
from reports.quotas.holders import holders, tenants
from reports.quotas.limits import Limit, QuotaFile
from reports.quotas.limits import Tenant as OwnedBy
from reports.quotas.replay import replay, wanted
from reports.summary.capacity import _unused
from reports.tables import Lengths
from tests.reports.logs import NOON, Log

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
    assert found.not_looked_at == ()
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


def test_limits_that_are_not_looked_at_are_named(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        quotas:
          entities: [{user: alice, connection_rate: 5, producer_byte_rate: 5}]
          storage: {max_used: {hard: 1GiB}, check_interval: 1m, source: local}
          enitites: [{user: alice, producer_ids_rate: 5}]
          topics: {bytes_per_sec: {orders: 5}, mode: fail}
        exempt: {users: [operator]}
        tennants: {shop: {users: [alice]}}
        limits: {connections: 5}
        """,
    )
    assert found.not_looked_at == (
        "exempt",
        "tennants",
        "quotas.enitites",
        "quotas.topics.bytes_per_sec",
        "quotas.storage.max_used",
        "quotas.entities[].cluster_connection_rate",
    )
    assert [limit.kind for limit in found.limits] == ["producer_byte_rate"], "no other is `never used`"


def test_a_section_of_a_settings_file_is_looked_at_or_is_not_about_quotas() -> None:
    assert set(Settings.model_fields) == OF_THE_PROXY | {"quotas", "tenants", "exempt"}


def test_a_limit_that_others_hide_from_all_traffic_was_never_used() -> None:
    named = [("alice", None), ("<default>", None), (None, "etl"), ("bob", "<default>"), ("bob", "app"), ("carol", None)]
    quotas = QuotaFile("", tuple(Limit("k", user, client, 1) for user, client in named))
    traffic = {("k", "alice", None, None), ("k", "dave", None, None), ("k", "bob", "etl", None), ("x", "carol", None, None)}
    assert _unused(quotas, traffic) == ["k of client etl", "k of user bob, client app", "k of user carol"]
    assert _unused(quotas, {("k", "alice", None, None)})[0] == "k of user <default>", "who has a limit does not use the default"


def test_levels_are_in_the_order_of_kafka() -> None:
    named: tuple[str | None, ...] = ("x", "<default>", None)
    limits = [Limit("k", user, client, 1) for user in named for client in named if user or client]
    assert [limit.level for limit in limits] == [1, 2, 3, 4, 5, 6, 7, 8]


def told(spark: "SparkSession", tmp_path: Path, log: Log, quotas: str) -> dict[tuple[str, str | None, str | None], Any]:
    """Owner -> its row of the replay, in buckets of 60 s."""
    return replayed(spark, tmp_path, log.lines, read(tmp_path, quotas), Lengths(60, 60, 60), NOON)


def replayed(
    spark: "SparkSession", tmp_path: Path, lines: list[bytes], *asked: Any
) -> dict[tuple[str, str | None, str | None], Any]:
    """The same of lines; `asked`: quotas, lengths, the time now."""
    quotas, lengths, now = asked
    destination = Destination(tmp_path, Staging(tmp_path / "staging"), "logs")
    rows = spark.createDataFrame([("f", line.decode()) for line in lines], "file string, raw string")
    store_lines(rows, now, destination)
    stored = spark.read.schema(stored_schema()).parquet(str(destination.staging.path / "incoming"))
    rows = replay(spark, stored, wanted(spark, stored, quotas, lengths.interval), quotas, lengths).collect()
    return {(row["kind"], row["owner_user"] or row["topic"], row["owner_client"]): row for row in rows}


@pytest.mark.spark
def test_a_limit_is_a_queue_that_empties_at_its_rate(spark: "SparkSession", tmp_path: Path) -> None:
    log = Log()
    # 200 B/s for a minute, 100 B/s for one, nothing for two, 50 B/s for one: at 100 B/s, of which 10 s pass at
    # once, 5000 B wait, for the second minute, too, and are gone 50 s later.
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
        tenants:
          shop: {users: [bob], user_prefixes: [a, fr], cluster_producer_byte_rate: 400, cluster_request_rate: 5}
          frank: {user_prefixes: [fra]}
          idle: {users: [nobody], cluster_producer_byte_rate: 1}
        """,
    )
    alice = found["producer_byte_rate", "alice", "app"]  # the most specific level, not the others
    assert (alice["limit"], alice["peak"], alice["total"], alice["seconds"]) == (100, 200, 21_000, 180)
    assert (alice["seconds_over"], alice["seconds_throttled"], alice["longest_wait"], alice["waiting"]) == (60, 170, 50, 0)
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
    written = found[
        "topic_producer_byte_rate", "orders", None
    ]  # of everybody: 300 B/s for a minute, at 150 B/s, of which 1500 B pass at once
    assert (written["limit"], written["peak"], written["waiting"], written["longest_wait"]) == (150, 300, 7500, 50)
    read_from = found["topic_consumer_byte_rate", "orders", None]
    assert (read_from["limit"], read_from["total"], read_from["seconds_throttled"]) == (1000, 6600, 0)
    assert found["bytes_in", "clicks", None]["waiting"] == 0  # it has half of what `orders` leaves of the total
    assert found["producer_byte_rate", "erin", None]["total"] == 12_600
    assert ("bytes_in", "logs", None) in found
    shop = found[
        "tenant_producer_byte_rate", "shop", None
    ]  # of alice and bob: 42,000 B at once, 6000 and 3000 B; frank is of another
    assert (shop["limit"], shop["peak"], shop["total"]) == (400, 700, 51_000)
    assert (shop["seconds_over"], shop["longest_wait"], shop["waiting"]) == (60, (42_000 - 24_000 - 4000) / 400, 0)
    assert found["tenant_request_rate", "shop", None]["seconds_throttled"] == 0
    assert len(found) == 15


@pytest.mark.spark
def test_whose_limit_holds_is_as_the_proxy_has_it_and_nobody_is_held_against_every_limit(spark: "SparkSession") -> None:
    users, clients = ("alice", "al", "bob", "Group:team"), ("app", "etl", "", None)
    pairs = [(user if ":" in user else f"User:{user}", client) for user in users for client in clients]
    levels = [Entity(*one) for one in product(("alice", "<default>", None), ("app", "<default>", None)) if any(one)]
    limits = [Limit(f"k{n}", one.user, one.client_id, level) for n in range(8) for level, one in enumerate(levels[n:], n)]
    limits += [Limit("some", one.user, one.client_id, level) for level, one in enumerate(levels) if level % 3 == 1]
    expected = set()
    for kind in {limit.kind for limit in limits}:
        table = LimitTable({Entity(limit.user, limit.client_id): limit.rate for limit in limits if limit.kind == kind})
        for principal, client in pairs:
            if (own := table.find(principal.removeprefix("User:"), client or "")) is not None:
                expected.add((principal, client, kind, own.owner.user, own.owner.client_id, own.limit))
    found = holders(spark, local_frame(spark, pairs, "principal string, client_id string"), limits)
    columns = ("principal", "client_id", "kind", "owner_user", "owner_client", "limit")
    assert {tuple(row) for row in found.select(*columns).collect()} == expected
    settings = Tenants({"a": Tenant(("alice",), ("b",)), "b": Tenant((), ("al", "bo", "Group")), "c": Tenant(("al",))})
    quotas = QuotaFile("", tenants={name: OwnedBy(one.users, one.user_prefixes, {}) for name, one in settings.tenants.items()})
    principals = sorted({principal for principal, _ in pairs})
    members = tenants(spark, local_frame(spark, [(one,) for one in [*principals, "User:x"]], "principal string"), quotas)
    assert {row["principal"]: row["tenant"] for row in members.collect()} == {
        principal: settings.of_user(principal.removeprefix("User:")) for principal in principals
    }
    for frame in (found, members):
        assert "NestedLoop" not in frame._jdf.queryExecution().toString()  # type: ignore[operator]


@pytest.mark.spark
def test_an_interval_that_begins_a_moment_early_is_in_the_time_in_which_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    # 20 s of the rate, 10 of which pass at once, and 10 s more: at the limit all the time, and nothing in between without traffic.
    log = Log().usage(-0.1, 10.1, topic="t", record_bytes=2000).usage(10, topic="t", record_bytes=1000)
    quotas = read(tmp_path, "quotas: {entities: [{user: alice, producer_byte_rate: 100}]}")
    found = replayed(spark, tmp_path, log.lines, quotas, Lengths(10, 10, 10), NOON)["producer_byte_rate", "alice", None]
    assert (found["seconds"], found["seconds_throttled"], found["longest_wait"]) == (20, 20, 0)


@pytest.mark.spark
def test_what_there_is_stays_and_what_is_added_on_top_of_a_limit_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    log, other = Log(), Log("proxy-b")
    for minute, topics, stored in ((0, 3, 900), (1, 5, 1500), (2, 4, 400), (3, 8, 1000)):
        log.owned(60 * minute, topic_count=topics, partition_count=2 * topics, stored_bytes=stored)
        other.owned(60 * minute, topic_count=topics - 1, partition_count=0)  # it has not heard of the last one yet
        log.owned(60 * minute, tenant=None, user="alice", topic_count=minute, partition_count=10)
        log.owned(60 * minute, tenant=None, topic="payments", topic_count=None, partition_count=None, stored_bytes=100)
    quotas = """
        quotas:
          entities: [{user: "<default>", max_topics: 2, max_partitions: 10}]
          stored_bytes: {topics: {payments: {hard: 90, soft: 50}, other: {hard: 1}}, count_replicas: false}
        tenants:
          payments: {topic_prefixes: [pay.], max_topics: 4, max_partitions: 100, stored_bytes_soft: 500B, stored_bytes_hard: 1000B}
          empty: {topic_prefixes: [e.], max_topics: 1}
        """
    found = replayed(spark, tmp_path, log.lines + other.lines, read(tmp_path, quotas), Lengths(60, 60, 10), NOON)
    topics = found["tenant_topic_count", "payments", None]
    assert (topics["limit"], topics["peak"], topics["total"], topics["seconds"], topics["seconds_over"]) == (4, 8, 8, 240, 120)
    # Of 5 one is refused; one goes, so that of the four that come then one is refused again.
    assert (topics["waiting"], topics["times"], topics["seconds_throttled"], topics["longest_wait"]) == (1 + 3, 2, 120, 0)
    assert topics["first_over"] < topics["last_over"]
    stored = found["tenant_stored_bytes", "payments", None]
    assert (stored["limit"], stored["waiting"], stored["times"]) == (1000, 500, 1)
    assert found["tenant_partition_count", "payments", None]["times"] == 0
    alice = found["topic_count", "alice", None]
    assert (alice["limit"], alice["waiting"], alice["times"]) == (2, 1, 1)
    assert found["partition_count", "alice", None]["seconds_throttled"] == 0, "as many as it may have"
    of_topic = found["topic_stored_bytes", "payments", None]
    assert (of_topic["limit"], of_topic["waiting"], of_topic["seconds_throttled"]) == (90, 0, 240), "what was there stays"
    assert len(found) == 6
    assert read(tmp_path, quotas).not_looked_at == ("quotas.stored_bytes.topics.*.soft",)


@pytest.mark.spark
def test_a_plan_says_whose_topics_would_be_too_many_and_what_no_log_tells(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresee, "spark_session", lambda _master, **_: nullcontext(spark))
    log = Log().usage(0)
    for minute, topics in enumerate((3, 5, 6)):
        log.owned(60 * minute, topic_count=topics, partition_count=topics)
    log.write(tmp_path / "logs")
    payments, empty = owner_of("payments"), Tenants({"payments": Tenant(topic_prefixes=("pay.",))})

    def plan(key: str, old: float | None, new: float) -> foreseen.Replayed:
        after = {payments: {key: new, **({"stored_bytes_hard": 9.0} if key == "stored_bytes_soft" else {})}}
        before = {} if old is None else {payments: {key: old}}
        changes = [Difference(payments, key, old, new)]
        return foreseen.replay(str(tmp_path / "logs"), before, after, changes, {(payments, key): 4}, empty)

    (held,) = plan("max_topics", None, 4).held_back
    assert (held.owner, held.quota, held.limit, held.line) == ("tenant payments", "max_topics", 4, 4)
    assert (held.times, held.seconds, held.longest_wait) == (1, 120, 0)
    assert plan("max_topics", None, 6).held_back == plan("max_topics", 3, 4).held_back == ()
    assert plan("stored_bytes_hard", None, 4).not_replayed == ("stored_bytes_hard",), "nobody looked at the log dirs"
    assert plan("stored_bytes_soft", None, 4).not_replayed == ("stored_bytes_soft",)


RATE = 200_000
ENOUGH = 22
"""Seconds of the rate after which a client ends: 10 of them pass at once."""


BATCH = 250_000
"""Bytes of a request: it is throttled for more than a second, beside which the time until the next one comes is nothing."""


def produce_much(bootstrap: str, topic: str, client_id: str, amount: int, each: float = 0.0) -> float:
    """Batches of some BATCH bytes until `amount` bytes are written, as fast as may be, or with `each` seconds between messages.
    Returns the seconds that it took, with the wait for the last batch: one more message is written after it."""
    begin = time.monotonic()
    how = {"batch.size": BATCH, "linger.ms": 50, "queue.buffering.max.messages": 200}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, **how})
    for _ in range(amount // 5000):
        while len(producer) >= 200:
            producer.poll(0.01)
        producer.produce(topic, b"x" * 5000)
        producer.poll(each)
    assert producer.flush(90) == 0
    producer.produce(topic, b"the end")
    assert producer.flush(90) == 0
    return time.monotonic() - begin


def consume_much(bootstrap: str, topic: str, client_id: str, amount: float = math.inf) -> float:
    """Fetches of some BATCH bytes until `amount` bytes are there, or the topic ends. Returns the seconds from the first to the
    last, with the wait after the last if the topic ends: this is told by one more fetch."""
    begin = None
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": client_id, "fetch.message.max.bytes": BATCH}
    settings |= {"queued.max.messages.kbytes": 1000, "fetch.queue.backoff.ms": 0, "fetch.wait.max.ms": 10}
    settings |= {"enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while amount > 0:
        if (message := consumer.poll(1.0)) is None:
            continue
        begin = begin or time.monotonic()
        if (error := message.error()) is None:
            amount -= len(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            amount = 0
    took = time.monotonic() - (begin or 0)
    consumer.close()
    return took


def late(took: float, told: float) -> float:
    """Seconds in which a client that was throttled for `told` seconds asked for nothing though it could, as on a busy machine;
    at most a tenth, as more would hide a wrong log. A log has sums of whole intervals, which do not tell of them."""
    return min(max(took - told, 0), told / 10)


@pytest.mark.spark
@pytest.mark.kafka
def test_a_replay_of_the_quotas_in_force_is_what_the_proxy_did(spark: "SparkSession", kafka1: LocalCluster, tmp_path: Path) -> None:
    """Who was throttled, and for how long, to within 5 % and to how late the client was."""
    names = {"producer_byte_rate": ("writer", "slow-writer"), "consumer_byte_rate": ("reader", "small-reader")}
    entities = [{"client_id": client, f"cluster_{kind}": RATE} for kind, clients in names.items() for client in clients]
    logs = {"usage": {"path": str(tmp_path / "proxy" / "logs"), "interval": "10s"}}
    produce_much(kafka1.bootstrap_servers, "replayed-out", "direct", ENOUGH * RATE)
    settings = {"quotas": {"entities": entities}, "logs": logs}
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, settings) as proxy, ThreadPoolExecutor() as pool:
        at_work = {
            "writer": pool.submit(produce_much, proxy.bootstrap, "replayed-in", "writer", ENOUGH * RATE),
            "slow-writer": pool.submit(produce_much, proxy.bootstrap, "replayed-in", "slow-writer", RATE, 0.1),
            "reader": pool.submit(consume_much, proxy.bootstrap, "replayed-out", "reader"),
            "small-reader": pool.submit(consume_much, proxy.bootstrap, "replayed-out", "small-reader", RATE),
        }
        took = {client: one.result(120) for client, one in at_work.items()}
    quotas = read_quotas(tmp_path / "proxy" / "settings.yaml")
    written = [line for path in sorted(proxy.logs.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    found = replayed(spark, tmp_path, written, quotas, Lengths(10, 60, 10), datetime.now(UTC))
    for kind, clients in names.items():
        for client in clients:
            lines = [line for line in proxy.usage() if line["type"] == "usage" and line["client_id"] == client]
            told = sum(line["throttle_ms"] for line in lines) / 1000
            assert (told > 0) is (client in ("writer", "reader"))
            counted = [(line["start"], line["record_bytes"], line["response_bytes"], line["throttle_ms"]) for line in lines]
            row = found[kind, "ANONYMOUS", client]
            allowed = 0.05 * told + late(took[client], told)
            assert row["seconds_throttled"] == pytest.approx(told, abs=allowed), (client, took[client], counted)
