"""A proxy of several workers with real clients: one quota, one admin listener, one log, whatever becomes of a worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from localkafka import LocalCluster
from localkafka.ports import HeldPort
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, put, shared_ports, wait_until
from tests.real.raw import Connection, connect
from tests.real.steady import Record, SteadyProducer, count_records, create, read_records
from tests.real.test_faults import serve
from tests.real.test_ledger import BATCH, produce

pytestmark = pytest.mark.kafka

WORKERS = 3
BROKERS = 3
COMMAND = [sys.executable, "-m", "proxy", "serve"]
RATE = 400_000
BURST = 10
"""seconds of the quota that pass at once"""
MINUTE = "FLEET_MINUTE" in os.environ
"""`make test-fleet-minute`: tests take a minute each."""
KILL_EVERY, KILLS_OF_A_MINUTE = 5.0, 12


@contextmanager
def workers(kafka: LocalCluster, folder: Path, count: int = WORKERS, **settings: Any) -> Iterator[ProxyProcess]:
    with shared_ports(BROKERS + 1) as first:
        listen = {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + BROKERS}", "reuse_port": True}
        made = {"listen": listen, "workers": count, **settings}
        with ProxyProcess(folder, kafka.bootstrap_servers, made) as running:
            wait_until(lambda: running.metric("brokers") == BROKERS, "all brokers to be known")
            yield running


def processes(proxy: ProxyProcess) -> list[psutil.Process]:
    return [it for it in psutil.Process(proxy.process.pid).children() if "proxy.process" in it.cmdline()]


def rewrite(proxy: ProxyProcess, change: dict[str, Any] | str) -> None:
    """Other settings in the proxy's file, and SIGHUP."""
    file = proxy.folder / "settings.yaml"
    put(file, change if isinstance(change, str) else yaml.safe_dump({**yaml.safe_load(file.read_text()), **change}))
    proxy.process.send_signal(signal.SIGHUP)


def limited(rate: int) -> dict[str, Any]:
    return {"entities": [{"client_id": "<default>", "cluster_producer_byte_rate": rate}]}


