"""Tools for tests of the chart. Where one cannot be had the tests that need it are skipped with the reason; with --api-server
(`make test-chart`) they fail, as there it has to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.helm import Helm
from tests.chart.tools import ToolMissing, tool


def need(request: pytest.FixtureRequest, name: str) -> Path:
    """A tool, or no test."""
    try:
        return tool(name)
    except ToolMissing as error:
        if request.config.getoption("--api-server"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(need(request, "helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(need(request, "helm3"), tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def promtool(request: pytest.FixtureRequest) -> Path:
    return need(request, "promtool")


@pytest.fixture(scope="session")
def prometheus(request: pytest.FixtureRequest) -> Path:
    return need(request, "prometheus")


@pytest.fixture(scope="session")
def unittest(request: pytest.FixtureRequest) -> Path:
    return need(request, "helm-unittest")
