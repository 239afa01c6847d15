"""An archive of the classes that Spark loads, with which a report of few lines takes a fifth less CPU (class data sharing).

In: this Java and this PySpark. Out: a file in the cache folder, 200 MB, which `reports.session` uses where it is. `python -m
reports.class_archive` makes it, once, in half a minute. All works without it, and Java passes over one that does not fit.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reports.errors import ReportError
from reports.requirements import check_requirements, find_java

_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""Java says on standard output that an archive does not fit."""
_IN_PLACE = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Java 17 maps an archive to a random address, so that nobody can guess it, and rewrites its pages for that: 143 MiB of memory of
its own instead of 65, the others stay the file's."""
_LENGTH = 900.0  # seconds that it may take, at most: a machine with a load of 36 did not do it in 300
_KEPT = 3  # archives in the cache folder, as each clone with a virtual environment of its own has one
_COMMON = {"v": 1, "proxy": "p", "boot": "b"}
_TIMES = {"start": "2026-03-01T12:00:00.000Z", "end": "2026-03-01T12:00:10.000Z", "at": "2026-03-01T12:00:00.000Z"}
_USAGE: dict[str, Any] = {
    "principal": "User:a",
    "client_id": None,
    "topic": None,
    "topic_id": None,
    "api": "Produce",
    "api_key": 0,
    "requests": 1,
    "request_bytes": 1000,
    "response_bytes": 9,
    "record_bytes": 0,
    "records": None,
    "mutations": 0,
    "throttle_ms": 0,
    "refused": {},
}
_VOLUME: dict[str, Any] = {"source": "cluster", "broker_id": 1, "log_dir": "/d", "total_bytes": 9, "usable_bytes": 5, "factor": 1.0}
_LINES: tuple[dict[str, Any], ...] = (
    {"type": "usage", **_USAGE},
    {"type": "usage", **_USAGE, "topic": "t", "record_bytes": 900, "records": 1, "refused": {"producer_byte_rate": 1}},
    {"type": "volume", **_VOLUME, "replica_bytes": 3, "topic_bytes": {"t": 3}},
    {"type": "producer_ids", "user": "a", "active": 1, "counted": 1, "window_ms": 1000, "limit": None},
)
_QUOTAS = "quotas: {entities: [{user: a, producer_byte_rate: 10}]}"


def archive() -> Path | None:
    """Where the archive for this Java and this PySpark is, or would be; None without one of the two."""
    java, spark = find_java(), find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    files = [Path(java).resolve(), Path(spark.origin).resolve()]
    # Java compares paths and times of the jars, too.
    key = sha256(json.dumps([[str(file), file.stat().st_mtime_ns] for file in files]).encode()).hexdigest()
    return _cache_folder() / f"spark-classes-{key[:16]}.jsa"


def java_options() -> str:
    """Options of Java that use the archive; none where there is none."""
    path = archive()
    return f'{_QUIET} {_IN_PLACE} "-XX:SharedArchiveFile={path}"' if path is not None and path.exists() else ""


def make() -> None:
    """Make the archive, where it is missing, by a report of a few lines.

    Raises:
        ReportError: what a report needs is missing, or there is no archive afterwards or in time.
    """
    check_requirements()
    path = archive()
    if path is None or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        folder = Path(scratch)
        made = folder / path.name
        (folder / "logs").mkdir()
        (folder / "logs" / "usage.jsonl").write_text("".join(_texts()), encoding="utf-8")
        (folder / "quotas.yaml").write_text(_QUOTAS, encoding="utf-8")
        java = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_QUIET} "-XX:ArchiveClassesAtExit={made}"'
        command = [sys.executable, "-m", "reports.job", "--logs", str(folder / "logs"), "--out", str(folder / "out")]
        command += ["--what-if", str(folder / "quotas.yaml"), "--spark-conf", f"spark.driver.extraJavaOptions={java}"]
        # Java writes the archive when Python has ended; it has the same standard output, whose end is that of both.
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=_LENGTH, check=False)
        except subprocess.TimeoutExpired as error:
            raise ReportError(f"the archive of Spark's classes was not made within {_LENGTH:g} s") from error
        if not made.exists():
            raise ReportError(f"there is no archive of Spark's classes: {said.stderr.strip() or 'Java did not write it'}")
        made.replace(path)
    kept = sorted(path.parent.glob("spark-classes-*.jsa"), key=lambda file: file.stat().st_mtime)
    for old in kept[:-_KEPT]:
        old.unlink(missing_ok=True)


def _texts() -> Iterator[str]:
    for number, line in enumerate(_LINES, 1):
        times = ("at",) if line["type"] == "volume" else ("start", "end")
        yield json.dumps({**_COMMON, "seq": number, **{name: _TIMES[name] for name in times}, **line}) + "\n"
    yield "{\n"


def _cache_folder() -> Path:
    if given := os.environ.get("KAFKA_QUOTA_PROXY_CACHE"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-quota-proxy").absolute()


if __name__ == "__main__":
    try:
        make()
    except ReportError as error:
        print(f"reports.class_archive: {error}", file=sys.stderr)
        sys.exit(1)
