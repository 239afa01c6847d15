"""KafkaQuota objects on a real API server, with the chart's CRD and roles, controllers as processes, a real proxy and broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from localkafka import LocalCluster
from proxy.apis.client_quotas import who_of
from proxy.config.units import parse_server
from proxy.operate.access import upstream_of
from proxy.operate.controller.definition import GROUP, VERSION
from proxy.upstream.connector import Upstream
from proxy.upstream.quota_client import ask
from proxy.wire.client_quotas import Entry, Filter, Op
from quota.entity import Entity
from tests.certs import Authority
from tests.chart.apiserver import ApiServer
from tests.chart.conftest import need
from tests.chart.helm import CHART, Helm
from tests.conftest import QUICK_START
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect

pytestmark = [pytest.mark.api_server, pytest.mark.kafka]

NAMESPACE = "quota-proxy"
LEASE = "edge-kafka-quota-proxy-controller"
RATE, IDS = "controller_mutations_rate", "producer_ids_rate"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:quota-admin;User:proxy",
}
STRIMZI: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kafkausers.kafka.strimzi.io"},
    "spec": {
        "group": "kafka.strimzi.io",
        "scope": "Namespaced",
        "names": {"kind": "KafkaUser", "plural": "kafkausers", "singular": "kafkauser"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""As much of it as the controller reads."""


