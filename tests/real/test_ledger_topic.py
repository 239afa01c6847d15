"""Proxies that share their quotas by a topic of the cluster they stand before (`ledger.kind: kafka`): real clients get one quota,
whatever becomes of brokers and proxies, and a proxy that may not use the topic says so."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, shared_ports, wait_until
from tests.real.steady import create
from tests.real.tenancy import grant_ledger, upstream
from tests.real.test_ledger import BATCH, longer, produce, used_up

pytestmark = pytest.mark.kafka

RATE = 400_000
BURST = 10
"""seconds of the quota that pass at once"""
PROXIES = 3


def settings_of(topic: str, rate: float = RATE, **ledger: Any) -> dict[str, Any]:
    quotas = {"entities": [{"client_id": "<default>", "cluster_producer_byte_rate": rate}]}
    return {"quotas": quotas, "ledger": {"kind": "kafka", "topic": topic, "timeout": "1s", "stale_after": "1s", **ledger}}


@contextmanager
def fleet(kafka: LocalCluster, folder: Path, topic: str, workers: int = 1, **more: Any) -> Iterator[list[ProxyProcess]]:
    with ExitStack() as stack:
        made = []
        for number in range(PROXIES):
            settings = {"proxy_id": f"p{number}", **settings_of(topic, **more)}
            if workers > 1:
                settings |= {"workers": workers, "listen": stack.enter_context(fixed_ports())}
            made.append(stack.enter_context(ProxyProcess(folder / f"p{number}", kafka.bootstrap_servers, settings)))
        wait_until(lambda: shared(made, PROXIES * workers), "all proxies to share the ledger")
        yield made


@contextmanager
def fixed_ports() -> Iterator[dict[str, Any]]:
    """A listener whose ports workers can share."""
    with shared_ports(4) as first:
        yield {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + 3}", "reuse_port": True}


def shared(proxies: Sequence[ProxyProcess], members: int | None = None) -> bool:
    count = len(proxies) if members is None else members
    return all(proxy.metric("ledger_up") == 1 and proxy.metric("ledger_proxies") == count for proxy in proxies)


def seen(proxy: ProxyProcess) -> set[str]:
    """The processes of the fleet that its console shows."""
    return {it["boot"] for it in json.loads(proxy.get("/live")[1])["processes"]}


def through(proxies: Sequence[ProxyProcess], topic: str, seconds: float, at: Sequence[int] = (0, 0, 0, 1, 2)) -> int:
    """What clients at these proxies get through together."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(len(at)) as pool:
        found = [pool.submit(produce, proxies[i].bootstrap, topic, topic, until, login=False) for i in at]
        return sum(it.result() for it in found)


def most(seconds: float, clients: int = 5, silent: float = 0.0) -> float:
    """What the fleet may have accepted: the burst, the rate, what each client had under way, and what passes in two intervals at
    the other proxies; `silent` seconds in which each counted for itself."""
    return RATE * (BURST + seconds + (2 * 0.1 + 0.2 + silent) * (PROXIES - 1)) + clients * 3 * BATCH


def test_clients_of_three_proxies_get_one_quota(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """A proxy that restarts meanwhile comes back to what the others know."""
    create(kafka3.bootstrap_servers, name)
    topic = f"{name}-ledger"
    with fleet(kafka3, tmp_path, topic) as proxies:
        began, done = time.monotonic(), 0
        while done <= RATE * BURST * 0.8:
            done += through(proxies, name, 2)
        done += through(proxies, name, 4)
        assert done <= most(time.monotonic() - began)
        assert sum(proxy.metric("ledger_learned_units_total") for proxy in proxies) > RATE * BURST
        limits = [proxy.metric("producer_byte_rate_limit", client_id=name, scope="fleet") for proxy in proxies]
        assert limits == [RATE] * PROXIES, "they are the fleet's, and each tells them"
        wait_until(lambda: all(len(seen(proxy)) == PROXIES for proxy in proxies), "each console to show all proxies")
        with ProxyProcess(tmp_path / "another", kafka3.bootstrap_servers, settings_of(topic)) as another:
            wait_until(lambda: shared([*proxies, another]), "another proxy to join")
            # what has become free while it joined is used up again
            began = used_up(proxies, partial(through, proxies, name))
            fresh = through([another], name, 3, (0, 0))
            assert fresh <= RATE * (time.monotonic() - began + 2) + 6 * BATCH, "it finds no burst there"
        assert [proxy.metric("ledger_restarts_total") for proxy in proxies] == [0] * PROXIES
        assert not any(proxy.lines("ledger record skipped") for proxy in proxies)


@pytest.mark.parametrize("leaders", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_broker_that_restarts_makes_nothing_count_twice_or_not_at_all(
    kafka3: LocalCluster, tmp_path: Path, name: str, leaders: int
) -> None:
    """One that leads a partition of the topic is stopped; at night all of them, one after the other."""
    create(kafka3.bootstrap_servers, name)
    with fleet(kafka3, tmp_path, f"{name}-ledger") as proxies:
        began = time.monotonic()
        done = through(proxies, name, 4)
        found = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers}).list_topics(f"{name}-ledger", 90)
        nodes = {partition.leader for partition in found.topics[f"{name}-ledger"].partitions.values()}
        for node in sorted(nodes)[:leaders]:
            kafka3.stop_broker(node)
            done += through(proxies, name, 2)
            kafka3.start_broker(node)
            wait_until(lambda: all(proxy.metric("ledger_up") == 1 for proxy in proxies), "the ledger to be up")
        took = time.monotonic() - began
        away = sum(len(proxy.lines("ledger is away")) for proxy in proxies)
        assert done <= most(took, silent=away * 2.0)
        assert [proxy.metric("ledger_restarts_total") for proxy in proxies] == [0] * PROXIES, "it has forgotten nothing"
        seconds = longer(0.5)
        wait_until(lambda: through(proxies, name, next(seconds), (0, 1, 2)) >= BATCH, "the quota to let somebody go on")


