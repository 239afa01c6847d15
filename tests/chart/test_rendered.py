"""What the chart writes for every file of values in ci/: right for Kubernetes, right for the proxy, and of one piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from proxy.config.load import load_settings
from proxy.config.models import Settings
from tests.chart.helm import CHART, NAMES, VALUES, Helm, Manifest, of_kind, one, pods, workload_of

EVERY = pytest.mark.parametrize("values", VALUES, ids=NAMES)
OLDEST, NEWEST = "1.30", "1.37"
CUSTOM = {
    "Certificate",
    "PodMonitor",
    "ServiceMonitor",
    "TLSRoute",
    "PrometheusRule",
    "SparkApplication",
    "ScheduledSparkApplication",
}
"""Kinds that Kubernetes does not bring; the API server's tests have their definitions."""


def settings_of(manifests: list[Manifest], folder: Path) -> Settings:
    """What a proxy would read."""
    file = folder / "settings.yaml"
    file.write_text(
        next(item for item in of_kind(manifests, "ConfigMap") if "settings.yaml" in item["data"])["data"]["settings.yaml"]
    )
    return load_settings(file)


@EVERY
def test_helm_has_nothing_against_it(helm: Helm, values: Path) -> None:
    helm.run("lint", "--strict", "--quiet", str(CHART), "--values", str(values))


@EVERY
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_are_as_kubernetes_wants_them(helm: Helm, values: Path, version: str) -> None:
    checked = 0
    for item in helm.template(values):
        if item["kind"] not in CUSTOM:
            kubernetes_validate.validate(item, version, strict=True)
            checked += 1
    assert checked >= 3


@EVERY
def test_the_proxy_accepts_its_settings(helm: Helm, values: Path, tmp_path: Path) -> None:
    given = yaml.safe_load(values.read_text())
    settings = settings_of(helm.template(values), tmp_path)
    assert [str(server) for server in settings.upstream.bootstrap_servers] == given["upstream"]["bootstrapServers"]
    entities = given.get("settings", {}).get("quotas", {}).get("entities", [])
    assert [entity.model_dump(exclude_unset=True) for entity in settings.quotas.entities] == entities


