"""The Java that Spark runs in: how it is started, with which options for how much work, and where it says what went wrong.

In: a master, the size of the logs, settings of Spark. Out: a Java that waits for PySpark to come, `Java`, and is gone with its
files after the block. PySpark would start it by the same script, but only when Python has imported all of PySpark: Java takes as
long to start as that. So nothing here imports it. Left to others: the session (`reports.session`).
"""

import json
import os
import re
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from reports.class_archive import java_options
from reports.errors import ReportError

_LOG = "spark.log"

_JAVA = "spark.driver.extraJavaOptions"

_C1_ONLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java's C1 compiler only. Its default code cache is a fifth of this size; when that is full, Java stops compiling."""
QUICK = {_JAVA: f"{_C1_ONLY} -XX:+UseSerialGC"}
QUICK_BYTES = 64 * 2**20
"""Logs of fewer bytes are read by a Spark that is configured for small queries."""
BRISK = {_JAVA: f"{_C1_ONLY} -XX:+UseParallelGC"}
"""Java for logs that are read before the slow compiler has paid for itself: what waits for it counts its calls, and runs slower
than what C1 compiles for good."""
BRISK_BYTES = 2 * 2**30

_METASPACE = "-XX:MetaspaceSize=256m"
"""Spark loads more classes than that Java expects: it would collect all garbage four times while it starts."""
_TIER4_FACTOR = 16
STEADY = {
    _JAVA: "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:MaxNewSize=256m -XX:+UseTransparentHugePages "
    f"-XX:Tier4InvocationThreshold={5000 * _TIER4_FACTOR} -XX:Tier4MinInvocationThreshold={600 * _TIER4_FACTOR} "
    f"-XX:Tier4CompileThreshold={15_000 * _TIER4_FACTOR} -XX:Tier4BackEdgeThreshold={40_000 * _TIER4_FACTOR}"
}
"""Java for large logs on few cores. The C2 compiler would take a fifth of all CPU time: it compiles only what is _TIER4_FACTOR
times hotter than by default. The parallel collector costs least CPU, and keeps as much garbage as there is room for new objects."""

_PLANNERS = (
    "org/codehaus/*.*",  # compiles the Java that Spark makes of a query
    "org/apache/xbean/*.*",
    "jdk/internal/org/objectweb/*.*",
    "org/antlr/*.*",
    *[f"org/apache/spark/sql/catalyst/{part}/*.*" for part in ("analysis", "optimizer", "plans", "rules", "trees")],
    "java/io/Object*.*",
)
_DIRECTIVES = "planners.json"

_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the Java that only makes Spark's command line: half of its time."""
_CONNECTION = "connection"
_ADDRESS = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""In this variable Spark's script is told where to write port and secret."""
_ARENAS = "2"
"""Areas of memory of the C library. It would have eight for each core, and each keeps what one of Java's many threads once used."""
_POLL = 0.01  # seconds
_SAYS_LITTLE = re.compile(r"at |\.\.\.|[\d/]+ [\d:]+ (WARN|INFO) ")

SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ
"""Whether `spark-submit` runs this process, and has started a Java of its own for it."""


