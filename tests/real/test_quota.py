"""Controller mutations on real clients that log in at a cluster with an authorizer: the quota bites, and each kind of client feels
what it can understand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import ThrottlingQuotaExceededError

from localkafka import LocalCluster, tool
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import PYTHON, USER, USERS, access, java_properties, logged_in, upstream

pytestmark = pytest.mark.kafka

# Small figures, so that a burst is spent at once and the wait is about a second: 2 samples of a second each.
RATE, BURST = 10, 20
REFUSED = 89


@pytest.fixture(scope="module")
def limited(tenants3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Every client id of the user has a quota of its own."""
    everyone = {"user": USER, "client_id": "<default>", "controller_mutations_rate": RATE, "controller_mutations_burst": BURST}
    slow = {"user": USER, "client_id": "java-tool", "controller_mutations_rate": 1, "controller_mutations_burst": 100}
    settings = {
        "quotas": {"entities": [everyone, slow]},
        "exempt": {"clients": [{"user": USER, "client_id": "operator"}]},
        "upstream": upstream(),
    }
    with ProxyProcess(tmp_path_factory.mktemp("limited"), tenants3.bootstrap_servers, settings) as proxy:
        yield proxy


def topics(name: str, count: int, partitions: int = 10) -> list[dict[str, object]]:
    return [{"name": f"{name}-{i}", "num_partitions": partitions, "replication_factor": 1} for i in range(count)]


def exists(kafka: LocalCluster, name: str) -> set[str]:
    found = AdminClient(access(kafka.bootstrap_servers)).list_topics(timeout=90).topics
    return {topic for topic in found if topic.startswith(f"{name}-")}


