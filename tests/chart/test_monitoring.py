"""The alerts and the dashboard as the chart has them: whole, and as Prometheus and Grafana read them. That they are those of
deploy/monitoring is seen by test_generated.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml

from tests.chart.helm import CHART, Helm, of_kind, one

FILES = CHART / "files"
VALUES = CHART / "ci" / "monitoring-values.yaml"


def test_prometheus_accepts_the_alerts(helm: Helm, promtool: Path, tmp_path: Path) -> None:
    rule = one(helm.template(VALUES), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load(
        (FILES / "rules.yaml").read_text().replace("docs/alerts.md", "https://docs.example.org/kqp")
    )
    assert {alert["annotations"]["runbook_url"] for alert in rule["spec"]["groups"][0]["rules"]} >= {
        "https://docs.example.org/kqp#kafkavolumethrottles"
    }
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_whole(helm: Helm) -> None:
    maps = of_kind(helm.template(VALUES), "ConfigMap")
    (dashboard,) = [item for item in maps if item["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    assert json.loads(dashboard["data"]["kafka-quota-proxy.json"]) == json.loads((FILES / "dashboard.json").read_text())
