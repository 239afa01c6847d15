"""DescribeLogDirs: what brokers tell of their log dirs, and that no length is believed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema

from proxy.wire.kio_bridge import encode_request
from proxy.wire.log_dirs import KEY, VERSIONS, LogDir, ask_log_dirs, read_log_dirs
from proxy.wire.primitives import BadBytes
from tests.messages import make, part_of, read_request, response
from tests.support import bad

SPOKEN = list(range(VERSIONS[0], VERSIONS[1] + 1))
GIB = 1 << 30


def log_dirs(version: int, *dirs: dict[str, Any], error_code: int = 0) -> bytes:
    """An answer; `topics` maps names to (partition, size) pairs."""
    schema = load_response_schema(KEY, version)
    result = part_of(schema, "results")
    topic = part_of(result, "topics")
    partition = part_of(topic, "partitions")

    def held(parts: list[tuple[int, int]]) -> tuple[Any, ...]:
        return tuple(make(partition, Random(i), partition_index=i, partition_size=size) for i, size in parts)

    made = []
    for each in dirs:
        topics = tuple(make(topic, Random(1), name=name, partitions=held(parts)) for name, parts in each.get("topics", {}).items())
        sizes = {"total_bytes": each.get("total", 10 * GIB), "usable_bytes": each.get("usable", GIB)}
        made.append(make(result, Random(2), error_code=each.get("error", 0), log_dir=each["path"], topics=topics, **sizes))
    return response(KEY, version, error_code=error_code, results=tuple(made))


@pytest.mark.parametrize("version", SPOKEN)
def test_sizes_and_replicas(version: int) -> None:
    topics = {"orders": [(0, 100), (7, 50)], "böse": [(1, 0)], "none": []}
    frame = log_dirs(version, {"path": "/a", "topics": topics}, {"path": "/b", "total": -1, "usable": -1, "error": 56})
    assert read_log_dirs(frame, version) == (
        0,
        [
            LogDir(0, "/a", 10 * GIB, GIB, {"orders": {0: 100, 7: 50}, "böse": {1: 0}, "none": {}}),
            LogDir(56, "/b", -1, -1, {}),
        ],
    )


@pytest.mark.parametrize("version", SPOKEN)
def test_an_error_of_the_whole(version: int) -> None:
    assert read_log_dirs(log_dirs(version, error_code=31), version) == (31, [])


@pytest.mark.parametrize("version", SPOKEN)
def test_no_part_of_a_response_passes(version: int) -> None:
    frame = log_dirs(version, {"path": "/a", "topics": {"orders": [(0, 1)]}})
    for size in range(8, len(frame)):
        assert bad(read_log_dirs, frame[:size], version), size


@pytest.mark.parametrize("version", SPOKEN)
def test_any_byte_may_be_another_and_nothing_worse_than_an_error_follows(version: int) -> None:
    frame, chance = log_dirs(version, {"path": "/a", "topics": {"orders": [(0, 1), (1, 2)]}}), Random(6)
    for _ in range(3000):
        broken = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(8, len(frame))] = chance.randrange(256)
        bad(read_log_dirs, bytes(broken), version)


def test_a_length_that_is_not_there_costs_nothing() -> None:
    head = (b"\0\0\0\0" * 2) + b"\0" + bytes(4) + bytes(2)
    with pytest.raises(BadBytes):
        read_log_dirs(head + b"\xff\xff\xff\xff\x0f", 4)


@pytest.mark.parametrize("version", SPOKEN)
def test_all_topics_none_or_some_are_asked_about(version: int) -> None:
    for topics, asked in ((None, None), ({}, ()), ({"orders": 2}, (("orders", (0, 1)),))):
        told = read_request(KEY, version, encode_request(1, "me", ask_log_dirs(version, topics))).topics
        assert (None if told is None else tuple((it.topic, tuple(it.partitions)) for it in told)) == asked
