"""What the chart writes for every file of values in ci/: right for Kubernetes, right for the proxy, and of one piece."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate.utils
import pytest
import yaml
from click.testing import CliRunner

from proxy.cli import main
from proxy.config.load import load_settings
from proxy.config.models import Settings
from proxy.transport import LARGEST
from tests.chart.helm import CHART, NAMES, NAMESPACE, VALUES, Helm, Manifest, of_kind, one, pods, workload_of

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
def test_helm_3_makes_the_same_of_it(helm: Helm, helm3: Helm, values: Path) -> None:
    assert helm3.template(values) == helm.template(values)


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    """Not anew for each object: they are large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


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
    proxy = pod["spec"]["containers"][0]
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


def test_each_broker_may_have_a_load_balancer_to_which_its_name_leads(helm: Helm, tmp_path: Path) -> None:
    manifests = helm.template(CHART / "ci" / "loadbalancer-per-broker-values.yaml")
    listener = settings_of(manifests, tmp_path).listeners["main"]
    leads = {
        service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]: service["spec"]
        for service in of_kind(manifests, "Service")
    }
    told = [str(listener.broker_name).replace("{id}", str(id)).replace("{advertise}", str(listener.advertise)) for id in range(3)]
    assert leads.keys() == {listener.advertise, *told}
    for spec in leads.values():
        assert spec["type"] == "LoadBalancer"
        assert [port["port"] for port in spec["ports"]] == [listener.advertise_port]
    assert {*told} <= {*one(manifests, "Certificate")["spec"]["dnsNames"]}


@EVERY
def test_selectors_find_the_pods_of_their_component_and_no_others(helm: Helm, values: Path) -> None:
    manifests = helm.template(values)
    selectors = [(item, item["spec"]["selector"]) for item in of_kind(manifests, "Service")]
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor"):
        selectors += [(item, item["spec"]["selector"]["matchLabels"]) for item in of_kind(manifests, kind)]
    selectors += [(item, item["spec"]["podSelector"]["matchLabels"]) for item in of_kind(manifests, "NetworkPolicy")]
    assert len(selectors) >= 2
    for item, selector in selectors:
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        wanted = component if component in ("redis", "controller") else "proxy"
        for pod in pods(manifests):
            labels = pod["metadata"]["labels"]
            assert (selector.items() <= labels.items()) == (labels["app.kubernetes.io/component"] == wanted)


