"""Client libraries that are not Python's: Java's newest and one that is three years old, and franz-go. They create topics, produce,
consume in a group, commit and delete through the proxy; they are told of a throttle, and of a refusal. What they see of every other
kind of refusal stands in test_refused_produce.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localkafka import LocalCluster, run_java
from tests.real.go_programs import go_program
from tests.real.proxies import ProxyProcess

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]

HERE = Path(__file__).parent
OLD_JAVA = "3.5.2"
"""Three years old."""
SLOW, LITTLE = "slow", "little"
"""Client ids with low byte rates, and with a mutation quota that one topic uses up for hours."""
SAID = [
    "created",
    "produced",
    "consumed 300, 300 of them different",
    "committed 300",
    "producer throttled true",
    "consumed 10, 10 of them different",
    "consumer throttled true",
    "refused true",
    "deleted",
]


def java_newest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_java(HERE / "java" / "Client.java", *arguments, timeout=240)


def java_old(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_java(HERE / "java" / "Client.java", *arguments, timeout=240, version=OLD_JAVA)


def franz_go(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = go_program(HERE / "go" / "client")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def limited(kafka3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    hardly = {"controller_mutations_rate": 0.001, "controller_mutations_burst": 1}
    entities = [
        {"client_id": SLOW, "cluster_producer_byte_rate": 3000, "cluster_consumer_byte_rate": 3000},
        *({"client_id": f"{LITTLE}-{client.__name__}", **hardly} for client in (java_newest, java_old, franz_go)),
    ]
    settings = {"quotas": {"entities": entities}, "limits": {"max_throttle": "300ms"}}
    with ProxyProcess(tmp_path_factory.mktemp("limited"), kafka3.bootstrap_servers, settings) as proxy:
        yield proxy


@pytest.mark.parametrize("client", [java_newest, pytest.param(java_old, marks=pytest.mark.nightly), franz_go])
def test_it_works_is_throttled_and_is_refused(
    limited: ProxyProcess, name: str, client: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    ran = client(limited.bootstrap, name, SLOW, f"{LITTLE}-{client.__name__}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == SAID
