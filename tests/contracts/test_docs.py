"""What is documented is what is: settings, metrics. Error codes and lines of the operations log: tests/docs."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from loadtest.results.model import WarningCode
from loadtest.results.schema import schema
from proxy.config.reference import reference
from proxy.observe.catalogue import catalogue
from quota.catalogue import report_module

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@functools.cache
def calls() -> list[ast.Call]:
    """All calls in the data plane's sources."""
    return [
        node
        for file in sorted((ROOT / "proxy").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    ]


def first_text(call: ast.Call) -> str | None:
    """Its first argument, if that is a text."""
    match call.args:
        case [ast.Constant(value=str(text)), *_]:
            return text
    return None


def metrics() -> set[str]:
    """Names as they are scraped, but for the prefix."""
    found = set()
    for call in calls():
        match call.func:
            case ast.Name(id="_gauge") | ast.Attribute(attr="_shared"):
                found.add(first_text(call))
            case ast.Name(id="_counter" | "_counter_of" | "_by_label") if name := first_text(call):
                found.add(f"{name}_total")
    return {name for name in found if name} | {"muted_entities"}


def test_every_warning_of_the_load_test_is_explained() -> None:
    text = (DOCS / "loadtest-results.md").read_text()
    assert [code.value for code in WarningCode if f"`{code.value}`" not in text] == []


def test_the_schema_of_load_test_results_is_up_to_date() -> None:
    assert (DOCS / "loadtest-results.schema.json").read_text() == schema(), "run `make docs`"


def test_the_settings_page_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == reference(), "run `make docs`"


def test_the_limits_that_the_report_reads_are_up_to_date() -> None:
    assert (DOCS.parent / "reports/quotas/catalogue.py").read_text() == report_module(), "run `make docs`"


def test_the_metrics_page_is_up_to_date() -> None:
    assert (DOCS / "metrics.md").read_text() == catalogue(), "run `make docs`"


def test_the_operations_page_lists_all_metrics() -> None:
    named = metrics()
    assert len(named) >= 20, "or they are not found"
    page = (DOCS / "operations.md").read_text()
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []


def test_all_name_the_version_that_the_changelog_begins_with() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)|Unreleased", head) for head in heads)
    newest = next(head for head in heads if head != "Unreleased").split()[0]
    chart = (ROOT / "deploy/helm/kafka-quota-proxy/Chart.yaml").read_text()
    assert f'\nversion = "{newest}"\n' in (ROOT / "pyproject.toml").read_text()
    assert f"\nversion: {newest}\nappVersion: {newest}\n" in chart
    assert f"ARG VERSION={newest}\n" in (ROOT / "deploy/image/Dockerfile").read_text()
