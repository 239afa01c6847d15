"""`python -m benchmarks.mutations`: the experiment of seed s1 (KIP-599, "Motivation"), with the quota and without.

In: options. Out: a table. Many topics are created, 10 requests/s of 50 topics each, at a real cluster that is fresh for each row:
not at all, directly, and through the proxy with a quota. Meanwhile a bystander asks the controller for little things and another
one writes records. The creator honours what it is told: it sends refused topics again when the throttle time is over."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from loadtest.wire import QUOTA_EXCEEDED, Connection
from localkafka import LocalCluster

PROBE_EVERY: Final = 0.1
"""Seconds between two questions to the controller, and between two records."""
BEFORE: Final = 10.0
"""Seconds in which bystanders warm up."""


@dataclass(slots=True)
class Seen:
    """What one row shows; times in seconds."""

    probes: list[float] = field(default_factory=list)
    """how long the controller took for a bystander's question"""
    records: list[float] = field(default_factory=list)
    """how long a bystander's record took to be acknowledged"""
    created: int = 0
    refused: int = 0
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is created: `topics` in all, `at_once` a request, `rate` requests a second, of `partitions` each."""

    topics: int
    at_once: int
    partitions: int
    replication: int
    rate: float

    def requests(self) -> Iterator[dict[str, int]]:
        for start in range(0, self.topics, self.at_once):
            yield {f"storm-{i}": self.partitions for i in range(start, min(start + self.at_once, self.topics))}


async def run(kafka: str, creators: str | None, plan: Plan, quiet: float) -> Seen:
    """Bystanders at the cluster itself, creators at `creators`, or none for `quiet` seconds."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("bystander", 1, 1)])["bystander"].result(30)
    seen, over = Seen(), asyncio.Event()
    bystanders = [asyncio.create_task(ask(kafka, seen, over)), asyncio.create_task(write(kafka, seen, over))]
    await asyncio.sleep(BEFORE)
    seen.probes.clear()
    seen.records.clear()
    began = time.monotonic()
    if creators is None:
        await asyncio.sleep(quiet)
    else:
        await storm(creators, plan, seen)
    seen.took = time.monotonic() - began
    over.set()
    await asyncio.gather(*bystanders)
    return seen


async def storm(address: str, plan: Plan, seen: Seen) -> None:
    """Requests at their times, whether or not earlier ones are answered, until all topics are there."""
    began, tasks = time.monotonic(), []
    for i, topics in enumerate(plan.requests()):
        await asyncio.sleep(max(began + i / plan.rate - time.monotonic(), 0))
        tasks.append(asyncio.create_task(create_all(address, topics, plan, seen)))
    await asyncio.gather(*tasks)


async def create_all(address: str, topics: dict[str, int], plan: Plan, seen: Seen) -> None:
    """One request, and those that follow for what was refused."""
    connection = await Connection.open(address, "creator")
    while topics:
        codes, throttle = await connection.create(topics, plan.replication)
        refused = {name: n for name, n in topics.items() if codes[name] == QUOTA_EXCEEDED}
        failed = {code for code in codes.values() if code not in (0, QUOTA_EXCEEDED)}
        if failed:
            raise click.ClickException(f"the cluster answers with the errors {sorted(failed)}")
        seen.created += len(topics) - len(refused)
        seen.refused += len(refused)
        topics = refused
        await asyncio.sleep(throttle)
    connection.close()


async def ask(address: str, seen: Seen, over: asyncio.Event) -> None:
    """Something that has to pass the controller's queue and changes nothing."""
    connection = await Connection.open(address, "bystander")
    while not over.is_set():
        began = time.monotonic()
        await connection.create({f"probe-{began:.3f}": 1}, 1, validate_only=True)
        seen.probes.append(time.monotonic() - began)
        await asyncio.sleep(PROBE_EVERY)
    connection.close()


