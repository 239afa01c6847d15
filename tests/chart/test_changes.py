"""Which changes of values roll the pods: those that the proxy reads at start only, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config.load import load_settings
from proxy.process.reload import _waiting
from tests.chart.helm import CHART, Helm, Manifest, one

BEFORE: dict[str, Any] = {
    "upstream": {"bootstrapServers": ["kafka:9092"]},
    "listeners": {"main": {"tls": {"enabled": True, "existingSecret": "tls"}}},
    "settings": {"quotas": {"entities": [{"user": "a", "controller_mutations_rate": 1}]}},
}
LIVE: dict[str, dict[str, Any]] = {
    "quotas": {"settings": {"quotas": {"entities": [{"user": "b", "controller_mutations_rate": 2}]}}},
    "no quotas": {"settings": {"quotas": {"entities": []}}},
    "algorithm": {"settings": {"quotas": {"controller_mutations_algorithm": "token_bucket", "ask_timeout": "1s"}}},
    "producer ids": {"settings": {"quotas": {"producer_ids": {"count_unlimited": False, "cleanup_interval": "30s"}}}},
    "topics": {"settings": {"quotas": {"topics": {"total_bytes_in_per_sec": "1MiB"}}}},
    "limits": {"settings": {"limits": {"max_connections": 5, "memory_total": "300MiB"}}},
    "exempt": {"settings": {"exempt": {"users": ["operator"]}}},
    "tenants": {"settings": {"tenants": {"apps": {"users": ["a"], "cluster_request_rate": 5}}}},
    "metrics": {"settings": {"metrics": {"max_entities": 5}}},
    "reload": {"settings": {"reload": {"interval": "5s"}}},
    "versions of TLS": {"listeners": {"main": {"tls": {"minVersion": "TLSv1.3"}}}},
    "replicas": {"replicaCount": 7},
}
AT_START: dict[str, dict[str, Any]] = {
    "brokers": {"upstream": {"bootstrapServers": ["kafka:9092", "kafka-1:9092"]}},
    "advertised name": {"listeners": {"main": {"advertise": "kafka.example.com"}}},
    "broker ports": {"listeners": {"main": {"brokerPorts": {"count": 3}}}},
    "a listener": {"listeners": {"more": {"port": 9500}}},
    "admin port": {"admin": {"port": 9191}},
    "log level": {"settings": {"logs": {"level": "debug"}}},
    "window of producer ids": {"settings": {"quotas": {"producer_ids": {"window_size": "10m"}}}},
    "usage log": {"usageLog": {"enabled": True}},
    "ledger": {"ledger": {"kind": "redis", "servers": ["redis:6379"]}},
    "login": {"upstream": {"sasl": {"mechanism": "PLAIN", "username": "a", "existingSecret": "a"}}},
}


@pytest.fixture
def values(tmp_path: Path) -> Path:
    file = tmp_path / "before.yaml"
    file.write_text(yaml.safe_dump(BEFORE))
    return file


def template(manifests: list[Manifest]) -> Manifest:
    pod: Manifest = one(manifests, "Deployment")["spec"]["template"]
    return pod


def waiting(folder: Path, *states: list[Manifest]) -> list[str]:
    """What the proxy itself says that it takes a restart for."""
    loaded = []
    for number, manifests in enumerate(states):
        file = folder / f"{number}.yaml"
        file.write_text(one(manifests, "ConfigMap")["data"]["settings.yaml"])
        loaded.append(load_settings(file))
    return _waiting(*loaded)


@pytest.mark.parametrize("change", LIVE.values(), ids=LIVE)
def test_pods_stay_for_what_a_running_proxy_takes(helm: Helm, values: Path, change: dict[str, Any], tmp_path: Path) -> None:
    before, after = helm.template(values, hooks=False), helm.template(values, values=change, hooks=False)
    assert before != after
    assert template(before) == template(after)
    assert waiting(tmp_path, before, after) == []


@pytest.mark.parametrize("change", AT_START.values(), ids=AT_START)
def test_pods_are_rolled_for_what_is_read_at_start(helm: Helm, values: Path, change: dict[str, Any], tmp_path: Path) -> None:
    before, after = helm.template(values, hooks=False), helm.template(values, values=change, hooks=False)
    key = "checksum/restart"
    assert template(before)["metadata"]["annotations"][key] != template(after)["metadata"]["annotations"][key]
    assert waiting(tmp_path, before, after) != []


def test_a_change_of_drain_gives_pods_more_time(helm: Helm) -> None:
    pod = template(helm.template(CHART / "ci" / "default-values.yaml", values={"drainSeconds": 100}))
    assert pod["spec"]["terminationGracePeriodSeconds"] == 115
