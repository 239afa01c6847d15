"""No client can learn where a broker really is: every API that names brokers, in every version that the broker speaks."""

from __future__ import annotations

import datetime
import struct
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.static.primitive import i32Timedelta

from localkafka import LocalCluster, tool
from tests.real.by_hand import compact, flexible, numbers
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, connect
from tests.real.same_answers import known

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]
REBOOTSTRAP_REQUIRED = 129
SOON = i32Timedelta.parse(datetime.timedelta(milliseconds=100))


@pytest.fixture(scope="module")
def topic(kafka3: LocalCluster) -> str:
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
    admin.create_topics([NewTopic("addresses", 3, 1)])["addresses"].result(90)
    for node in kafka3.brokers:  # a broker hears of a new topic a moment after the controller made it
        with connect(node.address) as connection:
            wait_until(lambda at=connection: led(at), f"broker {node.node_id} to know the topic")
    return "addresses"


def led(connection: Connection) -> bool:
    """Does this broker know a leader of every partition?"""
    partitions = connection.decoded(3, 12, topics=[{"name": "addresses"}]).topics[0].partitions
    return len(partitions) == 3 and all(partition.leader_id >= 0 for partition in partitions)


def real_ports(kafka: LocalCluster) -> dict[int, int]:
    return {node.node_id: int(node.address.rpartition(":")[2]) for node in kafka.brokers}


def check_hidden(frame: bytes, kafka: LocalCluster) -> None:
    """No port of a client listener as an int32, none of a controller as an int16, wherever it stands."""
    for port in real_ports(kafka).values():
        assert port.to_bytes(4, "big") not in frame
    for node in kafka.brokers:
        assert b"CONTROLLER\x0a127.0.0.1" + node.listeners.controller.to_bytes(2, "big") not in frame


@pytest.mark.api(3)
@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_the_proxys_ports(proxy: ProxyProcess, kafka3: LocalCluster, version: int) -> None:
    with connect(proxy.bootstrap) as connection:
        answer = connection.decoded(3, version, topics=[])
        check_hidden(connection.ask(3, version, topics=None if version else []), kafka3)
    host, _, bootstrap = proxy.bootstrap.rpartition(":")
    assert {broker.host for broker in answer.brokers} == {host}
    assert len({broker.port for broker in answer.brokers} - {int(bootstrap)}) == 3


def test_every_shown_address_leads_to_the_broker_it_stands_for(proxy: ProxyProcess, kafka3: LocalCluster) -> None:
    with connect(proxy.bootstrap) as connection:
        shown = {broker.node_id: broker.port for broker in connection.decoded(3, 12, topics=[]).brokers}
    assert shown.keys() == real_ports(kafka3).keys()
    for node_id, port in shown.items():
        with connect(f"127.0.0.1:{port}") as connection:
            log_dirs = {result.log_dir for result in connection.decoded(35, 4).results}
        assert log_dirs == {str(folder) for folder in kafka3.brokers[node_id].log_dirs}


@pytest.mark.api(10)
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(proxy: ProxyProcess, kafka3: LocalCluster, version: int) -> None:
    with connect(proxy.bootstrap) as connection:
        shown = {broker.node_id: broker.port for broker in connection.decoded(3, 12, topics=[]).brokers}
        keys = {"coordinator_keys": ["addresses-group"]} if version >= 4 else {"key": "addresses-group"}

        def found() -> Any:  # the broker makes its offsets topic when it is first asked
            answer = connection.decoded(10, version, **keys)
            one = answer.coordinators[0] if version >= 4 else answer
            return one if one.error_code == 0 else None

        coordinator = wait_until(found, "a coordinator")
        assert shown[coordinator.node_id] == coordinator.port
        check_hidden(connection.ask(10, version, **keys), kafka3)


@pytest.mark.api(60)
@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(proxy: ProxyProcess, kafka3: LocalCluster, version: int) -> None:
    with connect(proxy.bootstrap) as connection:
        answer = connection.decoded(60, version, endpoint_type=1)
        check_hidden(connection.ask(60, version, endpoint_type=1), kafka3)
    assert len(answer.brokers) == 3
    assert not {broker.port for broker in answer.brokers} & set(real_ports(kafka3).values())


@pytest.mark.api(55, 2)
def test_describe_quorum_hides_the_controllers(proxy: ProxyProcess, kafka3: LocalCluster) -> None:
    asked: dict[str, Any] = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    with connect(proxy.bootstrap) as connection:
        answer = connection.decoded(55, 2, **asked)
        check_hidden(connection.ask(55, 2, **asked), kafka3)
    shown = {listener.port for node in answer.nodes for listener in node.listeners}
    assert shown == {int(proxy.bootstrap.rpartition(":")[2])}
    assert "LeaderId" in tool("metadata-quorum", "--bootstrap-server", proxy.bootstrap, "describe", "--status", check=True).stdout