@dataclass
class House:
    """An API server, a proxy, and what controllers take to reach both."""

    server: ApiServer
    proxy: ProxyProcess
    kubeconfig: Path
    way: Upstream = field(default_factory=lambda: Upstream(20))
    """How tests get into the proxy."""
    options: tuple[str, ...] = ()
    """How a controller gets in."""

    def apply(self, name: str, entity: dict[str, str], limits: dict[str, Any], check: bool = True) -> str:
        manifest = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "KafkaQuota", "metadata": {"name": name, "namespace": NAMESPACE}}
        text = yaml.safe_dump(manifest | {"spec": {"entity": entity, "limits": limits}})
        return self.server.kubectl("apply", "--filename=-", stdin=text, check=check).stderr

    def delete(self, name: str) -> None:
        self.server.kubectl("delete", "kafkaquota", name, "-n", NAMESPACE, "--timeout=60s")

    def quota(self, name: str) -> dict[str, Any]:
        (found,) = self.server.get("kafkaquota", name, "-n", NAMESPACE)
        return found

    def until(self, name: str, kind: str, value: str, reason: str = "") -> dict[str, Any]:
        """The object once this condition has this value."""

        def there() -> dict[str, Any] | None:
            found = self.quota(name)
            for one in found.get("status", {}).get("conditions", ()):
                if (one["type"], one["status"]) == (kind, value) and reason in ("", one["reason"]):
                    return found
            return None

        made: dict[str, Any] = wait_until(there, f"{name} to be {kind}={value}")
        return made

    def limits(self, user: str) -> dict[str, float]:
        """What the proxy has for a user."""
        found = ask([parse_server(self.proxy.bootstrap)], self.way, lambda it: it.describe(Filter((), strict=False)))
        return found.get(who_of(Entity(user, None)), {})

    def by_hand(self, user: str, *ops: Op) -> None:
        entry = Entry(who_of(Entity(user, None)), ops)
        ((_, result),) = ask([parse_server(self.proxy.bootstrap)], self.way, lambda it: it.alter([entry], validate_only=False))
        assert result.error == 0, result

    def reasons(self, name: str) -> list[str]:
        events = self.server.get("events.events.k8s.io", "-n", NAMESPACE)
        return [event["reason"] for event in events if event["regarding"]["name"] == name]

    @contextmanager
    def controller(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "proxy", "quotas", "controller", "--bootstrap-server", self.proxy.bootstrap]
        command += ["--namespace", NAMESPACE, "--lease", f"{NAMESPACE}/{LEASE}", "--kubeconfig", str(self.kubeconfig)]
        command += ["--admin", self.proxy.admin, "--interval", "0.3", *self.options, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
            print(said)
        assert process.returncode in (0, -signal.SIGKILL), said
        assert "Traceback" not in said, said


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest, kafka1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    programs = {name: need(request, name) for name in ("etcd", "kube-apiserver", "kubectl")}
    folder = tmp_path_factory.mktemp("controller")
    topic = "__quotas_of_the_controller"
    settings = {"quotas": {"dynamic": {"topic": topic}, "admins": ["ANONYMOUS"], "entities": [{"user": "filed", RATE: 7}]}}
    with (
        ApiServer(programs, folder / "server", "--disable-admission-plugins=ServiceAccount") as server,
        ProxyProcess(folder / "proxy", kafka1.bootstrap_servers, settings) as proxy,
    ):
        server.kubectl("create", "namespace", NAMESPACE)
        server.apply(STRIMZI)
        helm = Helm(need(request, "helm"), folder / "helm", server.kubeconfig)
        values = (
            "--set",
            "controller.enabled=true",
            "--set",
            "controller.strimzi=true",
            "--set",
            "upstream.bootstrapServers={k:9092}",
        )
        helm.run("install", "edge", str(CHART), "-n", NAMESPACE, "--no-hooks", *values)
        kinds = ("crd/kafkaquotas.kafka-quota-proxy.io", "crd/kafkausers.kafka.strimzi.io")
        server.kubectl("wait", "--for=condition=Established", "--timeout=60s", *kinds)
        # The rights of the chart's ServiceAccount, and no others.
        token = server.kubectl("create", "token", LEASE, "-n", NAMESPACE).stdout.strip()
        config = yaml.safe_load(server.kubeconfig.read_text())
        config["users"] = [{"name": "admin", "user": {"token": token}}]
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        yield House(server, proxy, kubeconfig)


def test_an_object_is_put_in_force_altered_mended_and_given_back(house: House) -> None:
    with house.controller():
        house.by_hand("life", Op(IDS, 9, False))
        house.apply("life", {"user": "life"}, {RATE: 5, "cluster_producer_byte_rate": "1MiB"})
        since = house.until("life", "Accepted", "True", "InForce")["status"]["inForceSince"]
        assert since
        assert house.limits("life") == {RATE: 5, "cluster_producer_byte_rate": 1048576, IDS: 9}
        assert house.until("life", "Throttled", "False")

        house.by_hand("life", Op(RATE, 99, False))
        wait_until(lambda: house.limits("life")[RATE] == 5, "drift to be mended")
        wait_until(lambda: "DriftMended" in house.reasons("life"), "the event")

        house.apply("life", {"user": "life"}, {RATE: 6})
        wait_until(lambda: house.limits("life") == {RATE: 6, IDS: 9}, "the new limits")
        row = house.server.kubectl("get", "kafkaquota", "life", "-n", NAMESPACE).stdout
        assert row.split()[:2] == ["NAME", "USER"]
        assert "InForce" in row

        house.delete("life")
        assert house.limits("life") == {IDS: 9}
        assert "GivenBack" in house.reasons("life")


def test_a_limit_over_one_of_the_settings_file_gives_that_one_back(house: House) -> None:
    with house.controller():
        house.apply("filed", {"user": "filed"}, {RATE: 5})
        house.until("filed", "Accepted", "True")
        house.delete("filed")
        assert house.limits("filed") == {RATE: 7}
        # the same value: nothing of the object's own to give back
        house.apply("filed", {"user": "filed"}, {RATE: 7})
        house.until("filed", "Accepted", "True")
        house.delete("filed")
        assert house.limits("filed") == {RATE: 7}


def test_of_two_objects_for_one_entity_the_older_wins(house: House) -> None:
    with house.controller():
        house.apply("first", {"user": "both"}, {RATE: 5})
        house.until("first", "Accepted", "True")
        house.apply("second", {"user": "both"}, {RATE: 6})
        refused = house.until("second", "Accepted", "False", "Conflict")
        assert refused["status"]["conflictsWith"] == [f"{NAMESPACE}/first"]
        assert house.limits("both") == {RATE: 5}
        house.delete("first")
        house.until("second", "Accepted", "True")
        assert house.limits("both") == {RATE: 6}
        house.delete("second")


def test_who_is_throttled_is_seen_in_the_status(house: House) -> None:
    with house.controller():
        house.apply("slow", {"user": "ANONYMOUS"}, {RATE: 0.001, "controller_mutations_burst": 1})
        house.until("slow", "Accepted", "True")
        with connect(house.proxy.bootstrap) as connection:
            topics = [{"name": f"slow-{i}", "num_partitions": 2, "replication_factor": 1} for i in range(2)]
            assert 89 in [topic.error_code for topic in connection.decoded(19, 7, topics=topics).topics]
        assert house.until("slow", "Throttled", "True")["status"]["throttledBy"] == ["controller_mutations"]
        house.delete("slow")


def test_a_change_while_no_controller_runs_is_seen_by_the_next_one(house: House) -> None:
    with house.controller() as killed:
        house.apply("kept", {"user": "kept"}, {RATE: 5})
        house.until("kept", "Accepted", "True")
        killed.kill()
        killed.wait()
    house.server.kubectl("delete", "lease", LEASE, "-n", NAMESPACE)  # as it would have run out
    house.apply("kept", {"user": "kept"}, {IDS: 8})
    house.server.kubectl("delete", "kafkaquota", "kept", "-n", NAMESPACE, "--wait=false")
    assert house.limits("kept") == {RATE: 5}
    with house.controller():
        wait_until(lambda: house.limits("kept") == {}, "what the first one wrote to be given back")


def test_of_two_controllers_one_works_and_the_other_follows_it(house: House) -> None:
    def holder() -> str:
        (lease,) = house.server.get("lease", LEASE, "-n", NAMESPACE)
        return str(lease["spec"]["holderIdentity"])

    with house.controller():
        with house.controller():
            house.apply("turns", {"user": "turns"}, {RATE: 5})
            house.until("turns", "Accepted", "True")
            first = holder()
            house.by_hand("turns", Op(RATE, 99, False))
            wait_until(lambda: house.limits("turns") == {RATE: 5}, "drift to be mended")
            assert holder() == first
            assert house.reasons("turns").count("InForce") == 1
        house.apply("turns", {"user": "turns"}, {RATE: 6})
        wait_until(lambda: house.limits("turns") == {RATE: 6}, "the one that is left to work")
        house.delete("turns")


def test_quotas_of_kafka_users_are_read_where_asked_for(house: House) -> None:
    user = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": "shop", "namespace": NAMESPACE},
        "spec": {"quotas": {"producerByteRate": 1000, "consumerByteRate": 2000}},
        "status": {"username": "CN=shop"},
    }
    huge = {"metadata": {"name": "huge", "namespace": NAMESPACE}, "spec": {"quotas": {"producerByteRate": 10**18}}}
    house.server.apply(user)
    house.server.apply(user | huge)  # the API server refuses the KafkaQuota of this one: others have theirs
    with house.controller("--strimzi"):
        wait_until(lambda: len(house.limits("CN=shop")) == 2, "the quotas of the KafkaUser")
        house.server.apply(user | {"spec": {"quotas": {"producerByteRate": 3000}}})
        wait_until(lambda: house.limits("CN=shop") == {"cluster_producer_byte_rate": 3000}, "its new quotas")
        house.server.kubectl("delete", "kafkauser", "shop", "-n", NAMESPACE)
        wait_until(lambda: house.limits("CN=shop") == {}, "its quotas to go")
        house.server.kubectl("delete", "kafkauser", "huge", "-n", NAMESPACE)


