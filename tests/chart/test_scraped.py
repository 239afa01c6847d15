"""The alerts and the dashboard of the rendered chart, with real proxies that a real Prometheus scrapes under a name of the
operator's: no question of theirs is without an answer."""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from localkafka.ports import HeldPort
from tests.certs import Authority
from tests.chart.helm import CHART, Helm, of_kind, one
from tests.real.proxies import ProxyProcess, wait_until

pytestmark = pytest.mark.kafka
LIMIT = 90.0
NUMBER = r"\s(==|>|<) [\d.]+( \* \d+)?"
"""What an alert compares with: without it a rule has an answer while all is well."""
ENTITY = {
    "user": "<default>",
    "controller_mutations_rate": 1,
    "controller_mutations_burst": 2,
    "cluster_producer_byte_rate": "1GiB",
    "cluster_consumer_byte_rate": 1,
    "cluster_commit_request_rate": 1000,
    "producer_ids_rate": 50,
}


def settings_of(number: int, folder: Path) -> dict[str, Any]:
    """All that panels ask for: each kind of quota, a ledger, topics, volumes, a certificate."""
    own = Authority(folder / f"ca{number}").server("proxy", "127.0.0.1")
    return {
        "proxy_id": f"p{number}",
        "limits": {"max_in_flight": 2},
        "more_listeners": {"tls": {"bootstrap": "127.0.0.1:0", "tls": {"cert_file": str(own.cert), "key_file": str(own.key)}}},
        "logs": {"usage": {"topic": "scraped-usage", "interval": "1s"}},
        "ledger": {"kind": "kafka", "topic": "scraped-ledger"},
        "quotas": {
            "entities": [ENTITY],
            "observe": ["consumer_byte_rate"],
            "dynamic": {"topic": "scraped-quotas"},
            "storage": {"min_available_bytes": 1},
            "topics": {"total_bytes_in_per_sec": "1GiB", "bytes_in_per_sec": {"scraped": "512MiB"}},
            "topic_policy": {"partitions": {"max": 9}},
            "overload": {},
        },
    }


class Prometheus:
    """A running one, which scrapes every half second. `targets` are host:port."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The samples that there are now."""
        return list(self._get("query", query=query)["result"])

    def told(self, query: str) -> list[dict[str, Any]]:
        """The samples that there were in any second of the last half hour: those of a rate are gone soon after."""
        return self.ask(f"last_over_time(({query})[30m:1s])")

    def targets(self) -> list[dict[str, Any]]:
        return list(self._get("targets", state="active")["activeTargets"])

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **options: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(options)}", timeout=60) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)["data"]
            return found


@contextmanager
def running(program: Path, folder: Path, rules: dict[str, Any], targets: Sequence[str]) -> Iterator[Prometheus]:
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    jobs = [{"job_name": "edge/of our own", "static_configs": [{"targets": list(targets)}]}]
    every = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"global": every, "rule_files": ["rules.yaml"], "scrape_configs": jobs}))
    with ExitStack() as stack:
        port, log = stack.enter_context(HeldPort()), stack.enter_context((folder / "log").open("wb"))
        command = [program, "--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={port.address}"]
        process = stack.enter_context(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        prometheus = Prometheus(f"http://{port.address}")
        try:
            wait_until(lambda: answers(f"http://{port.address}/-/ready"), "Prometheus to be ready", LIMIT)
            wait_until(lambda: all(it["health"] == "up" for it in prometheus.targets()), "all targets to be scraped", LIMIT)
            yield prometheus
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def do_everything(proxy: ProxyProcess) -> None:
    """What real clients do, so that each quota that panels ask for has something to tell."""
    bootstrap = proxy.bootstrap
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    first, second = AdminClient(common), AdminClient(common)
    first.create_topics([NewTopic("scraped", 5, 1)])["scraped"].result(LIMIT)
    numbers = itertools.count()

    def one_is_held() -> bool:
        """For the mute of another, unless it is over by then, as on a busy machine."""
        for admin, partitions in ((first, 3), (second, 1)):
            topic = f"scraped-{next(numbers)}"
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT)
        return proxy.metric("held_requests_total", quota="controller_mutations") > 0

    wait_until(one_is_held, "a request to be held", LIMIT)
    with pytest.raises(Exception, match="POLICY_VIOLATION"):
        second.create_topics([NewTopic("scraped-refused", 10, 1)])["scraped-refused"].result(LIMIT)
    producer = Producer({**common, "enable.idempotence": True})
    for _ in range(200):
        producer.produce("scraped", b"x" * 1000)
    assert producer.flush(LIMIT) == 0
    consumer = Consumer({**common, "group.id": "scraped", "auto.offset.reset": "earliest"})
    consumer.subscribe(["scraped"])
    wait_until(lambda: consumer.consume(100, 0.2), "records to be read", LIMIT)
    consumer.commit(asynchronous=False)
    consumer.close()
    host, _, port = bootstrap.rpartition(":")
    question = struct.pack(">hhih", 18, 0, 1, -1)
    with socket.create_connection((host, int(port)), LIMIT) as odd:
        odd.sendall((struct.pack(">i", len(question)) + question) * 50 + b"GET / HTTP/1.1\r\n\r\n")
        while odd.recv(1 << 16):
            pass
    first.create_topics([NewTopic("scraped-last", 1, 1)])["scraped-last"].result(LIMIT)


