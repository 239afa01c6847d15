"""DescribeLogDirs (key 35, versions 4-5): how full the log dirs of a broker are, and what they hold.

In: topics whose replicas are asked about, or a whole response frame. Out: a request body, or log dirs. Version 4 is the first that
tells sizes of file systems (KIP-827). A response names every replica of a broker, so partitions are read without kio, and in
one go: callers do this in a thread. Source: DescribeLogDirsRequest/Response.json of Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import parts_of
from proxy.wire.primitives import INT16, BadBytes, Buffer, array, fixed, skip_tags, string

KEY: Final = 35
VERSIONS: Final = (4, 5)
FIRST_CORDONED: Final = 5
_PARTITION: Final = Struct(">iqq?")
"""index, size, offset lag, is it a future replica"""
_SIZES: Final = Struct(">qq")


class LogDir(NamedTuple):
    """A log dir. `total` and `usable` in bytes of its file system, -1 where the broker cannot tell. `sizes`: bytes by topic and
    partition; a replica that is about to move here counts, as it takes space."""

    error_code: int
    path: str
    total: int
    usable: int
    sizes: dict[str, dict[int, int]]


def ask_log_dirs(version: int, topics: Mapping[str, int] | None) -> Any:
    """The body of a request about all log dirs, with the replicas of these topics, by their numbers of partitions; None: of all."""
    schema: Any = load_request_schema(KEY, version)
    if topics is None:
        return schema(topics=None)
    of_topic = parts_of(schema).DescribableLogDirTopic
    return schema(topics=tuple(of_topic(topic=name, partitions=tuple(range(count))) for name, count in topics.items()))


def read_log_dirs(frame: Buffer, version: int) -> tuple[int, list[LogDir]]:
    """(error code of the whole, log dirs) of a response."""
    end = len(frame)
    pos = fixed(response_body(frame, 0, end, KEY, version), 6, end)
    error = INT16.unpack_from(frame, pos - 2)[0]
    count, pos = array(frame, pos, end, True, 2 + 1 + 1 + _SIZES.size + 1)
    found = []
    for _ in range(count):
        log_dir, pos = _read(frame, pos, end, version)
        found.append(log_dir)
    skip_tags(frame, pos, end)
    return error, found


def _read(frame: Buffer, pos: int, end: int, version: int) -> tuple[LogDir, int]:
    pos = fixed(pos, 2, end)
    error = INT16.unpack_from(frame, pos - 2)[0]
    path, pos = string(frame, pos, end, True)
    count, pos = array(frame, pos, end, True, 3)
    sizes: dict[str, dict[int, int]] = {}
    for _ in range(count):
        name, pos = string(frame, pos, end, True)
        if not name:
            raise BadBytes("a topic without a name")
        pos = skip_tags(frame, _partitions(frame, pos, end, sizes.setdefault(name, {})), end)
    at, pos = pos, fixed(pos, _SIZES.size + (version >= FIRST_CORDONED), end)
    total, usable = _SIZES.unpack_from(frame, at)
    return LogDir(error, path or "", total, usable, sizes), skip_tags(frame, pos, end)


def _partitions(frame: Buffer, pos: int, end: int, sizes: dict[int, int]) -> int:
    """Add the bytes of the partitions that stand here. The position behind them."""
    count, pos = array(frame, pos, end, True, _PARTITION.size + 1)
    for _ in range(count):
        after = fixed(pos, _PARTITION.size, end)
        index, size, _, _ = _PARTITION.unpack_from(frame, pos)
        pos = skip_tags(frame, after, end)
        sizes[index] = sizes.get(index, 0) + max(size, 0)
    return pos