@EVERY
def test_pods_have_no_rights(helm: Helm, values: Path) -> None:
    for pod in pods(helm.template(values)):
        spec = pod["spec"]
        # The controller alone speaks to the API server.
        controller = pod["metadata"]["labels"].get("app.kubernetes.io/component") == "controller"
        assert spec["automountServiceAccountToken"] is controller
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
            proxy = pod["spec"]["containers"][0]
            before = proxy["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pod["spec"]["terminationGracePeriodSeconds"] >= before + drain + 5


@EVERY
def test_what_the_proxy_may_hold_fits_into_its_memory(helm: Helm, values: Path, tmp_path: Path) -> None:
    manifests = helm.template(values)
    limits = settings_of(manifests, tmp_path).limits
    memory = workload_of(manifests)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert memory == "1Gi"
    # The program, then requests and answers, one more request, and two reads for each of some connections.
    assert (100 << 20) + limits.memory_total + limits.max_frame + 400 * 2 * LARGEST <= 1 << 30


def test_certificates_name_what_clients_are_told(helm: Helm) -> None:
    ingress = one(helm.template(CHART / "ci" / "sni-ingress-values.yaml"), "Certificate")["spec"]["dnsNames"]
    assert {"kafka.example.com", "b0-kafka.example.com", "b1-kafka.example.com", "b2-kafka.example.com"} <= set(ingress)
    gateway = one(helm.template(CHART / "ci" / "sni-gateway-values.yaml"), "Certificate")["spec"]["dnsNames"]
    assert {"kafka.example.com", "*.kafka.example.com", "kafka.example.org"} <= set(gateway)
    for names in (ingress, gateway):
        assert any(name.endswith(".quota-proxy.svc.cluster.local") for name in names)


def test_no_password_is_in_the_settings(helm: Helm) -> None:
    text = one(helm.template(CHART / "ci" / "sasl-values.yaml", hooks=False), "ConfigMap")["data"]["settings.yaml"]
    assert yaml.safe_load(text)["upstream"]["sasl"] == {
        "mechanism": "SCRAM-SHA-512",
        "username": "quota-proxy",
        "password_file": "/etc/kafka-quota-proxy/upstream-sasl/password",
    }


def test_brokers_can_be_reached_at_the_ports_that_the_values_name(helm: Helm) -> None:
    """Nothing has to be said twice: a port that is left out would be an outage."""
    upstream = {"bootstrapServers": ["kafka-bootstrap.kafka:9093", "[fd00::1]:9094"], "brokers": {"0": "kafka-0.kafka:9095"}}
    values = {"upstream": upstream, "networkPolicy": {"enabled": True, "brokerPorts": [9096]}}
    policy = one(helm.template(CHART / "ci" / "default-values.yaml", values=values), "NetworkPolicy")["spec"]
    _, brokers = policy["egress"]
    assert [port["port"] for port in brokers["ports"]] == [9096, 9093, 9094, 9095]


def test_nobody_but_who_is_named_reaches_the_admin_port(helm: Helm) -> None:
    prometheus = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    for given, allowed in (({}, []), ({"adminFrom": prometheus}, [prometheus])):
        manifests = helm.template(CHART / "ci" / "default-values.yaml", values={"networkPolicy": given})
        policy = one(manifests, "NetworkPolicy")["spec"]
        assert policy["policyTypes"] == ["Ingress"]
        rules = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
        assert rules == {9192: None, 9193: None} | ({9190: prometheus} if allowed else {})
    off = {"networkPolicy": {"admin": False}}
    assert of_kind(helm.template(CHART / "ci" / "default-values.yaml", values=off), "NetworkPolicy") == []


def test_monitors_and_probes_go_where_the_admin_port_has_a_token_and_tls(helm: Helm, tmp_path: Path) -> None:
    admin = {"auth": {"existingSecret": "readers", "usersKey": "users"}, "tls": {"existingSecret": "admin-tls"}}
    manifests = helm.template(CHART / "ci" / "monitoring-values.yaml", values={"admin": admin})
    for kind, key in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        (endpoint,) = one(manifests, kind)["spec"][key]
        assert endpoint["authorization"] == {"credentials": {"name": "readers", "key": "token"}}
        assert endpoint["scheme"] == "https"
    (proxy,) = workload_of(manifests)["spec"]["template"]["spec"]["containers"]
    assert {proxy[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "readiness", "liveness")} == {"HTTPS"}
    settings = settings_of(manifests, tmp_path).admin
    assert settings.auth is not None
    assert settings.tls is not None
    mounts = {mount["mountPath"] for mount in proxy["volumeMounts"]}
    files = [settings.auth.token_file, settings.auth.users_file, settings.tls.cert_file, settings.tls.key_file]
    assert {str(Path(str(file)).parent) for file in files} <= mounts


def test_the_hook_refuses_what_the_proxy_refuses(helm: Helm, tmp_path: Path) -> None:
    """What the Job runs is run here, with the settings that it is given."""
    settings = {"quotas": {"entities": [{"user": "a", "client_id": "b", "producer_ids_rate": 5}]}}
    for values, code in (({}, 0), ({"settings": settings}, 2)):
        manifests = helm.template(CHART / "ci" / "tls-values.yaml", values=values)
        job = next(item for item in of_kind(manifests, "Job") if item["metadata"]["name"].endswith("check-config"))
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        spec = job["spec"]["template"]["spec"]
        assert "serviceAccountName" not in spec, "that of the release is not there yet"
        (volume,), (container,) = spec["volumes"], spec["containers"]
        (given,) = [it for it in of_kind(manifests, "ConfigMap") if it["metadata"]["name"] == volume["configMap"]["name"]]
        assert int(given["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0, "before the Job"
        (mount,) = container["volumeMounts"]
        (tmp_path / "settings.yaml").write_text(given["data"]["settings.yaml"])
        arguments = [part.replace(mount["mountPath"], str(tmp_path)) for part in container["args"]]
        assert CliRunner().invoke(main, arguments).exit_code == code


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ({}, 240),  # 60 % of one worker, by a request of 250m
        ({"resources": {"requests": {"cpu": "1"}}}, 60),
        ({"resources": {"requests": {"cpu": "2500m"}}}, 72),  # three workers
        ({"workers": 4, "resources": {"requests": {"cpu": "1"}}}, 240),
        ({"workers": 4, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}, 120),
        ({"resources": {"requests": {"cpu": "8"}}}, 37),  # memory_total has room for five workers
        ({"autoscaling": {"targetCPUUtilizationPercentage": 90}, "resources": {"requests": {"cpu": "1"}}}, 90),
    ],
)
def test_the_target_of_cpu_can_be_reached(helm: Helm, values: Manifest, target: int) -> None:
    manifests = helm.template(CHART / "ci" / "autoscaling-values.yaml", values=values)
    (cpu,) = [it for it in one(manifests, "HorizontalPodAutoscaler")["spec"]["metrics"] if it["type"] == "ContainerResource"]
    assert cpu["containerResource"]["target"]["averageUtilization"] == target


def test_what_is_added_to_pods_is_there(helm: Helm) -> None:
    manifests = helm.template(CHART / "ci" / "scheduling-values.yaml")
    spec = workload_of(manifests)["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["initContainers"]] == ["before"]
    proxy, beside = spec["containers"]
    assert beside["name"] == "beside"
    assert proxy["image"].startswith("registry.example.com/mirror/kafka-quota-proxy@sha256:")
    assert proxy["args"][-2:] == ["--proxy-id", "edge"]
    assert proxy["envFrom"] == [{"secretRef": {"name": "more", "optional": True}}]
    assert [secret["name"] for secret in spec["imagePullSecrets"]] == ["mirror", "registry"]
    for key in ("runtimeClassName", "hostAliases", "dnsPolicy", "dnsConfig"):
        assert spec[key], key
    assert "edge-more" in {item["metadata"]["name"] for item in of_kind(manifests, "ConfigMap")}
    assert one(manifests, "Service")["metadata"]["labels"]["exposed"] == "false"


@pytest.mark.parametrize(("where", "account"), [("s3", "edge-kafka-quota-proxy-report"), ("gcs", "usage-log-reader")])
def test_the_report_reads_an_object_store_as_an_account_of_its_own(helm: Helm, where: str, account: str) -> None:
    manifests = helm.template(CHART / "ci" / f"report-{where}-values.yaml")
    (made,) = [it for it in of_kind(manifests, "ServiceAccount") if it["metadata"]["name"] == account]
    assert len(made["metadata"]["annotations"]) == 1
    template = one(manifests, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == account
    (report,) = template["spec"]["containers"]
    assert "PYSPARK_SUBMIT_ARGS" in {variable["name"] for variable in report["env"]}
    assert {mount["name"] for mount in report["volumeMounts"]} == {volume["name"] for volume in template["spec"]["volumes"]}


def test_the_controller_has_its_rights_where_objects_are_and_its_lease_at_home(helm: Helm) -> None:
    values = CHART / "ci" / "controller-values.yaml"
    manifests = helm.template(values, values={"controller": {"namespaces": ["one", "two"]}})
    roles = {(item["metadata"]["namespace"], item["rules"][0]["resources"][0]) for item in of_kind(manifests, "Role")}
    assert roles == {("one", "kafkaquotas"), ("two", "kafkaquotas"), (NAMESPACE, "leases")}
    for binding in of_kind(manifests, "RoleBinding"):
        assert [subject["namespace"] for subject in binding["subjects"]] == [NAMESPACE]
    assert of_kind(manifests, "ClusterRole") == []
