"""The fast path of parsing for files of this machine: lines as proxies write them, by Arrow, without Java.

In: log files. Out: Parquet files as `reports.ingest` wants them: lines with their fields by type and day, all others as text. A
line that matches the pattern of its type, with its fields in the order of `reports.schema` and without blanks, keeps all rules of
the format except those that are checked here after its values are known. The patterns may be too strict, but never too lenient:
what they leave is for `reports.parse`. Left to others: logs that are not local (`reports.fast_parse`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from reports.schema import COMMON, ENTITY_PARTS, FIELDS, UNPARSED, VERSIONS, Field, Kind
from reports.text_blocks import text_blocks, work_on
from reports.validation import AHEAD, EARLIEST

_PLAIN = r'[^"\\\x00-\x1f]'
_TEXT = rf'"(?:{_PLAIN}|\\["\\/bfnrt])*"'
_COUNT = r"(?:0|[1-9][0-9]{0,14})"  # below LARGEST_COUNT, which has 16 digits
# Not -0, which is no number below 0 for Spark's reader.
_NUMBER = r"(?:(?:0|-?[1-9][0-9]{0,18})(?:\.[0-9]{1,20})?|-0\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?"
_ENTRY = rf'"{_PLAIN}*":{_COUNT}'
# Days that there are: Arrow refuses a whole block with one that there is not. Only years up to 2099 may have a 29th of February.
_DAY = (
    r"(?:2[0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|20(?:[02468][048]|[13579][26])-02-29)"
)
_TIME = rf'"{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{{3}}Z"'
_VALUES: Final = {
    Kind.TEXT: _TEXT,
    Kind.TIME: _TIME,
    Kind.COUNT: _COUNT,
    Kind.API_KEY: rf"(?:-1|{_COUNT})",
    Kind.NUMBER: _NUMBER,
    Kind.COUNTS: rf"\{{(?:{_ENTRY}(?:,{_ENTRY})*)?\}}",
    Kind.ENTITY: rf'\{{"user":(?:{_TEXT}|null),"client_id":(?:{_TEXT}|null)(?:,"tenant":(?:{_TEXT}|null))?\}}',
    Kind.TEXTS: rf"\[(?:{_TEXT}(?:,{_TEXT})*)?\]",
}

_MAP: Final = pa.map_(pa.string(), pa.int64())
_TYPES: Final = {
    Kind.TEXT: pa.string(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.COUNT: pa.int64(),
    Kind.API_KEY: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.COUNTS: _MAP,
    Kind.ENTITY: pa.struct([(part, pa.string()) for part in ENTITY_PARTS]),
    Kind.TEXTS: pa.list_(pa.string()),
}

_ROWS_OF_A_FILE = 1 << 16
_ROWS_HELD = 1 << 17
"""Lines that wait for a file to be filled, of all types and days together."""


def pattern(kind: str) -> str:
    """What a line of a type looks like as proxies write it, its end included, as a regular expression for bytes."""
    fields = "".join(_member(kind, field) for field in (*COMMON, *FIELDS[kind]))
    return r"\A\{" + fields.removeprefix(",") + r"\}\n\z"


def _member(kind: str, field: Field) -> str:
    match field.name:
        case "v":
            value = f"(?:{'|'.join(map(str, VERSIONS))})"
        case "type":
            value = f'"{kind}"'
        case _:
            value = _VALUES[field.kind]
    if field.kind is Kind.COUNTS:
        value = f"(?P<{field.name}>{value})"
    return f',"{field.name}":{value}' if field.required else f'(?:,"{field.name}":(?:{value}|null))?'


_PATTERNS: Final = {kind: pattern(kind) for kind in FIELDS}


@dataclass(frozen=True, slots=True)
class LogFile:
    """What is to be read of a file, which is called `name`: of a plain file its bytes from `begin` to `end`."""

    path: Path
    name: str
    begin: int = 0
    end: int | None = None


def parse_files(files: Iterable[LogFile], now: datetime, target: Path) -> None:
    """Write the lines of log files, each with the name of its file, into `target`, which is made: lines with their fields into
    `type=.../date=...`, others into `type=` UNPARSED with `file` and `raw`, as they were read. It is `now`: later lines have a
    wrong clock.

    Raises:
        OSError, ArrowInvalid: a file is damaged, or `target` cannot be written. Files that have gone meanwhile are passed over.
    """
    target.mkdir()
    store = _Store(target)

    def parse(block: tuple[str, bytes]) -> None:
        file, text = block
        for kind, lines in _parsed(text, now + AHEAD):
            store.add(kind, lines.append_column("file", pa.repeat(pa.scalar(file), lines.num_rows)))

    work_on(_blocks(files), parse)
    store.close()


def _blocks(files: Iterable[LogFile]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        try:
            for block in text_blocks(file.path, file.begin, file.end):
                yield file.name, block
        except FileNotFoundError:  # rotated away
            continue


def _parsed(text: bytes, latest: datetime) -> Iterator[tuple[str, pa.Table]]:
    """The lines of a block by type, with `date`; at last those that are left, as UNPARSED."""
    left = _lines(text if text.endswith(b"\n") else text + b"\n")
    unparsed = []
    if not _is_utf8(text):
        valid = pa.array([_is_utf8(line.as_py()) for line in left])
        unparsed.append(left.filter(pc.invert(valid)))
        left = left.filter(valid)
    for kind, shape in _PATTERNS.items():
        if not len(left):
            break
        matches = pc.match_substring_regex(left, shape)
        if not pc.any(matches).as_py():
            continue
        lines, left = left.filter(matches), left.filter(pc.invert(matches))
        table, good = _fields(kind, lines, latest)
        if not pc.all(good).as_py():
            unparsed.append(lines.filter(pc.invert(good)))
            table = table.filter(good)
        yield kind, table
    unparsed.append(left)
    raw = pc.binary_slice(pa.chunked_array(unparsed, pa.binary()), 0, -1)  # without the ends of lines
    if len(raw):
        yield UNPARSED, pa.table({"raw": raw})


def _lines(text: bytes) -> pa.Array:
    """The lines of a text, each with its end, without a copy of them."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fields(kind: str, lines: pa.Array, latest: datetime) -> tuple[pa.Table, pa.Array]:
    """The values of lines that match the pattern of their type, and which of these lines keep the rules for values."""
    fields = [field for field in (*COMMON, *FIELDS[kind]) if field.name != "type"]
    read = [field for field in fields if field.kind is not Kind.COUNTS]
    schema = pa.schema([(field.name, _TYPES[field.kind]) for field in read])
    text = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).select(schema.names)
    rules = [_in_time(table[field.name], latest) for field in read if field.kind is Kind.TIME]
    if "end" in table.column_names:
        rules.append(pc.less(table["start"], table["end"]))
    for field in fields:
        if field.kind is Kind.COUNTS:
            counts, unique = _counts(kind, field, lines)
            table = table.append_column(field.name, counts)
            rules.append(unique)
    day = pc.cast(table["start" if "start" in table.column_names else "at"], pa.date32())
    return table.append_column("date", day), reduce(pc.and_, rules)


