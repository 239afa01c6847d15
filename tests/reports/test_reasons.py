"""Why somebody was held back: usage and limit of the decision that was furthest beyond its limit, whatever its unit."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow as pa

from reports.arrow_rows import arrow_schema, table_schema
from reports.parquet import write_rows
from reports.stored import Stored
from reports.summary.limits import _reasons
from tests.reports.logs import NOON

DECISIONS = table_schema(
    "at timestamp, quota string, mode string, action string, entity_user string, entity_client_id string, entity_tenant string, "
    "api string, items bigint, throttle_ms bigint, usage double, limit double, message string, left_out bigint"
)


@pytest.mark.parametrize(
    ("quota", "action", "made", "furthest"),
    [
        ("request_rate", "throttle", [(20, 100), (12, 5), (11, 5)], (12, 5)),
        ("storage", "throttle", [(20, 19), (90, 30), (12, 5), (10, 10)], (90, 30)),  # a rate
        ("storage", "refuse", [(90, 100), (20, 100), (400, 450)], (20, 100)),  # what is left
        ("storage", "hold", [(90, 100), (20, 100), (400, 450)], (20, 100)),
        ("tenant_stored_bytes", "refuse", [(100, 90), (300, 100), (400, 300)], (300, 100)),
    ],
)
def test_usage_and_limit_are_those_of_one_decision_the_furthest_beyond(
    tmp_path: Path, quota: str, action: str, made: list[tuple[float, float]], furthest: tuple[float, float]
) -> None:
    common: dict[str, Any] = {"quota": quota, "mode": "enforce", "action": action, "entity_user": "alice", "api": "Produce"}
    common |= {"items": 1, "throttle_ms": 5, "left_out": 2}
    rows = [{**common, "at": NOON + timedelta(seconds=n), "usage": float(u), "limit": float(of)} for n, (u, of) in enumerate(made)]
    write_rows(pa.Table.from_pylist(rows, arrow_schema(DECISIONS)), DECISIONS, tmp_path / "decisions")
    (row,) = _reasons(Stored(DECISIONS, ((tmp_path / "decisions", None),)))
    assert (row.usage, row.limit) == furthest
    assert (row.decisions, row.items) == (3 * len(made), len(made))
