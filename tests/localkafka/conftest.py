"""A Maven repository on loopback that has a small Kafka, and a machine on which nothing else is set and nothing is in the cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from maven import Coordinates, MavenServer

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
    home = tmp_path / "home"
    home.mkdir()
    for name in NETWORK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={home}")  # Java does not look at HOME
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path / "cache"))
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
    with MavenServer() as server:
        for logger in LOGGERS:
            server.add(logger)
        add_kafka(server, "4.2.0")
        monkeypatch.setenv(SETTING, server.url)
        yield server
