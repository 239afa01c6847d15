"""`python -m benchmarks.experiments NAME`: a scenario of the load test on a real cluster, directly and behind proxies.

In: the name of an experiment, which says the quotas of each proxy. Out: a table for each way, with a row for each phase, tenant and
operation. Each way has a cluster of its own. `--set` and `--scale` change the scenario as those of
`kafka-quota-proxy loadtest run` do."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.local_proxy import LocalProxy, proxy_with
from configfile.access import Access, Login
from configfile.load import FileError
from loadtest.endpoint import Cluster, EndpointError
from loadtest.library import load
from loadtest.results.model import RunResult, TenantResult
from loadtest.results.sampling import Tree
from loadtest.results.terminal import View
from loadtest.run import Options, RunError, run_once
from loadtest.scenario import Scenario
from localkafka import LocalCluster, run_java
from localkafka.ports import HeldPort

DIRECT: Final = "direct"
USERS: Final = {"storm": "st0rm-pw", "ordinary": "0rdinary-pw", "proxy": "pr0xy-pw"}
OVERLOAD_USERS: Final = {
    name: f"{name}-pw" for name in ("small-1", "small-2", "flood-1", "flood-2", "flood-3", "ordinary", "proxy")
}
TENANT_USERS: Final = {
    name: f"{name}-pw" for name in ("batch", "stream", "other", "filler", "cool", "creator", "bystander", "ordinary", "proxy")
}
JAVA: Final = Path(__file__).with_name("java")
KIB: Final = 1 << 10
MIB: Final = 1 << 20
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Experiment:
    """`ways`: the proxy's settings by what a way is called, None for no proxy. `variants`: what is set in the scenario, by name."""

    scenario: str
    ways: Mapping[str, Settings | None]
    variants: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {"": {}})
    brokers: int = 1
    users: Mapping[str, str] | None = None
    """Users and passwords of a cluster with logins. Tenants log in as the users of their names, all else as `ordinary`."""
    properties: Mapping[str, str] = field(default_factory=dict)
    jvm_flags: tuple[str, ...] = ()
    """These and `properties`: of the brokers."""
    producer_state: bool = False
    """Whether the broker is asked how many producer ids it keeps, and what that takes of its heap."""


def of_client(client_id: str, **limits: object) -> Settings:
    """Settings with limits for one client id."""
    return {"quotas": {"entities": [{"client_id": client_id, **limits}]}}


def _mutations(algorithm: str) -> Settings:
    limits = {"controller_mutations_rate": 50, "controller_mutations_burst": 500}
    quotas = {"entities": [{"client_id": "creator", **limits}], "controller_mutations_algorithm": algorithm}
    return {"quotas": quotas, "limits": {"max_throttle": "10m"}}


def _producer_ids(**mode: object) -> Settings:
    return {"quotas": {"entities": [{"user": "storm", "producer_ids_rate": 100}], "producer_ids": mode}}


def _rates(scenario: str, client_id: str, setting: str, quota: int, **variants: Mapping[str, object]) -> Experiment:
    """Clients of one id that want more than their quota: one, ten and a hundred connections."""
    found = {f"{name} × {n}": {**sets, "clients": n, "quota": quota} for name, sets in variants.items() for n in (1, 10, 100)}
    return Experiment(scenario, {setting: of_client(client_id, **{setting: quota})}, found)


TOPIC_THRESHOLDS: Final = {
    "meter": "window",
    "total_bytes_in_per_sec": 368 * KIB,
    "bytes_in_per_sec": {"hot": 256 * KIB, "cool": 112 * KIB},
}
"""The scenario needs a threshold for each of its topics, and a total that both can reach."""

