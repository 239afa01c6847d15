"""Room localkafka, jars: gets Apache Kafka's jars once into a cache folder, with the package resolver that PySpark brings.

In: a Kafka version, a Java, the cache folder of the environment. Out: a folder of jars that is complete once it is there.
Leaves to others: running them. Network settings (mirrors, proxies) are those that spark-submit honours.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from localkafka.guard import Guard
from localkafka.java import Java

DEFAULT_VERSION = "4.3.1"
Progress = Callable[[str], None]

_LAYOUT = 1  # part of the folder's name: raise it when what a folder holds changes
_FETCH_LIMIT = 1800.0  # seconds
_TAIL_LINES = 25
# Spark's resolver leaves these out, as Spark has them. The logging ones replace Kafka's, so that every version logs alike.
_FROM_SPARK = ("scala-library", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "log4j-1.2-api")
_REPLACED = ("org.slf4j_", "org.apache.logging.log4j_", "ch.qos.reload4j_")
# Brings 40 jars of a web server for one tool about Connect plugins.
_EXCLUDED = "org.apache.kafka:connect-runtime"


class FetchError(RuntimeError):
    """Kafka's jars could not be fetched. The message holds the end of what the resolver printed."""


def cache_dir() -> Path:
    """$KAFKA_QUOTA_PROXY_CACHE, else kafka-quota-proxy in $XDG_CACHE_HOME, else in ~/.cache. It need not exist."""
    if own := os.environ.get("KAFKA_QUOTA_PROXY_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-quota-proxy").absolute()


def fetch(version: str, java: Java, progress: Progress | None = None) -> Path:
    """The folder with the jars of Apache Kafka `version`, fetched when it is not there yet (about 20 s and 45 MB).

    Several processes may call this at once: one fetches, the others wait. One that is stopped half way loses only what it was
    downloading. Errors: ValueError for what is no version, FetchError.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", version):
        raise ValueError(f"not a version of Apache Kafka: {version!r}")
    say = progress or (lambda _line: None)
    folder = cache_dir() / f"kafka-{version}-{_LAYOUT}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, say):
            if not folder.is_dir():
                say(f"fetching Apache Kafka {version} (once)")
                _fill(folder, version, java)
    return folder


@contextmanager
def locked(made: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock under which `made` is made, once nobody else does; it goes with the process that holds it."""
    with _beside(made, "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that makes {made.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, version: str, java: Java) -> None:
    """Resolve beside the folder, and rename when all is there. The resolver's downloads stay until then, for a next try."""
    work = _beside(folder, "resolving")
    shutil.rmtree(work / "jars", ignore_errors=True)
    spark = _spark_home()
    resolve(work, f"org.apache.kafka:kafka_2.13:{version},org.apache.kafka:kafka-tools:{version}", java)
    for jar in (work / "jars").glob("*.jar"):
        if jar.name.startswith(_REPLACED):
            jar.unlink()
    for name in _FROM_SPARK:
        shutil.copy2(_one_jar(spark / "jars", name), work / "jars")
    (work / "jars").rename(folder)
    shutil.rmtree(work)


def resolve(work: Path, packages: str, java: Java) -> None:
    """Fill `work/jars` with the jars of these packages (Maven coordinates, with commas between) and of all that they need."""
    spark = _spark_home()
    submit = [str(spark / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "256m"]
    submit += ["--packages", packages, "--exclude-packages", _EXCLUDED, "--conf", f"spark.jars.ivy={work}"]
    # Packages are resolved before the program starts; a program that only prints a version is the cheapest there is.
    submit += ["--class", "org.apache.spark.deploy.SparkSubmit", "spark-internal", "--version"]
    environment = {**java.environment(), "SPARK_HOME": str(spark)}
    with Guard() as guard:
        try:
            run = guard.run(submit, env=environment, cwd=guard.folder, merge=True, timeout=_FETCH_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise FetchError(f"{packages} was not fetched within {_FETCH_LIMIT:.0f} s:\n{_tail(error.output)}") from None
    if run.returncode != 0 or not list((work / "jars").glob("org.apache.kafka_kafka*.jar")):
        raise FetchError(f"{packages} could not be fetched. The resolver's last words:\n{_tail(run.stdout)}")


def _tail(printed: str) -> str:
    return "\n".join(printed.strip().splitlines()[-_TAIL_LINES:])


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f"{folder.name}.{what}")


def _spark_home() -> Path:
    """The PySpark of this interpreter, whatever SPARK_HOME says: its jars and its resolver belong together."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("PySpark, whose package resolver fetches Kafka, is not installed: install kafka-quota-proxy[demo]")
    return Path(spec.origin).parent


def _one_jar(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise FetchError(f"this PySpark has no {name} in {folder}")
    return found[-1]
