"""localkafka.tools: Kafka's tools as a user runs them, on both generations of Kafka, and small Java programs."""

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from localkafka import LocalCluster, ToolError, run_java, tool
from tests.conftest import QUICK_START

pytestmark = pytest.mark.kafka
OLD = "3.9.1"


@pytest.fixture
def run(kafka1: LocalCluster) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a tool on the shared broker and checks that it succeeds."""

    def run(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return tool(name, "--bootstrap-server", kafka1.bootstrap_servers, *arguments, stdin=stdin, check=True)

    return run


@pytest.mark.nightly  # tests/real/test_clients.py runs tools of this kind through a proxy
def test_records_go_in_and_out_by_the_console(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run("topics", "--create", "--topic", "console", "--partitions", "1")
    assert "console" in run("kafka-topics.sh", "--list").stdout.split()
    run("console-producer", "--topic", "console", stdin="a\nb\n")
    read = run("console-consumer", "--topic", "console", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    assert read.stdout == "a\nb\n"


@pytest.mark.nightly  # tests/real/test_connections.py sets and shows quotas by it
def test_quotas_are_set_and_shown(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    entity = ("--entity-type", "users", "--entity-name", "alice")
    run("configs", "--alter", *entity, "--add-config", "controller_mutation_rate=5")
    assert "controller_mutation_rate=5.0" in run("configs", "--describe", *entity).stdout


def test_both_log_dirs_are_reported(run: Callable[..., subprocess.CompletedProcess[str]], kafka1: LocalCluster) -> None:
    described = run("log-dirs", "--describe").stdout
    assert all(str(folder) in described for folder in kafka1.brokers[0].log_dirs)
    assert str(kafka1.brokers[0].metadata_dir) not in described


@pytest.mark.nightly  # tests/real/test_flows.py reads by it
def test_a_share_group_reads(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run(
        "configs",
        "--alter",
        "--entity-type",
        "groups",
        "--entity-name",
        "sharers",
        "--add-config",
        "share.auto.offset.reset=earliest",
    )
    run("console-producer", "--topic", "shared", stdin="x\n")
    read = run("share-consumer", "--topic", "shared", "--group", "sharers", "--max-messages", "1", "--timeout-ms", "20000")
    assert read.stdout == "x\n"


@pytest.mark.nightly  # tests/real/test_clients.py runs the first of them through a proxy
def test_the_performance_tools_measure(kafka1: LocalCluster) -> None:
    servers = f"bootstrap.servers={kafka1.bootstrap_servers}"
    size = ("--num-records", "1000", "--record-size", "100", "--throughput", "-1")
    made = tool("producer-perf", "--topic", "perf", *size, "--producer-props", servers, check=True)
    assert "1000 records sent" in made.stdout
    read = tool(
        "consumer-perf", "--topic", "perf", "--bootstrap-server", kafka1.bootstrap_servers, "--messages", "1000", check=True
    )
    assert "1000" in read.stdout


def test_a_tool_that_fails_says_why(kafka1: LocalCluster) -> None:
    describe = partial(tool, "topics", "--bootstrap-server", kafka1.bootstrap_servers, "--describe", "--topic", "absent")
    assert describe().returncode != 0
    with pytest.raises(ToolError, match=r"(?s)exit code 1.*absent"):
        describe(check=True)


def test_a_tool_that_takes_too_long_is_ended(kafka1: LocalCluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        tool("console-consumer", "--bootstrap-server", kafka1.bootstrap_servers, "--topic", "perf", timeout=1)


def test_an_unknown_tool_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match="no Kafka tool 'zap'; there are: acls, "):
        tool("zap")


def test_a_java_source_file_runs_with_kafkas_client(kafka1: LocalCluster, tmp_path: Path) -> None:
    source = tmp_path / "Brokers.java"
    source.write_text("""
        import java.util.Map;
        import org.apache.kafka.clients.admin.Admin;

        public class Brokers {
            public static void main(String[] arguments) throws Exception {
                try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[0]))) {
                    System.out.println(admin.describeCluster().nodes().get().size());
                }
            }
        }
        """)
    ran = run_java(source, kafka1.bootstrap_servers, check=True)
    assert (ran.stdout, ran.stderr) == ("1\n", "")


@pytest.mark.nightly  # the tests above run the same tools of the newest version
def test_an_older_kafka_runs_with_its_own_tools() -> None:
    with LocalCluster(1, version=OLD, jvm_flags=QUICK_START) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        tool("console-producer", *server, "--topic", "old", stdin="x\n", version=OLD, check=True)
        end = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
        assert tool("console-consumer", *server, "--topic", "old", *end, version=OLD, check=True).stdout == "x\n"
        with pytest.raises(ValueError, match="this version of Kafka has no tool 'share-consumer'"):
            tool("share-consumer", version=OLD)
