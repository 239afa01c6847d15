"""The chart's own unit tests (deploy/helm/kafka-quota-proxy/tests), run by helm-unittest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.chart.helm import CHART


@pytest.mark.api_server  # Go takes minutes to build this tool, too
def test_the_suites_of_the_chart_pass(unittest: Path) -> None:
    done = subprocess.run([unittest, "--strict", str(CHART)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"Tests:\s+(\d+) passed, (\d+) total", done.stdout)
    assert passed is not None
    assert int(passed[1]) == int(passed[2]) >= 25
