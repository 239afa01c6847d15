"""The dashboard and the alert rules: what they ask for is there, Prometheus understands it, and alerts fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.observe.catalogue import names
from tests.chart.tools import ToolMissing, tool

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
PREFIX = "kafka_quota_proxy_"
FROM_LIBRARIES = {"process_cpu_seconds_total", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}

BOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]
TARGETS = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
EXPRESSIONS = [*TARGETS, *(rule["expr"] for rule in RULES)]


@pytest.fixture(scope="module")
def promtool() -> Callable[..., str]:
    """Runs it, and gives what it prints."""
    try:
        program = tool("promtool")
    except ToolMissing as error:
        pytest.skip(str(error))
    return partial(ask, program)


def ask(program: Path, *arguments: str) -> str:
    run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=FOLDER)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_is_there(expression: str) -> None:
    known = names()
    asked = set(re.findall(rf"{PREFIX}\w+|process_\w+", expression))
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        matched = {name for name in known if re.fullmatch(pattern, name)}
        assert matched, pattern
        asked = {name for name in asked if name not in pattern} | matched
    assert asked, expression
    unknown = {name for name in asked - FROM_LIBRARIES if name not in known}
    assert not unknown
    labels = {label for name in asked for label in known.get(name, [])} | {"job", "instance"}
    labels |= set(re.findall(r'"(\w+)", "\$1"', expression))
    for by in re.findall(r"by \(([^)]*)\)", expression):
        assert set(by.replace(" ", "").split(",")) <= labels


def test_prometheus_understands_every_panel(promtool: Callable[..., str], tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{i}", "expr": expr.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for i, expr in enumerate(TARGETS)
    ]
    assert not [rule for rule in rules if "$" in rule["expr"].replace('"$1"', "")]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(TARGETS)} rules found" in promtool("check", "rules", str(file))


def test_alerts_are_right_and_fire_when_they_should(promtool: Callable[..., str]) -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "rules.yaml")
    promtool("test", "rules", "rules_test.yaml")


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tests = (FOLDER / "rules_test.yaml").read_text()
    for rule in RULES:
        assert rule["alert"] in tests
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_what_to_do_about_each_alert_stands_where_its_runbook_url_leads() -> None:
    page = (FOLDER.parents[1] / "docs" / "alerts.md").read_text()
    for rule in RULES:
        where, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (where, anchor) == ("docs/alerts.md", rule["alert"].lower())
        text = page.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
        for part in ("**Meaning.**", "**Find out.**", "**Do.**"):
            assert part in text, rule["alert"]
    assert page.count("\n## ") == len(RULES), "an alert that is gone"


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"datasource", "instance"}
