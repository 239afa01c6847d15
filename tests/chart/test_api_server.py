"""The chart on a real API server, in a namespace that enforces Pod Security `restricted`: every file in ci/ is installed, upgraded,
rolled back, compared and removed. Without kubelet: what is tried is what Kubernetes makes of the objects, and hooks are only looked
at, as nothing would run their Jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.apiserver import ApiServer
from tests.chart.conftest import need
from tests.chart.helm import CHART, NAMES, NAMESPACE, RELEASE, VALUES, Helm, Manifest, Refused, pods, workload_of
from tests.chart.tools import crds

pytestmark = pytest.mark.api_server
EVERY = pytest.mark.parametrize("values", VALUES, ids=NAMES)
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")

NO_CONTROLLERS = "--disable-admission-plugins=ServiceAccount"
"""It would wait for accounts that a controller makes."""
QUICK = ("-n", NAMESPACE, "--no-hooks", "--disable-openapi-validation")
"""Half of helm's time would go into fields, of which the API server itself is asked for every file."""


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    programs = {name: need(request, name) for name in PROGRAMS}
    definitions = sorted(crds().glob("*.json"))
    with ApiServer(programs, tmp_path_factory.mktemp("server"), NO_CONTROLLERS) as server:
        server.define(*definitions)
        server.kubectl("create", "namespace", NAMESPACE)
        restricted = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn", "audit")]
        server.kubectl("label", "namespace", NAMESPACE, *restricted)
        yield server