EXPERIMENTS: Final[dict[str, Experiment]] = {
    "mutations": Experiment(
        "mutation-storm", {DIRECT: None, "spread": _mutations("spread"), "token bucket": _mutations("token_bucket")}, brokers=3
    ),
    "producer-ids": Experiment(
        "producer-id-storm",
        {
            DIRECT: None,
            "throttle": _producer_ids(mode="throttle"),
            "throttle, hold_new": _producer_ids(mode="throttle", hold_new=True),
            "reject": _producer_ids(mode="reject"),
            "reject, hold_new": _producer_ids(mode="reject", hold_new=True),
        },
        {
            "open": {"partitions": 20, "rate": 100},
            "loops": {"partitions": 20, "rate": 100, "clients": 100, "closed": True},
            "librdkafka": {"partitions": 20, "rate": "max", "clients": 20, "client": "librdkafka"},
        },
        users=USERS,
        producer_state=True,
    ),
    "produce-rate": _rates(
        "byte-rate", "writer", "producer_byte_rate", MIB, small={"size": 100, "rate": 30_000}, large={"size": 10 * KIB, "rate": 400}
    ),
    "read-rate": _rates("read-rate", "reader", "consumer_byte_rate", MIB, records={"size": 10 * KIB}),
    "cold-reads": Experiment(
        "cold-reads",
        {
            "cold_read_rate": {
                "quotas": {"entities": [{"client_id": "backfill", "cluster_cold_read_rate": MIB}], "cold_read_lag": 100}
            }
        },
        {f"{n} consumers": {"clients": n, "quota": MIB} for n in (1, 6)},
    ),
    "request-rate": _rates("request-rate", "asker", "request_rate", 50, metadata={}),
    "request-kinds": _rates("request-kinds", "asker", "metadata_request_rate", 50, metadata={}),
    "connection-storm": Experiment(
        "connection-storm",
        {"no limit": {}, "20/s of an address": {"quotas": {"connections": {"per_address": 20}}}},
    ),
    "overload": Experiment(
        "overload",
        {"without": {}, "overload": {"quotas": {"overload": {"target_latency": "5ms"}}}},
        {"": {"small_rate": 80, "moderate_rate": 400}},
        users=OVERLOAD_USERS,
        properties={"num.io.threads": "1"},
        # The collector of Kafka's own scripts: pauses of the serial one were among the highest latencies. Memory that is touched
        # for the first time is slow on virtual machines.
        jvm_flags=("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch"),
    ),
    "shared-rate": Experiment(
        "shared-rate",
        {"one quota": of_client("sharing", producer_byte_rate=MIB)},
        {"all alike": {"batch": 16_384, "greedy": MIB}, "one has large requests": {}},
    ),
    "topic-rate": Experiment(
        "topic-rate",
        {
            mode: {"quotas": {"topic_rates": {"topics": {"hot": {"bytes_in": MIB}}, "mode": mode}}}
            for mode in ("throttle", "transient")
        },
        {
            **{f"{n} producers": {"clients": n} for n in (1, 10, 100)},
            "100 producers, large batches": {"clients": 100, "size": 512 * KIB, "rate": 10, "batch": MIB, "warm_up": "90s"},
        },
    ),
    "tenant-rate": Experiment(
        "tenant-rate",
        {"tenant": {"tenants": {"apps": {"users": ["batch", "stream"], "cluster_producer_byte_rate": MIB}}}},
        users=TENANT_USERS,
    ),
    "stored-bytes": Experiment(
        "stored-bytes",
        {"tenant": {"tenants": {"apps": {"topic_prefixes": ["full"], "stored_bytes_hard": 100 * MIB}}}},
        users=TENANT_USERS,
    ),
    "topic-numbers": Experiment(
        "topic-numbers",
        {"tenant": {"tenants": {"apps": {"users": ["creator"], "max_partitions": 200}}}},
        users=TENANT_USERS,
    ),
    "topic-bytes-in": Experiment("topic-bytes-in", {"thresholds": {"quotas": {"topics": TOPIC_THRESHOLDS}}}),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A cluster and, if the way has one, a proxy in front of it. `bootstrap`: where the load goes."""

    users: Mapping[str, str] | None
    bootstrap: str
    proxy: LocalProxy | None
    jmx: int | None
    """The broker's port of JMX, if the broker is asked about producer ids."""

    def cluster(self) -> Cluster:
        """As the load test has it."""
        users = self.users
        return Cluster.at(self.bootstrap, Access() if users is None else Access(Login("PLAIN", "ordinary", users["ordinary"])))

    def producer_state(self) -> tuple[int, int] | None:
        """(producer ids that the broker keeps, once for each partition; bytes of its heap after a collection)."""
        if self.jmx is None:
            return None
        ids, heap = run_java(JAVA / "BrokerState.java", str(self.jmx), check=True).stdout.split()
        return int(ids), int(heap)


@contextmanager
def surroundings(experiment: Experiment, settings: Settings | None) -> Iterator[Surroundings]:
    """Start a cluster and a proxy with these settings, or only a cluster."""
    users = None if experiment.users is None else dict(experiment.users)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, port = Path(name), HeldPort()
        stack.callback(port.release)
        jmx = port.number if experiment.producer_state else None
        flags = [*experiment.jvm_flags, *([] if jmx is None else _jmx_flags(jmx))]
        kafka = stack.enter_context(LocalCluster(experiment.brokers, sasl=users, properties=experiment.properties, jvm_flags=flags))
        if settings is None:
            yield Surroundings(users, kafka.bootstrap_servers, None, jmx)
            return
        if users is not None:
            (folder / "password").write_text(users["proxy"])
            sasl = {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password_file": str(folder / "password")}
            settings = {**settings, "upstream": {"sasl": sasl}}
        proxy = stack.enter_context(proxy_with(settings, kafka.brokers[0].address, folder))
        yield Surroundings(users, proxy.bootstrap, proxy, jmx)


def _jmx_flags(port: int) -> list[str]:
    settings = {"authenticate": "false", "ssl": "false", "host": "127.0.0.1", "port": port, "rmi.port": port}
    return [
        *(f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in settings.items()),
        "-Djava.rmi.server.hostname=127.0.0.1",
    ]


def scenario_of(experiment: Experiment, sets: Mapping[str, object], scale: float, folder: Path) -> Scenario:
    """With a login for each tenant that is a user. Raises FileError."""
    found = load(experiment.scenario, [f"{key}={value}" for key, value in sets.items()])
    if experiment.users is not None:
        texts = [f"{key}={value}" for key, value in sets.items()]
        for name in found.tenants.keys() & experiment.users.keys():
            (folder / name).write_text(experiment.users[name])
            texts.append(f"tenants.{name}.sasl={{mechanism: PLAIN, username: {name}, password_file: '{folder / name}'}}")
        found = load(experiment.scenario, texts)
    return found.scaled(scale)


def run(experiment: Experiment, settings: Settings | None, scenario: Scenario) -> tuple[RunResult, dict[str, str]]:
    """One run, and what else there is to say of it. Raises EndpointError, RunError."""
    with surroundings(experiment, settings) as around:
        watch = {} if around.proxy is None else {"proxy": Tree(around.proxy.pid)}
        with View(Console(stderr=True), scenario.name, around.bootstrap) as view:
            result = run_once(scenario, around.cluster(), Options(watch=watch, clean_up=False), view)
        notes = {"not as asserted": ", ".join(one.text for one in result.assertions if not one.passed)}
        if (state := around.producer_state()) is not None:
            notes["producer ids at the broker"] = f"{state[0]}, heap {state[1] / MIB:.1f} MiB"
        if around.proxy is not None:
            notes["the proxy's CPU"] = ", ".join(
                f"{one.cpu_s:.1f} s ({phase.name})" for phase in result.phases for one in phase.watched
            )
    return result, notes


def rows(result: RunResult) -> Iterator[list[str]]:
    """The cells of each phase, tenant and operation."""
    for phase in result.phases:
        for one in phase.tenants:
            yield [phase.name, one.tenant, one.operation, *_figures(one, phase.duration_s)]


def _figures(one: TenantResult, seconds: float) -> Iterator[str]:
    yield f"{one.acknowledged / seconds:.1f}"
    yield f"{one.bytes / seconds / KIB:.1f}" if one.bytes else ""
    for percentile in (50, 99, 100):
        yield f"{one.latency.percentile_us(percentile) / 1000:.1f}" if one.acknowledged else ""
    yield ", ".join(f"{count} {why}" for why, count in one.failed.items())
    yield f"{one.throttle.count}, {one.throttle.sum_ms / 1000:.1f} s" if one.throttle.count else ""


COLUMNS: Final = ("way", "phase", "tenant", "operation", "per s", "KiB/s", "p50 ms", "p99 ms", "max ms", "failed", "throttled")


@click.command()
@click.argument("name", type=click.Choice(list(EXPERIMENTS)))
@click.option("--way", "ways", multiple=True, help="By default all.")
@click.option("--variant", "variants", multiple=True, help="By default all.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Of the scenario.")
@click.option("--scale", default=1.0, show_default=True, help="Durations times this.")
def main(name: str, ways: tuple[str, ...], variants: tuple[str, ...], sets: tuple[str, ...], scale: float) -> None:
    """A scenario of the load test, directly and behind proxies with different quotas."""
    experiment = EXPERIMENTS[name]
    for option, given, known in (("--way", ways, experiment.ways), ("--variant", variants, experiment.variants)):
        if unknown := set(given) - known.keys():
            raise click.UsageError(f"{option} {', '.join(unknown)}: there are {', '.join(known)}")
    more = dict(text.split("=", 1) for text in sets)
    console = Console(width=190)
    with tempfile.TemporaryDirectory() as folder:
        for variant, values in experiment.variants.items():
            for way, settings in experiment.ways.items():
                if (ways and way not in ways) or (variants and variant not in variants):
                    continue
                label = f"{variant}, {way}" if variant else way
                print(f"{label} …", file=sys.stderr)
                try:
                    result, said = run(experiment, settings, scenario_of(experiment, {**values, **more}, scale, Path(folder)))
                except (FileError, EndpointError, RunError) as e:
                    raise click.ClickException(str(e)) from None
                table = Table(*COLUMNS, title=f"{name}: the scenario {experiment.scenario}")
                for row in rows(result):
                    table.add_row(label, *row)
                console.print(table)
                for what, text in said.items():
                    if text:
                        console.print(f"{label}: {what}: {text}", highlight=False)


if __name__ == "__main__":
    main()
