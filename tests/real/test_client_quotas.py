"""Quotas that are altered while proxies run: by the AdminClient of Java and by Kafka's own tool, kept in the cluster, followed by
every proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from localkafka import LocalCluster, run_java, tool
from tests.conftest import QUICK_START
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, put, wait_until
from tests.real.raw import Connection, connect
from tests.real.secured import log_in

pytestmark = pytest.mark.kafka

JAVA = Path(__file__).parent / "java"
TOPIC = "__kafka_quota_proxy_quotas"
USERS = {"admin": "admin-secret", "other": "other-secret", "nobody": "nobody-secret", "proxy": "proxy-secret"}
"""admin may alter all quotas, other those of the brokers only, nobody none"""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin;User:other;User:proxy",
}


def settings() -> dict[str, object]:
    login = {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password": USERS["proxy"]}
    entities = [
        {"user": "filed", "controller_mutations_rate": 7, "producer_ids_rate": 70},
        {"client_id": "<default>", "controller_mutations_rate": 100},
    ]
    return {
        "upstream": {"sasl": login},
        "quotas": {"admins": ["admin"], "dynamic": {"start_timeout": "60s"}, "entities": entities},
        "reload": {"interval": "100ms"},
    }


@dataclass
class House:
    """Three brokers and two proxies before them."""

    kafka: LocalCluster
    one: ProxyProcess
    two: ProxyProcess
    folder: Path

    def java(self, *orders: str, user: str = "admin", at: str | None = None) -> list[list[str]]:
        """What each order was answered, by the AdminClient."""
        run = run_java(JAVA / "Quotas.java", self.properties(user, at), stdin="\n".join(orders), check=True)
        lines = [line.split(" ", 1) for line in run.stdout.splitlines()]
        return [[text for number, text in lines if int(number) == i] for i in range(len(orders))]

    def properties(self, user: str, at: str | None = None) -> str:
        path = self.folder / f"{user}.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        path.write_text(
            f"bootstrap.servers={at or self.one.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={module} required username="{user}" password="{USERS[user]}";\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("quotas")
    with (
        LocalCluster(3, sasl=USERS, properties=AUTHORIZER, jvm_flags=QUICK_START) as kafka,
        ProxyProcess(folder / "one", kafka.bootstrap_servers, {"proxy_id": "one", **settings()}) as one,
        ProxyProcess(folder / "two", kafka.bootstrap_servers, {"proxy_id": "two", **settings()}) as two,
    ):
        yield House(kafka, one, two, folder)


def test_an_admin_client_sees_and_alters_both(house: House) -> None:
    alter = "alter user=both controller_mutations_rate=3 controller_mutations_burst=30 producer_byte_rate=1000000"
    done, seen, file, taken, left = house.java(
        alter,
        "await producer_byte_rate describe user=both",
        "describe user=filed",
        "alter user=both controller_mutations_burst=- producer_byte_rate=-",
        "await !producer_byte_rate describe user=both",
    )
    assert done == ["user=both: done"]
    assert seen == ["user=both: {controller_mutations_burst=30.0, controller_mutations_rate=3.0, producer_byte_rate=1000000.0}"]
    assert file == ["user=filed: {controller_mutations_rate=7.0, producer_ids_rate=70.0}"]
    assert taken == ["user=both: done"]
    assert left == ["user=both: {controller_mutations_rate=3.0}"]
    for proxy in (house.one, house.two):
        line = proxy.wait_for("quota changed", entity="user both", quota="controller_mutations_burst", new=30.0)
        assert line["old"] is None
        assert line["by"]["principal"] == "User:admin"
        assert line["by"]["proxy"] == "one"
        assert line["by"]["client"].startswith("127.0.0.1:")
        proxy.wait_for("quota changed", entity="user both", quota="controller_mutations_burst", old=30.0, new=None)


def test_filters_are_those_of_kafka(house: House) -> None:
    house.java(
        "alter user=f-a producer_ids_rate=1 / user= producer_ids_rate=2 / user=f-a,client-id=f-c controller_mutations_rate=3"
        " / client-id=f-c controller_mutations_rate=4 / user=f-a,client-id= controller_mutations_rate=5",
        # the same entities at the broker, under a key that only the broker knows: both have to give the same answers
        # (high limits: that of the default user holds for the proxies' own user too, who reads the topic of quotas)
        "alter user=f-a consumer_byte_rate=1e9 / user= consumer_byte_rate=2e9 / user=f-a,client-id=f-c consumer_byte_rate=3e9"
        " / client-id=f-c consumer_byte_rate=4e9 / user=f-a,client-id= consumer_byte_rate=5e9",
    )
    filters = ["", "user=f-a", "strict user=f-a", "user=", "user=*", "user=f-a client-id=f-c", "user=f-a client-id=",
               "strict client-id=f-c", "client-id=f-c", "user=f-a client-id=*", "client-id=*"]  # fmt: skip
    answers = house.java(*(f"await consumer_byte_rate describe {which}".strip() for which in filters))
    taken = "producer_ids_rate=- consumer_byte_rate=-", "controller_mutations_rate=- consumer_byte_rate=-"
    (done,) = house.java(
        f"alter user=f-a {taken[0]} / user= {taken[0]} / user=f-a,client-id=f-c {taken[1]} / client-id=f-c {taken[1]}"
        f" / user=f-a,client-id= {taken[1]}"
    )
    assert [line.rpartition(": ")[2] for line in done] == ["done"] * 5
    for which, answer in zip(filters, answers, strict=True):
        mine = [line for line in answer if "consumer_byte_rate" in line]
        assert mine, f"the broker finds nothing for {which!r}"
        assert all(line.count(".0") == 2 for line in mine), f"both or none for {which!r}: {mine}"
        others = [line for line in answer if "consumer_byte_rate" not in line]
        assert not [line for line in others if "f-a" in line or "f-c" in line or line.startswith("user=:")], (which, others)


def test_who_may_what(house: House) -> None:
    orders = "alter user=x producer_ids_rate=5", "alter user=x consumer_byte_rate=5", "await consumer describe user=x"
    mixed = "alter user=x producer_ids_rate=5 consumer_byte_rate=5 / user=y consumer_byte_rate=6"
    assert house.java(*orders, mixed, "describe user=x", user="other") == [
        ["user=x: ClusterAuthorizationException: User:other may not alter producer_ids_rate:"
         " it is not in the proxy's `quotas.admins`."],
        ["user=x: done"],
        ["user=x: {consumer_byte_rate=5.0}"],
        ["user=x: ClusterAuthorizationException: User:other may not alter producer_ids_rate:"
         " it is not in the proxy's `quotas.admins`.", "user=y: done"],
        ["user=x: {consumer_byte_rate=5.0}"],
    ]  # fmt: skip
    own, brokers, seen = house.java(*orders, user="nobody")
    assert "quotas.admins" in own[0]
    assert brokers[0].startswith("user=x: ClusterAuthorizationException: Cluster authorization failed"), "the broker's own verdict"
    assert seen == ["! ClusterAuthorizationException"], "who may not see the broker's quotas sees none of the proxy's"


WRONG = {
    "user=x producer_ids_rate=0": "producer_ids_rate 0 is out of range; must be more than 0",
    "user=x producer_ids_rate=-5": "is out of range",
    "user=x producer_ids_rate=NaN": "is out of range",
    "user=x producer_ids_rate=1e13": "at most 1e+12 ids/window",
    "client-id=x producer_ids_rate=5": "for users and the default user only",
    "user=x,client-id=x producer_ids_rate=5": "for users and the default user only",
    "user=x controller_mutations_burst=5": "`controller_mutations_burst` needs `controller_mutations_rate` beside it",
    "user=x controller_mutations_rate=9 controller_mutations_burst=5": "at least 9",
    "user=filed controller_mutations_burst=5": "`controller_mutations_rate` 7; must be at least 7",
    "ip=10.0.0.1 producer_ids_rate=5": "producer_ids_rate is not for addresses; these have connection_creation_rate",
    "user=x cluster_producer_byte_rate=5.5": "is not a whole number of bytes",
    "user=x producer_ids_rate=5 producer_ids_rate=6": "is 2 times in the request",
}


def test_nothing_wrong_is_done_by_half(house: House) -> None:
    orders = [f"alter {order} consumer_byte_rate=77" for order in WRONG]
    orders += ["alter user=x producer_ids_rate=5 no_such_rate=5", "alter user=x producer_ids_rate=5 consumer_byte_rate=-1"]
    *answers, unknown, negative, left = house.java(*orders, "describe user=x")
    for (order, message), answer in zip(WRONG.items(), answers, strict=True):
        assert len(answer) == 1
        assert "InvalidRequestException" in answer[0], order
        assert message in answer[0], order
    assert "InvalidRequestException" in unknown[0]
    assert "no_such_rate" in unknown[0], "the broker's verdict and words"
    assert "InvalidRequestException" in negative[0]
    assert "consumer_byte_rate=77" not in str(left)
    assert "producer_ids_rate" not in str(left)


def test_only_validating_changes_nothing(house: House) -> None:
    good, bad, left = house.java(
        "validate user=v producer_ids_rate=5 consumer_byte_rate=5 / user=w producer_ids_rate=6",
        "validate user=v producer_ids_rate=0",
        "describe user=v",
    )
    assert good == ["user=v: done", "user=w: done"]
    assert "InvalidRequestException" in bad[0]
    assert left == []


def test_kafkas_own_tool_shows_both(house: House) -> None:
    house.java("alter user=tooled controller_mutations_rate=2 consumer_byte_rate=5")
    how = ("--bootstrap-server", house.two.bootstrap, "--command-config", house.properties("admin"))
    run = tool("configs", *how, "--describe", "--entity-type", "users", "--entity-name", "tooled", check=True)
    assert "controller_mutations_rate=2.0" in run.stdout
    assert "consumer_byte_rate=5.0" in run.stdout
    tool("configs", *how, "--alter", "--entity-type", "users", "--entity-name", "tooled", "--add-config",
         "producer_byte_rate=9", check=True)  # fmt: skip
    run = tool("configs", *how, "--describe", "--entity-type", "users", "--entity-name", "tooled", check=True)
    assert "producer_byte_rate=9.0" in run.stdout
    assert "controller_mutations_rate=2.0" in run.stdout


def described(user: str, proxy: ProxyProcess) -> str:
    """What a proxy says of a user, by the protocol."""
    with raw_login(proxy, "admin") as connection:
        answer = connection.decoded(48, 1, components=[{"entity_type": "user", "match_type": 0, "match": user}])
    assert not answer.error_code
    return str({value.key: value.value for entry in answer.entries for value in entry.values})


@contextmanager
def raw_login(proxy: ProxyProcess, user: str) -> Iterator[Connection]:
    with connect(proxy.bootstrap) as connection:
        assert log_in(connection, user, USERS[user]) == 0
        yield connection


def alter(connection: Connection, user: str, **limits: float | None) -> tuple[int, str | None]:
    """(error, message) of one entry; None takes a limit away."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()]
    entity = [{"entity_type": "user", "entity_name": user}]
    answer = connection.decoded(49, 1, entries=[{"entity": entity, "ops": ops}])
    return int(answer.entries[0].error_code), answer.entries[0].error_message


