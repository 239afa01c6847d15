"""What `helm test` runs in its pod (files/ask.py), against a real proxy and a real Kafka."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka import LocalCluster
from tests.certs import Authority
from tests.chart.helm import CHART
from tests.real.proxies import ProxyProcess

pytestmark = pytest.mark.kafka


def ask(*listeners: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", (CHART / "files" / "ask.py").read_text(), *listeners]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_every_broker_is_asked_at_the_port_that_clients_are_told(kafka3: LocalCluster, tmp_path: Path) -> None:
    listen = {"bootstrap": "127.0.0.1:0", "advertise": "kafka.example.com"}
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"listen": listen}) as proxy:
        done = ask(f"main={proxy.bootstrap},kafka.example.com,plain")
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(":")[0] for line in done.stdout.splitlines()] == [
        f"main: broker {broker} answers; clients are told kafka.example.com" for broker in range(3)
    ]


def test_a_listener_with_names(kafka1: LocalCluster, tmp_path: Path) -> None:
    certificate = Authority(tmp_path).server("server", "kafka.example.com", "*.kafka.example.com")
    tls = {"cert_file": str(certificate.cert), "key_file": str(certificate.key)}
    listen = {"bootstrap": "127.0.0.1:0", "routing": "sni", "advertise": "kafka.example.com", "advertise_port": 443, "tls": tls}
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, {"listen": listen}) as proxy:
        done = ask(f"main={proxy.bootstrap},kafka.example.com,tls")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "main: broker 0 answers; clients are told broker-0.kafka.example.com:443\n"


def test_what_does_not_answer_is_named() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        done = ask(f"outside=127.0.0.1:{nobody.getsockname()[1]},kafka.example.com,plain")
    assert done.returncode == 1
    assert "outside: no answer from 127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr
