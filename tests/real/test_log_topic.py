"""The usage log on a topic: the lines of the folder, each once by the report's rule, whatever becomes of the brokers meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from localkafka import LocalCluster
from proxy.config.units import HostPort
from proxy.upstream.connector import Upstream
from proxy.upstream.log_topic import LogTopic
from tests.conftest import QUICK_START
from tests.observe.support import LogFiles
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.steady import SteadyProducer, watermarks

pytestmark = pytest.mark.kafka
Identity = tuple[str, str, int]


def proxy_of(folder: Path, kafka: LocalCluster, topic: str, **usage: Any) -> ProxyProcess:
    usage = {"path": str(folder / "logs"), "interval": "1s", "topic": topic, **usage}
    return ProxyProcess(folder, kafka.bootstrap_servers, {"proxy_id": "edge-1", "logs": {"usage": usage}})


def traffic(proxy: ProxyProcess) -> None:
    """Something that gives lines: each call a line or more, once its interval ends."""
    AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=90)


def records(kafka: LocalCluster, topic: str) -> list[tuple[bytes, bytes]]:
    """(key, value) of all records there are now, of all partitions."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings)
    found = []
    try:
        # A broker that has not heard of a new topic yet tells of no partitions.
        partitions = wait_until(lambda: consumer.list_topics(topic, timeout=90).topics[topic].partitions, "the topic")
        for partition in partitions:
            low, high = watermarks(consumer, topic, partition)
            consumer.assign([TopicPartition(topic, partition, low)])
            left = high - low
            while left:
                message = consumer.poll(90)
                assert message is not None, f"{left} records of {topic} did not come"
                assert message.error() is None
                found.append((message.key(), message.value()))
                left -= 1
    finally:
        consumer.close()
    return found


def lines_of(kafka: LocalCluster, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in records(kafka, topic)]


def identity(line: dict[str, Any]) -> Identity:
    return line["proxy"], line["boot"], line["seq"]


def by_identity(lines: list[dict[str, Any]]) -> dict[Identity, dict[str, Any]]:
    """As the report has it: each line once."""
    return {identity(line): line for line in lines}


def whole(lines: list[dict[str, Any]]) -> bool:
    """Every number of the only start is there, or told of as lost."""
    numbers = {line["seq"] for line in lines}
    return max(numbers) - len(numbers) == sum(line["lines"] for line in lines if line["type"] == "gap")


def test_the_topic_has_the_lines_of_the_folder(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    with proxy_of(tmp_path, kafka3, name) as proxy:
        proxy.wait_for("usage log topic is up")
        assert proxy.metric("usage_log_topic_configured") == proxy.metric("usage_log_topic_up") == 1
        traffic(proxy)
        wait_until(lambda: len(proxy.usage()) >= 2, "lines")
        traffic(proxy)  # its lines come at the end only
    written = by_identity(proxy.usage())
    assert by_identity(lines_of(kafka3, name)) == written
    assert {key for key, _ in records(kafka3, name)} == {b"edge-1"}
    assert whole(list(written.values()))
    (created,) = proxy.lines("usage log topic created")
    assert created["replicas"] == 3
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
    settings = admin.describe_configs([resource])[resource].result(90)
    kept = {key: settings[key].value for key in ("cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable")}
    assert kept == {"cleanup.policy": "delete", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def test_without_a_folder(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    with proxy_of(tmp_path, kafka1, name, path=None) as proxy:
        traffic(proxy)
        proxy.wait_for("usage log topic is up")
    assert not proxy.logs.exists()
    lines = lines_of(kafka1, name)
    assert {"Metadata", "ApiVersions"} <= {line["api"] for line in lines}
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_brokers_that_go_and_come_again(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    """Nothing is lost within the bounds, and nothing counts twice; clients have nothing to do with it."""
    with proxy_of(tmp_path, kafka1, name) as proxy:
        proxy.wait_for("usage log topic is up")
        admin = AdminClient({"bootstrap.servers": kafka1.bootstrap_servers})
        admin.create_topics([NewTopic(f"{name}-load", 1, 1)])[f"{name}-load"].result(90)
        with SteadyProducer(proxy.bootstrap, f"{name}-load", "records") as producer:
            wait_until(lambda: len(producer.acknowledged) > 20 and lines_of(kafka1, name), "load, and lines in the topic")
            kafka1.kill_broker(0)
            try:
                said = proxy.wait_for("usage log topic is away")
                assert "clients are still served" in said["detail"]
                assert proxy.metric("usage_log_topic_up") == 0
                wait_until(lambda: proxy.metric("usage_log_topic_waiting_lines") > 0, "lines to wait for the broker")
            finally:
                kafka1.start_broker(0)
            before = len(producer.acknowledged)
            wait_until(lambda: len(producer.acknowledged) > before + 20, "load to go on", 60)
        wait_until(lambda: len(proxy.lines("usage log topic is up")) == 2, "the brokers to take lines again", 60)
    written = by_identity(proxy.usage())
    assert by_identity(lines_of(kafka1, name)) == written
    assert whole(list(written.values()))
    assert not proxy.lines("usage log not sent")


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_that_is_there_is_taken_as_it_is(kafka1: LocalCluster, tmp_path: Path, name: str, partitions: int) -> None:
    """All lines of a proxy are in one partition, in their order."""
    admin = AdminClient({"bootstrap.servers": kafka1.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(90)
    with proxy_of(tmp_path, kafka1, name) as proxy:
        traffic(proxy)
        proxy.wait_for("usage log topic is up")
    assert not proxy.lines("usage log topic created")
    assert [line["seq"] for line in lines_of(kafka1, name)] == sorted(line["seq"] for line in proxy.usage())


def test_a_topic_that_would_lose_lines_is_not_used(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    """Compacted, it would keep the last line of each proxy. The proxy serves clients, and goes on once the topic is mended."""
    admin = AdminClient({"bootstrap.servers": kafka1.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result(90)
    with proxy_of(tmp_path, kafka1, name) as proxy:
        proxy.wait_for_reason("usage log topic is away", "its cleanup.policy is compact")
        traffic(proxy)
        op = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[op])
        admin.incremental_alter_configs([resource])[resource].result(90)
        proxy.wait_for("usage log topic is up")
    assert by_identity(lines_of(kafka1, name)) == by_identity(proxy.usage())


def test_rights_that_are_missing_keep_no_client_waiting(tmp_path: Path, name: str) -> None:
    """The proxy says what it may not do, and goes on once it may: rights to create, describe and write are enough."""
    users = {"admin": "admin-s3cret", "proxy": "pr0xy-s3cret"}
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "log_level": 0}
    login |= {"sasl.username": "admin", "sasl.password": users["admin"]}
    settings = {
        "upstream": {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password": users["proxy"]}},
        "logs": {"usage": {"topic": name, "interval": "1s"}},
    }
    with (
        LocalCluster(1, sasl=users, properties=authorizer, jvm_flags=QUICK_START) as kafka,
        ProxyProcess(tmp_path, kafka.bootstrap_servers, settings) as proxy,
    ):
        proxy.wait_for_reason("usage log topic is away", "cannot be created")
        through = AdminClient({"bootstrap.servers": proxy.bootstrap, **login})
        assert through.list_topics(timeout=90).brokers
        rights = (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE)
        given = [
            AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:proxy", "*", right, AclPermissionType.ALLOW)
            for right in rights
        ]
        for done in through.create_acls(given).values():
            done.result(90)
        proxy.wait_for("usage log topic is up")

        def end() -> int:
            (asked,) = through.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()}).values()
            return int(asked.result(90).offset)

        wait_until(end, "the lines to be in the topic")
        assert not [secret for secret in users.values() if secret in str(proxy.events)]


class Direct:
    """A writer and its topic without a proxy around them; which brokers there are is up to the test."""

    def __init__(self, folder: Path, topic: str, most: int) -> None:
        self.servers: list[HostPort] = []
        self.log = LogLines()
        self.topic = LogTopic(topic, "edge", most, lambda: self.servers, Upstream(5.0), self.log)  # type: ignore[arg-type]
        self.log_files = LogFiles(folder, others=[self.topic])

    def put(self, lines: int, size: int = 0) -> None:
        self.log_files.put(lines, size)
        self.log_files.work()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110  (it is about another thread too)
                await asyncio.sleep(0.02)


class LogLines(list[tuple[str, dict[str, Any]]]):
    """The operations log."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.append((event, fields))


def direct(tmp_path: Path, topic: str, most: int, script: Callable[[Direct], Awaitable[None]]) -> Direct:
    async def run() -> Direct:
        made = Direct(tmp_path / "logs", topic, most)
        task = asyncio.create_task(made.topic.run())
        await script(made)
        await made.topic.finish()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return made

    return asyncio.run(run())


def servers(kafka: LocalCluster) -> list[HostPort]:
    hosts = [server.rpartition(":") for server in kafka.bootstrap_servers.split(",")]
    return [HostPort(host, int(port)) for host, _, port in hosts]


def test_what_has_no_room_is_lost_and_told_in_the_topic_alone(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    async def script(made: Direct) -> None:
        await made.until(lambda: bool(made.log))
        assert made.log[0][1]["reason"] == "no broker is known"
        made.put(4)
        made.put(3)
        made.put(1)
        assert made.log_files.complaints == ["5 lines wait for the brokers already, which is the limit"]
        assert (made.topic.waiting, made.topic.losses.lines, made.log_files.writer.dropped) == (5, 3, 3)
        made.servers = servers(kafka1)
        await made.until(lambda: not made.topic.waiting)
        made.put(2)

    made = direct(tmp_path, name, 5, script)
    folder, topic = made.log_files.lines(), lines_of(kafka1, name)
    assert [line["seq"] for line in topic] == [1, 2, 3, 4, 8, 11, 9, 10]
    assert [line["lines"] for line in topic if line["type"] == "gap"] == [3]
    assert [line["lines"] for line in folder if line["type"] == "gap"] == [0]
    assert whole(folder)
    assert whole(topic)


def test_lines_that_are_sent_twice_count_once(
    kafka1: LocalCluster, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the first answers: whether the brokers have the lines is not known, and they are sent again."""

    async def script(made: Direct) -> None:
        made.servers = servers(kafka1)
        await made.until(lambda: made.topic.up)
        with monkeypatch.context() as patch:
            patch.setattr("proxy.upstream.log_topic.PATIENCE", 0.0001)
            made.put(90)
            await made.until(lambda: any("did not take lines" in fields.get("reason", "") for _, fields in made.log))
        await made.until(lambda: not made.topic.waiting)

    made = direct(tmp_path, name, 1000, script)
    found = lines_of(kafka1, name)
    assert len(found) >= 90
    assert by_identity(found) == by_identity(made.log_files.lines())


def test_lines_that_the_topic_takes_a_few_at_once_of(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    """A batch that is too large is halved until it is not; a line that is too large alone is lost, and told of."""
    admin = AdminClient({"bootstrap.servers": kafka1.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "4000"})])[name].result(90)

    async def script(made: Direct) -> None:
        made.servers = servers(kafka1)
        made.put(20, size=1000)
        made.put(1, size=5000)
        made.put(1)
        await made.until(lambda: not made.topic.waiting)
        made.put(1)

    made = direct(tmp_path, name, 100, script)
    found = lines_of(kafka1, name)
    assert made.topic.losses.lines == 1
    assert [line["lines"] for line in found if line["type"] == "gap"] == [1]
    assert len([line for line in found if line["type"] == "usage"]) == 22
    assert whole(found)