def panels(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(title, question) of every panel."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


def parts(expression: str) -> list[str]:
    """An alert's condition without what it compares with: each of those that `or` binds by itself."""
    bare, depth, cuts = re.sub(NUMBER, "", expression), 0, [0]
    for at, sign in enumerate(bare):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and bare.startswith(" or ", at):
            cuts += [at, at + 4]
    return [bare[first:last] for first, last in zip(cuts[::2], [*cuts[1::2], len(bare)], strict=True)]


def test_no_rule_and_no_panel_asks_for_what_is_not_there(
    helm: Helm, prometheus: Path, kafka1: LocalCluster, tmp_path: Path
) -> None:
    manifests = helm.template(CHART / "ci" / "monitoring-values.yaml")
    rules = one(manifests, "PrometheusRule")["spec"]
    texts = [item["data"] for item in of_kind(manifests, "ConfigMap")]
    board = json.loads(next(text["kafka-quota-proxy.json"] for text in texts if "kafka-quota-proxy.json" in text))
    # A limit of users of an overloaded broker is there only while a broker is overloaded.
    questions = [(title, question) for title, question in panels(board) if "overload_limit{" not in question]
    for rule in rules["groups"][0]["rules"]:
        questions += [(rule["alert"], part) for part in parts(rule["expr"]) if not part.startswith("absent(")]
    with ExitStack() as stack:
        made = [
            stack.enter_context(ProxyProcess(tmp_path / f"p{number}", kafka1.bootstrap_servers, settings_of(number, tmp_path)))
            for number in range(2)
        ]
        scraped = stack.enter_context(running(prometheus, tmp_path, rules, [proxy.admin for proxy in made]))
        do_everything(made[0])
        left = dict.fromkeys(questions)

        def all_answered() -> bool:
            for question in [question for question in left if scraped.told(question[1])]:
                del left[question]
            return not left

        try:
            wait_until(all_answered, "every question to have an answer", LIMIT)
        except AssertionError:
            pytest.fail(f"without an answer: {list(left)}")
        assert {rule["name"] for rule in scraped.rules()} == {rule["alert"] for rule in rules["groups"][0]["rules"]}
        assert {rule["health"] for rule in scraped.rules()} == {"ok"}
        near = next(expression for name, expression in questions if name == "KafkaQuotaNearLimit")
        wanted = {None, "producer_byte_rate", "commit_request_rate", "producer_ids", "bytes_in"}
        assert wanted <= {sample["metric"].get("quota") for sample in scraped.told(near)}
        # What all proxies tell alike is counted once.
        limits = 'count(kafka_quota_proxy_bytes_in_threshold{scope="fleet"})'
        # Not all at the first time: a proxy that is late for Prometheus, by half a second, is not there until the next.
        wait_until(lambda: [found["value"][1] for found in scraped.ask(limits)] == ["2"], "both proxies to tell theirs", LIMIT)
        shown = {title: scraped.told(question) for title, question in questions if "threshold" in question and "max(" in question}
        assert float(shown["Topics by bytes in"][0]["value"][1]) == 1 << 30
        made.pop().stop()
        wait_until(lambda: scraped.ask('ALERTS{alertname="KafkaQuotaProxyDown"}'), "the proxy that ended to be missed", LIMIT)