def test_with_a_proxy_that_is_gone_it_goes_to_the_next_one(house: House, kafka1: LocalCluster, tmp_path: Path) -> None:
    settings = {"quotas": {"dynamic": {"topic": "__quotas_of_two"}, "admins": ["ANONYMOUS"]}}
    with (
        ProxyProcess(tmp_path / "a", kafka1.bootstrap_servers, dict(settings)) as first,
        ProxyProcess(tmp_path / "b", kafka1.bootstrap_servers, dict(settings)) as second,
    ):
        options = ("--bootstrap-server", f"{second.bootstrap},{first.bootstrap}")
        both = House(house.server, first, house.kubeconfig, options=options)
        with both.controller():
            both.apply("two", {"user": "two"}, {RATE: 5})
            both.until("two", "Accepted", "True", "InForce")
            wait_until(lambda: both.limits("two") == {RATE: 5}, "the other proxy to have it too")
            assert second.stop() == 0
            both.by_hand("two", Op(RATE, 99, False))
            wait_until(lambda: both.limits("two") == {RATE: 5}, "drift to be mended")
            both.delete("two")
            assert both.limits("two") == {}


@pytest.mark.parametrize(
    ("entity", "limits", "reason"),
    [
        ({}, {RATE: 5}, "name a user"),
        ({"tenant": "t", "user": "u"}, {RATE: 5}, "a tenant stands alone"),
        ({"user": "u"}, {}, "at least 1"),
        ({"user": "u"}, {"controller_mutations_burst": 5}, "needs controller_mutations_rate"),
        ({"user": "u"}, {"stored_bytes_hard": "1GiB"}, "for tenants only"),
        ({"tenant": "t"}, {RATE: 5}, "not for tenants"),
        ({"clientId": "c"}, {IDS: 5}, "not for client ids"),
        ({"user": "u"}, {RATE: 0}, "greater than 0"),
        ({"user": "u"}, {"cluster_producer_byte_rate": "much"}, "should match"),
        ({"user": "u"}, {"no_such_limit": 1}, "unknown field"),
    ],
)
def test_the_api_server_refuses_what_cannot_be(house: House, entity: dict[str, str], limits: dict[str, Any], reason: str) -> None:
    assert reason in house.apply("wrong", entity, limits, check=False)