def test_a_limit_set_at_one_proxy_holds_at_the_other(house: House, name: str) -> None:
    with raw_login(house.one, "admin") as admin, raw_login(house.two, "other") as client:
        topics = [{"name": f"{name}-{i}", "num_partitions": 5, "replication_factor": 1} for i in range(3)]
        assert [topic.error_code for topic in client.decoded(19, 7, topics=topics[:1]).topics] == [0]
        assert alter(admin, "other", controller_mutations_rate=0.001, controller_mutations_burst=1) == (0, None)
        house.two.wait_for("quota changed", entity="user other", quota="controller_mutations_rate", new=0.001)
        codes = [topic.error_code for topic in client.decoded(19, 7, topics=topics[1:]).topics]
        assert codes == [0, 89], "the first is admitted, as the window is new"
        assert alter(admin, "other", controller_mutations_rate=None, controller_mutations_burst=None) == (0, None)


def test_many_at_once_converge(house: House) -> None:
    """Both proxies alter the same limits as fast as they can; the order of the topic decides, the same for both."""

    def storm(proxy: ProxyProcess, first: int) -> None:
        with raw_login(proxy, "admin") as connection:
            for i in range(first, first + 60, 2):
                assert alter(connection, f"storm-{i // 2 % 3}", producer_ids_rate=float(i + 1)) == (0, None)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(storm, house.one, 0), pool.submit(storm, house.two, 1)]:
            done.result(60)

    def said() -> list[list[str]]:
        return [[described(f"storm-{i}", proxy) for i in range(3)] for proxy in (house.one, house.two)]

    wait_until(lambda: said()[0] == said()[1], "the same at both")
    assert all("producer_ids_rate" in one for one in said()[0])
    ours, theirs = (
        [(line["entity"], line["new"]) for line in list(proxy.lines("quota changed")) if "storm" in line["entity"]]
        for proxy in (house.one, house.two)
    )
    assert ours == theirs, "in the same order"


