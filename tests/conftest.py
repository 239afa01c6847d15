"""Fixtures that several test folders share.

Real clusters, started when a test first asks, stopped at the end of the session; and worlds of sessions without sockets.
"""

import sys
from collections.abc import Callable, Iterator

import pytest

from localkafka import LocalCluster
from tests.support import World

# The quick compiler only: two cores have better to do in short tests than to optimise a broker. Benchmarks do without this.
QUICK_START = ["-XX:TieredStopAtLevel=1"]


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@pytest.fixture(scope="session")
def kafka1() -> Iterator[LocalCluster]:
    """One broker. A test that uses it makes topics of its own, and leaves the broker running."""
    with LocalCluster(1, jvm_flags=QUICK_START, progress=_say) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3() -> Iterator[LocalCluster]:
    """Three brokers. A test that stops one starts it again."""
    with LocalCluster(3, jvm_flags=QUICK_START, progress=_say) as cluster:
        yield cluster


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Every world that a test makes is checked at its end: no bytes may have come out that no step asked for."""
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.nothing_left()