@EVERY
def test_files_that_settings_name_are_mounted(helm: Helm, values: Path, tmp_path: Path) -> None:
    manifests = helm.template(values)
    settings = settings_of(manifests, tmp_path).model_dump()
    pod = next(pod for pod in pods(manifests) if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "proxy")
    (proxy,) = pod["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    folders = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in proxy["volumeMounts"]}
    for name, file in files_in(settings):
        if name == "state_file":
            assert str(Path(file).parent) == "/var/lib/kafka-quota-proxy"
        else:
            assert "secret" in folders[str(Path(file).parent)], file
    assert folders[str(Path(proxy["args"][2]).parent)]["configMap"]["name"] in {
        item["metadata"]["name"] for item in of_kind(manifests, "ConfigMap")
    }
    if (usage := settings["logs"]["usage"]["path"]) is not None:
        assert str(Path(usage).parent) in folders


def files_in(node: Any) -> list[tuple[str, str]]:
    """(setting, file) of everything that is called a file."""
    found: list[tuple[str, str]] = []
    for name, value in node.items() if isinstance(node, dict) else []:
        found += [(name, value)] if str(name).endswith("_file") and value else files_in(value)
    return found


@EVERY
def test_services_lead_to_ports_that_the_proxy_opens(helm: Helm, values: Path, tmp_path: Path) -> None:
    manifests = helm.template(values)
    settings = settings_of(manifests, tmp_path)
    opened: dict[int, str] = {}
    for name, listener in settings.listeners.items():
        first, last = listener.ports()
        opened |= dict.fromkeys([listener.bootstrap.port, *(range(first, last + 1) if first else [])], name)
    served = set()
    for service in of_kind(manifests, "Service"):
        if service["metadata"]["labels"]["app.kubernetes.io/component"] in ("admin", "redis"):
            continue
        ports = service["spec"]["ports"]
        (name,) = {opened[port["targetPort"]] for port in ports}
        listener = settings.listeners[name]
        if listener.routing == "ports":
            # Clients are told the ports that the proxy opens: every one has to be the Service's, and a node's.
            assert all(port["port"] == port["targetPort"] for port in ports)
            if service["spec"]["type"] == "NodePort":
                assert all(port["nodePort"] == port["port"] for port in ports)
        elif not of_kind(manifests, "Ingress") and not of_kind(manifests, "TLSRoute"):
            assert listener.advertise_port == ports[0]["port"]
        else:
            assert listener.advertise_port == 443
        served |= {port["targetPort"] for port in ports}
    assert served == opened.keys()


@EVERY
def test_selectors_find_proxies_or_redis_and_nothing_else(helm: Helm, values: Path) -> None:
    manifests = helm.template(values)
    selectors = [(item, item["spec"]["selector"]) for item in of_kind(manifests, "Service")]
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor"):
        selectors += [(item, item["spec"]["selector"]["matchLabels"]) for item in of_kind(manifests, kind)]
    selectors += [(item, item["spec"]["podSelector"]["matchLabels"]) for item in of_kind(manifests, "NetworkPolicy")]
    assert len(selectors) >= 2
    for item, selector in selectors:
        wanted = "redis" if item["metadata"]["labels"]["app.kubernetes.io/component"] == "redis" else "proxy"
        for pod in pods(manifests):
            labels = pod["metadata"]["labels"]
            assert (selector.items() <= labels.items()) == (labels["app.kubernetes.io/component"] == wanted)


@EVERY
def test_pods_have_no_rights(helm: Helm, values: Path) -> None:
    for pod in pods(helm.template(values)):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            context = container["securityContext"]
            assert context == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


@EVERY
def test_a_pod_is_given_the_time_it_takes(helm: Helm, values: Path, tmp_path: Path) -> None:
    manifests = helm.template(values)
    drain = settings_of(manifests, tmp_path).limits.drain_timeout
    for pod in pods(manifests):
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "proxy":
            (proxy,) = pod["spec"]["containers"]
            before = proxy["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pod["spec"]["terminationGracePeriodSeconds"] >= before + drain + 5


@EVERY
def test_what_the_proxy_may_hold_fits_into_its_memory(helm: Helm, values: Path, tmp_path: Path) -> None:
    manifests = helm.template(values)
    limits = settings_of(manifests, tmp_path).limits
    memory = workload_of(manifests)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert memory == "1Gi"
    # The program, then requests and answers, one more request, and two reads for each of some connections.
    assert (100 << 20) + limits.memory_total + limits.max_frame + 1000 * (256 << 10) <= 1 << 30


def test_certificates_name_what_clients_are_told(helm: Helm) -> None:
    ingress = one(helm.template(CHART / "ci" / "sni-ingress-values.yaml"), "Certificate")["spec"]["dnsNames"]
    assert {"kafka.example.com", "b0-kafka.example.com", "b1-kafka.example.com", "b2-kafka.example.com"} <= set(ingress)
    gateway = one(helm.template(CHART / "ci" / "sni-gateway-values.yaml"), "Certificate")["spec"]["dnsNames"]
    assert {"kafka.example.com", "*.kafka.example.com", "kafka.example.org"} <= set(gateway)
    for names in (ingress, gateway):
        assert any(name.endswith(".quota-proxy.svc.cluster.local") for name in names)


def test_no_password_is_in_the_settings(helm: Helm) -> None:
    text = one(helm.template(CHART / "ci" / "sasl-values.yaml"), "ConfigMap")["data"]["settings.yaml"]
    assert yaml.safe_load(text)["upstream"]["sasl"] == {
        "mechanism": "SCRAM-SHA-512",
        "username": "quota-proxy",
        "password_file": "/etc/kafka-quota-proxy/upstream-sasl/password",
    }