@dataclass(slots=True)
class Java:
    """A Java of this report's own. `scratch` is where it has its files, `memory` its heap as Java has it. It ends with the process
    that started it, or with the block of `start_java` where it was not `connected`."""

    process: "subprocess.Popen[bytes]"
    scratch: Path
    memory: str
    connected: bool = False

    def keep(self) -> None:
        """Leave it running until this process ends, as PySpark is connected to it for as long."""
        self.connected = True
        if self.process.stdin is not None:
            os.dup(self.process.stdin.fileno())  # Java ends when nobody has it any more
            self.process.stdin.close()
        self.process.returncode = 0  # nobody waits for it

    def address(self) -> tuple[int, str]:
        """The port on which it waits for PySpark, and its secret. Waits until it does.

        Raises:
            ReportError: it has ended; the text has its last words.
        """
        file = self.scratch / _CONNECTION
        while not file.exists():
            if self.process.poll() is not None:
                raise ReportError(f"Spark did not start: {self.last_words() or 'Java ended at once'}")
            time.sleep(_POLL)
        said = file.read_bytes()
        port, length = struct.unpack_from(">ii", said)
        return port, said[8 : 8 + length].decode()

    def said(self) -> str:
        """What Java and Spark said on standard error."""
        return (self.scratch / _LOG).read_text(errors="replace")

    def last_words(self) -> str:
        """The last line of that which says what went wrong: not the frames of a stack, nor what Spark warns of while it stops."""
        lines = (line.strip() for line in self.said().splitlines())
        return next(reversed([line for line in lines if line and not _SAYS_LITTLE.match(line)]), "")


@contextmanager
def start_java(
    master: str, *, size: int | None = None, memory: str = "800m", settings: Mapping[str, str] | None = None
) -> Iterator[Java]:
    """Java for a session on `master`, as of `reports.session.spark_session`. It starts when the block begins, and its files are
    gone when it ends.

    Raises:
        ReportError: there is no Spark.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-quota-proxy-report-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        given = {**local_settings(master, scratch), "spark.driver.memory": memory, **_java(size, scratch), **(settings or {})}
        command = [str(spark_home() / "bin" / "spark-submit")]
        command += [text for name, value in given.items() for text in ("--conf", f"{name}={value}")]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = {
            "SPARK_LAUNCHER_OPTS": _LAUNCHER,
            "MALLOC_ARENA_MAX": _ARENAS,
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            _ADDRESS: str(scratch / _CONNECTION),
        }
        try:
            with (scratch / _LOG).open("wb") as log:
                # Java and Spark warn before any setting of theirs is read, so that no setting can stop it. What goes wrong in a
                # query comes back as an exception all the same. In a group of its own, Ctrl-C is for Python alone.
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, env=environment, process_group=0)
        except OSError as error:
            raise ReportError(f"Spark did not start: {error.filename}: {error.strerror}") from error
        java = Java(process, scratch, memory)
        try:
            yield java
        finally:
            if not java.connected:
                _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def spark_home() -> Path:
    """Where Spark is: SPARK_HOME, else the PySpark of this Python. Raises ReportError where there is none."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ReportError("Spark did not start: there is no pyspark")
    return Path(found.origin).parent


def _java(size: int | None, scratch: Path) -> dict[str, str]:
    return {name: f"{value} {_METASPACE} {java_options()}" for name, value in _for_size(size, scratch).items()}


def _for_size(size: int | None, scratch: Path) -> dict[str, str]:
    if size is None or size >= BRISK_BYTES:
        return _steady(scratch)
    return QUICK if size < QUICK_BYTES else BRISK


def _steady(scratch: Path) -> dict[str, str]:
    """STEADY, and the slow compiler is kept from planners altogether: they are hot by the number of queries, and never again.

    To say that, Java has a file of directives, which is for diagnosis by its name, and says so unless told not to.
    """
    directives = scratch / _DIRECTIVES
    directives.write_text(json.dumps([{"match": _PLANNERS, "c2": {"Exclude": True}}]), encoding="utf-8")
    options = f'-XX:+UnlockDiagnosticVMOptions "-XX:CompilerDirectivesFile={directives}" -XX:+DisplayVMOutputToStderr'
    return {_JAVA: f"{STEADY[_JAVA]} {options}"}


def local_settings(master: str, scratch: Path) -> dict[str, str]:
    """Settings of a session of our own: loopback only, no web UI, all files in `scratch`, sized for one machine."""
    return {
        "spark.app.name": "kafka-quota-proxy report",
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        # A report has more queries than Spark keeps compiled code of by default (100), and `--follow` has the same ones each time.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
