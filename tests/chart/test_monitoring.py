"""The alerts and the dashboard of deploy/monitoring, as the chart has them: whole, and as Prometheus reads them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import CHART, ROOT, Helm, of_kind, one

SOURCES = ROOT / "deploy" / "monitoring"
VALUES = CHART / "ci" / "monitoring-values.yaml"
WANTED = {"monitoring": {"rules": {"enabled": True, "labels": {"release": "prometheus"}}, "dashboard": {"enabled": True}}}

pytestmark = pytest.mark.skipif(not (SOURCES / "rules.yaml").exists(), reason="deploy/monitoring has no rules.yaml yet")


def test_prometheus_accepts_the_alerts(helm: Helm, promtool: Path, tmp_path: Path) -> None:
    rule = one(helm.template(VALUES, values=WANTED), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load((SOURCES / "rules.yaml").read_text())
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_whole(helm: Helm) -> None:
    maps = of_kind(helm.template(VALUES, values=WANTED), "ConfigMap")
    (dashboard,) = [item for item in maps if item["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert json.loads(dashboard["data"]["kafka-quota-proxy.json"]) == json.loads((SOURCES / "dashboard.json").read_text())
