"""Chargeback of rows that a test writes: what is stored is charged to the byte, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow as pa

from reports.arrow_rows import arrow_schema, table_schema
from reports.chargeback import NOBODY, Prices, chargeback
from reports.parquet import write_rows
from reports.stored import Stored
from reports.transforms.volumes import REST

SCHEMAS = {
    "traffic": table_schema("principal string, api string, request_bytes bigint, response_bytes bigint"),
    "topics": table_schema("topic string, principal string, api string, record_bytes bigint"),
    "volume_topics": table_schema("topic string, first_bytes bigint, last_bytes bigint"),
}
Charged = dict[str, int]


@pytest.fixture
def charged(tmp_path: Path) -> Callable[[list[tuple[Any, ...]]], Charged]:
    """Stored bytes by principal, of rows of `volume_topics`. Users a and b produced 300 and 100 bytes to the topic `shared`."""
    produced = [("shared", "User:a", "Produce", 300), ("shared", "User:b", "Produce", 100), ("shared", "User:c", "Fetch", 900)]

    def make(volume_topics: list[tuple[Any, ...]]) -> Charged:
        tables = {}
        for name, rows in {"traffic": [], "topics": produced, "volume_topics": volume_topics}.items():
            schema, kinds = SCHEMAS[name], arrow_schema(SCHEMAS[name])
            named = [dict(zip(kinds.names, row, strict=True)) for row in rows]
            write_rows(pa.Table.from_pylist(named, kinds), schema, tmp_path / name)
            tables[name] = Stored(schema, ((tmp_path / name, None),))
        return {row["principal"]: row["stored_byte_days"] for row in chargeback(tables, Prices()).to_pylist()}

    return make


def test_all_rows_add_up_to_what_the_volumes_hold(charged: Callable[..., Charged]) -> None:
    rows = [("shared", 1000, 1400), ("shared", None, 800), ("unknown", 50, 70), (REST, 0, 10)]
    assert charged(rows) == {"User:a": 1200, "User:b": 400, NOBODY: 65}


def test_what_does_not_fit_in_64_bits_is_no_charge_below_zero(charged: Callable[..., Charged]) -> None:
    with pytest.raises(OverflowError):
        charged([("shared", 2**50, 2**50), *[("unknown", 2**50, 2**50)] * 2**13])
