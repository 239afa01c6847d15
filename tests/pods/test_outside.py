"""Ways in for clients outside of the cluster: each example of `ci/` is installed, and a client at a host that reaches neither pods
nor Services nor brokers writes to every broker and reads it again."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from localkafka import LocalCluster
from tests.certs import Authority
from tests.chart.helm import CHART, NAMESPACE
from tests.pods.conftest import IMAGE, Release, metric
from tests.pods.outside import NODE, Outside, PassThrough, addresses, names_of

pytestmark = [pytest.mark.pods, pytest.mark.kafka, pytest.mark.timeout(1200)]
HOST = "kafka.example.com"
CERTIFICATE = {"tls": {"existingSecret": "wildcard-tls", "certificate": {"enabled": False}}}
DNS = "external-dns.alpha.kubernetes.io/hostname"


@dataclass(frozen=True)
class Way:
    """One file of `ci/`: where its clients bootstrap, what they are told of a broker, and what is set in place of cert-manager."""

    bootstrap: str
    told: Callable[[int], str]
    listener: str = "main"
    more: dict[str, Any] | None = None
    tells_clients: bool = False
    """whether the load balancer says who they are"""


WAYS = {
    "nodeport": Way("node.example.com:30192", lambda id: f"node.example.com:{30193 + id}"),
    "loadbalancer": Way(f"{HOST}:9392", lambda id: f"{HOST}:{9400 + id}", "external", tells_clients=True),
    "loadbalancer-per-broker": Way(f"{HOST}:443", lambda id: f"broker-{id}.{HOST}:443", more=CERTIFICATE),
    "sni-loadbalancer": Way(f"{HOST}:443", lambda id: f"broker-{id}.{HOST}:443"),
    "sni-gateway": Way(f"{HOST}:443", lambda id: f"broker-{id}.{HOST}:443", "external", CERTIFICATE),
    "sni-ingress": Way(f"{HOST}:443", lambda id: f"b{id}-{HOST}:443", more=CERTIFICATE),
}


@pytest.fixture(scope="module")
def authority(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Of the certificate in the Secret `wildcard-tls`."""
    made = Authority(tmp_path_factory.mktemp("authority"))
    pair = made.server("kafka", HOST, f"*.{HOST}", "*.example.com")
    data = {"tls.crt": pair.cert, "tls.key": pair.key}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
    secret |= {"metadata": {"name": "wildcard-tls", "namespace": NAMESPACE}}
    secret |= {"data": {key: base64.b64encode(file.read_bytes()).decode() for key, file in data.items()}}
    release.node.server.apply(secret)
    return made


@pytest.fixture(scope="module")
def installed(release: Release, kafka: LocalCluster) -> Iterator[Callable[[str], dict[str, Any]]]:
    """All examples at once, a release of its own each; waits for the pod of one, and gives it."""
    for name, way in WAYS.items():
        values = {
            "image": IMAGE,
            "replicaCount": 1,
            "minReadySeconds": 0,
            "preStopSeconds": 0,
            "resources": {"requests": {"cpu": "50m"}},
            "checkConfig": {"enabled": False},
            "upstream": {"bootstrapServers": kafka.bootstrap_servers.split(",")},
            "listeners": {way.listener: way.more or {}},
        }
        arguments = ("install", name, str(CHART), "-n", NAMESPACE, "--values", str(CHART / "ci" / f"{name}-values.yaml"))
        release.helm.run(*arguments, "--values", "-", stdin=yaml.safe_dump(values))

    def wait(name: str) -> dict[str, Any]:
        release.kubectl("rollout", "status", f"deployment/{name}-kafka-quota-proxy", "--timeout=600s")
        (pod,) = release.node.server.get("pod", "-n", NAMESPACE, f"--selector=app.kubernetes.io/instance={name}")
        return pod

    yield wait
    for name in WAYS:
        release.helm.run("uninstall", name, "-n", NAMESPACE)