def test_an_object_stays_with_its_entity(house: House) -> None:
    house.apply("stays", {"user": "stays"}, {RATE: 5})
    assert "stays with its entity" in house.apply("stays", {"user": "other"}, {RATE: 5}, check=False)
    house.server.kubectl("delete", "kafkaquota", "stays", "-n", NAMESPACE)


def test_the_controller_may_not_do_more_than_it_does(house: House) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{LEASE}"
    for what in ("get secrets", "list secrets", "list pods", "update kafkausers.kafka.strimzi.io", "delete leases"):
        said = house.server.kubectl("auth", "can-i", *what.split(), account, "-n", NAMESPACE, check=False)
        assert said.stdout.strip() == "no", what


def test_it_logs_in_to_the_proxy_and_to_its_admin_listener_over_tls(house: House, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.server("proxy", "localhost", "127.0.0.1")
    token, own_token, login = tmp_path / "token", tmp_path / "own-token", tmp_path / "client.properties"
    certificate = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
    token.write_text("s3cret\n")
    own_token.write_text("s3cret\n")
    users = {"quota-admin": "adm1n-s3cret", "proxy": "pr0xy-s3cret"}
    settings = {
        "listen": {"bootstrap": "127.0.0.1:0", "tls": certificate},
        "admin": {"listen": "127.0.0.1:0", "tls": certificate, "auth": {"token_file": str(token)}},
        "upstream": {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password": users["proxy"]}},
        "quotas": {"dynamic": {}, "admins": ["quota-admin"]},
    }
    with (
        LocalCluster(1, sasl=users, properties=AUTHORIZER, jvm_flags=QUICK_START) as kafka,
        ProxyProcess(tmp_path / "proxy", kafka.bootstrap_servers, settings, wait_ready=False) as proxy,
    ):
        login.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
            "sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="quota-admin" password="{users["quota-admin"]}";\n'
        )
        options = ("--command-config", str(login), "--ca-file", str(authority.file), "--token-file", str(own_token))
        secured = House(house.server, proxy, house.kubeconfig, upstream_of(login), options)
        with secured.controller():
            secured.apply("secured", {"user": "quota-admin"}, {RATE: 5})
            secured.until("secured", "Accepted", "True", "InForce")
            assert secured.limits("quota-admin") == {RATE: 5}
            secured.until("secured", "Throttled", "False")
            own_token.write_text("another\n")
            secured.until("secured", "Throttled", "Unknown")
            own_token.write_text("s3cret\n")
            secured.until("secured", "Throttled", "False")
            secured.delete("secured")
        login.write_text(login.read_text().replace(users["quota-admin"], "wr0ng"))
        with secured.controller() as refused:
            secured.apply("secured", {"user": "quota-admin"}, {RATE: 5})
            secured.until("secured", "Accepted", "Unknown")
        assert refused.returncode == 0
    house.server.kubectl("delete", "kafkaquota", "secured", "-n", NAMESPACE, "--wait=false")
