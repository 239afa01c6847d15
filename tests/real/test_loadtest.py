"""The load test on a real broker, directly and through a proxy with quotas: its exit codes, what it counts, and that it tidies
up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from loadtest.endpoint import Cluster
from loadtest.scenario import Topic
from localkafka import LocalCluster
from tests.certs import Authority
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect
from tests.real.secured import USERS

pytestmark = pytest.mark.kafka

QUOTA = 16 << 10
"""Bytes a second: one record. The burst is ten, which are written before the warm-up ends on a busy machine, too."""
NEIGHBOURS = f"""
topics:
  victim: {{partitions: 1}}
  offender: {{partitions: 1}}
tenants:
  victim: {{role: victim}}
  offender: {{role: offender, settings: {{batch.size: 16384}}}}
phases:
  - name: together
    warm_up: 2s
    duration: 3s
    load:
      - {{tenant: victim, operation: produce, topic: victim, rate: 50}}
      - {{tenant: offender, operation: produce, topic: offender, rate: max, size: 16KiB, limited: true}}
assertions:
  - {{check: throttled, tenant: offender}}
  - {{check: throttled, tenant: victim, expected: false}}
  - {{check: rate, tenant: offender, of: bytes, quota: {QUOTA}, within: 400%, side: above}}
  - {{check: errors}}
  - {{check: verified}}
"""
"""The offender has ten seconds' worth at once, which a busy machine may let it write when the three seconds are measured."""


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    code: int
    output: str
    result: dict[str, Any]

    def holds(self) -> dict[str, bool]:
        return {one["name"]: one["passed"] for one in self.result["assertions"]}


def command(folder: Path, scenario: str, bootstrap: str, options: Sequence[str] = ()) -> list[str]:
    """What `kafka-quota-proxy` is told."""
    file = folder / "mine.yaml"
    file.write_text(textwrap.dedent(scenario))
    return ["loadtest", "run", str(file), "--bootstrap", bootstrap, "--json", str(folder / "result.json"), *options]


def started(folder: Path, scenario: str, bootstrap: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "proxy", *command(folder, scenario, bootstrap)], stdout=subprocess.PIPE, text=True
    )


def run(folder: Path, scenario: str, bootstrap: str, *options: str) -> Ended:
    (folder / "result.json").unlink(missing_ok=True)
    ended = run_command(command(folder, scenario, bootstrap, options), 300)
    output = ended.stdout + ended.stderr
    assert "Traceback" not in output, output
    result = folder / "result.json"
    return Ended(ended.returncode, output, json.loads(result.read_text()) if result.exists() else {})


def run_in_time(folder: Path, scenario: str, bootstrap: str, *options: str) -> Ended:
    """Once more, and again, where a rate of the scenario was not reached: the machine was busy."""
    for _ in range(3):
        ended = run(folder, scenario, bootstrap, *options)
        if not any(warning["code"] == "rate-not-reached" for warning in ended.result.get("warnings", ())):
            break
    return ended


def topics(kafka: LocalCluster) -> list[str]:
    """Those of load tests that are there."""
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=90).topics
    return [name for name in found if name.startswith("loadtest-")]


def groups(kafka: LocalCluster) -> list[str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})  # futures of one that is gone never end
    found = admin.list_consumer_groups(request_timeout=90).result(90).valid
    return [one.group_id for one in found if one.group_id.startswith("loadtest-")]


def tenant(ended: Ended, name: str, operation: str | None = None) -> dict[str, Any]:
    (phase,) = ended.result["phases"]
    return next(one for one in phase["tenants"] if one["tenant"] == name and operation in (None, one["operation"]))


