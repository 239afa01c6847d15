"""The chart as a package. In: the last commit, a folder, options of `helm package`, such as those for signing. Out: a .tgz in it,
the same bytes for the same commit: its files have the commit's time.

`make chart-package HELM_ARGS="--sign --key NAME --keyring FILE"`; helm is that on PATH, or $HELM."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = "deploy/helm/kafka-quota-proxy"


def package(folder: Path, *options: str) -> Path:
    """Make it; CalledProcessError when git or helm say no."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD", CHART], stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(work, filter="data")
        command = [os.environ.get("HELM", "helm"), "package", str(Path(work) / CHART), "--destination", str(folder), *options]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Path(said.strip().rpartition(": ")[2])


def main() -> None:
    sys.stdout.write(f"{package(Path(sys.argv[1]), *sys.argv[2:])}\n")


if __name__ == "__main__":
    main()
