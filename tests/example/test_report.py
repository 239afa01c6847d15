"""The report and the suggestions know a quota that was added to the catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.example.copies import KIND, Copy, describe
from tests.real.proxies import wait_until

pytestmark = pytest.mark.kafka


@pytest.mark.spark
@pytest.mark.nightly  # tests/reports/test_quotas.py and tests/contracts/test_docs.py hold the report to the catalogue in every push
def test_suggestions_and_the_report_know_it(start: Any, copy: Copy, tmp_path: Path) -> None:
    proxy = start("one", {})
    describe(proxy, 8)
    wait_until(lambda: any(line.get("api") == "DescribeGroups" for line in proxy.usage()), "the usage log")
    proxy.stop()
    suggested = copy.python("-m", "proxy", "quotas", "suggest", "--min-intervals", "1", "--from", str(proxy.logs)).stdout
    assert KIND in suggested
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(f"quotas: {{entities: [{{user: <default>, {KIND}: 1}}]}}\n")
    out = tmp_path / "report"
    copy.python("-m", "proxy", "report", "--logs", str(proxy.logs), "--out", str(out), "--what-if", str(quotas))
    assert KIND in json.dumps(json.loads((out / "summary.json").read_text()))
