"""Which lines are stored: how many of each start of a proxy by hour, where one is there twice, and how many of each log file.

In: Parquet files of stored lines, by day. Out: few rows. By Arrow, day by day, so that memory does not grow with the logs: about a
byte for each line of a day. Left to others: taking copies out (`reports.line_store`).

Lines are told apart by bitmaps of their numbers, a word for 64 lines; only where these have fewer bits than there are lines, the
lines themselves have to be compared, by 32,768.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from reports.arrow_rows import table_schema
from reports.text_blocks import work_on

WRITERS = table_schema(
    "date date, start timestamp, proxy string, boot string, first_seq bigint, last_seq bigint, lines bigint, "
    "first timestamp, last timestamp"
)
"""The table `writers`."""
PART_BITS: Final = 15
"""Bits of a number that tell the lines of one part apart."""
_WORD: Final = 6
_HOUR: Final = 3_600_000_000
_MILLISECOND: Final = 1000
_DAY_HOURS: Final = 24
_ROWS: Final = 1 << 18

_WRITER: Final = ("proxy", "boot")
_TIME: Final = pa.timestamp("us", "UTC")
_SOURCE: Final = {"file": pa.string(), "proxy": pa.string(), "boot": pa.string()}
_LINE: Final = {"proxy": pa.string(), "boot": pa.string(), "seq": pa.int64(), "start": _TIME, "end": _TIME, "at": _TIME}
_FIRST, _LAST = ("first_seq", "first"), ("last_seq", "last")
_PART: Final = (*_WRITER, "part", "day")
_COUNTED: Final = ("date", "start", *_PART)


def sequence_counts(days: Iterable[Sequence[Path]]) -> pa.Table:
    """How many lines there are of each start of a proxy, by hour and by 32,768 numbers; each of `days` is the files of some days.

    Out: `date`, `start` (of the hour), `proxy`, `boot`, `part`, `day` (numbers of the 32,768 lines and of the day); `all`, `lines`
    (each once), `first_seq`, `last_seq`; `first`, `last`: the time that they are about, end excluded.
    """
    found: list[pa.Table] = [_parts(_words(pa.table({name: pa.array([], kind) for name, kind in _LINE.items()})))]

    def count(files: Sequence[Path]) -> None:
        words = [_words(_columns(rows, _LINE)) for file in files for rows in _batches(file, list(_LINE))]
        if words:
            found.append(_parts(_together(pa.concat_tables(words))))

    work_on(days, count)
    return pa.concat_tables(found)


def lines_of_files(files: Iterable[Path], *, bad: bool) -> pa.Table:
    """`file`, `proxy`, `boot`, `lines` of stored lines; of `bad` lines nobody knows the proxy."""
    read = {"file": pa.string()} if bad else _SOURCE
    none = {name: pa.array([], kind) for name, kind in _SOURCE.items()}
    counted = [pa.table({**none, "lines": pa.array([], pa.int64())})]
    for file in files:
        for rows in _batches(file, list(read)):
            each = _columns(rows, _SOURCE).group_by(list(_SOURCE), use_threads=False).aggregate([([], "count_all")])
            counted.append(each.rename_columns({"count_all": "lines"}).select([*_SOURCE, "lines"]))
    return _grouped(pa.concat_tables(counted), list(_SOURCE), {"lines": "sum"})


def _columns(rows: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Columns of these names and types, null where `rows` do not have them."""
    there = rows.column_names
    return pa.table({name: rows[name].cast(kind) if name in there else pa.nulls(len(rows), kind) for name, kind in kinds.items()})