def test_what_somebody_else_writes_is_skipped_and_counted(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    topic = f"{name}-ledger"
    with fleet(kafka3, tmp_path, topic) as proxies:
        producer = Producer({"bootstrap.servers": kafka3.bootstrap_servers})
        for partition in (0, 1):
            producer.produce(topic, b"something else", partition=partition)
        assert producer.flush(90) == 0
        wait_until(lambda: all(it.metric("ledger_records_skipped_total") >= 2 for it in proxies), "the records to be skipped")
        for proxy in proxies:
            proxy.wait_for("ledger record skipped")
        wait_until(lambda: shared(proxies), "all proxies to go on sharing the ledger")
        assert [len(proxy.lines("ledger record skipped")) for proxy in proxies] == [1] * PROXIES, "once, not for each record"


def test_a_topic_that_is_deleted_is_made_again_and_all_go_on(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """These brokers make topics by themselves, with other settings."""
    create(kafka3.bootstrap_servers, name)
    topic = f"{name}-ledger"
    with fleet(kafka3, tmp_path, topic) as proxies:
        through(proxies, name, 3)
        admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(90)
        wait_until(lambda: all(it.metric("ledger_restarts_total") >= 1 for it in proxies), "a new generation at all")
        wait_until(lambda: shared(proxies), "all proxies to share the ledger again")
        began = time.monotonic()
        assert through(proxies, name, 4) <= most(time.monotonic() - began + 4)
        described = admin.list_topics(topic, 10).topics[topic]
        assert len(described.partitions) == 2


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(1, "delete", "it has 1 partition; it must have 2"), (2, "compact", "its cleanup.policy is compact")],
)
def test_a_topic_that_would_lose_amounts_is_not_used(
    kafka3: LocalCluster, tmp_path: Path, name: str, partitions: int, policy: str, said: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1, config={"cleanup.policy": policy})])[name].result(90)
    producer = Producer({"bootstrap.servers": kafka3.bootstrap_servers})
    producer.produce(name, b"of somebody", b"key", partition=0)
    assert producer.flush(90) == 0
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, settings_of(name)) as proxy:
        proxy.wait_for_reason("ledger topic is away", said)
        assert proxy.metric("ledger_up") == 0


def test_a_proxy_that_may_not_use_the_topic_says_so_once_and_counts_for_itself(
    tenants1: LocalCluster, tmp_path: Path, name: str
) -> None:
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, {**settings_of(name), "upstream": upstream()}) as proxy:
        reason = proxy.wait_for("quotas are not shared")["reason"]
        assert "allow `upstream.sasl` to create, describe, read and write it" in reason
        assert proxy.metric("enforces_alone") == 1
        assert 'scope="fleet"' not in proxy.get("/metrics")[1]
        assert reason in proxy.get("/throttles")[1].replace('\\"', '"')
        grant_ledger(tenants1, name)
        wait_until(lambda: proxy.metric("ledger_up") == 1, "the ledger to be up")
        assert proxy.metric("enforces_alone") == 0
        assert len(proxy.lines("quotas are not shared")) == 1


@pytest.mark.nightly
def test_workers_follow_the_topic_by_their_supervisor(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """Before every push, test_workers.py has workers that get one quota, and the tests above proxies that share the topic."""
    create(kafka3.bootstrap_servers, name)
    with fleet(kafka3, tmp_path, f"{name}-ledger", workers=2) as proxies:
        began = time.monotonic()
        done = through(proxies, name, 6, (0, 0, 0, 1, 1, 2))
        assert RATE * BURST * 0.8 < done <= most(time.monotonic() - began, 6) + RATE * 0.4 * PROXIES
        assert all(proxy.metric("ledger_records_skipped_total") == 0 for proxy in proxies)


@pytest.mark.skipif("FLEET_MINUTE" not in os.environ, reason="takes a minute: `make test-fleet-minute` runs it")
@pytest.mark.parametrize("workers", [1, 2])
def test_16_producers_at_three_proxies_get_the_rate(kafka3: LocalCluster, tmp_path: Path, name: str, workers: int) -> None:
    """From the second on in which the burst is paid."""
    create(kafka3.bootstrap_servers, name)
    rate, seconds = 5 * RATE, 50
    with fleet(kafka3, tmp_path, f"{name}-ledger", workers, rate=rate) as proxies:
        at = [0] * 9 + [1] * 5 + [2] * 2
        told: list[tuple[float, float]] = []
        with ThreadPoolExecutor(len(at)) as pool:
            until = time.monotonic() + seconds
            clients = [pool.submit(produce, proxies[i].bootstrap, name, name, until, login=False) for i in at]
            while time.monotonic() < until - 1:
                told.append((time.monotonic(), sum(proxy.metric("request_bytes_total", api="Produce") for proxy in proxies)))
                time.sleep(1)
            for client in clients:
                client.result()
        pieces = [(late[1] - early[1]) / (late[0] - early[0]) / rate for early, late in pairwise(told)]
        print(" ".join(f"{piece:.2f}" for piece in pieces))
        steady = [it for it in told if it[0] >= told[0][0] + 2 * BURST]
        found = (steady[-1][1] - steady[0][1]) / (steady[-1][0] - steady[0][0]) / rate
        print(f"{found:.4f} of the quota", [proxy.metric("ledger_syncs_total") for proxy in proxies])
        assert found == pytest.approx(1.005, abs=0.02)
