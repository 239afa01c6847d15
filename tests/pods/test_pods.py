"""The chart in real pods: what clients notice of it, and what operators rely on. Slow and for root only: `make test-pods`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from tests.chart.helm import CHART, NAMESPACE, RELEASE, Refused
from tests.pods.conftest import ADVERTISED, NAME, PROXIES, Release, metric
from tests.pods.images import PROXY, REPORT, buildah
from tests.real.steady import SteadyConsumer, SteadyProducer, read_all

pytestmark = [pytest.mark.pods, pytest.mark.kafka, pytest.mark.timeout(1200)]
HARMLESS = {"_ALL_BROKERS_DOWN"}


def in_pod(release: Release, pod: str, script: str) -> str:
    return release.kubectl("exec", pod, "--container=proxy", "--", "sh", "-c", script).strip()


def test_a_pod_has_no_rights_and_no_tools(release: Release) -> None:
    pod = sorted(release.names())[0]
    assert in_pod(release, pod, "id -u; id -g") == "65532\n65532"
    assert in_pod(release, pod, "grep -E 'CapEff|CapBnd|NoNewPrivs|^Seccomp:' /proc/1/status | tr -d '\\t'").split() == [
        "CapEff:0000000000000000",
        "CapBnd:0000000000000000",
        "NoNewPrivs:1",
        "Seccomp:2",
    ]
    assert "kafka-quota-proxy" in in_pod(release, pod, "tr '\\0' ' ' </proc/1/cmdline")
    assert in_pod(release, pod, "touch /x /tmp/x /opt/x 2>&1 | grep -c 'Read-only file system'") == "3"
    assert in_pod(release, pod, "ls /var/run/secrets 2>&1 | grep -c 'No such file'") == "1"
    assert (
        in_pod(
            release,
            pod,
            "for tool in gcc cc ld pip pip3 curl wget; do command -v $tool; done; python3 -m pip 2>&1 | grep -c 'No module'",
        )
        == "1"
    )
    assert "hot path: compiled" in in_pod(release, pod, "kafka-quota-proxy --version")


def test_the_image_says_how_to_run_it() -> None:
    config = json.loads(buildah("inspect", "--type", "image", PROXY))["Docker"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["kafka-quota-proxy"]
    assert config["StopSignal"] == "SIGTERM"
    assert "/healthz" in config["Healthcheck"]["Test"][-1]
    assert config["Labels"]["org.opencontainers.image.title"] == "kafka-quota-proxy"


def test_clients_are_told_the_service_and_get_through(release: Release, kafka: LocalCluster, topic: Callable[[int], str]) -> None:
    name = topic(6)
    brokers = AdminClient({"bootstrap.servers": release.bootstrap}).list_topics(timeout=90).brokers.values()
    assert {(broker.id, broker.host, broker.port) for broker in brokers} == {(id, ADVERTISED, 9193 + id) for id in range(3)}
    with SteadyProducer(release.bootstrap, name, "records") as producer:
        release.node.wait(lambda: len(producer.acknowledged) > 500, "records to be written")
    with SteadyConsumer(release.bootstrap, name, name) as consumer:
        release.node.wait(lambda: set(producer.acknowledged) <= set(consumer.read), "records to be read")
    assert not producer.failed
    assert not consumer.errors
    found = read_all(kafka.bootstrap_servers, name)
    assert {found[value] for value in producer.acknowledged} == {1}


def test_helm_test_says_that_all_brokers_answer(release: Release) -> None:
    said = release.helm.run("test", RELEASE, "-n", NAMESPACE, "--logs", "--timeout", "120s", timeout=180)
    for broker in range(3):
        assert f"main: broker {broker} answers; clients are told {ADVERTISED}:{9193 + broker}" in said


def test_settings_that_the_proxy_refuses_change_nothing(release: Release) -> None:
    """The schema lets them pass. A Job says which key is wrong, before an upgrade or an installation changes anything."""
    twice = [{"user": "alice", "controller_mutations_rate": rate} for rate in (1, 2)]
    wrong = {**release.values, "settings": {**release.values["settings"], "quotas": {"entities": twice}}}
    before = objects_of(release, RELEASE)
    for command, name in (("upgrade", RELEASE), ("install", "refused")):
        with pytest.raises(Refused):
            release.helm.run(command, name, str(CHART), "-n", NAMESPACE, "--values", "-", stdin=yaml.safe_dump(wrong), timeout=180)
        said = release.kubectl("logs", f"job/{name}-kafka-quota-proxy-check-config")
        assert "`quotas`: user 'alice' with client_id None stands twice" in said
    assert objects_of(release, RELEASE) == before
    assert objects_of(release, "refused") == {}
    release.helm.run("uninstall", "refused", "-n", NAMESPACE)
    release.change()
    assert objects_of(release, RELEASE) == before, "nothing but hooks came between"


def objects_of(release: Release, name: str) -> dict[str, str]:
    """Version of each object and pod of a release; that of the objects' content where others write what became of them."""
    kinds = "configmap,service,poddisruptionbudget,networkpolicy,serviceaccount,deployment,pod"
    found = release.node.server.get(kinds, "-n", NAMESPACE, f"--selector=app.kubernetes.io/instance={name}")
    return {
        f"{item['kind']}/{item['metadata']['name']}": str(item["metadata"].get("generation", item["metadata"]["uid"]))
        + json.dumps(item.get("data"))
        for item in found
        if item["metadata"]["labels"]["app.kubernetes.io/component"] != "check-config"
    }


