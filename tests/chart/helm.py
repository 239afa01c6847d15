"""Helm as tests use it. In: values. Out: objects as Kubernetes would get them, or what helm says against them."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kafka-quota-proxy"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMES = [path.name.removesuffix("-values.yaml") for path in VALUES]
NAMESPACE = "quota-proxy"
RELEASE = "edge"

Manifest = dict[str, Any]


class Refused(Exception):
    """Helm said no; the message is its own."""


class Helm:
    """One helm, with its folders kept apart from the user's."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "HELM_CACHE_HOME": str(home), "HELM_DATA_HOME": str(home)}
        self._env["KUBECONFIG"] = str(kubeconfig or home / "none")
        self._env["GOGC"] = "off"  # it ends before its garbage matters: a fifth of its CPU
        self._texts: dict[tuple[str, ...], str] = {}

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """What it prints; `Refused` when its exit code is not 0."""
        command = [self._program, *arguments]
        done = subprocess.run(command, env=self._env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            raise Refused(done.stderr + done.stdout)
        return done.stdout

    def template(self, *files: Path, values: Manifest | None = None, hooks: bool = True) -> list[Manifest]:
        """The objects of values files and, over them, of values."""
        return objects(self.text(*files, values=values, hooks=hooks))

    def text(self, *files: Path, values: Manifest | None = None, hooks: bool = True, release: str = RELEASE) -> str:
        """The same as they are written."""
        options = [option for file in files for option in ("--values", str(file))] + ([] if hooks else ["--no-hooks"])
        if values is not None:
            options += ["--values", "-"]
        given = yaml.safe_dump(values) if values is not None else ""
        key = (release, *options, given)
        if key not in self._texts:
            self._texts[key] = self.run("template", release, str(CHART), "--namespace", NAMESPACE, *options, stdin=given)
        return self._texts[key]


def objects(text: str) -> list[Manifest]:
    """Manifests in a stream of YAML; no key of theirs stands twice."""
    return [item for item in yaml.load_all(text, Loader=_Once) if item]


class _Once(yaml.CSafeLoader):
    """Refuses mappings with a key that stands twice, of which YAML would keep the last. In C, as a dashboard has 3,000 lines."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys} at line {node.start_mark.line + 1}"
        return super().construct_mapping(node, deep)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [item for item in manifests if item["kind"] == kind]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = of_kind(manifests, kind)
    return found


def workload_of(manifests: list[Manifest]) -> Manifest:
    """What runs the proxies."""
    found = of_kind(manifests, "Deployment") + of_kind(manifests, "StatefulSet")
    return next(item for item in found if item["metadata"]["labels"]["app.kubernetes.io/component"] == "proxy")


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Every pod, or template of pods with the volumes that its controller adds: `{metadata, spec}`."""
    found = of_kind(manifests, "Pod") + [item["spec"]["template"] for item in of_kind(manifests, "Deployment")]
    for item in of_kind(manifests, "StatefulSet"):
        claims = [claim["metadata"]["name"] for claim in item["spec"]["volumeClaimTemplates"]]
        pod = copy.deepcopy(item["spec"]["template"])
        pod["spec"]["volumes"] += [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in claims]
        found.append(pod)
    found += [item["spec"]["template"] for item in of_kind(manifests, "Job")]
    return found + [item["spec"]["jobTemplate"]["spec"]["template"] for item in of_kind(manifests, "CronJob")]
