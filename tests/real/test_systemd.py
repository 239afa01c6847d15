"""The systemd unit of several proxies on one host: what it says is right, and what it starts works as it says."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka import LocalCluster
from localkafka.ports import HeldPort
from tests.real.proxies import ProxyProcess, shared_ports, wait_until

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "kafka-quota-proxy@.service"
WORST = 20
"""Tenths of systemd's exposure level, where 0 is nothing and 100 a service without any restriction; the unit has 12."""


def command() -> list[str]:
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine (Debian: systemd)")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    text = UNIT.read_text().replace(command()[0], str(Path(sys.executable).with_name("kafka-quota-proxy")))
    unit = tmp_path / "kafka-quota-proxy@9190.service"
    for path in (unit, tmp_path / UNIT.name):
        path.write_text(text)
    for check in (["verify"], ["security", "--offline=yes", f"--threshold={WORST}"]):
        done = subprocess.run(["systemd-analyze", *check, str(unit)], capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.kafka
def test_an_instance_says_when_clients_can_be_served_and_when_it_stops(
    kafka1: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, serve, config, file, *options = command()
    assert (Path(program).name, serve, config, Path(file).suffix) == ("kafka-quota-proxy", "serve", "--config", ".yaml")
    with shared_ports(2) as first, HeldPort() as held, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        admin = str(held.number)
        options = [option.replace("%i", admin).replace("%H", "host.example.com") for option in options]
        assert not [option for option in options if "%" in option]
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(90)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        listen = {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + 1}"}
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            away = f"127.0.0.1:{nobody.getsockname()[1]}"
            settings = {"listen": listen, "upstream": {"connect_timeout": "1s"}}
            with ProxyProcess(tmp_path / "away", away, settings, wait_ready=False, options=options) as proxy:
                proxy.wait_for("upstream is away")
                manager.setblocking(False)
                with pytest.raises(BlockingIOError):
                    manager.recv(100)
                manager.settimeout(90)
            assert manager.recv(100) == b"STOPPING=1"
        with ProxyProcess(tmp_path / "up", kafka1.bootstrap_servers, {"listen": listen}, options=options) as proxy:
            assert manager.recv(100) == b"READY=1"
            assert proxy.get("/readyz")[0] == 200
            assert proxy.admin == f"127.0.0.1:{admin}"
            assert proxy.wait_for("started")["proxy"] == f"host.example.com-{admin}"
            with socket.create_connection(("127.0.0.1", first + 1), 20):
                pass  # the broker's port is open
            wait_until(lambda: proxy.metric("brokers") == 1, "the broker to be known")
        assert manager.recv(100) == b"STOPPING=1"
