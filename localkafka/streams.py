"""Fetches the jars of Kafka Streams that a folder of Kafka's jars does not have, once, into the cache folder.

In: a Kafka version, a Java. Out: a folder with two jars, Kafka Streams and RocksDB (70 MB), for programs that `run_java` runs.
Leaves to others: Kafka's own jars and the lock (jars.py), fetching (resolver.py).
"""

import shutil
from pathlib import Path

from localkafka.jars import Progress, cache_dir, locked
from localkafka.java import Java
from localkafka.resolver import FetchError, Package, resolve

_KEPT = ("org.apache.kafka_kafka-streams-", "org.rocksdb_rocksdbjni-")


def fetch_streams(version: str, java: Java, progress: Progress | None = None) -> Path:
    """The folder, fetched if it does not exist yet. Errors: FetchError."""
    say = progress or (lambda _line: None)
    folder = cache_dir() / f"kafka-streams-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, say):
            if not folder.is_dir():
                say(f"fetching Kafka Streams {version} (once)")
                _fill(folder, version, java)
    return folder


def _fill(folder: Path, version: str, java: Java) -> None:
    work = folder.with_name(f"{folder.name}.resolving")
    try:
        resolve([Package("org.apache.kafka", "kafka-streams", version)], (), work, java)
    except FetchError as error:
        raise FetchError(f"Kafka Streams {version} could not be fetched: {error}") from None
    for jar in (work / "jars").glob("*.jar"):
        if not jar.name.startswith(_KEPT):
            jar.unlink()
    (work / "jars").rename(folder)
    shutil.rmtree(work)