def test_what_was_altered_outlives_the_proxies(house: House) -> None:
    with raw_login(house.one, "admin") as admin:
        assert alter(admin, "kept", producer_ids_rate=41) == (0, None)
        assert alter(admin, "filed", producer_ids_rate=42) == (0, None)
    with ProxyProcess(house.folder / "third", house.kafka.bootstrap_servers, settings()) as third:
        assert third.lines("quotas read"), "before it is ready"
        assert not third.lines("quota changed"), "nobody changed anything"
        assert described("kept", third) == "{'producer_ids_rate': 41.0}"
        assert described("filed", third) == "{'controller_mutations_rate': 7.0, 'producer_ids_rate': 42.0}"
        assert third.metric("dynamic_quotas") >= 2
    with raw_login(house.one, "admin") as admin:
        assert alter(admin, "filed", producer_ids_rate=None) == (0, None)
    assert "'producer_ids_rate': 70.0" in described("filed", house.one), "the file is the base"


def test_the_topic_is_safe(house: House) -> None:
    how = ("--bootstrap-server", house.kafka.bootstrap_servers, "--command-config", house.properties("admin"))
    said = tool("topics", *how, "--describe", "--topic", TOPIC, check=True).stdout
    assert "PartitionCount: 1\tReplicationFactor: 3" in said
    for setting in ("cleanup.policy=compact", "min.insync.replicas=2", "unclean.leader.election.enable=false"):
        assert setting in said