def test_topics_are_accepted_until_the_quota_is_exhausted(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    """Two of 10 partitions bring the average to 10/s, which is not below the rate: the others are refused, the two exist."""
    with logged_in(limited.bootstrap) as connection:
        answer = connection.decoded(19, 7, topics=topics(name, 4))
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {f"{name}-0": 0, f"{name}-1": 0, f"{name}-2": REFUSED, f"{name}-3": REFUSED}
    message = next(topic.error_message for topic in answer.topics if topic.error_code)
    assert "client-id raw" in message
    assert "limit 10/s with a burst of 20" in message
    assert answer.throttle_time.total_seconds() <= 2, "nothing any more, where the broker takes that long"
    wait_until(lambda: exists(tenants3, name) == {f"{name}-0", f"{name}-1"}, "the two accepted topics, and only these")


def test_a_client_that_knows_the_error_gets_it(limited: ProxyProcess, name: str) -> None:
    """In one request: after it a busy broker may take longer than the quota needs to have room again."""
    admin = KafkaAdminClient(bootstrap_servers=limited.bootstrap, client_id=name, **PYTHON)
    many, one = ({"num_partitions": number, "replication_factor": 1} for number in (2 * BURST, 1))
    with pytest.raises(ThrottlingQuotaExceededError):
        admin.create_topics({f"{name}-0": many, f"{name}-1": one})
    admin.close()
    assert limited.metric("refused_items_total", quota="controller_mutations") > 0


def test_kafka_topics_says_why(limited: ProxyProcess, name: str) -> None:
    """Java's tool does not retry, by its authors' intent: the operator reads the proxy's own words."""
    results = []
    for i in range(2):
        what = ("--create", "--topic", f"{name}-{i}", "--partitions", "150", "--replication-factor", "1")
        how = ("--bootstrap-server", limited.bootstrap, "--command-config", java_properties(limited.folder, client_id="java-tool"))
        results.append(tool("topics", *how, *what))
    assert results[0].returncode == 0, results[0].stderr
    assert results[1].returncode != 0
    said = results[1].stdout + results[1].stderr
    assert f"The controller mutation quota of user {USER}, client-id java-tool is exceeded" in said


def test_a_client_too_old_for_the_error_is_accepted_and_muted(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    """librdkafka speaks version 4: all topics are created, the answer comes at once, and the next request waits."""
    admin = AdminClient(access(limited.bootstrap, **{"client.id": name}))
    futures = admin.create_topics([NewTopic(f"{name}-{i}", 20, 1) for i in range(2)])
    for future in futures.values():
        future.result(90)
    throttled = limited.wait_for("over quota", client_id=name)
    assert throttled["action"] == "throttle"
    assert throttled["throttle_seconds"] > 0
    wait_until(lambda: len(exists(tenants3, name)) == 2, "both topics")


def test_the_mute_holds_other_connections_of_the_entity_too(limited: ProxyProcess, name: str) -> None:
    """The second connection's request is not looked at before the first one's mute is over, and then it goes on."""
    with logged_in(limited.bootstrap) as first, logged_in(limited.bootstrap) as second:
        wait_until(lambda: second.decoded(19, 7, topics=topics(f"{name}a", 1, 1)).throttle_time.total_seconds() == 0, "room")
        names = (f"{name}-{i}" for i in count())

        asked = 0.0

        def exhausted() -> float:
            """What is told is what is left when the broker has answered: nothing if that takes long."""
            nonlocal asked
            asked = time.monotonic()
            return float(first.decoded(19, 7, topics=topics(next(names), 3, 20)).throttle_time.total_seconds())

        throttle = wait_until(exhausted, "a throttle")
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(connection.ask, 19, 7, topics=topics(f"{name}b", 1, 1)) for connection in (first, second)]
            for answer in answers:
                answer.result(90)
        # not how fast it is, but that it is not answered before the throttle time is over
        assert time.monotonic() - asked >= throttle


def test_what_only_validates_and_who_is_exempt_is_not_charged(limited: ProxyProcess, name: str) -> None:
    with logged_in(limited.bootstrap) as connection:
        for _ in range(3):
            answer = connection.decoded(19, 7, topics=topics(name, 1, 500), validate_only=True)
            assert [topic.error_code for topic in answer.topics] == [0]
    operator = AdminClient(access(limited.bootstrap, **{"client.id": "operator"}))
    for i in range(3):
        operator.create_topics([NewTopic(f"{name}-op-{i}", 30, 1)])[f"{name}-op-{i}"].result(90)
    assert not limited.lines("over quota", client_id="operator")


def test_the_usage_log_tells_all_of_it(limited: ProxyProcess, name: str) -> None:
    with logged_in(limited.bootstrap) as connection:
        connection.ask(19, 7, topics=topics(name, 5, 20))
    lines = wait_until(
        lambda: [line for line in limited.usage() if line["type"] == "decision" and f"{name}-4" in line["topics"]], "it"
    )
    assert lines[0]["quota"] == "controller_mutations"
    assert lines[0]["entity"] == {"user": USER, "client_id": "raw"}
    assert lines[0]["limit"] == RATE


@pytest.fixture(scope="module")
def without_identity(tenants1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A cluster with passwords; the proxy has none, and learns brokers and users from what passes."""
    quotas = {"entities": [{"user": "tenant", "controller_mutations_rate": RATE, "controller_mutations_burst": BURST}]}
    with ProxyProcess(tmp_path_factory.mktemp("sasl"), tenants1.bootstrap_servers, {"quotas": quotas}) as proxy:
        yield proxy


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_users_quota_follows_the_authenticated_user(without_identity: ProxyProcess, name: str, mechanism: str) -> None:
    proxy = without_identity
    for user in ("tenant", "other"):
        how = {"sasl.mechanism": mechanism, "client.id": f"{user}-{mechanism}"}
        admin = AdminClient(access(proxy.bootstrap, user, **how))
        for future in admin.create_topics([NewTopic(f"{name}-{user}-{i}", 30, 1) for i in range(3)]).values():
            future.result(60)
    over = proxy.wait_for("over quota", principal="User:tenant")
    assert over["entity"] == "user tenant"
    assert not proxy.lines("over quota", principal="User:other")
    assert wait_until(
        lambda: {"User:tenant", "User:other"} <= {line.get("principal") for line in proxy.usage()}, "both in the usage log"
    )
    everything = repr(proxy.events) + "".join(path.read_text() for path in proxy.logs.iterdir()) + proxy.get("/metrics")[1]
    assert not any(password in everything for password in USERS.values())
