"""A node, a Kafka beside it, and a release of the chart between them and their clients. All of it once for all tests."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import localkafka.ports
import localkafka.ready
import localkafka.settings
from localkafka import LocalCluster
from tests.chart.helm import CHART, NAMESPACE, RELEASE, Helm
from tests.chart.tools import NODE_TOOLS, crds, tool
from tests.conftest import QUICK_START
from tests.pods.images import PROXY, archive, missing
from tests.pods.node import CONTROL, HOST, Node
from tests.pods.outside import Outside
from tests.real.steady import create

NAME = f"{RELEASE}-kafka-quota-proxy"
ADVERTISED = f"{NAME}.{NAMESPACE}.svc.cluster.local"
PROXIES = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=proxy"
IMAGE = {"repository": PROXY.rpartition(":")[0], "tag": PROXY.rpartition(":")[2], "pullPolicy": "Never"}


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """A host that reaches the node; it is there before the node starts, which has to know its own addresses by then."""
    return Outside(tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="session")
def node(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    assert os.getuid() == 0, "pods take root"
    assert not missing(), f"apt-get install --no-install-recommends {' '.join(missing())}"
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in links.splitlines() if "UP" in line.split()[1]], (
        "run it by `make test-pods`: it has a network of its own"
    )
    programs = {name: tool(name) for name in (*CONTROL, *NODE_TOOLS)}
    with outside, Node(programs, tmp_path_factory.mktemp("n")) as node:
        node.load([archive("pause"), archive("proxy"), archive("report")])
        node.server.define(*crds().glob("*_tlsroutes.json"))
        yield node


@pytest.fixture(scope="session")
def kafka(node: Node) -> Iterator[LocalCluster]:
    """Three brokers at the node's address: where pods reach them."""
    assert node.server.status("/readyz") == 200
    with contextlib.ExitStack() as stack:
        for module in (localkafka.ports, localkafka.ready, localkafka.settings):
            stack.callback(setattr, module, "HOST", module.HOST)
            module.HOST = HOST
        yield stack.enter_context(LocalCluster(3, jvm_flags=QUICK_START))


class Release:
    """The installed chart. `change` upgrades it with more values, which stay."""

    def __init__(self, node: Node, helm: Helm, values: dict[str, Any]) -> None:
        self.node, self.helm, self.values = node, helm, values
        self.bootstrap = f"{ADVERTISED}:9192"

    def change(self, **values: Any) -> None:
        self.values |= values
        arguments = ("upgrade", "--install", RELEASE, str(CHART), "-n", NAMESPACE, "--values", "-")
        self.helm.run(*arguments, stdin=yaml.safe_dump(self.values))

    def settled(self) -> None:
        """The rollout is at its end, and no pod of before is left."""
        self.kubectl("rollout", "status", f"deployment/{NAME}", "--timeout=600s")
        self.node.wait(lambda: len(self.pods()) == self.values["replicaCount"], "old pods to go")

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.node.program("kubectl"), f"--kubeconfig={self.node.server.kubeconfig}", "-n", NAMESPACE, *arguments],
            capture_output=True, text=True, timeout=660, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{done.stderr}\n{self.node.server.kubectl('-n', NAMESPACE, 'describe', 'pods').stdout[-6000:]}"
        )
        return done.stdout

    def pods(self) -> list[dict[str, Any]]:
        return self.node.server.get("pods", "-n", NAMESPACE, f"--selector={PROXIES}")

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}


def metric(pod: dict[str, Any], name: str) -> float:
    """One figure of a proxy, 0 where it is not there."""
    wanted = f"kafka_quota_proxy_{name} "
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9190/metrics", timeout=60) as answer:
        lines = str(answer.read().decode()).splitlines()
    return next((float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted)), 0.0)


@pytest.fixture(scope="session")
def release(node: Node, kafka: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Release:
    node.server.kubectl("create", "namespace", NAMESPACE)
    node.server.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    values = {
        "image": IMAGE,
        "replicaCount": 2,
        "upstream": {"bootstrapServers": kafka.bootstrap_servers.split(",")},
        "listeners": {"main": {"brokerPorts": {"count": 3}}},
        "usageLog": {"enabled": True, "volume": "stdout"},
        "settings": {"logs": {"usage": {"interval": "1s"}}, "reload": {"interval": "1s"}, "upstream": {"metadata_refresh": "1s"}},
    }
    installed = Release(node, Helm(tool("helm"), tmp_path_factory.mktemp("helm"), node.server.kubeconfig), values)
    installed.change()
    (service,) = node.server.get("service", NAME, "-n", NAMESPACE)
    node.name(NAME, NAMESPACE, service["spec"]["clusterIP"])
    installed.settled()
    return installed


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: LocalCluster) -> Callable[[int], str]:
    """Makes a topic named after the test, beside the proxy."""

    def make(partitions: int) -> str:
        name = re.sub(r"\W|_", "-", request.node.name)
        create(kafka.bootstrap_servers, name, partitions)
        return name

    return make


@pytest.fixture
def volume(node: Node, tmp_path: Path) -> Path:
    """The folder behind a volume that several pods can have; on a node of its own any storage class would do."""
    folder = tmp_path / "volume"
    folder.mkdir()
    for part in (folder, *list(folder.parents)[:3]):
        part.chmod(0o777)
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": str(folder)}}
    node.server.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "usage"}, "spec": spec})
    return folder
