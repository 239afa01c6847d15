"""A copy of the sources with the code of docs/adding-a-quota.md, and proxies that run from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from proxy import compiled
from tests.real.proxies import ProxyProcess
from tests.real.raw import connect

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-quota.md"
KIND = "describe_groups_byte_rate"
KEY = f"cluster_{KIND}"
DESCRIBE_GROUPS = 15
EVERYBODY = {"user": "<default>", KIND: "50"}


class Copy:
    """The sources with the code of the page."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("advice", "proxy", "quota", "reports", "configfile", "webpage"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "_hot"))
        catalogue = root / "quota" / "catalogue.py"
        head, end, tail = catalogue.read_text().partition("\n)\nADDRESS_RATE: Final")
        assert end, "the rows of the catalogue end before something else"
        catalogue.write_text(f"{head}\n{self.row()},{end}{tail}")
        self.environment = os.environ | {"PYTHONPATH": str(root), compiled.PURE: "1"}
        made = self.python("-m", "quota.catalogue")
        (root / "reports" / "quotas" / "catalogue.py").write_text(made.stdout)

    def row(self) -> str:
        """The row of the catalogue that stands on the page."""
        found = re.search(r"```python\n(Key\(.*?\n\))\n```", PAGE.read_text(), re.DOTALL)
        assert found is not None
        return found[1]

    def python(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Python with the sources of the copy."""
        run = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=self.environment, capture_output=True, text=True, check=False
        )
        assert not check or run.returncode == 0, run.stderr
        return run


class ChangedProxy(ProxyProcess):
    """A proxy that runs from a copy of the sources."""

    def __init__(self, copy: Copy, folder: Path, upstream: str, **settings: Any) -> None:
        super().__init__(folder, upstream, settings)
        self._copy = copy

    def _launch(self, arguments: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "proxy", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self._copy.root, env=self._copy.environment, stdout=pipe, stderr=pipe, text=True)


def describe(proxy: ProxyProcess, times: int, version: int = 5) -> list[float]:
    """Ask about a group again and again, on one connection after the other. Returns the throttles in seconds."""
    told = []
    for _ in range(times):
        with connect(proxy.bootstrap) as connection:
            answer = connection.decoded(DESCRIBE_GROUPS, version, groups=("g" * 200,), include_authorized_operations=False)
            told.append(answer.throttle_time.total_seconds())
    return told
