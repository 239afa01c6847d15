"""Tables that are read by Arrow: sums of any number of parts are those of all rows, and never wrong without a word."""

from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from reports import stored
from reports.arrow_rows import table_schema
from reports.parquet import write_rows
from reports.stored import Stored, largest, latest, number_of_rows, of_api, sums, with_columns_of

SCHEMA = table_schema("date date, api string, who string, bytes bigint")
ROWS = [
    (date(2026, 3, 2), "Produce", "b", 7),
    (date(2026, 3, 1), "Produce", "a", 1),
    (date(2026, 3, 1), "Fetch", "a", None),
    (date(2026, 3, 3), "Produce", None, 5),
    (date(2026, 3, 3), "Fetch", "b", 11),
]


def table(folder: Path, rows: list[tuple[object, ...]] = ROWS) -> Stored:
    """A table of these rows, a folder a day."""
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    written = write_rows(pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True))), SCHEMA, folder)
    return Stored(written, ((folder, None),))


@pytest.fixture(params=[1, 2, 1000])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """The same table, read in parts of so many rows."""
    monkeypatch.setattr(stored, "_PART_ROWS", request.param)
    return table(tmp_path / "table")


def test_sums_of_parts_are_those_of_all(made: Stored) -> None:
    found = sums(made.parts(SCHEMA.names), {"who": "who"}, {"all": ("bytes", "sum"), "rows": (number_of_rows, "sum")})
    assert {row["who"]: (row["all"], row["rows"]) for row in found} == {"a": (1, 2), "b": (18, 2), None: (5, 1)}
    produced = sums(made.parts(SCHEMA.names), {}, {"bytes": (of_api("Produce", "bytes"), "sum"), "last": ("date", "max")})
    assert produced == [{"bytes": 13, "last": date(2026, 3, 3)}]


def test_days_come_in_their_order_and_the_last_row_of_each_key_is_told(made: Stored) -> None:
    assert [row["date"].day for row in made.rows(["date"])] == [1, 1, 2, 3, 3]
    found = latest(made.parts(SCHEMA.names), {"who": "who"}, "date", ["bytes"])
    assert {row["who"]: row["bytes"] for row in found if row["who"] != "a"} == {"b": 11, None: 5}  # a has two of one day
    by_bytes = latest(made.parts(SCHEMA.names), {"api": "api"}, "bytes", ["who"])
    assert {row["api"]: row["who"] for row in by_bytes} == {"Produce": "b", "Fetch": "b"}


def test_the_first_rows_in_an_order_have_nulls_first(made: Stored) -> None:
    rows = largest(made.parts(SCHEMA.names), [("who", "ascending"), ("bytes", "descending")], 3)
    assert [(row["who"], row["bytes"]) for row in rows] == [(None, 5), ("a", None), ("a", 1)]


def test_a_table_without_rows_has_no_sums(tmp_path: Path) -> None:
    empty = table(tmp_path / "table", [])
    assert (tmp_path / "table").exists()
    assert sums(empty.parts(SCHEMA.names), {"who": "who"}, {"bytes": ("bytes", "sum")}) == []
    assert sums(empty.parts(["bytes"]), {}, {"bytes": ("bytes", "sum")}) == [{"bytes": None}]
    assert largest(empty.parts(SCHEMA.names), [("who", "ascending")], 3) == []


def test_only_the_days_that_count_are_read(tmp_path: Path) -> None:
    table(tmp_path / "table")
    some = Stored(SCHEMA, ((tmp_path / "table", frozenset(["date=2026-03-02"])), (tmp_path / "none", frozenset())))
    assert [(row["date"], row["bytes"]) for row in some.rows(["date", "bytes"])] == [(date(2026, 3, 2), 7)]


def test_a_sum_that_does_not_fit_is_refused_and_one_that_does_is_exact(tmp_path: Path) -> None:
    day, large = date(2026, 3, 1), 2**62
    fits = table(tmp_path / "fits", [(day, "Fetch", "a", large), (day, "Fetch", "a", large - 1025), (day, "Fetch", "b", large)])
    found = sums(fits.parts(SCHEMA.names), {"who": "who"}, {"bytes": ("bytes", "sum")})
    assert {row["who"]: row["bytes"] for row in found} == {"a": 2**63 - 1025, "b": large}
    with pytest.raises(OverflowError, match="sums of bytes do not fit in 64 bits"):
        sums(fits.parts(SCHEMA.names), {}, {"bytes": ("bytes", "sum")})


def test_rows_find_those_of_the_same_texts_and_no_text_is_a_text_of_its_own() -> None:
    keys = [(None, "a"), ("a", None), ("", "a"), ("a", "1:a"), ("a1:a", ""), (None, None)]
    rows = pa.table({"one": [one for one, _ in keys], "two": [two for _, two in keys]})
    other = rows.append_column("place", pa.array(range(len(keys)))).slice(1)
    assert with_columns_of(rows, other, ["one", "two"])["place"].to_pylist() == [None, 1, 2, 3, 4, 5]
