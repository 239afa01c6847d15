"""Files that Arrow parses: what a proxy writes needs no Spark, and every line is what Spark would have made of it."""

import gzip
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

pytest.importorskip("pyspark")
import pyarrow.dataset

from proxy.observe.lines import (
    Author,
    Holds,
    decision_line,
    iso,
    latency_line,
    owned_line,
    producer_ids_line,
    usage_line,
    volume_line,
)
from proxy.session.latencies import Part, Place
from proxy.session.requester import Requester
from proxy.session.tally import Row, TallyKey
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.kinds.producer_ids import Usage
from quota.kinds.storage import Replicas, Volume
from quota.tenants import owner_of
from reports import arrow_parse, text_blocks
from reports.log_files import local_files
from reports.publish import Staging
from reports.schema import UNPARSED
from tests.reports.logs import NOON, Log
from tests.reports.test_fast_parse import ODD
from tests.reports.test_quarantine import BAD, GOOD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def counted(lines: list[bytes], folder: Path) -> dict[str, int]:
    """How many lines Arrow has of each type."""
    (folder / "usage.jsonl").write_bytes(b"\n".join(lines))
    arrow_parse.parse_files([arrow_parse.LogFile(folder / "usage.jsonl", "file:///usage.jsonl")], NOON, folder / "parsed")
    return {
        path.name.removeprefix("type="): pyarrow.dataset.dataset(path, format="parquet").count_rows()
        for path in (folder / "parsed").iterdir()
    }


def mixed(chance: random.Random) -> list[bytes]:
    """Lines of all types, with every kind of value, in files' order."""
    log = Log()
    for at in range(60):
        log.usage(
            at,
            client_id=chance.choice(["app", None, "a,b", "ø", "a\\b", 'a "b"', "\ufffd"]),
            topic=chance.choice(["t", None]),
            refused=chance.choice([{}, {"q": 3}, {"q": 3, "r": 4}, {"q": 3, "r,}:": 4, "": 0}]),
        )
        log.decision(
            at,
            entity=chance.choice([{"user": None, "client_id": "ø"}, {"user": "a", "client_id": None, "tenant": "t"}]),
            topics=chance.choice([[], ["a"], ["a", "b,c"]]),
            left=chance.choice([..., None, 1.5e-7, -3, -0.5, -0.0]),
            usage=chance.choice([1, 1e22, 0.1, 123456.789]),
        )
        log.volume(
            at,
            topic_bytes=chance.choice([{}, {"a": 1}, {"a": 1, "b,}:": 2}]),
            more_topic_bytes=chance.choice([..., None, {}, {"x": 3, "y": 4}]),
        )
        log.producer_ids(at, limit=chance.choice([..., None, 7, 7.5])).latency(at).owned(at, user=chance.choice([..., None])).gap(
            at
        )
    return log.lines


def test_what_a_proxy_writes_is_parsed_without_spark(tmp_path: Path) -> None:
    author = Author("proxy-1", "00000000000000a1")
    start, end = iso(1_772_366_400), iso(1_772_366_410.5)
    by = Requester("User:CN=partner,O=Example", 'client "1"', "10.0.0.1:4000", 19, 7, topics=("orders", "ø"))
    decision = Decision("controller_mutations", Action.REFUSE, Entity("alice", None), (0,), 12.5, 5.0, 1.5, 'no "more"', 7.5)
    volume = Volume(1, "/data", 1 << 40, 1 << 38)
    replicas = Replicas({}, {f"topic-{number}": 1 << 30 for number in range(30)}, 1 << 39)
    key = TallyKey("User:ø", None, "orders,", None, 0)
    written = [
        usage_line(author, Row(key, 1, 2**40, 0, 5, 7, 0, 12, {"a": 1, "b": 2, "c": 3}), start, end),
        decision_line(author, decision, by, start, 3),
        volume_line(author, volume, start, "cluster", (1e9, 2e9), 0.123456, replicas, all_topics=True),
        volume_line(author, volume, start, "local", None, 1.0, None),
        producer_ids_line(author, "alice", Usage(5, 100.5, 95.5, 0.1, 0.0, 7.2, overfull=False), 3600.0, start, end),
        latency_line(author, Place(Part.BROKER, 1, 0), [0, 3, 4, 1], start, end),
        owned_line(author, Holds(owner_of("payments"), 3, 12, 1 << 40), start, end),
        owned_line(author, Holds(Entity("alice", None), 3, 12), start, end),
        author.line("gap", at=start, lines=7),
    ]
    found = counted([orjson.dumps(line) for line in written], tmp_path)
    assert found == {"usage": 1, "decision": 1, "volume": 2, "producer_ids": 1, "owned": 2, "latency": 1, "gap": 1}