@pytest.fixture(scope="module")
def installer(request: pytest.FixtureRequest, server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(need(request, "helm"), tmp_path_factory.mktemp("helm"), server.kubeconfig)


@pytest.fixture(scope="module")
def installer3(request: pytest.FixtureRequest, server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(need(request, "helm3"), tmp_path_factory.mktemp("helm3"), server.kubeconfig)


@pytest.fixture
def installed(installer: Helm, values: Path) -> Iterator[Path]:
    """A release of these values, which is gone afterwards."""
    said = installer.run("install", RELEASE, str(CHART), *QUICK, "--values", str(values))
    assert "violate PodSecurity" not in said
    for listener in notes(values):
        assert f"bootstrap.servers={listener}" in said
    yield values
    installer.run("uninstall", RELEASE, "-n", NAMESPACE, "--ignore-not-found")


def strict(server: ApiServer, text: str) -> str:
    """What the API server says to objects, without keeping them; it knows every field of every kind here."""
    options = ("--dry-run=server", "--validate=strict", "--namespace", NAMESPACE, "--filename=-")
    done = server.kubectl("apply", *options, stdin=text, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def notes(values: Path) -> list[str]:
    """Where clients are to bootstrap, as the notes have to say."""
    inside = f"{RELEASE}-kafka-quota-proxy.{NAMESPACE}.svc.cluster.local"
    other = {
        "loadbalancer": [f"{inside}:9192", "kafka.example.com:9392"],
        "loadbalancer-per-broker": ["kafka.example.com:443"],
        "nodeport": ["node.example.com:30192"],
        "sni-gateway": [f"{inside}:9192", "kafka.example.com:443"],
        "sni-ingress": ["kafka.example.com:443"],
        "sni-loadbalancer": ["kafka.example.com:443"],
        "scheduling": [f"edge.{NAMESPACE}.svc.cluster.local:9192"],
    }
    return other.get(values.name.removesuffix("-values.yaml"), [f"{inside}:9192"])


@EVERY
def test_the_server_has_nothing_against_any_field(server: ApiServer, installer: Helm, values: Path) -> None:
    said = strict(server, installer.text(values))
    assert "PodSecurity" not in said
    assert "nknown field" not in said


@EVERY
def test_a_release_lives(server: ApiServer, installer: Helm, installed: Path) -> None:
    wanted = installer.template(installed, hooks=False)
    drift(server, installer, installed)
    workload = workload_of(wanted)
    place = (f"{workload['kind']}/{workload['metadata']['name']}", "-n", NAMESPACE)
    first = server.get(*place)[0]
    pods_are_admitted(server, wanted)

    # other quotas: the ConfigMap changes, the pods stay
    quotas = {"entities": [{"user": "new", "controller_mutations_rate": 3}]}
    upgrade(installer, installed, {"settings": {"quotas": quotas}})
    text = settings_text(server)
    assert yaml.safe_load(text)["quotas"]["entities"] == quotas["entities"]
    assert server.get(*place)[0]["metadata"]["generation"] == first["metadata"]["generation"]

    # other brokers, and more replicas: the pods are rolled
    brokers = ["other:9092"]
    upgrade(installer, installed, {"upstream": {"bootstrapServers": brokers}, "replicaCount": 4})
    rolled = server.get(*place)[0]
    assert rolled["spec"]["template"] != first["spec"]["template"]
    if "autoscaling" not in installed.name:
        assert rolled["spec"]["replicas"] == 4
    assert yaml.safe_load(settings_text(server))["upstream"]["bootstrap_servers"] == brokers

    # back to the first
    installer.run("rollback", RELEASE, "1", "-n", NAMESPACE, "--no-hooks")
    again = server.get(*place)[0]
    assert again["spec"]["template"] == first["spec"]["template"]
    drift(server, installer, installed)

    # gone, but for the claim that holds logs
    installer.run("uninstall", RELEASE, "-n", NAMESPACE)
    kinds = {item["kind"] for item in wanted}
    selector = f"--selector=app.kubernetes.io/instance={RELEASE},app.kubernetes.io/managed-by=Helm"
    left = server.get(",".join(sorted(kinds)).lower(), "-n", NAMESPACE, selector)
    assert [item["kind"] for item in left if "deletionTimestamp" not in item["metadata"]] == [
        item["kind"] for item in wanted if item["kind"] == "PersistentVolumeClaim"
    ]
    server.kubectl("delete", "pvc", "--all", "-n", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("name", ["default", "statefulset", "monitoring"])
def test_a_release_of_helm_3_lives_and_goes_on_with_helm_4(server: ApiServer, installer: Helm, installer3: Helm, name: str) -> None:
    values = CHART / "ci" / f"{name}-values.yaml"
    more = {"settings": {"quotas": {"entities": [{"user": "new", "controller_mutations_rate": 3}]}}}
    installer3.run("install", RELEASE, str(CHART), "-n", NAMESPACE, "--no-hooks", "--values", str(values))
    try:
        first = settings_text(server)
        for helm in (installer3, installer):
            drift(server, helm, values)
            upgrade(helm, values, more)
            assert yaml.safe_load(settings_text(server))["quotas"]["entities"] == more["settings"]["quotas"]["entities"]
            helm.run("rollback", RELEASE, "1", "-n", NAMESPACE, "--no-hooks")
            assert settings_text(server) == first
    finally:
        installer.run("uninstall", RELEASE, "-n", NAMESPACE, "--ignore-not-found")
        server.kubectl("delete", "pvc", "--all", "-n", NAMESPACE, "--wait=false")


def upgrade(installer: Helm, values: Path, change: Manifest) -> None:
    arguments = ("upgrade", RELEASE, str(CHART), *QUICK, "--values", str(values), "--values", "-")
    installer.run(*arguments, stdin=yaml.safe_dump(change))


def settings_text(server: ApiServer) -> str:
    maps = server.get("configmap", "-n", NAMESPACE, f"--selector=app.kubernetes.io/instance={RELEASE}")
    (text,) = [item["data"]["settings.yaml"] for item in maps if "settings.yaml" in item["data"]]
    return str(text)


def drift(server: ApiServer, installer: Helm, values: Path) -> None:
    """What was installed is what the chart says, after all that the API server and its controllers filled in."""
    text = installer.run("get", "manifest", RELEASE, "-n", NAMESPACE)
    said = server.kubectl("diff", "--server-side", "--force-conflicts", "-n", NAMESPACE, "--filename=-", stdin=text, check=False)
    changed = [line for line in said.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    # That kubectl took over the fields which helm had is not a difference in them.
    assert [line for line in changed if "generation:" not in line] == [], values.name
    assert said.returncode in (0, 1), said.stderr


def pods_are_admitted(server: ApiServer, manifests: list[Manifest]) -> None:
    """Pod Security lets in every pod that a controller would make of these."""
    made = pods(manifests)
    for number, pod in enumerate(made):
        whole = {
            "apiVersion": "v1",
            "kind": "Pod",
            **pod,
            "metadata": {**pod["metadata"], "name": f"pod-{number}", "namespace": NAMESPACE},
        }
        for name in ("priorityClassName", "runtimeClassName"):  # which only a cluster of one's own has
            whole["spec"].pop(name, None)
        server.kubectl("create", "--dry-run=server", "--validate=strict", "--filename=-", stdin=json.dumps(whole))
    assert made


def test_a_pod_with_rights_would_not_be_admitted(server: ApiServer, installer: Helm) -> None:
    """The namespace really enforces: the same pod with one right more is refused."""
    pod = next(item for item in installer.template(VALUES[0]) if item["kind"] == "Pod")
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    done = server.kubectl("apply", "-n", NAMESPACE, "--dry-run=server", "--filename=-", stdin=json.dumps(pod), check=False)
    assert "violates PodSecurity" in done.stderr


def test_a_misspelt_field_would_not_pass(server: ApiServer, installer: Helm) -> None:
    text = installer.text(CHART / "ci" / "monitoring-values.yaml")
    for right, wrong in (("terminationGracePeriodSeconds:", "terminationGracePeriod:"), ("podMetricsEndpoints:", "endpoint:")):
        assert right in text
        with pytest.raises(AssertionError, match=wrong.rstrip(":")):
            strict(server, text.replace(right, wrong))


def test_helm_refuses_before_anything_is_installed(server: ApiServer, installer: Helm) -> None:
    with pytest.raises(Refused, match="which cluster"):
        installer.run("install", RELEASE, str(CHART), "-n", NAMESPACE)
    assert server.get("configmap", "-n", NAMESPACE, f"--selector=app.kubernetes.io/instance={RELEASE}") == []
