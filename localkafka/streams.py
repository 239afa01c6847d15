"""Room localkafka, streams: gets the jars of Kafka Streams that a folder of Kafka's jars lacks, once, into the cache folder.

In: a Kafka version, a Java. Out: a folder with two jars, Kafka Streams and RocksDB (70 MB), for programs that `run_java` runs.
Leaves to others: Kafka's own jars, the resolver and the lock (jars.py).
"""

import shutil
from pathlib import Path

from localkafka.jars import Progress, cache_dir, locked, resolve
from localkafka.java import Java

_KEPT = ("org.apache.kafka_kafka-streams-", "org.rocksdb_rocksdbjni-")


def fetch_streams(version: str, java: Java, progress: Progress | None = None) -> Path:
    """The folder, fetched when it is not there yet. Errors: FetchError."""
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
    resolve(work, f"org.apache.kafka:kafka-streams:{version}", java)
    for jar in (work / "jars").glob("*.jar"):
        if not jar.name.startswith(_KEPT):
            jar.unlink()
    (work / "jars").rename(folder)
    shutil.rmtree(work)