def ask_wrong_leader(proxy: ProxyProcess, topic: str) -> tuple[str, uuid.UUID, int, dict[int, int]]:
    """(address of a broker that does not lead partition 0, topic id, the leader, ports shown)."""
    with connect(proxy.bootstrap) as connection:
        answer = connection.decoded(3, 12, topics=[{"name": topic}])
    shown = {broker.node_id: broker.port for broker in answer.brokers}
    partition = next(part for part in answer.topics[0].partitions if part.partition_index == 0)
    wrong = next(node_id for node_id in shown if node_id != partition.leader_id)
    return f"127.0.0.1:{shown[wrong]}", answer.topics[0].topic_id, partition.leader_id, shown


def check_endpoints(answer: Any, leader: int, shown: dict[int, int]) -> None:
    assert [(endpoint.node_id, endpoint.port) for endpoint in answer.node_endpoints] == [(leader, shown[leader])]


@pytest.mark.api(0)
@pytest.mark.parametrize("version", range(10, 14))
def test_node_endpoints_of_produce(proxy: ProxyProcess, kafka3: LocalCluster, topic: str, version: int) -> None:
    address, topic_id, leader, shown = ask_wrong_leader(proxy, topic)
    data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": empty_batch()}]}
    asked = {"acks": -1, "timeout": SOON, "topic_data": [data]}
    with connect(address) as connection:
        check_endpoints(connection.decoded(0, version, **asked), leader, shown)
        check_hidden(connection.ask(0, version, **asked), kafka3)


@pytest.mark.api(1)
@pytest.mark.parametrize("version", range(16, 19))
def test_node_endpoints_of_fetch(proxy: ProxyProcess, kafka3: LocalCluster, topic: str, version: int) -> None:
    address, topic_id, leader, shown = ask_wrong_leader(proxy, topic)
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked = {"max_wait": SOON, "min_bytes": 1, "session_epoch": -1, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
    with connect(address) as connection:
        check_endpoints(connection.decoded(1, version, **asked), leader, shown)
        check_hidden(connection.ask(1, version, **asked), kafka3)


def empty_batch() -> bytes:
    """One record batch with one record, as any producer sends it."""
    from io import BytesIO

    from kio.records.schema import NewRecordBatch, Record
    from kio.records.writers import write_new_batch
    from kio.static.primitive import TZAwareMicros

    now = TZAwareMicros.parse(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    record = Record(attributes=0, timestamp=now, offset=0, key=None, value=b"x", headers=())
    out = BytesIO()
    write_new_batch(
        out,
        NewRecordBatch(
            producer_id=-1, producer_epoch=-1, base_sequence=-1, attributes=0, partition_leader_epoch=-1, records=(record,)
        ),
    )
    return out.getvalue()


def expecting(cluster: str, node: int) -> bytes:
    """ApiVersions 5 of a client that expects this broker of this cluster."""
    return flexible(compact("apache"), compact("4.4.0"), compact(cluster), numbers("i", node))


@pytest.mark.parametrize("at", ["bootstrap", "broker"])
def test_a_client_that_expects_a_broker_gets_along_with_brokers_that_do_not_know_of_this(
    proxy: ProxyProcess, served: dict[int, tuple[int, int]], at: str
) -> None:
    """ApiVersions 5 (KIP-1242), by hand: a broker of an older Kafka says what it knows, and the client asks again."""
    if served[18][1] >= 5:
        pytest.skip("brokers of this Kafka know of it: the next test is about them")
    with connect(proxy.bootstrap) as connection:
        broker = connection.decoded(3, 12, topics=[]).brokers[0]
    with connect(proxy.bootstrap if at == "bootstrap" else f"{broker.host}:{broker.port}") as connection:
        told = connection.ask_bytes(18, 5, expecting("another", broker.node_id))
        assert told[8:] == b"\0\x23" + b"\0\0\0\1" + b"\0\x12" + struct.pack(">hh", *served[18])
        again = connection.decoded(18, 3, client_software_name="apache", client_software_version="4.4.0")
    assert again.error_code == 0


@pytest.mark.since("4.4", "brokers that compare themselves with the one that a client expects (KIP-1242)")
def test_a_client_that_expects_a_broker_is_told_only_by_another_one(proxy: ProxyProcess) -> None:
    """The bootstrap address stands for no broker, and leads to any."""
    with connect(proxy.bootstrap) as connection:
        metadata = connection.decoded(3, 12, topics=[])
    broker, other = metadata.brokers[:2]
    right, at = (str(metadata.cluster_id), int(broker.node_id)), f"{broker.host}:{broker.port}"
    for expected in (right, (right[0], int(other.node_id)), ("another", right[1])):
        said = []
        for address in (proxy.bootstrap, at):
            with connect(address) as connection:
                said.append(int.from_bytes(connection.ask_bytes(18, 5, expecting(*expected))[8:10], "big"))
        assert said == [0, 0 if expected == right else REBOOTSTRAP_REQUIRED], expected


def test_the_api_versions_of_a_broker_are_all_there(proxy: ProxyProcess, kafka3: LocalCluster) -> None:
    with connect(proxy.bootstrap) as through, connect(kafka3.brokers[0].address) as direct:
        ours, theirs = (
            {
                api.api_key: (api.min_version, api.max_version)
                for api in connection.decoded(18, 3, client_software_name="raw", client_software_version="1").api_keys
            }
            for connection in (through, direct)
        )
    assert ours == known(theirs)