def _in_time(time: pa.ChunkedArray, latest: datetime) -> pa.ChunkedArray:
    earliest = datetime.fromisoformat(EARLIEST).replace(tzinfo=UTC)
    scalar = partial(pa.scalar, type=_TYPES[Kind.TIME])
    return pc.and_(pc.greater_equal(time, scalar(earliest)), pc.less_equal(time, scalar(latest)))


def _counts(kind: str, field: Field, lines: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The objects of counts of a field as maps, null where there is none, and in which of them no name is there twice."""
    # The search for what is in the object costs as much as all else, and in most lines nothing is in it.
    filled = np.flatnonzero(~_booleans(pc.match_substring(lines, f'"{field.name}":{{}}')))
    found = pc.struct_field(pc.extract_regex(lines.take(pa.array(filled)), _PATTERNS[kind]), field.name).cast(pa.string())
    parts = pc.split_pattern(found, '"')  # of {"a":1,"b":2}: {, a, :1, b, :2}
    entries = pc.list_value_length(parts).to_numpy() // 2
    number = np.arange(len(parts.values)) - np.repeat(parts.offsets.to_numpy()[:-1], 2 * entries + 1)
    names = parts.values.filter(pa.array(number % 2 == 1))
    counts = pc.utf8_trim(parts.values.filter(pa.array((number % 2 == 0) & (number > 0))), ":,}").cast(pa.int64())
    twice = np.zeros(len(lines), bool)
    twice[_repeated(np.repeat(filled, entries), names)] = True
    sizes = np.zeros(len(lines) + 1, np.int32)
    sizes[filled + 1] = entries
    missing = np.zeros(len(lines), bool)
    missing[filled] = _booleans(pc.equal(found, ""))
    maps = pa.MapArray.from_arrays(np.cumsum(sizes, dtype=np.int32), names, counts, mask=pa.array(missing))
    return maps, pa.array(~twice)


def _repeated(rows: np.ndarray, names: pa.Array) -> Any:
    """The rows that have a name twice."""
    codes = names.dictionary_encode().indices.to_numpy()
    pairs, times = np.unique(np.stack([rows, codes]), axis=1, return_counts=True)
    return pairs[0][times > 1]


def _booleans(values: pa.Array) -> Any:
    return values.to_numpy(zero_copy_only=False)


class _Store:
    """Parquet files by type and day, each written when enough lines for it are there."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._lock = Lock()
        self._held: dict[Path, list[pa.Table]] = {}
        self._rows: dict[Path, int] = {}

    def add(self, kind: str, lines: pa.Table) -> None:
        for folder, part in self._parts(kind, lines):
            with self._lock:
                self._held.setdefault(folder, []).append(part)
                self._rows[folder] = self._rows.get(folder, 0) + part.num_rows
                full = self._full()
            for one, tables in full:
                _write(one, tables)

    def close(self) -> None:
        """Write what is left."""
        work_on(self._held.items(), lambda item: _write(*item))

    def _parts(self, kind: str, lines: pa.Table) -> Iterator[tuple[Path, pa.Table]]:
        folder = self._target / f"type={kind}"
        if "date" not in lines.column_names:
            yield folder, lines
            return
        for day in pc.unique(lines["date"]):
            yield folder / f"date={day}", lines.filter(pc.equal(lines["date"], day)).drop_columns("date")

    def _full(self) -> list[tuple[Path, list[pa.Table]]]:
        """What is to be written now: full files, or the largest where too much is held."""
        full = [folder for folder, rows in self._rows.items() if rows >= _ROWS_OF_A_FILE]
        if not full and sum(self._rows.values()) > _ROWS_HELD:
            full = [max(self._rows, key=self._rows.__getitem__)]
        for folder in full:
            del self._rows[folder]
        return [(folder, self._held.pop(folder)) for folder in full]


def _write(folder: Path, tables: list[pa.Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.concat_tables(tables)
    # Of numbers that are mostly different a dictionary costs more than it gives, as do statistics of texts.
    repeated = [field.name for field in table.schema if field.name in ("file", "v", "api_key") or field.type == pa.string()]
    pyarrow.parquet.write_table(
        table,
        folder / f"part-{uuid.uuid4()}.parquet",  # next to those of other runs
        compression="zstd",
        use_dictionary=repeated,
        store_schema=False,
    )