def test_what_no_proxy_writes_is_left_as_it_is(tmp_path: Path) -> None:
    bad = [data for data, _, _ in BAD.values()]
    assert counted(bad, tmp_path) == {UNPARSED: len(bad)}
    rows = pyarrow.dataset.dataset(tmp_path / "parsed" / f"type={UNPARSED}", format="parquet").to_table().to_pylist()
    assert Counter(row["raw"] for row in rows) == Counter(bad)


@pytest.mark.parametrize("block", [300, 5000, 8 << 20])
def test_blocks_and_files_of_any_size_hold_all_lines(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK", block)
    monkeypatch.setattr(arrow_parse, "_ROWS_OF_A_FILE", 50)
    monkeypatch.setattr(arrow_parse, "_ROWS_HELD", 100)
    lines = mixed(random.Random(1))
    found = counted(lines, tmp_path)
    assert sum(found.values()) == len(lines)
    assert found["usage"] >= 30


@pytest.mark.spark
def test_both_ways_give_the_same_lines(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reports.ingest import Destination, store_lines
    from reports.line_store import stored_schema
    from reports.read import load, parse_local, read_lines

    monkeypatch.setattr(text_blocks, "BLOCK", 50_000)
    chance = random.Random(3)
    good = mixed(chance)
    twice = Log().usage(refused={"q": 3}).lines[0].replace(b'"q":3', b'"q":3,"q":4')
    late = [Log().gap(timedelta(days=days).total_seconds()).lines[0] for days in (1.9, 2, 2.1)]
    zero = Log().decision(left=-3).lines[0].replace(b'"left":-3', b'"left":-0')
    lines = [*good, twice, zero, *late, *(data for data, _, _ in BAD.values()), *GOOD.values()]
    for _ in range(4000):
        line = chance.choice(good)
        begin = chance.randrange(len(line))
        lines.append(line[:begin] + chance.choice([b"", *ODD]) + line[begin + chance.choice((0, 1, 1, 2, 5)) :])
    folder = tmp_path / "logs %41+ø" / "sub [1]"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    (folder / "b.jsonl.gz").write_bytes(
        gzip.compress(b"\n".join(lines[:20])) + gzip.compress(b"\n".join(lines[20:40]) + b"\r\n" + good[0])
    )
    (folder / "c #;&?.jsonl").write_bytes(good[0])
    (folder / "d.jsonl").write_bytes(b"\n\n")
    (folder / "e.jsonl").touch()
    logs = str(tmp_path / "logs %41+ø")

    def stored(way: str) -> "Counter[Any]":
        destination = Destination(tmp_path / "out", Staging(tmp_path / way), logs)
        destination.staging.path.mkdir()
        if way == "arrow":
            assert parse_local(logs, NOON, destination)
            load(spark, logs, NOON, destination, parsed=True)
        else:
            store_lines(read_lines(spark, logs), NOON, destination)
        return Counter(map(repr, spark.read.schema(stored_schema()).parquet(str(destination.incoming)).collect()))

    arrow, by_spark = stored("arrow"), stored("spark")
    assert list(arrow - by_spark)[:1] == list(by_spark - arrow)[:1] == []
    assert sum(arrow.values()) == len(lines) + 41 + 1 + 2 - 1
    assert len(local_files(logs)) == 5


@pytest.mark.spark
def test_a_damaged_file_is_left_to_spark(spark: "SparkSession", tmp_path: Path) -> None:
    from reports.ingest import Destination
    from reports.read import load, parse_local

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join(mixed(random.Random(1))))[:-9])
    Log().usage().write(tmp_path / "logs")
    destination = Destination(tmp_path / "out", Staging(tmp_path / "staging"), str(tmp_path / "logs"), incremental=True)
    destination.staging.path.mkdir()
    assert not parse_local(destination.logs, NOON, destination)
    assert not destination.incoming.exists()
    load(spark, destination.logs, NOON, destination)
    assert [row["reason"] for row in spark.read.parquet(str(destination.incoming)).where("reason = 'damaged_file'").collect()]
