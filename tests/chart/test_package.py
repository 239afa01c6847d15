"""The chart as it is published: the same bytes each time, and whole without the project around it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import need
from tests.chart.helm import CHART, Helm


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two of the same commit."""
    spec = importlib.util.spec_from_file_location("package", CHART.parent / "package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HELM", str(need(request, "helm")))
        return [module.package(tmp_path_factory.mktemp("package")) for _ in range(2)]


def test_it_is_the_same_each_time(packages: list[Path]) -> None:
    assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in packages}) == 1


def test_it_is_whole_by_itself(packages: list[Path], helm: Helm) -> None:
    said = helm.run("template", "edge", str(packages[0]), "--set", "upstream.bootstrapServers={kafka:9092}")
    assert "kind: Deployment" in said
    with tarfile.open(packages[0]) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
        assert not [name for name in names if name.startswith(("ci/", "tests/"))]
        readme = files.extractfile("kafka-quota-proxy/README.md")
        assert readme is not None
        links = re.findall(r"\]\(([^)]+)\)", readme.read().decode())
    assert [link for link in links if not link.startswith(("https://", "#")) and link not in names] == []


def test_it_says_what_a_catalogue_of_charts_shows() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"home", "icon", "sources", "maintainers"} <= chart.keys()
    notes = {key: yaml.safe_load(text) for key, text in chart["annotations"].items()}
    assert {image["name"] for image in notes["artifacthub.io/images"]} == {"proxy", "report", "loadtest"}
    assert all(image["image"].endswith(f":{chart['appVersion']}") for image in notes["artifacthub.io/images"])
    assert {change["kind"] for change in notes["artifacthub.io/changes"]} <= {
        "added",
        "changed",
        "deprecated",
        "removed",
        "fixed",
        "security",
    }
    made = {
        kind for file in (CHART / "templates").iterdir() for kind in re.findall(r"^kind: (\w+)$", file.read_text(), re.MULTILINE)
    }
    own = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "Certificate", "TLSRoute"}
    assert own <= made
    brought = yaml.safe_load((CHART / "files" / "kafkaquotas.yaml").read_text())
    crds = {(crd["kind"], crd["name"]) for crd in notes["artifacthub.io/crds"]}
    assert own <= {kind for kind, _ in crds}
    assert (brought["spec"]["names"]["kind"], brought["metadata"]["name"]) in crds