def test_bad_records_are_skipped_and_named(house: House) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
    producer = Producer({"bootstrap.servers": house.kafka.bootstrap_servers, **login, "sasl.password": USERS["admin"]})
    before = house.one.metric("quota_records_skipped_total")
    key = b'{"client_id":null,"quota":"producer_ids_rate","user":"spoilt"}'
    values = (b"{}", b'{"v":1,"value":"much"}', b'{"v":9,"value":5}', b'{"v":1,"value":-1}')
    unheard = key.replace(b"producer_ids_rate", b"unheard_of"), b'{"v":1,"value":5}'
    for raw, value in [(b"\xff\0", b"5"), *((key, value) for value in values), unheard]:
        producer.produce(TOPIC, key=raw, value=value)
    producer.produce(TOPIC, key=key, value=b'{"v":1,"value":5}')
    producer.flush(90)
    line = house.one.wait_for("quota changed", entity="user spoilt")
    assert line["by"] == {}, "whoever it was"
    assert house.one.metric("quota_records_skipped_total") == before + 6
    reasons = [line["reason"] for line in house.one.lines("quota record skipped")]
    assert "is no JSON object" in reasons[0]
    assert "knows no quota 'unheard_of'" in reasons[-1]
    with raw_login(house.one, "admin") as admin:
        assert alter(admin, "spoilt", producer_ids_rate=None) == (0, None)


def test_a_proxy_that_may_not_read_starts_with_its_file(house: House) -> None:
    own = settings()
    own["upstream"] = {"sasl": {"mechanism": "PLAIN", "username": "nobody", "password": USERS["nobody"]}}
    own["quotas"] = {**own["quotas"], "dynamic": {"start_timeout": "1s"}}  # type: ignore[dict-item]
    with ProxyProcess(house.folder / "blind", house.kafka.bootstrap_servers, own) as blind:
        line = blind.wait_for("quota topic is away")
        assert TOPIC in line["topic"]
        assert "secret" not in str(blind.events)
        assert described("filed", blind) == "{'controller_mutations_rate': 7.0, 'producer_ids_rate': 70.0}"
        with raw_login(blind, "admin") as admin:
            code, message = alter(admin, "filed", producer_ids_rate=5)
            assert code == 8
            assert message is not None
            assert TOPIC in message
        assert blind.metric("dynamic_quotas_up") == 0


def test_a_changed_file_is_told_line_by_line(house: House) -> None:
    path = house.one.folder / "settings.yaml"
    before = path.read_text()
    put(path, before.replace("controller_mutations_rate: 100", "controller_mutations_rate: 101"))
    line = house.one.wait_for("quota changed", entity="default client-id", new=101.0)
    assert (line["old"], line["by"]) == (100.0, {"principal": "the settings file"})
    put(path, before)
    house.one.wait_for("quota changed", entity="default client-id", new=100.0)


