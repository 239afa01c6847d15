"""Keeps the jars of Apache Kafka and of Kafka Streams in a cache folder, and repairs damaged ones.

In: a Kafka version, a Java, the cache folder of the environment. Out: a folder of jars, which is complete if it exists.
With such a folder no network is needed, and only the sizes of its files are checked.
Leaves to others: fetching (resolver.py) and where from (repository.py); running them.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localkafka.java import Java
from localkafka.resolver import FetchError, Package, is_complete, resolve, spark_home

DEFAULT_VERSION = "4.4.0"
Progress = Callable[[str], None]

_LAYOUT = 1  # part of the folder's name: raise it when what a folder holds changes
_SUMS = "sums.txt"  # a line for each jar: SHA-256, size, name
# So that every version logs alike, whichever logger it brings.
_FROM_SPARK = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "log4j-1.2-api")
_REPLACED = ("org.slf4j_", "org.apache.logging.log4j_", "ch.qos.reload4j_")
# Of Kafka Streams; the rest is among Kafka's own jars.
_STREAMS = ("org.apache.kafka_kafka-streams-", "org.rocksdb_rocksdbjni-")


@dataclass(frozen=True)
class _Collection:
    """Jars that are in one folder. `title` is for people; `finish` removes and adds jars once all are fetched."""

    title: str
    folder: Path
    wanted: Sequence[Package]
    finish: Callable[[Path], None]
    excluded: Sequence[Package] = ()
    takes: str = ""
    """How long fetching takes, and how much it is."""


def cache_dir() -> Path:
    """$KAFKA_QUOTA_PROXY_CACHE, else kafka-quota-proxy in $XDG_CACHE_HOME, else in ~/.cache. It need not exist."""
    if own := os.environ.get("KAFKA_QUOTA_PROXY_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-quota-proxy").absolute()


def fetch(version: str, java: Java, progress: Progress | None = None) -> Path:
    """The folder with the jars of Apache Kafka `version`, fetched when it is not there yet (20 s to a minute, 45 MB).

    Several processes may call this at once: one fetches, the others wait. One that is stopped half way loses only what it was
    downloading. A folder in which a jar is missing or too short is made again.
    Errors: ValueError for what is no version, FetchError.
    """
    return _fetched(_kafka(version), java, progress, _missing_or_short)


def fetch_checked(version: str, java: Java, progress: Progress | None = None) -> Path:
    """Like `fetch`, and compares the checksums of all jars that are there (0.2 s)."""
    return _fetched(_kafka(version), java, progress, _changed)


def fetch_streams(version: str, java: Java, progress: Progress | None = None) -> Path:
    """Like `fetch`, of what Kafka Streams needs beside Kafka's own jars: two jars (70 MB), for programs that `run_java` runs."""
    return _fetched(_streams(version), java, progress, _missing_or_short)


def _kafka(version: str) -> _Collection:
    if not re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", version):
        raise ValueError(f"not a version of Apache Kafka: {version!r}")
    return _Collection(
        f"Apache Kafka {version}",
        cache_dir() / f"kafka-{version}-{_LAYOUT}",
        [Package("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")],
        _same_logger,
        [Package("org.apache.kafka", "connect-runtime")],  # brings 40 jars of a web server for one tool about Connect plugins
        "; 45 MB, 20 s to a minute",
    )


def _streams(version: str) -> _Collection:
    wanted = [Package("org.apache.kafka", "kafka-streams", version)]
    return _Collection(f"Kafka Streams {version}", cache_dir() / f"kafka-streams-{version}", wanted, _only_streams)


def _same_logger(jars: Path) -> None:
    for jar in jars.glob("*.jar"):
        if jar.name.startswith(_REPLACED):
            jar.unlink()
    for name in _FROM_SPARK:
        shutil.copy2(_one_jar(spark_home() / "jars", name), jars)


def _only_streams(jars: Path) -> None:
    for jar in jars.glob("*.jar"):
        if not jar.name.startswith(_STREAMS):
            jar.unlink()


