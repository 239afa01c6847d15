"""Every way in which a line can be bad has a name, and no line is lost without one."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.reports.logs import NOON, Log, after, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def line(kind: str = "usage", **changes: Any) -> bytes:
    """One line, spoilt by the changes."""
    return getattr(Log(), kind)(**changes).lines[0]


OF_PERIOD = line()
BAD: dict[str, tuple[bytes, str, str | None]] = {
    "nothing": (b"", "empty", None),
    "blanks": (b"  ", "empty", None),
    "cut after a field": (OF_PERIOD[:90], "cut", None),
    "cut within a number": (OF_PERIOD[: OF_PERIOD.index(b'"seq":1') + 6], "cut", None),
    "cut after an inner object": (line("decision", entity={"user": "x", "client_id": None})[:260], "cut", None),
    "cut before the last brace": (OF_PERIOD[:-1], "cut", None),
    "cut within a character": (line(principal="User:ø").split(b"\xb8")[0], "not_utf8", None),
    "words": (b"hello", "not_json", None),
    "single quotes": (b"{'v':1}", "not_json", None),
    "two in one line": (OF_PERIOD + OF_PERIOD, "not_json", None),
    "something after it": (OF_PERIOD + b" and more", "not_json", None),
    "not a number": (OF_PERIOD.replace(b'"requests":1', b'"requests":NaN'), "not_json", None),
    "zero bytes": (b"\0\0\0\0", "not_json", None),
    "deep": (b'{"v":1,"x":' + b"[" * 5000 + b"]" * 5000 + b"}", "not_json", None),
    "an array": (b"[" + OF_PERIOD + b"]", "not_an_object", None),
    "a text": (b'"usage"', "not_an_object", None),
    "null": (b"null", "not_an_object", None),
    "an empty object": (b"{}", "missing", "v"),
    "no version": (line(v=...), "missing", "v"),
    "no type": (line(type=...), "missing", "type"),
    "no proxy": (line(proxy=...), "missing", "proxy"),
    "null for a principal": (line(principal=None), "missing", "principal"),
    "no requests": (line(requests=...), "missing", "requests"),
    "no refused": (line(refused=...), "missing", "refused"),
    "no entity": (line("decision", entity=None), "missing", "entity"),
    "no limit": (line("decision", limit=None), "missing", "limit"),
    "no lines": (line("gap").replace(b',"lines":1', b""), "missing", "lines"),
    "version as text": (line(v="1"), "wrong_type", "v"),
    "type as number": (line(type=5), "wrong_type", "type"),
    "text for a count": (line(request_bytes="7"), "wrong_type", "request_bytes"),
    "fraction for a count": (line(request_bytes=7.5), "wrong_type", "request_bytes"),
    "true for a count": (line(requests=True), "wrong_type", "requests"),
    "beyond 64 bits": (line(request_bytes=2**64), "too_large", "request_bytes"),
    "thirty digits": (line(request_bytes=10**29), "too_large", "request_bytes"),
    "sixty digits": (line(requests=10**59), "too_large", "requests"),
    "thirty digits below zero": (line(request_bytes=-(10**29)), "negative", "request_bytes"),
    "refusals of thirty digits": (line(refused={"a": 10**29, "b": 1}), "too_large", "refused"),
    "number for a text": (line(principal=7), "wrong_type", "principal"),
    "object for a text": (line(client_id={"a": 1}), "wrong_type", "client_id"),
    "true for a text": (line(topic=True), "wrong_type", "topic"),
    "number for a time": (line(start=1_700_000_000), "wrong_type", "start"),
    "list for counts": (line(refused=[1]), "wrong_type", "refused"),
    "text among counts": (line(refused={"q": "1"}), "wrong_type", "refused"),
    "null among counts": (line(refused={"q": None}), "wrong_type", "refused"),
    "text for an entity": (line("decision", entity="alice"), "wrong_type", "entity"),
    "number for a tenant": (line("decision", entity={"user": None, "client_id": None, "tenant": 5}), "wrong_type", "entity"),
    "fewer topics than none": (line("owned", topic_count=-1), "negative", "topic_count"),
    "what somebody has before it began": (line("owned", end=after(-1)), "bad_interval", "end"),
    "number in an entity": (line("decision", entity={"user": 5, "client_id": None}), "wrong_type", "entity"),
    "text for topics": (line("decision", topics="orders"), "wrong_type", "topics"),
    "text for a number": (line("decision", usage="12"), "wrong_type", "usage"),
    "another version": (line(v=3), "unknown_version", "v"),
    "another version, other fields": (b'{"v":9,"kind":"x"}', "unknown_version", "v"),
    "another type": (line(type="weather"), "unknown_type", "type"),
    "local time": (line(start="2026-03-01T12:00:00.000+01:00"), "bad_time", "start"),
    "no such day": (line(start="2026-02-30T12:00:00.000Z"), "bad_time", "start"),
    "no such hour": (line(end="2026-03-01T25:00:00.000Z"), "bad_time", "end"),
    "a word for a time": (line("gap").replace(after(0).encode(), b"yesterday"), "bad_time", "at"),
    "a volume's topics as texts": (line("volume", topic_bytes=["orders"]), "wrong_type", "topic_bytes"),
    "a volume of nowhere": (line("volume", log_dir=None), "missing", "log_dir"),
    "a volume beyond belief": (line("volume", total_bytes=2**63), "too_large", "total_bytes"),
    "a clock that was never set": (line("gap").replace(after(0).encode(), b"1970-01-01T00:00:07.000Z"), "wrong_clock", "at"),
    "an interval of years ago": (line(start="2016-03-01T12:00:00.000Z", end="2016-03-01T12:00:10.000Z"), "wrong_clock", "start"),
    "an interval of next week": (
        line(start=text(NOON + timedelta(days=7)), end=text(NOON + timedelta(days=8))),
        "wrong_clock",
        "start",
    ),
    "negative bytes": (line(request_bytes=-1), "negative", "request_bytes"),
    "negative records": (line(topic="t", records=-1), "negative", "records"),
    "negative refusals": (line(refused={"a": 1, "b": -1}), "negative", "refused"),
    "negative items": (line("decision", items=-3), "negative", "items"),
    "an API below that of none": (line(api="key--2", api_key=-2), "negative", "api_key"),
    "bytes beyond belief": (line(request_bytes=2**62), "too_large", "request_bytes"),
    "refusals beyond belief": (line(refused={"a": 2**62}), "too_large", "refused"),
    "infinite usage": (line("decision", usage=1).replace(b'"usage":1', b'"usage":1e999'), "too_large", "usage"),
    "ends as it starts": (line(end=after(0)), "bad_interval", "end"),
    "ends before it starts": (line(end=after(-1)), "bad_interval", "end"),
}

GOOD: dict[str, bytes] = {
    "usage": OF_PERIOD,
    "usage of version 1": line(v=1),
    "usage of more APIs than are told apart": line(api="key--1", api_key=-1),
    "a decision about a connection": line("decision", api="key--1", api_key=-1, api_version=0, items=0, topics=[]),
    "a decision of version 1": line("decision", v=1, left=...),
    "producer ids": line("producer_ids"),
    "producer ids with a limit": line("producer_ids", limit=100.5),
    "a clock that is a day ahead": line(start=text(NOON + timedelta(days=1)), end=text(NOON + timedelta(days=1, seconds=9))),
    "what a tenant has": line("owned"),
    "what a topic has": line("owned", tenant=..., topic="orders", topic_count=None, stored_bytes=5),
    "a tenant's quota": line("decision", entity={"user": None, "client_id": None, "tenant": "5"}),
    "latency": line("latency"),
    "latency of no broker in particular": line("latency", broker_id=None, api="unknown", api_key=None),
    "decision": line("decision"),
    "gap": line("gap"),
    "volume": line("volume"),
    "a volume of a local source": line("volume", source="local", broker_id=None, replica_bytes=None, topic_bytes={}),
    "fields that nobody knows": line(colour="blue", more={"x": [1]}),
    "null where it may be": line(client_id=None, topic=None, records=None),
    "absent where it may be null": line(client_id=..., topic_id=...),
    "texts that look like numbers": line(principal="123", client_id="-1.5e3", topic="true", api="[x]"),
    "texts of braces": line(client_id='{"a":1}', principal="}}{{"),
    "a text with everything": line(client_id='\u0000 \u2028 "\\ \n ø 🦉'),
    "whole number for a number": line("decision", usage=12, limit=5),
    "no message": line("decision", message=None),
    "no entity of its own": line("decision", entity={"user": None, "client_id": None}),
    "seconds without a fraction": line(start="2026-03-01T11:59:59Z"),
    "blanks around": b"  " + OF_PERIOD + b" \r",
    "a usage line with a decision's field": line(limit="none"),
    "escaped": json.dumps(json.loads(line(client_id="ø"))).encode(),
}


@pytest.fixture(scope="module")
def verdicts(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str | None, str | None, str | None]]:
    """Name of a line -> reason, field and raw text, each line read from a file of its own."""
    from reports.parse import parse_carefully
    from reports.read import read_lines

    folder = tmp_path_factory.mktemp("lines")
    names = [*BAD, *GOOD]
    for name in names:
        (folder / f"{name}.jsonl").write_bytes({**{key: bad[0] for key, bad in BAD.items()}, **GOOD}[name] + b"\n")
    rows = parse_carefully(read_lines(spark, str(folder)), NOON).select("file", "reason", "field", "raw").collect()
    assert len(rows) == len(names)
    return {row["file"].rsplit("/", 1)[1].removesuffix(".jsonl").replace("%20", " "): tuple(row[1:]) for row in rows}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_quarantined_with_its_reason(verdicts: dict[str, tuple[str, str, str]], name: str) -> None:
    data, reason, field = BAD[name]
    assert verdicts[name] == (reason, field, data.decode(errors="replace")[:2048])


@pytest.mark.parametrize("name", GOOD)
def test_a_good_line_is_not(verdicts: dict[str, tuple[str, str, str]], name: str) -> None:
    assert verdicts[name] == (None, None, None)


def test_every_reason_is_tried() -> None:
    from reports.reasons import MEANINGS, Reason

    assert {reason for _, reason, _ in BAD.values()} | {"damaged_file"} == set(Reason) == set(MEANINGS)


@pytest.mark.nightly  # tests/reports/test_render.py has what the page says, the tests above and test_files.py what is put aside
def test_a_folder_with_only_bad_lines_gives_a_report_that_says_so(make: Callable[..., Any], tmp_path: Path) -> None:
    log = Log()
    for data, _, _ in BAD.values():
        log.raw(data)
    log.raw(b"x" * 5_000_000).write(tmp_path / "logs")
    made = make(made=NOON)
    lines = len(BAD) + 1
    assert made.report.lines.read == made.report.lines.quarantined == lines
    assert f"None of {lines} lines could be used" in made.page
    assert made.table("quarantine").count() == lines
    assert max(len(raw) for (raw,) in made.rows("quarantine", "raw")) == 2048
    assert made.table("traffic").columns[0] == "date"
    assert made.table("traffic").count() == 0
