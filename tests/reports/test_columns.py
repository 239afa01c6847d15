"""Lines of a logs folder as columns: what Arrow cannot read costs its own line alone."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet

from reports import columns, text_blocks
from tests.properties import examples

SCHEMA = pa.schema([("seq", pa.int64()), ("user", pa.string())])


def read(logs: Path) -> list[tuple[int | None, str | None]]:
    """What is in the columns, in the order of the lines of one file."""
    columns.write_columns(str(logs), SCHEMA, lambda table: table, logs / "columns")
    table = pyarrow.parquet.read_table(logs / "columns")
    return sorted(((row["seq"], row["user"]) for row in table.to_pylist()), key=str)


def line(seq: object, user: object = "ann", **more: object) -> bytes:
    return json.dumps({"seq": seq, "user": user, **more}, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize(
    "bad",
    [
        b"torn {\n",
        b'{"seq": 2, "user": "a\n',
        b"\n",
        b'{"seq": 2}{"seq": 3}\n',
        b'{"seq": "two"}\n',
        b'{"seq": 2.5}\n',
        b'{"seq": 123456789012345678901}\n',
        b'{"seq": 2, "seq": 3}\n',
        b'{"seq": 2, "user": {"name": "a"}}\n',
        b'{"seq": 2, "user": "\xff"}\n',
        b"[1]\n",
        b"\x00" * 100 + b"\n",
    ],
)
def test_a_bad_line_costs_itself_alone(bad: bytes, tmp_path: Path) -> None:
    good = [line(number, refused={"a": number}) for number in range(20)]
    (tmp_path / "usage.jsonl").write_bytes(b"".join(good[:7]) + bad + b"".join(good[7:]) + bad + good[0].rstrip(b"\n"))
    assert read(tmp_path) == sorted([(number, "ann") for number in [*range(20), 0]], key=str)


def test_files_of_all_kinds_are_read_and_a_damaged_one_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line(1))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line(2)))
    (tmp_path / "c.jsonl.zst").write_bytes(pa.Codec("zstd").compress(line(3), asbytes=True))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(line(4) * 10)[:-12])
    (tmp_path / "e.jsonl").touch()
    (tmp_path / "f.txt").write_bytes(line(5))
    found = {seq for seq, _ in read(tmp_path)}
    assert {1, 2, 3} <= found <= {1, 2, 3, 4}


def test_a_folder_without_a_good_line_gives_columns_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"nothing\n")
    assert read(tmp_path) == []


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 2**50), st.one_of(st.none(), st.text())), max_size=30),
    st.integers(10, 200),
)
def test_lines_are_the_same_in_whichever_blocks_they_come(rows: list[tuple[int, Any]], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK", block)
        text = [line(*row) for row in rows]
        Path(folder, "a.jsonl").write_bytes(b"".join(text))
        assert set(read(Path(folder))) == set(rows)
