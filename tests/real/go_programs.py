"""Go programs that tests run. In: a folder with go.mod, go.sum and sources. Out: the program, built once and kept in the cache
folder under the hash of the folder's files; the test is skipped, with the reason, where it cannot be built."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from localkafka.jars import cache_dir, locked

QUICK_BUILD = "-gcflags=all=-N -l -dwarf=false"
"""Optimises nothing and writes nothing for debuggers, which takes Go two thirds of the time: what tests run works for seconds."""
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "400"}
"""Go collects its own garbage less often, which takes a tenth of its time."""
LIMIT = 900.0
"""Seconds for a build, with its downloads."""


def go_program(folder: Path, package: str = ".") -> Path:
    """The program of a folder; `package` is what is built where that is not the folder's own."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    sources = b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)
    digest = hashlib.sha256(QUICK_BUILD.encode() + sources).hexdigest()[:16]
    made = cache_dir() / "go" / f"{folder.name}-{digest}"
    if made.exists():
        return made
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"there is no Go on PATH, which builds {folder.name}")
    made.parent.mkdir(parents=True, exist_ok=True)
    with locked(made, print):
        if not made.exists():
            partial = made.with_name(f"{made.name}.partial")
            build = [go, "build", "-buildvcs=false", QUICK_BUILD, "-o", str(partial), package]
            settings = os.environ | BUILD_ENVIRONMENT | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
            ran = subprocess.run(build, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT, check=False)
            if ran.returncode:
                pytest.skip(f"Go cannot build {folder.name}: {ran.stderr.strip()[-300:]}")
            partial.rename(made)
    return made
