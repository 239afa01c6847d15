"""What is documented is what is: settings, metrics, events of the operations log."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from loadtest.results.model import WarningCode
from loadtest.results.schema import schema
from proxy.config.reference import reference
from proxy.observe.catalogue import catalogue
from quota.catalogue import report_module

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LEVELS = {"debug", "info", "warning", "error", "critical"}


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


def events() -> set[str]:
    """What is logged: `log.info("event", …)`, or `say("event", …)` where the level is chosen first."""
    found = set()
    for call in calls():
        match call.func:
            case ast.Attribute(attr=name, value=ast.Attribute(attr="_log") | ast.Name(id="log")) if name in LEVELS:
                found.add(first_text(call))
            case ast.Name(id="say"):
                found.add(first_text(call))
    return {event for event in found if event}


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


@pytest.mark.parametrize(("named", "least"), [(events(), 15), (metrics(), 20)], ids=["log events", "metrics"])
def test_the_operations_page_lists_them_all(named: set[str], least: int) -> None:
    assert len(named) >= least, "or they are not found"
    page = (DOCS / "operations.md").read_text()
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
