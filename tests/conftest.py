"""Fixtures that several test folders share: real clusters, started when a test first asks, stopped at the end of the session."""

import sys
from collections.abc import Iterator

import pytest

from localkafka import LocalCluster

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
