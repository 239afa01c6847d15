"""What proposed limits let through for good: of who is under several limits, what the tightest leaves."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow as pa

from reports.arrow_rows import arrow_schema, table_schema
from reports.let_through import let_through
from reports.parquet import write_rows
from reports.quotas.limits import QuotaFile, Tenant
from reports.stored import Stored

TRAFFIC = table_schema("principal string, api string, request_bytes bigint")
REPLAYED = table_schema("kind string, owner_user string, topic string, waiting double, total double")


def stored(folder: Path, schema: object, rows: list[tuple[object, ...]]) -> Stored:
    kinds = arrow_schema(schema)  # type: ignore[arg-type]
    write_rows(pa.Table.from_pylist([dict(zip(kinds.names, row, strict=True)) for row in rows], kinds), schema, folder)  # type: ignore[arg-type]
    return Stored(schema, ((folder, None),))  # type: ignore[arg-type]


def test_limits_of_users_tenants_and_topics_count_the_tightest_of_them(tmp_path: Path) -> None:
    rows = [
        ("producer_byte_rate", "alice", None, 10.0, 50.0),  # of two client ids
        ("producer_byte_rate", "alice", None, 10.0, 50.0),
        ("producer_byte_rate", "bob", None, 0.0, 100.0),
        ("tenant_producer_byte_rate", None, "shop", 60.0, 200.0),
        ("tenant_consumer_byte_rate", None, "shop", 200.0, 200.0),
        ("request_rate", "carol", None, 9.0, 9.0),
        ("bytes_in", None, "orders", 25.0, 100.0),
        ("topic_producer_byte_rate", None, "orders", 50.0, 100.0),
        ("topic_consumer_byte_rate", None, "orders", 99.0, 100.0),
    ]
    produced = [
        ("User:alice", "Produce", 100),
        ("User:bob", "Produce", 300),
        ("User:carol", "Produce", 600),
        ("User:bob", "Fetch", 10**9),
    ]
    quotas = QuotaFile("", tenants={"shop": Tenant(("bob",), (), {}), "idle": Tenant(("nobody",), (), {})})
    tables = {"traffic": stored(tmp_path / "traffic", TRAFFIC, produced)}
    found = let_through(tables, stored(tmp_path / "what_if", REPLAYED, rows), quotas)
    assert found.principals == pytest.approx({"User:alice": 0.8, "User:bob": 0.7, "User:carol": 1.0})
    assert found.topics == pytest.approx({"orders": 0.5})
    assert found.tenants == pytest.approx({"shop": 0.7})
    assert found.everybody == pytest.approx(1 - (20 + 90) / 1000)