def test_a_quota_is_in_force_without_a_restart(release: Release) -> None:
    before, settings = release.pods(), release.values["settings"]
    make_two(release, "before")
    assert throttled(release) == 0
    entity = {"user": "<default>", "controller_mutations_rate": 1, "controller_mutations_burst": 2}
    release.change(settings={**settings, "quotas": {"entities": [entity]}})
    release.node.wait(lambda: all(applied(pod) > 0 for pod in release.pods()), "all proxies to have the quota", 180)
    make_two(release, "after")
    assert throttled(release) == 1
    release.change(settings=settings)
    release.node.wait(lambda: all(applied(pod) > 1 for pod in release.pods()), "all proxies to be without it", 180)
    after = release.pods()
    assert {pod["metadata"]["uid"] for pod in after} == {pod["metadata"]["uid"] for pod in before}
    assert {status["restartCount"] for pod in after for status in pod["status"]["containerStatuses"]} == {0}


def make_two(release: Release, name: str) -> None:
    """Two topics in one request: the second is over a quota that the first uses up."""
    topics = [NewTopic(f"{name}-{number}", 5, 1) for number in range(2)]
    admin = AdminClient({"bootstrap.servers": release.bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(90)


def throttled(release: Release) -> float:
    return sum(metric(pod, 'throttled_requests_total{quota="controller_mutations"}') for pod in release.pods())


def applied(pod: dict[str, Any]) -> float:
    """How often new settings came into force."""
    return metric(pod, 'settings_reloads_total{outcome="applied"}')


def test_rollouts_under_load_lose_nothing(release: Release, kafka: LocalCluster, topic: Callable[[int], str]) -> None:
    name = topic(6)

    def restart() -> None:
        release.kubectl("rollout", "restart", f"deployment/{NAME}")

    def upgrade() -> None:
        release.change(podAnnotations={"example.com/upgraded": "true"})

    def roll_back() -> None:
        release.helm.run("rollback", RELEASE, "-n", NAMESPACE, timeout=180)
        del release.values["podAnnotations"]

    producers = {
        "idempotent": SteadyProducer(release.bootstrap, name, "idempotent", **{"enable.idempotence": True}),
        "plain": SteadyProducer(release.bootstrap, name, "plain", acks=1),
    }
    consumer = SteadyConsumer(release.bootstrap, name, name)
    with producers["idempotent"], producers["plain"], consumer:
        release.node.wait(lambda: all(len(producer.acknowledged) > 200 for producer in producers.values()), "load")
        for roll in (restart, upgrade, roll_back):
            before = release.names()
            roll()
            release.settled()
            assert not before & release.names(), f"all pods are new after {roll.__name__}"
            seen = {key: len(producer.acknowledged) for key, producer in producers.items()}
            release.node.wait(partial(more_than, seen, producers), "load to go on")
        acknowledged = {value for producer in producers.values() for value in producer.acknowledged}
        release.node.wait(lambda: acknowledged <= set(consumer.read), "the group to read everything")
    found = read_all(kafka.bootstrap_servers, name)
    for key, producer in producers.items():
        assert not producer.failed, key
        assert not producer.unsent, key
        assert producer.noticed.keys() <= HARMLESS, key
        assert {found[value] for value in producer.acknowledged} == {1}, key
    assert not consumer.errors


def more_than(seen: dict[str, int], producers: dict[str, SteadyProducer]) -> bool:
    return all(len(producer.acknowledged) > seen[key] + 200 for key, producer in producers.items())


def test_the_usage_log_is_on_standard_output(release: Release) -> None:
    def topics() -> set[str]:
        said = release.kubectl("logs", f"--selector={PROXIES}", "--container=usage-log", "--tail=-1")
        return {line["topic"] for line in map(json.loads, said.splitlines()) if line["type"] == "usage"}

    admin = AdminClient({"bootstrap.servers": release.bootstrap})
    admin.create_topics([NewTopic("logged", 1, 1)])["logged"].result(90)
    with SteadyProducer(release.bootstrap, "logged", "records") as producer:
        release.node.wait(lambda: producer.acknowledged, "records to be written")
        release.node.wait(lambda: "logged" in topics(), "the topic to be in the log")


def test_the_report_is_made_by_the_clock(release: Release, kafka: LocalCluster, volume: Path) -> None:
    """All proxies write to one volume and to a topic; a Job of the CronJob makes the report, with no more rights than they have."""
    repository, _, tag = REPORT.rpartition(":")
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    release.change(
        usageLog={"enabled": True, "volume": "claim", "claim": {"size": "1Gi"}, "topic": "usage-log"},
        report={"enabled": True, "image": image, "resources": {"requests": {"cpu": "100m"}}},
    )
    release.settled()
    with SteadyProducer(release.bootstrap, "reported", "records") as producer:
        release.node.wait(lambda: len(producer.acknowledged) > 100, "records to be written")
        release.node.wait(lambda: any('"reported"' in file.read_text() for file in volume.rglob("*.jsonl")), "the log")
    release.kubectl("create", "job", "report-now", f"--from=cronjob/{NAME}-report")
    release.kubectl("wait", "--for=condition=Complete", "job/report-now", "--timeout=600s")
    assert "reported" in (volume / "report" / "report.html").read_text()
    assert {file.stat().st_uid for file in volume.rglob("*.jsonl")} == {65532}
    sent = {json.loads(value)["topic"] for value in read_all(kafka.bootstrap_servers, "usage-log", 1) if '"usage"' in value}
    assert "reported" in sent
    as_spark_starts_a_driver(release)
    assert "reported" in (volume / "driver" / "report.html").read_text()


def as_spark_starts_a_driver(release: Release) -> None:
    """The same pod, given what Spark on Kubernetes gives the driver of an application, but for the master."""
    create = ("create", "job", "driver", f"--from=cronjob/{NAME}-report", "--dry-run=client", "--output=json")
    job = json.loads(release.kubectl(*create))
    container = job["spec"]["template"]["spec"]["containers"][0]
    (logs,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data"]
    run = ["--conf", "spark.master=local[1]", "--class", "org.apache.spark.deploy.PythonRunner"]
    job_file = "local:///opt/kafka-quota-proxy/report.py"
    container["args"] = ["driver", *run, job_file, "--logs", f"{logs}/usage", "--out", f"{logs}/driver"]
    container["env"] = [{"name": "SPARK_DRIVER_BIND_ADDRESS", "value": "127.0.0.1"}]
    job["metadata"] = {"name": "driver", "namespace": NAMESPACE}
    release.node.server.apply(job)
    release.kubectl("wait", "--for=condition=Complete", "job/driver", "--timeout=600s")


def test_a_pod_ends_within_its_time(release: Release) -> None:
    """SIGTERM reaches the program, which drains and ends by itself: not with 137, which is what being killed gives."""
    pod = sorted(release.names())[0]
    keep = '{"metadata": {"finalizers": ["example.com/seen"]}}'
    release.kubectl("patch", "pod", pod, f"--patch={keep}")  # or it would be gone before it is seen
    command = [release.node.program("kubectl"), f"--kubeconfig={release.node.server.kubeconfig}", "-n", NAMESPACE]
    follow = [*command, "logs", pod, "--container=proxy", "--follow"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as said:
        release.kubectl("delete", "pod", pod, "--wait=false")
        events = [json.loads(line)["event"] for line in said.communicate(timeout=120)[0].splitlines() if line.startswith("{")]
    assert events[-2:] == ["stopping", "stopped"]
    ended = release.node.wait(lambda: terminated(release, pod), "its containers to have ended")
    assert {name: state["exitCode"] for name, state in ended.items()} == {"proxy": 0, "usage-log": 0}
    release.kubectl("patch", "pod", pod, "--type=merge", '--patch={"metadata": {"finalizers": null}}')
    release.settled()


def terminated(release: Release, pod: str) -> dict[str, Any] | None:
    """How its containers ended, once all of them have."""
    (found,) = release.node.server.get("pod", pod, "-n", NAMESPACE)
    status = found["status"]
    states = {one["name"]: one["state"] for one in status["containerStatuses"] + status["initContainerStatuses"]}
    ended = {name: state["terminated"] for name, state in states.items() if "terminated" in state}
    return ended if ended.keys() == states.keys() else None