class Edge:
    """Puts before a release what a cluster has there, until `stack` ends. Gives where names lead to, as DNS would."""

    def __init__(self, release: Release, folder: Path, stack: contextlib.ExitStack) -> None:
        self._release, self._folder, self._stack = release, folder, stack
        self._free = addresses()

    def put(self, name: str) -> dict[str, str]:
        names: dict[str, str] = {}
        for item in self._get("service,ingress,tlsroute", f"--selector=app.kubernetes.io/instance={name}"):
            if item["kind"] in ("Ingress", "TLSRoute"):
                names |= self._pass_through(item)
            elif item["spec"]["type"] == "LoadBalancer":
                names |= self._balance(item, WAYS[name].tells_clients)
            elif item["spec"]["type"] == "NodePort":
                names["node.example.com"] = NODE
        return names

    def _get(self, *what: str) -> list[dict[str, Any]]:
        return self._release.node.server.get(*what, "-n", NAMESPACE)

    def _balance(self, service: dict[str, Any], tells_clients: bool) -> dict[str, str]:
        """What a cloud does for a Service of type LoadBalancer: kube-proxy spreads what comes to its address; where the proxy is to
        be told who its clients are, a program does."""
        spec, metadata, given = service["spec"], service["metadata"], {"ip": next(self._free)}
        if tells_clients:
            given["ipMode"] = "Proxy"
            ports = {port["port"]: (f"{spec['clusterIP']}:{port['port']}", ()) for port in spec["ports"]}
            self._stack.enter_context(PassThrough(self._folder, given["ip"], ports, tells_clients=True))
        status = json.dumps({"status": {"loadBalancer": {"ingress": [given]}}})
        patch = ("--subresource=status", "--type=merge", f"--patch={status}")
        self._release.kubectl("patch", "service", metadata["name"], *patch)
        return {metadata.get("annotations", {}).get(DNS, "*"): given["ip"]}

    def _pass_through(self, route: dict[str, Any]) -> dict[str, str]:
        """What a controller does for an Ingress or a TLSRoute."""
        address, names, backend = next(self._free), names_of(route), backend_of(route)
        (service,) = self._get("service", backend["name"])
        (port,) = service["spec"]["ports"]
        assert backend["port"] in (port["name"], port["port"])
        server = f"{service['spec']['clusterIP']}:{port['port']}"
        self._stack.enter_context(PassThrough(self._folder, address, {443: (server, names)}))
        return dict.fromkeys(names, address)


@pytest.fixture(scope="module")
def edge(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with contextlib.ExitStack() as stack:
        yield Edge(release, tmp_path_factory.mktemp("edge"), stack)


def backend_of(route: dict[str, Any]) -> dict[str, Any]:
    """The Service and its port, by name or number, that an Ingress or a TLSRoute leads to."""
    if route["kind"] == "TLSRoute":
        ((backend,),) = [rule["backendRefs"] for rule in route["spec"]["rules"]]
        return {"name": backend["name"], "port": backend["port"]}
    services = [path["backend"]["service"] for rule in route["spec"]["rules"] for path in rule["http"]["paths"]]
    (backend,) = [service for number, service in enumerate(services) if service not in services[:number]]
    return {"name": backend["name"], "port": backend["port"]["name"]}


@pytest.mark.parametrize("name", WAYS)
def test_clients_outside_get_through(
    name: str,
    outside: Outside,
    authority: Authority,
    installed: Callable[[str], dict[str, Any]],
    edge: Edge,
    topic: Callable[[int], str],
) -> None:
    way, pod = WAYS[name], installed(name)
    names = edge.put(name)
    told = {str(id): way.told(id) for id in range(3)}
    hosts = [address.partition(":")[0] for address in (way.bootstrap, *told.values())]
    outside.resolve({host: address for host in hosts if (address := lookup(names, host))})
    tls = [str(authority.file)] if way.told(0).endswith(":443") else []
    said = json.loads(outside.python("tests.pods.client", way.bootstrap, topic(6), *tls))
    assert said == {"brokers": told, "read": [[str(partition)] for partition in range(6)]}
    assert metric(pod, 'requests_total{api="Produce"}') >= 3, "through this release, to each broker"


def lookup(names: dict[str, str], host: str) -> str | None:
    """As DNS does: the name itself, or a wildcard above it; `*` is whatever there is no other record for."""
    return names.get(host) or names.get(f"*.{host.partition('.')[2]}") or names.get("*")
