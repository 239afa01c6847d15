"""Tenants with real clients and logins: users of one store together no more than it may, whatever client ids they claim, and its
limit is altered while they run; it has no more topics and partitions than it may; and policies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaAdminClient
from kafka.errors import PolicyViolationError

from localkafka import LocalCluster, run_java, tool
from proxy.cli import main
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import PYTHON, USERS, access, java_properties, upstream
from tests.real.test_rates import create, stored

pytestmark = pytest.mark.kafka

RATE, BURST, BATCH, ENOUGH = 200_000, 10, 16_384, 14
RECORD = 5000


@pytest.fixture(scope="module")
def shared(tenants3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    apps = {"users": ["other"], "user_prefixes": ["tenan"], "topic_prefixes": ["apps."], "cluster_producer_byte_rate": RATE}
    settings = {
        "tenants": {"apps": apps},
        "quotas": {"entities": [{"user": "other", "cluster_producer_byte_rate": 100 * RATE}]},
        "upstream": upstream(),
    }
    with ProxyProcess(tmp_path_factory.mktemp("tenants"), tenants3.bootstrap_servers, settings) as proxy:
        yield proxy


def command(*arguments: str) -> str:
    run = run_command(["tenants", *arguments], 300)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return run.stdout


def quotas_command(*arguments: str) -> str:
    run = run_command(["quotas", *arguments], 300)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return run.stdout


def test_users_of_a_tenant_store_no_more_than_it_may_whatever_they_claim(
    shared: ProxyProcess, tenants3: LocalCluster, name: str
) -> None:
    name = f"apps.{name}"
    create(tenants3, name)
    clients = [(user, f"app-{i}") for i, user in enumerate(("tenant", "other", "tenant", "other"))]
    settings = {"log_level": 2, "batch.size": BATCH, "queue.buffering.max.messages": 50}
    producers = [Producer({**access(shared.bootstrap, user), **settings, "client.id": claimed}) for user, claimed in clients]
    errors: list[str] = []
    began = time.monotonic()
    size, look = 0, began
    while size < ENOUGH * RATE:
        for i, producer in enumerate(producers):
            producer.poll(0.01)
            for _ in range(50 - len(producer)):
                producer.produce(
                    name, b"x" * RECORD, partition=i, on_delivery=lambda e, _: errors.append(str(e)) if e is not None else None
                )
        if time.monotonic() > look:
            size, look = stored(tenants3, name), time.monotonic() + 0.2
            assert size <= RATE * (BURST + time.monotonic() - began) + 2 * BATCH * len(clients)
        assert time.monotonic() < began + 60, f"{size} bytes in a minute"
    for producer in producers:
        assert producer.flush(90) == 0
    assert not errors
    shared.wait_for("over quota", quota="tenant_producer_byte_rate", entity="tenant apps", action="throttle")
    assert not shared.lines("over quota", quota="producer_byte_rate"), "the limit of the user is far away"
    (one,) = json.loads(command("--admin", shared.admin, "--json"))["tenants"]
    assert (one["tenant"], one["topics"], one["partitions"]) == ("apps", 1, 5)
    assert [(it["quota"], it["limit"]) for it in one["quotas"]] == [("tenant_producer_byte_rate", RATE)]
    assert one["quotas"][0]["usage"] > RATE / 2
    assert "other, tenan*" in command("--admin", shared.admin)
    assert shared.metric("tenant_producer_byte_rate_limit", tenant="apps") == RATE


def test_the_limit_of_a_tenant_is_altered_while_it_runs(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    quotas = {"admins": ["ANONYMOUS"], "dynamic": {"topic": name}}
    settings = {"tenants": {"apps": {"users": []}, "ops": {"users": ["olga"]}}, "quotas": quotas, "reload": {"interval": "100ms"}}
    with ProxyProcess(tmp_path, kafka1.bootstrap_servers, settings) as proxy:
        place = ["--bootstrap-server", proxy.bootstrap, "--entity-type", "tenants"]
        who = [*place, "--entity-name", "apps"]
        proxy.wait_for("quotas read")
        assert "altered" in quotas_command("alter", *who, "--add-config", "cluster_producer_byte_rate=1KiB")
        changed = proxy.wait_for("quota changed", entity="tenant apps")
        assert (changed["quota"], changed["old"], changed["new"]) == ("cluster_producer_byte_rate", None, 1024)
        found = json.loads(quotas_command("describe", *place, "--json"))
        assert found == [{"entity": {"tenant": "apps"}, "quotas": {"cluster_producer_byte_rate": 1024}}]
        taken = run_command(["quotas", "alter", *who, "--add-config", "users.olga=1"], 300)
        assert taken.returncode == 1
        assert "`olga` of `users` is of tenant `ops` already" in taken.stdout + taken.stderr
        quotas_command("alter", *who, "--add-config", "users.ANONYMOUS=1")
        (one, _) = json.loads(command("--admin", proxy.admin, "--json"))["tenants"]
        assert (one["tenant"], one["users"]) == ("apps", ["ANONYMOUS"])
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 2})
        producer.produce(name + "-data", bytes(15_000))
        assert producer.flush(90) == 0
        assert proxy.wait_for("over quota", quota="tenant_producer_byte_rate", entity="tenant apps")["limit"] == 1024
        quotas_command("alter", *who, "--delete-config", "cluster_producer_byte_rate,users.ANONYMOUS")
        proxy.wait_for("quota changed", entity="tenant apps", new=None)
        assert quotas_command("describe", *place) == "no quotas\n"


def test_check_config_tells_what_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(
        "tenants: {a: {users: [a-1], user_prefixes: [a-]}, b: {cluster_request_rate: 5, topic_prefixes: [b/]}}"
    )
    result = CliRunner().invoke(main, ["check-config", str(tmp_path / "settings.yaml")])
    assert result.exit_code == 0
    assert "`tenants.a.users`: `a-1` begins with one of its `user_prefixes` already" in result.output
    assert "`tenants.b` has limits and no users" in result.output
    assert "`tenants.b.topic_prefixes`: no topic begins with `b/`" in result.output


def test_a_tenant_has_no_more_topics_than_it_may_and_deleting_frees(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    """With four client libraries, and a producer whose topics brokers create."""
    prefix = f"{name}."
    apps = {"users": ["tenant"], "topic_prefixes": [prefix], "max_topics": 3, "max_partitions": 20}
    settings = {"tenants": {"apps": apps}, "upstream": upstream()}
    with ProxyProcess(tmp_path, tenants3.bootstrap_servers, settings) as proxy:
        admin = AdminClient(access(proxy.bootstrap, "other"))
        assert attempts(admin.create_topics([NewTopic(prefix + "a", 5, 1), NewTopic(prefix + "b", 16, 1)])) == {
            prefix + "a": None,
            prefix + "b": "tenant apps has 5 of 20 partitions (max_partitions); 16 more are too many.",
        }
        assert attempts(admin.create_topics([NewTopic(prefix + "a", 1, 1)]))[prefix + "a"] == f"Topic '{prefix}a' already exists."
        grown = attempts(admin.create_partitions([NewPartitions(prefix + "a", 21)]))
        assert grown[prefix + "a"] == "tenant apps has 5 of 20 partitions (max_partitions); 16 more are too many."
        only_asked = attempts(admin.create_topics([NewTopic(prefix + "b", 16, 1)], validate_only=True))
        assert only_asked[prefix + "b"] == "tenant apps has 5 of 20 partitions (max_partitions); 16 more are too many."
        assert set(attempts(admin.create_topics([NewTopic(prefix + x, 1, 1) for x in "bc"])).values()) == {None}
        full = "tenant apps has 3 of 3 topics (max_topics); 1 more is too many."
        java = run_java(
            Path(__file__).parent / "java" / "Numbers.java", proxy.bootstrap, java_properties(tmp_path, "other"), prefix, name
        )
        assert java.stdout.splitlines() == [
            f"{name} done",
            f"{prefix}java PolicyViolationException: {full}",
            f"{prefix}a PolicyViolationException: tenant apps has 7 of 20 partitions (max_partitions); 16 more are too many.",
        ], java.stderr
        for made in (
            made_by_kafka_python(proxy, prefix + "kp", f"{name}-kp"),
            made_by_aiokafka(proxy, prefix + "aio", f"{name}-aio"),
        ):
            assert list(made.values()) == [(44, full), (0, None)]
        free = {name, f"{name}-kp", f"{name}-aio"}
        wait_until(lambda: free <= owned(tenants3, name), "what is of nobody, which goes on in the same request")
        producer = Producer({**access(proxy.bootstrap), "log_level": 2, "message.timeout.ms": 3000})
        producer.produce(prefix + "by-itself", b"x")
        assert producer.flush(60) == 0
        proxy.wait_for("over quota", quota="tenant_topic_count", api="Metadata")
        assert owned(tenants3, prefix) == {prefix + "a", prefix + "b", prefix + "c"}
        (one,) = json.loads(command("--admin", proxy.admin, "--json"))["tenants"]
        assert [(it["quota"], it["usage"], it["limit"]) for it in one["quotas"]] == [
            ("tenant_topic_count", 3, 3),
            ("tenant_partition_count", 7, 20),
        ]
        assert proxy.metric("tenant_topic_count_used", tenant="apps") == 3
        del producer  # it goes on asking, and would get its topic once there is room
        assert attempts(admin.delete_topics([prefix + "a"])) == {prefix + "a": None}
        assert attempts(admin.create_topics([NewTopic(prefix + "d", 1, 1)])) == {prefix + "d": None}
    *_, had = (line for line in proxy.usage() if line["type"] == "owned" and line["tenant"] == "apps")
    assert (had["topic_count"], had["partition_count"]) == (3, 3)
    file = str(tmp_path / "settings.yaml")
    asked = ("--from", str(proxy.logs), "--by", "tenant", "--tenants", file, "--min-intervals", "1", "--json")
    found = {one["key"]: one for one in json.loads(quotas_command("suggest", *asked))}
    assert found["max_topics"]["limit"] > 1.5 * 3, "it ran into its limit"
    assert found["max_topics"]["held_back"]["limit"] == 3
    assert found["max_partitions"]["used"] >= 3, "at a full minute there may have been more"


def test_two_proxies_notice_what_the_other_let_create(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    """Without a ledger: within `upstream.metadata_refresh`."""
    prefix = f"{name}."
    sees_all = {"mechanism": "SCRAM-SHA-512", "username": "operator", "password": USERS["operator"]}
    settings = {
        "tenants": {
            "apps": {"topic_prefixes": [prefix], "max_topics": 1},
            "idle": {"topic_prefixes": ["nothing-begins-so"]},
            "old": {"topic_prefixes": [f"old-{prefix}"]},
        },
        "upstream": {"sasl": sees_all, "metadata_refresh": "200ms"},
    }
    create(tenants3, f"old-{prefix}a")
    with (
        ProxyProcess(tmp_path / "one", tenants3.bootstrap_servers, settings) as one,
        ProxyProcess(tmp_path / "two", tenants3.bootstrap_servers, settings) as two,
    ):
        here, there = AdminClient(access(one.bootstrap)), AdminClient(access(two.bootstrap))
        assert attempts(here.create_topics([NewTopic(prefix + "a", 1, 1)])) == {prefix + "a": None}
        wait_until(lambda: two.metric("tenant_topic_count_used", tenant="apps") == 1, "the other to hear of it")
        refused = attempts(there.create_topics([NewTopic(prefix + "b", 1, 1)]))
        assert refused == {prefix + "b": "tenant apps has 1 of 1 topics (max_topics); 1 more is too many."}
        assert one.wait_for("prefixes without topics", tenant="idle")["topic_prefixes"] == ["nothing-begins-so"]
        assert not one.lines("prefixes without topics", tenant="old")
        checked = run_command(["check-config", "--cluster", str(tmp_path / "one" / "settings.yaml")], 300)
        assert checked.returncode == 0, checked.stderr
        (said,) = (line for line in checked.stderr.splitlines() if "topic_prefixes" in line)
        assert said.endswith("`tenants.idle.topic_prefixes`: no topic of the cluster begins with `nothing-begins-so`")


def test_with_a_ledger_proxies_tell_each_other_of_new_topics_at_once(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    """They ask the cluster once an hour, so that they can know it from each other only."""
    prefix = f"{name}."
    sees_all = {"mechanism": "SCRAM-SHA-512", "username": "operator", "password": USERS["operator"]}
    settings = {
        "tenants": {"apps": {"topic_prefixes": [prefix], "max_topics": 1}},
        "upstream": {"sasl": sees_all, "metadata_refresh": "1h"},
        "ledger": {"kind": "kafka", "topic": f"{name}-ledger", "replicas": 2},
    }
    with (
        ProxyProcess(tmp_path / "one", tenants3.bootstrap_servers, {**settings, "proxy_id": "one"}) as one,
        ProxyProcess(tmp_path / "two", tenants3.bootstrap_servers, {**settings, "proxy_id": "two"}) as two,
    ):
        for proxy in (one, two):
            wait_until(lambda proxy=proxy: proxy.metric("ledger_proxies") == 2, "the other proxy")
        here, there = AdminClient(access(one.bootstrap)), AdminClient(access(two.bootstrap))
        other = [NewTopic(prefix + "b", 1, 1)]
        assert attempts(there.create_topics(other, validate_only=True)) == {prefix + "b": None}
        assert attempts(here.create_topics([NewTopic(prefix + "a", 1, 1)])) == {prefix + "a": None}

        def refused() -> bool:
            return attempts(there.create_topics(other, validate_only=True))[prefix + "b"] is not None

        wait_until(refused, "the other to be told")
        assert attempts(there.create_topics(other)) == {
            prefix + "b": "tenant apps has 1 of 1 topics (max_topics); 1 more is too many."
        }


def attempts(futures: dict[str, Future[object]]) -> dict[str, str | None]:
    """What became of each topic: the message of its error."""
    told: dict[str, str | None] = {}
    for topic, future in futures.items():
        error = future.exception(30)
        told[topic] = None if error is None else error.args[0].str()
    return told


OTHER = {**PYTHON, "sasl_plain_username": "other", "sasl_plain_password": USERS["other"]}
"""Settings of aiokafka and kafka-python, for a user of no tenant."""


def made_by_kafka_python(proxy: ProxyProcess, *topics: str) -> dict[str, tuple[int, str | None]]:
    """The error of each topic, and its message."""
    admin = KafkaAdminClient(bootstrap_servers=proxy.bootstrap, **OTHER)
    try:
        with pytest.raises(PolicyViolationError):
            admin.create_topics(topics[:1])
        answer = admin.create_topics(
            {topic: {"num_partitions": 1, "replication_factor": 1} for topic in topics}, raise_errors=False
        )
    finally:
        admin.close()
    return {it["name"]: (it["error_code"], it["error_message"]) for it in answer["topics"]}


def made_by_aiokafka(proxy: ProxyProcess, *topics: str) -> dict[str, tuple[int, str | None]]:
    """The same."""

    async def run() -> dict[str, tuple[int, str | None]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=proxy.bootstrap, **OTHER)
        await admin.start()
        try:
            answer = await admin.create_topics([AioNewTopic(topic, 1, 1) for topic in topics])
        finally:
            await admin.close()
        return {topic: (code, message) for topic, code, message in answer.topic_errors}

    return asyncio.run(run())


def owned(kafka: LocalCluster, prefix: str) -> set[str]:
    found = AdminClient(access(kafka.bootstrap_servers)).list_topics(timeout=90).topics
    return {topic for topic in found if topic.startswith(prefix)}


def test_policies_of_topics_hold_for_creating_growing_and_altering(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    """With librdkafka and Kafka's own tool."""
    prefix = f"{name}."
    policy = {"partitions": {"max": 4}, "retention_ms": {"max": 100_000}, "cleanup_policy": ["delete"]}
    settings = {
        "quotas": {"topic_policy": {"replication_factor": {"max": 2}}},
        "tenants": {"apps": {"topic_prefixes": [prefix], "topic_policy": policy}},
        "upstream": upstream(),
    }
    retention = "is against the topic policy of tenant apps; allowed: at most 100000."
    with ProxyProcess(tmp_path, tenants3.bootstrap_servers, settings) as proxy:
        admin = AdminClient(access(proxy.bootstrap))
        one, two, three = (prefix + x for x in "abc")
        wanted = [
            NewTopic(one, 4, 2, config={"retention.ms": "100000"}),
            NewTopic(two, 1, 3),
            NewTopic(three, 1, 1, config={"retention.ms": "-1"}),
        ]
        assert attempts(admin.create_topics(wanted)) == {
            one: None,
            two: "replication factor 3 is against the topic policy; allowed: at most 2.",
            three: f"retention.ms -1 {retention}",
        }
        grown = attempts(admin.create_partitions([NewPartitions(one, 5)]))
        assert grown[one] == "partitions 5 is against the topic policy of tenant apps; allowed: at most 4."
        entries = [ConfigEntry("retention.ms", "100001", incremental_operation=AlterConfigOpType.SET)]
        resource = ConfigResource(ConfigResource.Type.TOPIC, one, incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([resource]).values()
        assert attempts({one: future}) == {one: f"retention.ms 100001 {retention}"}
        how = ("configs", "--bootstrap-server", proxy.bootstrap, "--command-config", java_properties(tmp_path))
        which = ("--alter", "--entity-type", "topics", "--entity-name", one, "--add-config")
        refused = tool(*how, *which, "cleanup.policy=compact")
        assert refused.returncode != 0
        assert "cleanup.policy compact is against the topic policy of tenant apps" in refused.stdout + refused.stderr
        allowed = tool(*how, *which, "retention.ms=5000")
        assert allowed.returncode == 0, allowed.stderr
        assert proxy.wait_for("over quota", quota="topic_policy", action="refuse", entity="tenant apps")