def _fetched(wanted: _Collection, java: Java, progress: Progress | None, damage: Callable[[Path], str | None]) -> Path:
    say, folder = progress or (lambda _line: None), wanted.folder
    try:
        if damage(folder) is not None:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder, say):
                _repair(wanted, java, say, damage)
    except OSError as error:
        raise FetchError(
            f"the cache folder {folder.parent} cannot be used ({error.strerror or error}): set KAFKA_QUOTA_PROXY_CACHE to another"
        ) from None
    except FetchError as error:
        raise FetchError(f"{wanted.title} could not be fetched: {error}") from None
    return folder


def _repair(wanted: _Collection, java: Java, say: Progress, damage: Callable[[Path], str | None]) -> None:
    folder = wanted.folder
    if folder.is_dir() and not (folder / _SUMS).exists() and _all_open(folder):
        _write_sums(folder)  # made by a version that wrote no checksums
    damaged = damage(folder)
    if damaged is None:
        return  # another process has made it meanwhile
    if folder.is_dir():
        say(f"the cache of {wanted.title} is damaged ({damaged}): fetching it again")
    else:
        say(f"fetching {wanted.title} (once{wanted.takes})")
    _fill(wanted, java, say)


@contextmanager
def locked(made: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of `made` while it is being made. The lock ends with the process that holds it."""
    with _beside(made, "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that makes {made.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(wanted: _Collection, java: Java, say: Progress) -> None:
    """Resolve beside the folder, and rename once it is complete. The resolver's downloads stay until then, for a next try."""
    folder = wanted.folder
    work, made = _beside(folder, "resolving"), _beside(folder, "resolving") / "jars"
    left_over = (work / "cache").is_dir()
    try:
        resolve(wanted.wanted, wanted.excluded, work, java)
    except FetchError as error:
        if not (left_over and error.again):
            raise
        say("what an earlier try left behind is useless: starting from the beginning")
        shutil.rmtree(work)
        resolve(wanted.wanted, wanted.excluded, work, java)
    wanted.finish(made)
    _write_sums(made)
    if folder.exists():
        folder.rename(work / "damaged")
    made.rename(folder)
    shutil.rmtree(work)


def _sums(folder: Path) -> dict[str, tuple[int, str]]:
    """Name → size in bytes and SHA-256 of each jar, as noted when they were fetched; empty where there is no such note."""
    try:
        lines = (folder / _SUMS).read_text().splitlines()
        fields = [line.split(maxsplit=2) for line in lines]
        return {name: (int(size), digest) for digest, size, name in fields}
    except (FileNotFoundError, ValueError):
        return {}


def _write_sums(folder: Path) -> None:
    lines = [f"{_digest(jar)} {jar.stat().st_size} {jar.name}\n" for jar in sorted(folder.glob("*.jar"))]
    partial = folder / f"{_SUMS}.partial"
    partial.write_text("".join(lines))
    partial.rename(folder / _SUMS)


def _missing_or_short(folder: Path) -> str | None:
    """What is wrong with a folder, as far as sizes tell; None when nothing is."""
    sums = _sums(folder)
    for name, (size, _) in sums.items():
        try:
            found = (folder / name).stat().st_size
        except FileNotFoundError:
            return f"{name} is missing"
        if found != size:
            return f"{name} has {found} bytes instead of {size}"
    return None if sums else "it has no checksums"


def _changed(folder: Path) -> str | None:
    """What is wrong with a folder, by the checksums of its jars; None when nothing is."""
    if (damage := _missing_or_short(folder)) is not None:
        return damage
    return next((f"{name} was changed" for name, (_, digest) in _sums(folder).items() if _digest(folder / name) != digest), None)


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _all_open(folder: Path) -> bool:
    return all(is_complete(jar) for jar in folder.glob("*.jar"))


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f"{folder.name}.{what}")


def _one_jar(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise FetchError(f"this PySpark has no {name} in {folder}: install the one of constraints.txt")
    return found[-1]
