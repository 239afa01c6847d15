"""What goes wrong in practice is said once, clearly, and harms nobody else."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from localkafka import LocalCluster
from localkafka.ports import HeldPort
from tests.conftest import QUICK_START
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect


def dialogue(address: str, data: bytes) -> bytes:
    """What the proxy answers to these bytes until it closes the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 90) as sock:
        sock.sendall(data)
        answer = b""
        try:
            while part := sock.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
    return answer


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments], 300)


def test_a_cluster_that_is_away_is_said_once_and_clients_are_closed(tmp_path: Path) -> None:
    with HeldPort() as nobody, ProxyProcess(tmp_path, nobody.address, wait_ready=False) as proxy:
        proxy.wait_for("upstream is away")
        assert proxy.get("/readyz") == (503, "the cluster does not answer\n")
        assert proxy.get("/healthz")[0] == 200
        with pytest.raises(ConnectionError), connect(proxy.bootstrap) as connection:
            connection.ask(18, 0)
        assert "no connection to 127.0.0.1" in proxy.wait_for("broker connection closed")["reason"]
        proxy.wait_for("broker connection closed")
        assert len(proxy.lines("upstream is away")) == 1
        assert proxy.metric("upstream_up") == 0


@pytest.mark.kafka
def test_a_cluster_that_comes_up_later_is_found(tmp_path: Path) -> None:
    with HeldPort() as port, ProxyProcess(tmp_path, port.address, wait_ready=False) as proxy:
        proxy.wait_for("upstream is away")
        with LocalCluster(1, jvm_flags=QUICK_START) as kafka, forwarder(port.number, kafka.bootstrap_servers):
            proxy.wait_for("upstream is up")
            wait_until(lambda: proxy.get("/readyz")[0] == 200, "the proxy to be ready")


class forwarder:  # noqa: N801
    """A port that leads to another address, as a load balancer that comes up late."""

    def __init__(self, port: int, target: str) -> None:
        code = (
            "import asyncio,sys\n"
            "async def pipe(r,w):\n"
            "    while d:=await r.read(65536): w.write(d)\n"
            "    w.close()\n"
            "async def serve(r,w):\n"
            "    r2,w2=await asyncio.open_connection(*sys.argv[2].split(':'))\n"
            "    await asyncio.gather(pipe(r,w2),pipe(r2,w),return_exceptions=True)\n"
            "async def main():\n"
            "    s=await asyncio.start_server(serve,'127.0.0.1',int(sys.argv[1]))\n"
            "    await s.serve_forever()\n"
            "asyncio.run(main())\n"
        )
        self._process = subprocess.Popen([sys.executable, "-c", code, str(port), target], stderr=subprocess.DEVNULL)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def test_a_port_that_is_taken_is_named_with_what_would_help() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option, setting in (("--listen", "listen.bootstrap"), ("--admin", "admin.listen")):
            done = serve("--upstream", "127.0.0.1:1", option, f"127.0.0.1:{port}")
            assert done.returncode == 1
            assert done.stderr.startswith(
                f"kafka-quota-proxy: cannot listen at 127.0.0.1:{port}: Address already in use; set `{setting}`"
            )


def test_settings_that_are_not_right_are_explained(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("limits:\n  max_frame: huge\nupstreem: {}\n")
    done = serve("--config", str(settings))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"{settings}: line 2: `limits.max_frame`: 'huge' is not right: a size, such as 64MiB or 1048576",
        f"{settings}: line 3: `upstreem`: there is no such setting; `upstream` is probably meant",
    ]
    assert serve().returncode == 2
    assert "--upstream" in serve().stderr


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "more than the limit of 1048576"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), "more than the limit"),
        (b"\xff\xff\xff\xff" + bytes(20), "a request of -1 bytes"),
        ((2_000_000).to_bytes(4, "big") + bytes(20), "a request of 2000000 bytes, more than the limit of 1048576"),
        (b"\x00\x00\x00\x10" + b"\x00\x00\x00\x63\x00\x00\x00\x01\xff\xff" + bytes(6), "version 99 of API 0"),
        (b"\x00\x00\x00\x0e" + b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff", "a varint is cut off"),
    ],
)
def test_garbage_closes_its_connection_with_one_line_and_nobody_else_notices(
    kafka3: LocalCluster, tmp_path: Path, data: bytes, reason: str
) -> None:
    with (
        ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"max_frame": "1MiB"}}) as proxy,
        connect(proxy.bootstrap) as other,
    ):
        other.ask(18, 0)
        assert dialogue(proxy.bootstrap, data) == b""
        assert reason in proxy.wait_for("client connection closed")["reason"]
        assert len(other.ask(18, 0)) > 100
        assert len(proxy.lines("client connection closed")) == 1
        assert proxy.metric("client_failures_total") == 1


@pytest.mark.kafka
def test_a_request_above_the_limit_fails_its_producer_alone(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"max_frame": "64KiB"}}) as proxy:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "message.timeout.ms": 60_000, "retries": 1})
        producer.produce(name, bytes(100_000), on_delivery=lambda e, _: errors.append(e))
        producer.produce(name, b"small", on_delivery=lambda e, _: errors.append(e))
        producer.flush(90)
        assert errors[0] is not None or errors[1] is not None
        assert "more than the limit of 65536" in proxy.wait_for("client connection closed")["reason"]


@pytest.mark.kafka
def test_metrics_count_what_passed(kafka3: LocalCluster, tmp_path: Path) -> None:
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers) as proxy, connect(proxy.bootstrap) as connection:
        for _ in range(7):
            connection.ask(18, 0)
        assert proxy.metric("requests_total", api="ApiVersions") == 7
        assert proxy.metric("brokers") == 3
        assert proxy.metric("client_connections") == 1
