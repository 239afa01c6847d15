"""The wall clock of a machine is set back by an hour while a proxy runs, and forward again: the usage log goes on as if nothing had
been, but for the labels of its intervals. A real process, whose wall clock is another one (libfaketime), before a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, put, wait_until
from tests.real.raw import Connection, connect

pytestmark = pytest.mark.kafka

HOUR = 3600.0
MINUTE = 60.0
"""Seconds by which times may differ that are of the same hour: how long something takes is not what is tested."""
CLIENT_ID = "counted"
METADATA = (3, 8)


class WallClock:
    """Of the processes that are started while it is preloaded: so many seconds beside the machine's."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0)

    def set(self, seconds: float) -> None:
        put(self.file, f"{seconds:+.0f}\n")


def library() -> Path | None:
    """Where distributions put it: Debian in a folder of the processor, others beside."""
    places = ("lib/*/faketime", "lib/faketime", "lib64/faketime")
    return next((path for place in places for path in Path("/usr").glob(f"{place}/libfaketimeMT.so.1")), None)


@pytest.fixture
def wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    found = library()
    if found is None:
        pytest.skip("no libfaketime on this machine (Debian: apt-get install libfaketime)")
    made = WallClock(tmp_path / "wall-clock")
    monkeypatch.setenv("LD_PRELOAD", str(found))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(made.file))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    return made


class Traffic:
    """A client that asks while it waits for something, so that every interval has something in it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.client_id = CLIENT_ID
        self.requests = 0

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        def look() -> Any:
            self._connection.decoded(*METADATA, topics=[])
            self.requests += 1
            return condition()

        return wait_until(look, what)


def rows(proxy: ProxyProcess) -> list[dict[str, Any]]:
    """What the log says of that client, in its order."""
    return [line for line in proxy.usage() if line["type"] == "usage" and line["client_id"] == CLIENT_ID]


def seconds(label: str) -> float:
    return datetime.fromisoformat(label).timestamp()


def intervals_at(proxy: ProxyProcess, offset: float) -> list[dict[str, Any]]:
    """Those that began and ended by a wall clock that is so far from the machine's."""
    now = time.time() + offset
    return [row for row in rows(proxy) if all(abs(seconds(row[label]) - now) < MINUTE for label in ("start", "end"))]


def jumps(proxy: ProxyProcess) -> Iterator[float]:
    return (line["seconds"] for line in proxy.lines("wall clock jumped"))


def test_the_usage_log_goes_on(kafka1: LocalCluster, wall_clock: WallClock, tmp_path: Path) -> None:
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers) as proxy, connect(proxy.bootstrap) as connection:
        traffic = Traffic(connection)
        traffic.until(lambda: intervals_at(proxy, 0), "an interval")
        wall_clock.set(-HOUR)
        traffic.until(lambda: len(list(jumps(proxy))) == 1, "the jump back to be told")
        traffic.until(lambda: len(intervals_at(proxy, -HOUR)) >= 2, "two intervals of an hour ago")
        before = len(intervals_at(proxy, 0))
        wall_clock.set(0)
        traffic.until(lambda: len(list(jumps(proxy))) == 2, "the jump forward to be told")
        traffic.until(lambda: len(intervals_at(proxy, 0)) >= before + 2, "two more intervals of now")
    back, forward = jumps(proxy)
    assert abs(back + HOUR) < MINUTE
    assert abs(forward - HOUR) < MINUTE
    lines = proxy.usage()
    assert [line for line in lines if line["type"] == "gap"] == []
    numbers = [line["seq"] for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no line is lost"
    assert sum(row["requests"] for row in rows(proxy)) == traffic.requests, "each request counts once"
    for row in rows(proxy):
        assert 0 < seconds(row["end"]) - seconds(row["start"]) < MINUTE, f"an interval of a second: {row}"
