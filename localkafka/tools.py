"""Room localkafka, tools: runs Kafka's own command line tools and small Java programs, with no scripts of Kafka installed.

In: a tool's name as in kafka-topics.sh, or a Java source file, and arguments. Out: what it printed and its exit code.
Leaves to others: the cluster that it talks to.
"""

import subprocess
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from localkafka import jvm
from localkafka.guard import Guard
from localkafka.jars import DEFAULT_VERSION, fetch
from localkafka.java import Java, find_java
from localkafka.streams import fetch_streams

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


class ToolError(RuntimeError):
    """A tool ended with another exit code than 0. The message holds what it printed."""


def tool(
    name: str, *arguments: str, version: str = DEFAULT_VERSION, stdin: str = "", timeout: float = 60.0, check: bool = False
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
    timeout: float = 60.0,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Compile and run one Java source file in memory, with Kafka's client (and all its other jars) on the class path, those of
    Kafka Streams if `streams`.

    Errors as of `tool`; JavaMissing also when this Java brings no compiler.
    """
    java = find_java()
    java.require_compiler()
    more = [fetch_streams(version, java)] if streams else []
    return _run(java, fetch(version, java), [str(source), *arguments], more, stdin=stdin, timeout=timeout, check=check)


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


def _run(
    java: Java, jars: Path, program: list[str], more: Sequence[Path] = (), *, stdin: str, timeout: float, check: bool
) -> subprocess.CompletedProcess[str]:
    with Guard() as guard:
        run = guard.run([*jvm.tool_command(java, jars, guard.folder, more), *program], input=stdin, timeout=timeout)
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