def test_clients_of_all_workers_get_one_quota_and_one_admin_address(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    create(kafka3.bootstrap_servers, name)
    with workers(kafka3, tmp_path, quotas=limited(RATE)) as proxy:
        began, done = time.monotonic(), 0
        while done <= RATE * BURST * 0.8 or not proxy.metric("throttled_requests_total", quota="producer_byte_rate"):
            with ThreadPoolExecutor(6) as pool:
                until = time.monotonic() + 3
                found = [pool.submit(produce, proxy.bootstrap, name, name, until, login=False) for _ in range(6)]
                done += sum(it.result() for it in found)
            assert time.monotonic() < began + 60, "nobody is throttled"
        took = time.monotonic() - began
        assert done <= RATE * (BURST + took + 0.5) + 6 * 3 * BATCH
        assert proxy.metric("request_bytes_total", api="Produce") >= done, "those of all workers"
        # Gauges are those of the workers that answer in time.
        wait_until(lambda: proxy.metric("producer_byte_rate_limit", client_id=name, scope="proxy") == RATE, "them to be one proxy")
        wait_until(lambda: proxy.metric("workers_up") == WORKERS, "all workers to answer")
        assert json.loads(proxy.get("/throttles")[1]).keys() == {"proxy", "enforces_alone", "at", "throttled", "refused_last_hour"}
    boots = {line["boot"] for line in proxy.usage() if line["type"] == "usage" and line["api_key"] == 0}
    assert len(boots) == WORKERS, "all of them had clients, and wrote to one folder"
    assert len(proxy.lines("started")) == 1


def test_connections_are_spread_evenly_also_when_they_are_few(kafka3: LocalCluster, tmp_path: Path) -> None:
    limits = {"max_connections": 11, "max_connections_per_address": 10}
    with workers(kafka3, tmp_path, limits=limits) as proxy, ExitStack() as stack:
        for _ in range(9):
            connection = stack.enter_context(connect(proxy.bootstrap))
            assert len(connection.decoded(3, 9, topics=[]).brokers) == BROKERS
        port = int(proxy.bootstrap.rpartition(":")[2])
        there = [
            sum(it.laddr.port == port and it.status == psutil.CONN_ESTABLISHED for it in each.net_connections())
            for each in processes(proxy)
        ]
        assert there == [3, 3, 3]
        wait_until(lambda: proxy.metric("client_connections") == 9, "all workers to tell theirs")


def test_a_limit_of_an_address_holds_for_all_workers_together(kafka3: LocalCluster, tmp_path: Path) -> None:
    """However many come at once. One that was not let in yet may make room for another."""
    with workers(kafka3, tmp_path, limits={"max_connections_per_address": 5}) as proxy, ExitStack() as stack:

        def served(connection: Connection) -> bool:
            try:
                connection.decoded(3, 9, topics=[])
            except (OSError, EOFError):
                return False
            return True

        def comes(_: int = 0) -> Connection | None:
            connection = stack.enter_context(connect(proxy.bootstrap))
            return connection if served(connection) else None

        with ThreadPoolExecutor(30) as pool:
            found = [it for it in pool.map(comes, range(30)) if it is not None]
        there = [it for it in found if served(it)]
        assert 1 <= len(there) <= 5
        there += [it for it in (comes() for _ in range(10)) if it is not None]
        assert sum(served(it) for it in there) == 5
        wait_until(lambda: proxy.metric("client_connections") == 5, "those that were refused to be gone")
        assert proxy.metric("limit_hits_total", limit="max_connections_per_address") >= 10


def test_memory_is_one_budget_of_all_workers(kafka3: LocalCluster, tmp_path: Path) -> None:
    """A request that has come in part holds memory. One user may hold 8/9 of all of it."""
    limits = {"memory_total": "6MiB", "max_frame": "2MiB", "memory_per_connection": "64KiB"}
    size, part = 2 << 20, (2 << 20) - (64 << 10)
    with workers(kafka3, tmp_path, 2, limits=limits) as proxy, ExitStack() as stack, ThreadPoolExecutor(8) as pool:

        def metric(name: str) -> float:
            return proxy.metric(f"memory_{name}")

        def begin(sock: socket.socket) -> None:
            request = struct.pack("!ihhih", size - 4, 0, 9, 1, -1).ljust(part, b"\0")
            pool.submit(lambda: sock.sendall(request))

        host, port = proxy.bootstrap.split(":")
        local = {}
        for _ in range(6):
            sock = stack.enter_context(socket.create_connection((host, int(port)), 300))
            Connection(sock).decoded(3, 9, topics=[])
            local[sock.getsockname()[1]] = sock
        here, there = [
            [local[it.raddr.port] for it in each.net_connections() if it.raddr and it.raddr.port in local]
            for each in processes(proxy)
        ]
        assert min(len(here), len(there)) >= 2, "they are spread"
        del here[2:], there[2:]
        for sock in here:
            begin(sock)
        wait_until(lambda: metric("held_bytes") >= 2 * part, "more than half of the memory to be held at one worker")
        assert not metric("waiting_connections")
        for sock in there:
            begin(sock)
        wait_until(lambda: metric("waiting_connections") == 1, "one to wait at the other worker, and one to go on")
        wait_until(lambda: metric("held_bytes") >= 3 * part, "that one to be there")
        assert metric("held_bytes") < 4 * part
        for sock in here:
            sock.close()
        wait_until(lambda: not metric("waiting_connections"), "the last one to go on")
        wait_until(lambda: metric("held_bytes") == 2 * part, "it to be there")


PRODUCERS: dict[str, dict[str, Any]] = {
    "idempotent": {"enable.idempotence": True},
    "one request at a time": {"acks": "all", "max.in.flight.requests.per.connection": 1},
    "without retries": {"acks": "all", "retries": 0},
}
"""Kafka promises of the first that each record is there once and in order; of the second that none is lost and all are in order,
but what is sent again may be there twice; of the third that what it acknowledges is there once from each leader: what a leader that
is replaced had an error for may be there, and librdkafka sends it to the next one, whatever its `retries`."""


def test_a_worker_that_is_killed_under_load_costs_no_record(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """Killed again and again, one after the other; who is over its quota meanwhile gets no more for it."""
    kills, pause = (KILLS_OF_A_MINUTE, KILL_EVERY) if MINUTE else (3, 0.0)
    topics = {kind: f"{name}-{kind.replace(' ', '-')}" for kind in PRODUCERS}
    for topic in (*topics.values(), name):
        create(kafka3.bootstrap_servers, topic)
    quotas = {"entities": [{"client_id": name, "cluster_producer_byte_rate": RATE}]}
    with workers(kafka3, tmp_path, quotas=quotas) as proxy, ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        producers = {
            kind: [
                stack.enter_context(SteadyProducer(proxy.bootstrap, topics[kind], f"{kind} {number}", **settings))
                for number in range(2)
            ]
            for kind, settings in PRODUCERS.items()
        }
        everybody = [it for some in producers.values() for it in some]
        wait_until(lambda: all(len(it.acknowledged) > 50 for it in everybody), "all producers to get on")
        began, stop = time.monotonic(), threading.Event()
        limited = [pool.submit(produce, proxy.bootstrap, name, name, stop, login=False) for _ in range(4)]
        requests = 0.0
        for kill in range(kills):
            assert (requests := max(requests, told := proxy.metric("requests_total", api="Produce"))) == told, "counters go on"
            time.sleep(pause)
            processes(proxy)[kill % WORKERS].kill()
            wait_until(lambda n=kill + 1: proxy.metric("worker_restarts_total") == n, "the worker to be started again")
            wait_until(lambda: proxy.metric("workers_up") == WORKERS, "it to serve")
        before = [len(it.acknowledged) for it in everybody]
        wait_until(lambda: all(len(it.acknowledged) > n + 50 for it, n in zip(everybody, before, strict=True)), "all to go on")
        stop.set()
        done, took = sum(it.result() for it in limited), time.monotonic() - began
        assert done <= RATE * (BURST + took + 0.5 + kills * 0.1) + 4 * 3 * BATCH, "a worker that is killed forgets 10 ms"
        stack.close()
        for kind, topic in topics.items():
            acknowledged = [value for producer in producers[kind] for value in producer.acknowledged]
            verify(kind, producers[kind], read_records(kafka3.bootstrap_servers, topic, expected=acknowledged))
        assert [line["exit_code"] for line in proxy.lines("worker ended")] == [-signal.SIGKILL] * kills
        sent = {kind: sum(len(it.acknowledged) for it in some) for kind, some in producers.items()}
        print(f"{kills} kills in {took:.0f} s; acknowledged {sent}; {done / RATE / (BURST + took):.3f} of the quota")


def verify(kind: str, producers: Sequence[SteadyProducer], records: Sequence[Record]) -> None:
    """What Kafka promises of producers of this kind has to hold."""
    found, by_leader = count_records(records)
    for producer in producers:
        assert producer.unsent == 0
        assert all(found[value] for value in producer.acknowledged), "none is lost"
        if kind != "without retries":
            assert producer.failed == []
        if kind != "one request at a time":
            written = found if kind == "idempotent" else by_leader
            assert {written[value] for value in producer.acknowledged} == {1}, "none is there twice"
        if kind != "without retries":
            prefix = producer.acknowledged[0].rpartition(" ")[0] + " "
            for partition in {partition for _, partition, _ in records}:
                there = [value.removeprefix(prefix) for value, at, _ in records if at == partition and value.startswith(prefix)]
                first = list(dict.fromkeys(map(int, there)))
                assert first == sorted(first), "all are in order"


def test_settings_are_read_once_for_all_and_a_worker_starts_with_those_in_force(
    kafka3: LocalCluster, tmp_path: Path, name: str
) -> None:
    create(kafka3.bootstrap_servers, name)
    with workers(kafka3, tmp_path, quotas=limited(RATE * 1000)) as proxy:
        rewrite(proxy, {"quotas": limited(1000)})
        proxy.wait_for("settings applied", why="SIGHUP")
        rewrite(proxy, "quotas: nonsense")
        proxy.wait_for("settings refused")
        assert proxy.metric("settings_current") == 0
        for process in processes(proxy):
            process.kill()
        wait_until(lambda: proxy.metric("worker_restarts_total") == WORKERS, "all workers to be started again")
        wait_until(lambda: proxy.metric("workers_up") == WORKERS and proxy.get("/readyz")[0] == 200, "them to serve")
        wait_until(lambda: produce(proxy.bootstrap, name, name, time.monotonic() + 2, login=False), "something to be written")
        wait_until(lambda: proxy.metric("producer_byte_rate_limit", client_id=name, user="ANONYMOUS") == 1000, "the limit to hold")
        assert len(proxy.lines("settings applied")) == 1


def test_quotas_set_while_running_are_read_once_for_all_workers(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    quotas = {"dynamic": {"topic": f"{name}-quotas"}, "admins": ["ANONYMOUS"]}
    with workers(kafka3, tmp_path, quotas=quotas) as proxy:

        def command(*arguments: str) -> str:
            done = run_command(["quotas", arguments[0], "--bootstrap-server", proxy.bootstrap, *arguments[1:]], 300)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def limits() -> list[int]:
            """What each worker knows: connections are spread evenly."""
            with ExitStack() as stack:
                each = [stack.enter_context(connect(proxy.bootstrap)) for _ in range(WORKERS)]
                return [len(it.decoded(48, 1, components=[], strict=False).entries or ()) for it in each]

        command("alter", "--user", "alice", "--add-config", "cluster_producer_byte_rate=1000")
        command("alter", "--client-id", "<default>", "--add-config", "cluster_consumer_byte_rate=2000")
        wait_until(lambda: limits() == [2, 2, 2], "all workers to know both")
        processes(proxy)[1].kill()
        wait_until(lambda: proxy.metric("worker_restarts_total") == 1, "the worker to be started again")
        wait_until(lambda: proxy.metric("workers_up") == WORKERS and limits() == [2, 2, 2], "it to know both")
        command("alter", "--user", "alice", "--delete-config", "cluster_producer_byte_rate")
        wait_until(lambda: limits() == [1, 1, 1], "all workers to forget one")
        assert proxy.metric("dynamic_quotas") == 1
        assert len(proxy.lines("quota topic is up")) == 1, "no worker reads it by itself"
        proxy.wait_for("quota changed", new=None)
        assert [(line["entity"], line["old"], line["new"]) for line in proxy.lines("quota changed")] == [
            ("user alice", None, 1000),
            ("default client-id", None, 2000),
            ("user alice", 1000, None),
        ]


def test_workers_end_with_a_supervisor_that_is_killed(kafka3: LocalCluster) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(shared_ports(1))  # nobody else picks it meanwhile
    command = ["--upstream", kafka3.bootstrap_servers, "--listen", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *command, "--workers", "2"], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        next(line for line in supervisor.stdout if '"started"' in line)
        children = psutil.Process(supervisor.pid).children()
        assert len(children) == 2
        supervisor.kill()
    assert not psutil.wait_procs(children, timeout=30)[1]


def test_what_keeps_workers_from_starting_is_said_once(kafka3: LocalCluster) -> None:
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = serve("--upstream", kafka3.bootstrap_servers, "--listen", address, "--admin", "127.0.0.1:0", "--workers", "2")
        expected = "kafka-quota-proxy: cannot listen at {}: Address already in use; set `{}` or {} to a free address{}\n"
        share = ", or share it: `--reuse-port` for all proxies there"
        assert (done.returncode, done.stderr) == (1, expected.format(address, "listen.bootstrap", "--listen", share))
        free = stack.enter_context(HeldPort()).address
        done = serve("--upstream", kafka3.bootstrap_servers, "--listen", free, "--admin", address, "--workers", "2")
        assert (done.returncode, done.stderr) == (1, expected.format(address, "admin.listen", "--admin", ""))
        logs = "/proc/nothing"
        done = serve("--upstream", "127.0.0.1:1", "--listen", free, "--admin", "127.0.0.1:0", "--workers", "2", "--logs", logs)
        assert done.returncode == 1
        assert done.stderr.count("cannot write the usage log") == 1


def test_the_console_adds_up_what_all_workers_know(kafka3: LocalCluster, tmp_path: Path) -> None:
    with workers(kafka3, tmp_path) as proxy, ExitStack() as stack:
        connections = [stack.enter_context(connect(proxy.bootstrap)) for _ in range(2 * WORKERS)]

        def told() -> dict[str, Any]:
            for connection in connections:
                connection.client_id = "everywhere"
                connection.decoded(3, 12)
            found: dict[str, Any] = json.loads(proxy.get("/live")[1])
            return found

        def shown() -> dict[str, Any] | None:
            found = [it for it in told()["clients"] if it["client_id"] == "everywhere"]
            return found[0] if found and found[0]["connections"] == 2 * WORKERS and found[0]["requests"] > 0 else None

        wait_until(shown, "the connections at all workers to be shown as of one client")
        # A worker that takes longer than a second to answer is left out.
        wait_until(lambda: told()["about"]["workers"] == {"count": WORKERS, "up": WORKERS}, "all workers to be shown as up")

        def connections_of_one() -> int:
            one = json.loads(proxy.get("/client?user=ANONYMOUS&client_id=everywhere")[1])
            return len(one.get("connections", ()))

        wait_until(lambda: connections_of_one() == 2 * WORKERS, "its connections at all workers")

        def processes() -> list[int]:
            return [it["worker"] for it in told()["processes"] if it["version"] == told()["about"]["version"]]

        wait_until(lambda: processes() == list(range(WORKERS)), "each worker to be shown", 30)