async def write(address: str, seen: Seen, over: asyncio.Event) -> None:
    """Records of a bystander."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "client.id": "bystander", "linger.ms": 0})
    while not over.is_set():
        began = time.monotonic()
        producer.produce("bystander", b"x" * 100)
        if await asyncio.to_thread(producer.flush, 60):
            raise click.ClickException("a record of the bystander was not acknowledged within a minute")
        seen.records.append(time.monotonic() - began)
        await asyncio.sleep(PROBE_EVERY)


@contextmanager
def proxy_before(upstream: str, quotas: dict[str, Any], **limits: Any) -> Iterator[str]:
    """The address of a proxy with these quotas and limits."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "upstream": {"bootstrap_servers": upstream.split(",")},
            "listen": {"bootstrap": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "logs": {"usage": {"path": str(Path(folder) / "logs")}},
            "limits": limits,
            "quotas": quotas,
        }
        file = Path(folder) / "settings.json"
        file.write_text(json.dumps(settings))  # JSON is YAML
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            started: dict[str, Any] = {}
            for line in process.stdout:
                event = json.loads(line)
                started = event if event["event"] == "started" else started
                if event["event"] == "upstream is up":
                    break
            yield started["bootstrap"]
        finally:
            process.terminate()
            process.communicate()


def percentile(values: list[float], share: float) -> str:
    """In milliseconds."""
    if len(values) < 2:
        return "-"
    return f"{statistics.quantiles(values, n=1000, method='inclusive')[round(share * 1000) - 1] * 1000:.0f}"


@click.command()
@click.option("--topics", default=1000, show_default=True, help="Topics in all.")
@click.option("--at-once", default=50, show_default=True, help="Topics a request.")
@click.option("--partitions", default=4, show_default=True, help="Partitions a topic.")
@click.option("--rate", default=10.0, show_default=True, help="Requests a second.")
@click.option("--brokers", default=3, show_default=True, help="Brokers of the cluster, at most 3.")
@click.option("--replication", default=2, show_default=True, help="Replicas of each partition.")
@click.option("--quota-rate", default=50.0, show_default=True, help="Partitions a second, controller_mutations_rate.")
@click.option("--quota-burst", default=500.0, show_default=True, help="Partitions, controller_mutations_burst.")
@click.option("--quiet", default=15.0, show_default=True, help="Seconds without a creator, for comparison.")
def main(
    topics: int,
    at_once: int,
    partitions: int,
    rate: float,
    brokers: int,
    replication: int,
    quota_rate: float,
    quota_burst: float,
    quiet: float,
) -> None:
    """What many topics at once do to everybody else, directly and behind a controller mutation quota."""
    plan = Plan(topics, at_once, partitions, replication, rate)
    table = Table(
        *("", "topics", "partitions/s", "refused", "s", "controller p50 ms", "p99", "max", "record p50 ms", "p99", "max"),
        title=f"{topics} topics of {partitions} partitions, {replication} replicas, {rate:g} requests/s of {at_once};"
        f" quota {quota_rate:g}/s, burst {quota_burst:g}",
    )
    for name, algorithm in (("nobody creates", None), ("directly", None), ("spread", "spread"), ("token bucket", "token_bucket")):
        print(f"{name} …", file=sys.stderr)
        with LocalCluster(brokers, log_dirs=1) as kafka:
            first = kafka.brokers[0].address
            if algorithm is None:
                seen = asyncio.run(run(first, None if name == "nobody creates" else first, plan, quiet))
            else:
                limit = {"client_id": "creator", "controller_mutations_rate": quota_rate, "controller_mutations_burst": quota_burst}
                quotas = {"entities": [limit], "controller_mutations_algorithm": algorithm}
                with proxy_before(kafka.bootstrap_servers, quotas, max_throttle="10m") as bootstrap:
                    seen = asyncio.run(run(first, bootstrap, plan, quiet))
        table.add_row(name, *row(seen, partitions))
    Console(width=160).print(table)


def row(seen: Seen, partitions: int) -> list[str]:
    cells = [str(seen.created), f"{seen.created * partitions / seen.took:.0f}", str(seen.refused), f"{seen.took:.0f}"]
    for values in (seen.probes, seen.records):
        cells += [percentile(values, 0.5), percentile(values, 0.99), f"{max(values, default=0) * 1000:.0f}"]
    return cells


if __name__ == "__main__":
    main()
