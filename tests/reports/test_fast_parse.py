"""Lines that are parsed in the quick way: as proxies write them, and never one that the careful way would judge otherwise."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from proxy.observe.lines import Author, iso, usage_line
from proxy.session.tally import Row, TallyKey
from tests.reports.logs import NOON, Log
from tests.reports.test_quarantine import BAD, GOOD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ODD = [
    b'"',
    b"\\",
    b",",
    b"{",
    b"}",
    b"[",
    b":",
    b" ",
    b"\t",
    b"\0",
    b"\xb8",
    b"\xc3\xb8",
    b"0",
    b"-",
    b".",
    b"e9",
    b"null",
    b'","',
    b"9" * 16,
]
"""What mutations put into lines."""


def sorted_out(spark: "SparkSession", folder: Path, lines: list[bytes]) -> list[tuple[Any, Any]]:
    """Each line as the quick way has it (None for a line that it leaves), and as the careful way has it."""
    from pyspark.sql import functions as F  # noqa: N812

    from reports.fast_parse import parse_fast
    from reports.line_store import by_type_and_day
    from reports.parse import parse_carefully
    from reports.read import read_lines

    (folder / "lines.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    # In the place of the file's name the line's number.
    texts = read_lines(spark, str(folder)).withColumn("file", F.monotonically_increasing_id().cast("string"))
    quick = {row["file"]: row for row in parse_fast(texts, NOON).collect()}
    careful = {row["file"]: row for row in by_type_and_day(parse_carefully(texts, NOON)).collect()}
    assert len(quick) == len(careful) == len(lines)
    return [
        (quick[name].asDict() if quick[name]["raw"] is None else None, _filled(careful[name].asDict(), quick[name]))
        for name in careful
    ]


def _filled(line: dict[str, Any], columns: Any) -> dict[str, Any]:
    """A line without the fields of other types, which are not stored with plain ones."""
    assert line["type"] != "usage" or all(value is None for name, value in line.items() if name not in columns)
    return {name: value for name, value in line.items() if name in columns}


def test_what_a_proxy_writes_is_plain(spark: "SparkSession", tmp_path: Path) -> None:
    author = Author("proxy-1", "00000000000000a1")
    keys = [
        TallyKey("User:alice", "app", None, None, 0),
        TallyKey("User:CN=partner,O=Example", None, None, None, 3),
        TallyKey("User:ø", "", "orders,", None, 0),
        TallyKey("User:bob", "app", None, bytes(range(16)), 1),
    ]
    refusals: tuple[dict[str, int], ...] = ({}, {"a": 1, "b": 2})
    rows = [Row(key, 1, 2**40, 0, 5, 7, 0, 12, refused) for key in keys for refused in refusals]
    written = [orjson.dumps(usage_line(author, row, iso(1_772_366_400), iso(1_772_366_410.5))) for row in rows]
    pairs = sorted_out(spark, tmp_path, written)
    assert all(quick is not None for quick, _ in pairs)
    assert all(quick == careful for quick, careful in pairs)


def test_a_plain_line_is_what_the_careful_way_makes_of_it(spark: "SparkSession", tmp_path: Path) -> None:
    chance = random.Random(3)
    log = Log()
    for at in range(40):
        log.usage(
            at,
            client_id=chance.choice(["app", None, "a,b", "ø"]),
            topic=chance.choice(["t", None]),
            refused=chance.choice([{}, {"q": 3}, {"q": 3, "r": 4}]),
        )
    twice = Log().usage(refused={"q": 3}).lines[0].replace(b'"q":3', b'"q":3,"q":4')
    assert twice.count(b'"q"') == 2
    lines = [*log.lines, twice, *(data for data, _, _ in BAD.values()), *GOOD.values()]
    for _ in range(1500):
        line = chance.choice(log.lines)
        begin = chance.randrange(len(line))
        lines.append(line[:begin] + chance.choice([b"", *ODD]) + line[begin + chance.choice((0, 1, 1, 2, 5)) :])
    pairs = sorted_out(spark, tmp_path, lines)
    plain = [pair for pair in pairs if pair[0] is not None]
    assert len(log.lines) < len(plain) < len(lines) - len(BAD)
    for quick, careful in plain:
        assert quick == careful