def test_without_enough_replicas_nothing_is_acknowledged_and_nothing_is_lost(house: House) -> None:
    """One broker away is no matter; two are. What was acknowledged is there when they are back."""
    with raw_login(house.one, "admin") as admin:
        assert alter(admin, "lasting", producer_ids_rate=1) == (0, None)
    house.kafka.kill_broker(2)
    altered = wait_until(lambda: altered_to(house, 2.0), "an alteration with two of three brokers")
    assert altered
    house.kafka.start_broker(2)
    assert "2.0" in described("lasting", house.one)
    wait_until(lambda: altered_to(house, 3.0), "an alteration with all brokers")


def altered_to(house: House, rate: float) -> bool:
    try:
        with raw_login(house.one, "admin") as admin:
            return alter(admin, "lasting", producer_ids_rate=rate)[0] == 0
    except (ConnectionError, TimeoutError):  # its broker is the one that is away
        return False


def command(house: House, *arguments: str, code: int = 0, user: str = "admin") -> str:
    """What `kafka-quota-proxy quotas` prints."""
    how = ("--bootstrap-server", house.one.bootstrap, "--command-config", house.properties(user))
    run = run_command(["quotas", arguments[0], *how, *arguments[1:]], 300)
    assert run.returncode == code, (run.stdout, run.stderr)
    return run.stdout + run.stderr


def test_the_command_alters_and_describes(house: House) -> None:
    whose = ("--entity-type", "users", "--entity-name", "cli", "--entity-type", "clients", "--entity-default")
    limits = "controller_mutations_rate=5,controller_mutations_burst=50,consumer_byte_rate=2MiB"
    note = "note: consumer_byte_rate is enforced by each broker by itself; for the whole cluster set cluster_consumer_byte_rate\n"
    assert command(house, "alter", *whose, "--add-config", limits) == "user cli, default client-id: altered\n" + note

    def seen() -> list[dict[str, object]]:
        return list(json.loads(command(house, "describe", "--user", "cli", "--client-defaults", "--json")))

    own = {"controller_mutations_rate": 5, "controller_mutations_burst": 50}
    entity = {"user": "cli", "client-id": None}
    wait_until(lambda: seen() == [{"entity": entity, "quotas": {"consumer_byte_rate": 2 << 20, **own}}], "both limits")
    table = command(house, "describe", *whose)
    assert "2,097,152" in table
    assert "each broker" in table
    assert "the proxy" in table
    refused = command(house, "alter", "--user", "cli", "--add-config", "producer_ids_rate=0", code=1)
    assert "INVALID_REQUEST: user cli: producer_ids_rate 0 is out of range" in refused
    assert "would do" in command(house, "alter", "--user", "cli", "--add-config", "producer_ids_rate=1", "--validate-only")
    assert "CLUSTER_AUTHORIZATION_FAILED" in command(house, "describe", code=1, user="nobody")
    command(house, "alter", *whose, "--delete-config", ",".join([*own, "consumer_byte_rate"]))
    wait_until(lambda: seen() == [], "nothing left")


def test_quotas_go_to_a_file_and_come_back(house: House, tmp_path: Path) -> None:
    house.java("alter user=moved producer_ids_rate=3 / client-id=moved controller_mutations_rate=4", at=house.one.bootstrap)
    file = tmp_path / "quotas.yaml"
    file.write_text(command(house, "export").partition("left out")[0])
    assert command(house, "diff", str(file)) == "no difference\n"
    assert command(house, "import", str(file), "--prune") == "nothing to do\n"
    text = file.read_text()
    file.write_text(text.replace("user: moved\n    producer_ids_rate: 3", "user: moved\n    producer_ids_rate: 33"))
    assert text != file.read_text()
    house.java("alter user=new producer_ids_rate=8")
    found = json.loads(command(house, "diff", str(file), "--prune", "--json", code=1))
    assert [(one["entity"]["user"], one["old"], one["new"]) for one in found] == [("moved", 3, 33), ("new", 8, None)]
    assert "33" in command(house, "diff", str(file), code=1)
    assert set(command(house, "import", str(file), "--prune").splitlines()) == {"user moved: altered", "user new: altered"}
    assert command(house, "diff", str(file), "--prune") == "no difference\n"
    with ProxyProcess(house.folder / "of-file", house.kafka.bootstrap_servers, yaml.safe_load(file.read_text())) as other:
        assert other.wait_for("started")["quotas"] == len(yaml.safe_load(text)["quotas"]["entities"])
