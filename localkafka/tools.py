"""Runs Kafka's own command line tools and small Java programs, with no scripts of Kafka installed.

In: a tool's name as in kafka-topics.sh, or a Java source file, and arguments. Out: what it printed and its exit code.
Leaves to others: the cluster that it talks to.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from localkafka import jvm
from localkafka.guard import Guard
from localkafka.jars import DEFAULT_VERSION, cache_dir, fetch, fetch_streams
from localkafka.java import Java, find_java

# Main classes by tool; where a tool has moved between versions, the newest place comes first.
_CLASSES = {
    "acls": ("org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand"),
    "broker-api-versions": ("org.apache.kafka.tools.BrokerApiVersionsCommand", "kafka.admin.BrokerApiVersionsCommand"),
    "client-metrics": ("org.apache.kafka.tools.ClientMetricsCommand",),
    "cluster": ("org.apache.kafka.tools.ClusterTool",),
    "configs": ("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand"),
    "console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer",),
    "console-producer": ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "console-share-consumer": ("org.apache.kafka.tools.consumer.ConsoleShareConsumer",),
    "consumer-groups": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",),
    "consumer-perf-test": ("org.apache.kafka.tools.ConsumerPerformance",),
    "delegation-tokens": ("org.apache.kafka.tools.DelegationTokenCommand",),
    "delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand",),
    "dump-log": ("kafka.tools.DumpLogSegments",),
    "e2e-latency": ("org.apache.kafka.tools.EndToEndLatency",),
    "features": ("org.apache.kafka.tools.FeatureCommand",),
    "get-offsets": ("org.apache.kafka.tools.GetOffsetShell",),
    "groups": ("org.apache.kafka.tools.GroupsCommand",),
    "leader-election": ("org.apache.kafka.tools.LeaderElectionCommand",),
    "log-dirs": ("org.apache.kafka.tools.LogDirsCommand",),
    "metadata-quorum": ("org.apache.kafka.tools.MetadataQuorumCommand",),
    "producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance",),
    "reassign-partitions": ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand",),
    "share-consumer-perf-test": ("org.apache.kafka.tools.ShareConsumerPerformance",),
    "share-groups": ("org.apache.kafka.tools.consumer.group.ShareGroupCommand",),
    "storage": ("kafka.tools.StorageTool",),
    "topics": ("org.apache.kafka.tools.TopicCommand",),
    "transactions": ("org.apache.kafka.tools.TransactionsCommand",),
    "verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer",),
    "verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer",),
}
_ALIASES = {
    "producer-perf": "producer-perf-test",
    "consumer-perf": "consumer-perf-test",
    "share-consumer": "console-share-consumer",
}

_COMPILE_LIMIT = 120.0  # seconds


class ToolError(RuntimeError):
    """A tool ended with another exit code than 0. The message holds what it printed."""


def tool(
    name: str, *arguments: str, version: str = DEFAULT_VERSION, stdin: str = "", timeout: float = 180.0, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a tool as a user runs kafka-NAME.sh: `tool("topics", "--bootstrap-server", servers, "--list")`.

    `timeout` is in seconds, the start of its JVM (about half a second) included. `check` raises ToolError when it fails.
    Errors: ValueError for a name that this version has no tool for, subprocess.TimeoutExpired; those of finding Java and Kafka.
    """
    java = find_java()
    jars = fetch(version, java)
    return _run(java, jars, [main_class(name, jars), *arguments], stdin=stdin, timeout=timeout, check=check)


def run_java(
    source: Path,
    *arguments: str,
    version: str = DEFAULT_VERSION,
    streams: bool = False,
    stdin: str = "",
    timeout: float = 180.0,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run one Java source file, whose class has the file's name, with Kafka's client (and all its other jars) on the class path,
    those of Kafka Streams if `streams`. It is compiled when it is new, and kept compiled beside Kafka's jars.

    Errors as of `tool`; JavaMissing also when it has to be compiled and this Java brings no compiler.
    """
    java = find_java()
    folders = [fetch(version, java), *([fetch_streams(version, java)] if streams else [])]
    text = "\n".join([java.release, *map(str, folders), source.name, source.read_text()])
    classes = cache_dir() / "programs" / hashlib.sha256(text.encode()).hexdigest()[:24]
    if not classes.is_dir():
        failed = _compile(java, folders, source, classes, check=check)
        if failed is not None:
            return failed
    return _run(java, folders[0], [source.stem, *arguments], folders[1:], classes, stdin=stdin, timeout=timeout, check=check)


def main_class(name: str, jars: Path) -> str:
    """The class behind a tool, by its name with or without `kafka-` and `.sh`. Errors: ValueError."""
    short = name.removeprefix("kafka-").removesuffix(".sh")
    candidates = _CLASSES.get(_ALIASES.get(short, short))
    if candidates is None:
        raise ValueError(f"no Kafka tool {name!r}; there are: {', '.join(_CLASSES)}")
    present = _classes(jars)
    for candidate in candidates:
        if candidate in present:
            return candidate
    raise ValueError(f"this version of Kafka has no tool {name!r}")


def _compile(
    java: Java, folders: Sequence[Path], source: Path, classes: Path, *, check: bool
) -> subprocess.CompletedProcess[str] | None:
    """None when it is compiled, else what the compiler says. Several processes may do so at once: the first one's classes stay."""
    java.require_compiler()
    classes.parent.mkdir(parents=True, exist_ok=True)
    path = ":".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
    with tempfile.TemporaryDirectory(dir=classes.parent) as folder:
        made = Path(folder, "classes")
        arguments = ["jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", str(made), "-cp", path, str(source)]
        command = [str(java.path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-m", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_LIMIT, check=False)
        if run.returncode != 0:
            if check:
                raise ToolError(f"{source} cannot be compiled:\n{run.stdout}{run.stderr}")
            return run
        with suppress(OSError):  # another process was first
            made.rename(classes)
    return None


def _run(
    java: Java,
    jars: Path,
    program: list[str],
    more: Sequence[Path] = (),
    classes: Path | None = None,
    *,
    stdin: str,
    timeout: float,
    check: bool,
) -> subprocess.CompletedProcess[str]:
    with Guard() as guard:
        command = jvm.tool_command(java, jars, guard.folder, more, classes)
        run = guard.run([*command, *program], input=stdin, timeout=timeout)
    if check and run.returncode != 0:
        raise ToolError(f"{' '.join(program)} ended with exit code {run.returncode}:\n{run.stdout}{run.stderr}")
    return run


@lru_cache(maxsize=8)
def _classes(jars: Path) -> frozenset[str]:
    """The classes in the two jars that hold tools."""
    names: set[str] = set()
    for pattern in ("org.apache.kafka_kafka-tools-[0-9]*.jar", "org.apache.kafka_kafka_2.13-*.jar"):
        for jar in jars.glob(pattern):
            with zipfile.ZipFile(jar) as archive:
                names.update(
                    name.removesuffix(".class").replace("/", ".") for name in archive.namelist() if name.endswith(".class")
                )
    return frozenset(names)