def _batches(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    with pyarrow.parquet.ParquetFile(file, read_dictionary=[name for name in columns if name in _SOURCE]) as opened:
        there = [name for name in columns if name in opened.schema_arrow.names]
        for batch in opened.iter_batches(_ROWS, columns=there, use_threads=False):
            yield pa.Table.from_batches([batch])


def _words(rows: pa.Table) -> pa.Table:
    """Rows of `proxy`, `boot`, `hour` (since the epoch), `word`, and what is known of the lines of each."""
    seq = rows["seq"].to_numpy()
    first = pc.coalesce(rows["start"], rows["at"]).cast(pa.int64()).to_numpy()
    # An instant lasts a millisecond, so that `last` is an end, excluded, whatever kind of line it is from.
    last = pc.coalesce(rows["end"].cast(pa.int64()), pc.add(rows["at"].cast(pa.int64()), _MILLISECOND)).to_numpy()
    figures = {
        "hour": first // _HOUR,
        "word": seq >> _WORD,
        "all": np.ones(len(seq), np.int64),
        "seen": np.uint64(1) << (seq & (2**_WORD - 1)).astype(np.uint64),
        **dict.fromkeys(("first_seq", "last_seq"), seq),
        "first": first,
        "last": last,
    }
    return _together(pa.table({**{name: rows[name] for name in _WRITER}, **figures}))


def _together(rows: pa.Table) -> pa.Table:
    """The same with one row for each `proxy`, `boot`, `hour` and `word`. Arrow cannot sum bits."""
    if not rows.num_rows:
        return rows
    writers = [rows[name].cast(pa.string()).combine_chunks().dictionary_encode() for name in _WRITER]
    writer = writers[0].indices.to_numpy().astype(np.int64) * len(writers[1].dictionary) + writers[1].indices.to_numpy()
    keys: list[Any] = [writer, rows["hour"].to_numpy(), rows["word"].to_numpy()]
    order = np.lexsort(keys[::-1])
    new = np.concatenate([[True], np.any([np.diff(key[order]) != 0 for key in keys], axis=0)])
    begin = np.flatnonzero(new)

    def each(name: str, way: Any) -> Any:
        return way.reduceat(rows[name].to_numpy()[order], begin)

    return pa.table(
        {
            **{name: one.take(pa.array(order[begin])).dictionary_decode() for name, one in zip(_WRITER, writers, strict=True)},
            **{name: key[order[begin]] for name, key in zip(("hour", "word"), keys[1:], strict=True)},
            "all": each("all", np.add),
            "seen": each("seen", np.bitwise_or),
            **{name: each(name, np.minimum) for name in _FIRST},
            **{name: each(name, np.maximum) for name in _LAST},
        }
    )


def _parts(words: pa.Table) -> pa.Table:
    hour = words["hour"]
    day = pc.divide(hour, _DAY_HOURS).cast(pa.int32())  # hours are of 2020 or later
    rows = pa.table(
        {
            "date": day.cast(pa.date32()),
            "start": pc.multiply(hour, _HOUR).cast(_TIME),
            **{name: words[name].cast(pa.string()) for name in _WRITER},
            "part": pc.shift_right(words["word"], PART_BITS - _WORD),
            "day": day,
            "all": words["all"],
            "lines": pa.array(np.bitwise_count(words["seen"].to_numpy()).astype(np.int64)),
            **{name: words[name] for name in ("first_seq", "last_seq")},
            **{name: words[name].cast(_TIME) for name in ("first", "last")},
        }
    )
    return _grouped(rows, _COUNTED, {"all": "sum", "lines": "sum", **dict.fromkeys(_FIRST, "min"), **dict.fromkeys(_LAST, "max")})


def _grouped(rows: pa.Table, keys: Sequence[str], ways: Mapping[str, str]) -> pa.Table:
    found = rows.group_by(list(keys), use_threads=False).aggregate(list(ways.items()))
    return found.rename_columns({f"{name}_{way}": name for name, way in ways.items()})


def seconds_told(counted: pa.Table) -> float:
    """How long the time is that the lines of a `sequence_counts` are about, in whole seconds."""
    first, last = pc.min(counted["first"]).as_py(), pc.max(counted["last"]).as_py()
    return float(last.timestamp() // 1 - first.timestamp() // 1) if first and last else 0.0


def writers(counted: pa.Table) -> pa.Table:
    """One row for each hour and start of a proxy, of a `sequence_counts`; the columns of WRITERS."""
    ways = {"lines": "sum", **dict.fromkeys(_FIRST, "min"), **dict.fromkeys(_LAST, "max")}
    rows = _grouped(counted, ("date", "start", *_WRITER), ways)
    return rows.select(WRITERS.names).sort_by([(name, "ascending") for name in ("start", *_WRITER)])


def _copied(counted: pa.Table) -> pa.Table:
    return counted.filter(pc.greater(counted["all"], counted["lines"]))


def duplicates_by_day(counted: pa.Table) -> dict[date, int]:
    """The days with copies, by a `sequence_counts`, and how many lines of each are too many."""
    copied = _copied(counted)
    surplus = pc.subtract(copied["all"], copied["lines"])
    days = pa.table({"date": copied["date"], "copies": surplus}).group_by("date").aggregate([("copies", "sum")])
    return dict(zip(days["date"].to_pylist(), days["copies_sum"].to_pylist(), strict=True))


def places_of_copies(counted: pa.Table) -> pa.Table:
    """Where lines are there twice, by a `sequence_counts`: starts of a proxy, days, and 32,768 numbers."""
    return _copied(counted).select(_PART).group_by(list(_PART)).aggregate([])
