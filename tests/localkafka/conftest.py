"""A Maven repository on loopback that has a small Kafka, and a machine on which nothing else is set and nothing is in the cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from maven import Coordinates, MavenServer

from localkafka import jars
from localkafka.java import find_java
from localkafka.repository import SETTING

NETWORK_VARIABLES = [f"{name}_proxy" for name in ("http", "https", "all", "no")] + [
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAVEN_OPTS",
]
LOG4J: Coordinates = ("org.apache.logging.log4j", "log4j-api", "2.25.3")
LOGGERS: list[Coordinates] = [LOG4J, ("org.slf4j", "slf4j-api", "1.7.36")]


@pytest.fixture
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it, for Python and for Java; an environment without proxies; an empty cache."""
    return empty_home(tmp_path, monkeypatch)


def empty_home(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    home = folder / "home"
    home.mkdir()
    for name in NETWORK_VARIABLES:
        patch.delenv(name, raising=False)
        patch.delenv(name.upper(), raising=False)
    patch.delenv(SETTING, raising=False)
    patch.setenv("HOME", str(home))
    patch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={home}")  # Java does not look at HOME
    patch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(folder / "cache"))
    return home


def add_kafka(server: MavenServer, version: str) -> None:
    """Kafka as far as its packages need each other: the loggers that are replaced, and Connect, which is left out."""
    client: Coordinates = ("org.apache.kafka", "kafka-clients", version)
    server.add(client, needs=LOGGERS)
    server.add(("org.apache.kafka", "kafka_2.13", version), needs=[client])
    server.add(("org.apache.kafka", "kafka-tools", version), needs=[client, ("org.apache.kafka", "connect-runtime", version)])


@pytest.fixture
def maven(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:  # noqa: ARG001
    """A repository with Kafka 4.2.0, which is the one to fetch from."""
    with small_repository() as server:
        monkeypatch.setenv(SETTING, server.url)
        yield server


@contextmanager
def small_repository() -> Iterator[MavenServer]:
    with MavenServer() as server:
        for logger in LOGGERS:
            server.add(logger)
        add_kafka(server, "4.2.0")
        yield server


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder into which Kafka 4.2.0 was fetched, to be copied."""
    folder = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch, small_repository() as server:
        empty_home(folder, patch)
        patch.setenv(SETTING, server.url)
        jars.fetch("4.2.0", find_java())
    return folder / "cache"
