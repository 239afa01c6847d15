"""What is made of other files is up to date, and every value is documented."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart.helm import CHART, VALUES


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", CHART.parent / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE: dict[Path, str] = generator().made()


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.name)
def test_it_is_up_to_date(file: Path) -> None:
    assert file.read_text() == MADE[file], "run `make docs`"


def keys(tree: Any, prefix: str = "") -> list[str]:
    """Dotted names of all values that are not sections."""
    if not isinstance(tree, dict) or not tree:
        return [prefix]
    return [name for key, part in tree.items() for name in keys(part, f"{prefix}.{key}" if prefix else key)]


def test_every_value_is_documented() -> None:
    documented = {key for key, _, _ in generator().values()}
    missing = []
    for key in keys(yaml.safe_load((CHART / "values.yaml").read_text())):
        parts = key.split(".")
        if not any(".".join(parts[:length]) in documented for length in range(1, len(parts) + 1)):
            missing.append(key)
    assert missing == []
    assert len(documented) > 90


def test_every_value_is_in_the_schema_with_its_default() -> None:
    """A default that the schema refused, or a value it does not know, would keep everybody from installing."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_every_value_is_used_by_some_file_in_ci() -> None:
    """Sections that no file in ci/ sets would not be tried on an API server."""
    given = {key for file in VALUES for key in yaml.safe_load(file.read_text())}
    untried = {"nameOverride", "revisionHistoryLimit", "minReadySeconds", "clusterDomain", "listenerDefaults", "resources"}
    untried |= {"podSecurityContext", "securityContext", "probes"}
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) - given == untried


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == importlib.metadata.version("kafka-quota-proxy")
    assert f"| {chart['version']} |" in (CHART / "README.md").read_text(), "what changed for those who upgrade?"
