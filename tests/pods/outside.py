"""A host outside of the cluster, and what a cloud or a controller puts between it and a release of the chart.

The host is a network namespace with one link to the node. It has routes to the node's address on that link and to those of load
balancers, and none to pods, to Services or to where brokers are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chart.apiserver import Part
from tests.chart.helm import ROOT

NETWORK, NODE, HOST = "192.0.2.0/24", "192.0.2.1", "192.0.2.2"
"""Addresses of documentation (RFC 5737), as those of load balancers."""
BALANCERS = "203.0.113.0/24"
LINK = "outside"
"""The node's end of the link."""


class Outside:
    """A context manager. The node sees the link as an interface of its own."""

    def __init__(self, folder: Path) -> None:
        self._hosts = folder / "hosts"

    def __enter__(self) -> Self:
        self._hosts.write_text("127.0.0.1 localhost\n")
        hold = f"mount --bind {self._hosts} /etc/hosts && ip link set lo up && echo ready && exec sleep infinity"
        command = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", hold]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        link = ("ip", "link", "add", LINK, "type", "veth", "peer", "name", "uplink", "netns", str(self._process.pid))
        subprocess.run(link, check=True)
        subprocess.run(["ip", "address", "add", f"{NODE}/24", "dev", LINK], check=True)
        subprocess.run(["ip", "link", "set", LINK, "up"], check=True)
        self.run("ip", "address", "add", f"{HOST}/24", "dev", "uplink")
        self.run("ip", "link", "set", "uplink", "up")
        self.run("ip", "route", "add", BALANCERS, "via", NODE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def resolve(self, names: Mapping[str, str]) -> None:
        """What DNS says outside: name → address. It replaces what was said before."""
        lines = (f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items())
        self._hosts.write_text("".join(lines))

    def run(self, *command: str) -> str:
        """What a program prints that runs at this host."""
        inside = ["nsenter", f"--target={self._process.pid}", "--net", "--mount", f"--wd={ROOT}", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-4000:]}"
        return done.stdout

    def python(self, module: str, *arguments: str) -> str:
        return self.run(sys.executable, "-m", module, *arguments)


def addresses() -> Iterator[str]:
    """Those of load balancers, one after the other; no two may have the same."""
    return (f"203.0.113.{number}" for number in range(10, 250))


class PassThrough:
    """A context manager: HAProxy on the node, at an address of load balancers. It ends no TLS. `ports`: where it listens → (server,
    the names that clients have to ask for in TLS; none for whatever comes). `tells_clients`: each connection begins with a PROXY
    protocol header."""

    def __init__(
        self, folder: Path, address: str, ports: Mapping[int, tuple[str, Iterable[str]]], *, tells_clients: bool = False
    ) -> None:
        self._address, self._folder = address, folder
        told = " send-proxy-v2" if tells_clients else ""
        lines = ["defaults", " mode tcp", " timeout connect 10s", " timeout client 1h", " timeout server 1h"]
        for port, (server, names) in ports.items():
            lines += [f"frontend f{port}", f" bind {address}:{port}", *_rules(f"b{port}", names)]
            lines += [f"backend b{port}", f" server service {server}{told}"]
        self._config = folder / f"haproxy-{address}.cfg"
        self._config.write_text("\n".join([*lines, ""]))

    def __enter__(self) -> Self:
        subprocess.run(["ip", "address", "add", f"{self._address}/32", "dev", LINK], check=True)
        self._part = Part([str(shutil.which("haproxy")), "-db", "-f", str(self._config)], self._config.with_suffix(".log"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._part.stop()
        subprocess.run(["ip", "address", "del", f"{self._address}/32", "dev", LINK], check=True)


def _rules(backend: str, names: Iterable[str]) -> list[str]:
    """Where a connection goes; one that asks for no name of these goes nowhere."""
    asked = [f"-m end -i {name.removeprefix('*')}" if name.startswith("*.") else f"-i {name}" for name in names]
    if not asked:
        return [f" default_backend {backend}"]
    wait = [" tcp-request inspect-delay 10s", " tcp-request content accept if { req.ssl_hello_type 1 }"]
    return wait + [f" use_backend {backend} if {{ req.ssl_sni {one} }}" for one in asked]


def names_of(route: Mapping[str, Any]) -> list[str]:
    """The names for which an Ingress or a TLSRoute passes TLS through."""
    spec = route["spec"]
    return [rule["host"] for rule in spec["rules"]] if route["kind"] == "Ingress" else list(spec["hostnames"])