@pytest.fixture(scope="module")
def limited(kafka1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    quotas = {"entities": [{"client_id": "offender", "cluster_producer_byte_rate": QUOTA}]}
    with ProxyProcess(tmp_path_factory.mktemp("limited"), kafka1.bootstrap_servers, {"quotas": quotas}) as proxy:
        yield proxy


def test_a_quota_is_shown_to_hold_behind_the_proxy(limited: ProxyProcess, kafka1: LocalCluster, tmp_path: Path) -> None:
    ended = run_in_time(tmp_path, NEIGHBOURS, limited.bootstrap, "--watch", f"proxy={limited.process.pid}")
    assert ended.code == 0, ended.output
    assert all(ended.holds().values())
    victim, offender = tenant(ended, "victim"), tenant(ended, "offender")
    assert victim["intended"] == 150
    assert victim["acknowledged"] >= 147
    assert offender["throttle"]["count"] > 0
    (phase,) = ended.result["phases"]
    (watched,) = phase["watched"]
    assert (watched["name"], watched["memory_bytes"] > 0) == ("proxy", True)
    assert sum(one["lost"] for one in ended.result["verification"]) == 0
    assert not topics(kafka1)


def test_the_same_without_the_proxy_fails(kafka1: LocalCluster, tmp_path: Path) -> None:
    ended = run(tmp_path, NEIGHBOURS.replace("within: 400%", "within: 10%"), kafka1.bootstrap_servers)
    assert ended.code == 1, ended.output
    holds = ended.holds()
    assert not holds["throttled offender"]
    assert not holds["rate offender"]
    assert holds["verified"]
    assert "rate offender" in ended.output


EVERYTHING = """
topics:
  records: {partitions: 2}
  read: {partitions: 2, records: 500}
  storm: {partitions: 3}
tenants:
  pair: {}
  payments: {}
  reader: {clients: 2}
  member: {}
  churn: {}
  creator: {}
  storm: {}
phases:
  - name: all
    warm_up: 1s
    duration: 3s
    load:
      - {tenant: pair, operation: end_to_end, topic: records, rate: 50}
      - {tenant: payments, operation: produce, topic: records, rate: 50, transaction: 25}
      - {tenant: reader, operation: consume, topic: read, rate: 200}
      - {tenant: member, operation: consume, topic: read, rate: max, group: true, limited: true}
      - {tenant: churn, operation: connect, rate: 10}
      - {tenant: creator, operation: create_topics, rate: 8, topics: 2, partitions: 2, delete: true}
      - {tenant: creator, operation: ask_controller, rate: 10}
      - {tenant: storm, operation: producer_ids, topic: storm, rate: 10}
assertions:
  - {check: verified}
  - {check: errors}
"""


def test_every_operation_does_what_it_says(kafka1: LocalCluster, tmp_path: Path) -> None:
    ended = run_in_time(tmp_path, EVERYTHING, kafka1.bootstrap_servers, "--html", str(tmp_path / "page.html"))
    assert ended.result, ended.output
    assert ended.holds() == {"verified": True, "errors": True}, ended.output
    (phase,) = ended.result["phases"]
    for one in phase["tenants"]:
        if one["tenant"] != "member":  # who joins a group late reads nothing in three seconds
            # A reader that comes late reads what was due in the warm-up, too, and takes what is there in one poll.
            most = one["intended"] * 4 / 3 + 10 if one["operation"] == "consume" else one["intended"]
            assert 0 < one["acknowledged"] <= most, one
        if one["operation"] != "consume":
            assert one["latency"]["count"] > 0, one
    assert sum(one["acknowledged"] for one in ended.result["verification"]) > 100
    assert not topics(kafka1)
    assert not groups(kafka1)
    assert "<html" in (tmp_path / "page.html").read_text()


FAULTS = """
parameters:
  faults: {text: What happens meanwhile}
topics:
  records: {partitions: 2}
  transactions: {partitions: 2}
  kafka-python: {partitions: 2}
  aiokafka: {partitions: 2}
tenants:
  writer: {clients: 2}
  transactions: {}
  kafka-python: {}
  aiokafka: {}
  group: {clients: 2}
  committed: {}
  share: {clients: 2}
phases:
  - name: only
    warm_up: 0s
    duration: 12s
    events: [{at: 1s, command: "${faults}"}]
    load:
      - {tenant: writer, operation: produce, topic: records, rate: 50}
      - {tenant: transactions, operation: produce, topic: transactions, rate: 50, transaction: 10}
      - {tenant: kafka-python, operation: produce, topic: kafka-python, rate: 50, client: kafka-python}
      - {tenant: aiokafka, operation: produce, topic: aiokafka, rate: 50, client: aiokafka}
      - {tenant: group, operation: consume, topic: records, rate: max, group: true, verified: true}
      - {tenant: committed, operation: consume, topic: transactions, rate: max, group: true, verified: true}
      - {tenant: share, operation: consume, topic: records, rate: max, share: true, verified: true}
assertions:
  - {check: verified}
  - {check: delivered}
  - {check: goes_on, within: 8s}
"""
TELL = """
import json, psutil
now = psutil.Process().create_time()  # before Python has started, which takes seconds on a busy machine
print("something else")
print(json.dumps({"fault": "pause", "target": "nobody", "at": now - 1, "until": now}))
"""


def test_faults_are_shown_and_what_each_client_was_promised_is_verified(kafka1: LocalCluster, tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    ended = run(tmp_path, FAULTS, kafka1.bootstrap_servers, "--set", f"faults={sys.executable} {script}")
    assert ended.code == 0, ended.output
    (phase,) = ended.result["phases"]
    assert [event["kind"] for event in phase["events"]] in (["", "pause"], ["pause", ""])
    assert "fault: pause, nobody" in ended.output
    written = {one["tenant"]: one for one in ended.result["verification"]}
    assert {name: one["client"].split()[0] for name, one in written.items()} == {
        "writer": "confluent-kafka",
        "transactions": "confluent-kafka",
        "kafka-python": "kafka-python",
        "aiokafka": "aiokafka",
    }
    assert min(one["acknowledged"] for one in written.values()) >= 300
    given = {one["tenant"]: one["there"] for one in ended.result["deliveries"]}
    assert given["group"] == given["share"] == written["writer"]["consumed"]
    assert given["committed"] == written["transactions"]["consumed"]
    assert not topics(kafka1)
    with connect(kafka1.bootstrap_servers) as connection:
        listed = connection.decoded(16, 5, states_filter=[], types_filter=[]).groups
    assert not [one.group_id for one in listed if one.group_id.startswith("loadtest-")], ended.output


def test_a_group_is_removed_when_its_last_member_has_left(kafka1: LocalCluster) -> None:
    prefix, member = "loadtest-member", Consumer({"bootstrap.servers": kafka1.bootstrap_servers, "group.id": "loadtest-member-0"})
    cluster = Cluster(kafka1.bootstrap_servers)
    cluster.create({prefix: Topic(partitions=1)})
    member.subscribe([prefix])
    wait_until(lambda: member.poll(0.2) is None and member.assignment(), "the member to join")
    with ThreadPoolExecutor() as aside:
        left = aside.submit(cluster.remove, prefix)
        assert member.poll(1.0) is None  # meanwhile brokers refuse to remove its group
        member.close()
        assert left.result(90) == []
    assert not groups(kafka1)


LOSS = """
parameters:
  command: {text: What happens meanwhile}
topics:
  records: {name: lossy, partitions: 1}
tenants:
  writer: {}
phases:
  - name: only
    warm_up: 0s
    duration: 3s
    events: [{at: 2s, command: "${command}"}]
    load: [{tenant: writer, operation: produce, topic: records, rate: 100}]
assertions:
  - {check: verified}
"""
DELETE = """
import sys
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
where = TopicPartition("lossy", 0, 50)
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
admin.delete_records([where])[where].result(90)
"""


def test_records_that_are_gone_are_counted_as_lost(kafka1: LocalCluster, tmp_path: Path) -> None:
    script = tmp_path / "delete.py"
    script.write_text(DELETE)
    event = f"{sys.executable} {script} {kafka1.bootstrap_servers}"
    ended = run(tmp_path, LOSS, kafka1.bootstrap_servers, "--set", f"command={event}")
    assert ended.code == 1, ended.output
    (found,) = ended.result["verification"]
    assert (found["lost"], found["consumed"]) == (50, found["acknowledged"] - 50)
    assert ended.result["phases"][0]["events"][0]["text"] == event
    assert "sequences 0 to 49 lost" in found["examples"][0]
    assert "lossy" not in AdminClient({"bootstrap.servers": kafka1.bootstrap_servers}).list_topics(timeout=90).topics


def test_an_event_that_fails_ends_the_run(kafka1: LocalCluster, tmp_path: Path) -> None:
    ended = run(tmp_path, LOSS, kafka1.bootstrap_servers, "--set", "command=no-such-command", "--duration-scale", "0.5")
    assert ended.code == 1
    assert "event `no-such-command` cannot be run" in ended.output
    assert "lossy" not in AdminClient({"bootstrap.servers": kafka1.bootstrap_servers}).list_topics(timeout=90).topics


LONG = """
topics:
  records: {partitions: 1, records: 10}
tenants:
  writer: {}
  reader: {}
phases:
  - name: long
    duration: 10m
    load:
      - {tenant: writer, operation: produce, topic: records, rate: 20}
      - {tenant: reader, operation: consume, topic: records, rate: max, group: true}
"""


def drivers_of(pid: int) -> list[psutil.Process]:
    """The drivers of a run: what a process forked that it started."""
    return [driver for forks in psutil.Process(pid).children() for driver in forks.children()]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_a_run_that_is_stopped_leaves_nothing_behind(kafka1: LocalCluster, tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path, LONG, kafka1.bootstrap_servers)
    try:
        wait_until(lambda: groups(kafka1), "the consumer's group")
        drivers = drivers_of(process.pid)
        assert len(drivers) == 2
        process.send_signal(number)
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "what the run made is removed" in output
    assert not topics(kafka1)
    assert not any(driver.is_running() for driver in drivers)
    wait_until(lambda: not groups(kafka1), "the group to be gone")


def test_a_driver_that_is_lost_fails_the_run(kafka1: LocalCluster, tmp_path: Path) -> None:
    scenario = LONG.replace("10m", "3s").replace("warm_up", "warm_up")
    process = started(tmp_path, scenario, kafka1.bootstrap_servers)
    try:
        wait_until(lambda: topics(kafka1), "the run's topic")
        drivers = wait_until(lambda: drivers_of(process.pid), "the drivers")
        os.kill(drivers[0].pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 1, output
    assert not topics(kafka1)


def test_a_topic_that_cannot_be_made_is_told(kafka1: LocalCluster, tmp_path: Path) -> None:
    ended = run(tmp_path, LONG, kafka1.bootstrap_servers, "--set", "topics.records.replicas=7")
    assert ended.code == 2
    (line,) = ended.output.strip().splitlines()
    assert "is not there and cannot be created" in line
    assert not topics(kafka1)


def test_a_topic_of_several_drivers_has_to_be_there(kafka1: LocalCluster, tmp_path: Path) -> None:
    options = ("--driver-count", "2", "--run-id", "shared", "--set", "topics.records.name=nobody-made-it")
    ended = run(tmp_path, LONG, kafka1.bootstrap_servers, *options)
    assert ended.code == 2
    assert "has to be made before" in ended.output


SECURE = """
topics:
  records: {partitions: 1}
tenants:
  alice: {sasl: {mechanism: SCRAM-SHA-512, username: alice, password_env: ALICE}}
  bob: {sasl: {mechanism: PLAIN, username: bob, password_env: BOB}}
phases:
  - name: only
    warm_up: 0s
    duration: 4s
    load:
      - {tenant: alice, operation: produce, topic: records, rate: 10}
      - {tenant: alice, operation: connect, rate: 5}
      - {tenant: bob, operation: connect, rate: 5}
assertions: [{check: verified}, {check: errors}]
"""


@pytest.fixture
def properties(authority: Authority, tmp_path: Path) -> str:
    """As Kafka's own tools take them."""
    login = f'ScramLoginModule required username="proxy" password="{USERS["proxy"]}";'
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.file}\nsasl.jaas.config=org.apache.kafka.common.security.scram.{login}\n"
    )
    return str(file)


def test_tenants_log_in_as_who_they_are(
    secure_kafka: LocalCluster, properties: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", USERS["alice"])
    monkeypatch.setenv("BOB", USERS["bob"])
    ended = run_in_time(tmp_path, SECURE, secure_kafka.bootstrap_servers, "--command-config", properties)
    assert ended.code == 0, ended.output
    assert tenant(ended, "bob")["acknowledged"]
    assert tenant(ended, "alice", "connect")["acknowledged"]


@pytest.mark.parametrize("who", ["ALICE", pytest.param("BOB", marks=pytest.mark.nightly)])
def test_a_wrong_password_is_told_without_it(
    secure_kafka: LocalCluster, properties: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    for name in ("ALICE", "BOB"):
        monkeypatch.setenv(name, "wr0ng-pw" if name == who else USERS[name.lower()])
    ended = run(tmp_path, SECURE, secure_kafka.bootstrap_servers, "--command-config", properties)
    assert ended.code == 1
    assert f"{who.lower()}-" in ended.output
    assert "uthentication failed" in ended.output
    assert not any(secret in ended.output for secret in ("wr0ng-pw", *USERS.values()))


def test_a_password_that_is_not_there_is_told(secure_kafka: LocalCluster, properties: str, tmp_path: Path) -> None:
    ended = run(tmp_path, SECURE, secure_kafka.bootstrap_servers, "--command-config", properties)
    assert ended.code == 2
    assert "tenant alice: the environment variable ALICE" in ended.output
