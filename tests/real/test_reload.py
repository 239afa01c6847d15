"""Settings change while the proxy runs: by SIGHUP or by a changed file, whole or not at all, and no connection is dropped.

What needs no broker has none here: the proxy starts all the same, and listens."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from localkafka import LocalCluster
from tests.certs import Authority
from tests.real.proxies import ProxyProcess, put, wait_until
from tests.real.raw import Connection, connect

OFTEN = {"interval": "50ms"}
NEVER = {"interval": "0s"}
NOBODY = "127.0.0.1:1"
"""A cluster that is not there."""
REFUSED = 89


class Settings:
    """A settings file of a proxy that runs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.file = folder / "settings.yaml"
        self.first: dict[str, Any] = settings

    def proxy(self, upstream: str = NOBODY) -> ProxyProcess:
        return ProxyProcess(self.folder, upstream, self.first, wait_ready=upstream != NOBODY)

    def text(self, **changed: Any) -> str:
        """What the file says with some sections replaced."""
        return yaml.safe_dump({**yaml.safe_load(self.file.read_text()), **changed})

    def write(self, text: str) -> None:
        """Put other settings in place at once, as editors and tools do that rename."""
        put(self.file, text)


def applied(proxy: ProxyProcess, times: int = 1) -> dict[str, Any]:
    """The line that says so."""
    wait_until(lambda: len(proxy.lines("settings applied")) >= times, "new settings to be applied")
    assert proxy.metric("settings_reloads_total", outcome="applied") == times
    assert proxy.metric("settings_current") == 1
    return proxy.lines("settings applied")[times - 1]


def refused(proxy: ProxyProcess, times: int = 1) -> str:
    """Why."""
    wait_until(lambda: len(proxy.lines("settings refused")) >= times, "new settings to be refused")
    assert proxy.metric("settings_reloads_total", outcome="refused") == times
    assert proxy.metric("settings_current") == 0
    return str(proxy.lines("settings refused")[times - 1]["reason"])


def send_hup(proxy: ProxyProcess) -> None:
    proxy.process.send_signal(signal.SIGHUP)


def alive(address: str) -> socket.socket:
    """A connection that the proxy has accepted."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), 90)
    sock.settimeout(90)
    return sock


def let_in(address: str) -> socket.socket:
    """The same, and a broker serves it: it makes room for nobody."""
    sock = alive(address)
    assert Connection(sock).decoded(18, 3, client_software_name="test", client_software_version="1").error_code == 0
    return sock


def turned_away(address: str) -> bool:
    """Is one more connection closed at once?"""
    with closing(alive(address)) as sock:
        sock.settimeout(0.5)
        try:
            return sock.recv(1) == b""
        except TimeoutError:
            return False


# ---------------------------------------------------------------------- what changes


def quota(rate: float, burst: int) -> dict[str, Any]:
    return {"entities": [{"client_id": "raw", "controller_mutations_rate": rate, "controller_mutations_burst": burst}]}


@pytest.mark.kafka
def test_a_quota_and_limits_change_for_connections_that_are_open(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    settings = Settings(tmp_path, reload=NEVER)

    def create(number: int, partitions: int) -> int:
        topic = {"name": f"{name}-{number}", "num_partitions": partitions, "replication_factor": 1}
        return int(connection.decoded(19, 7, topics=[topic], timeout=datetime.timedelta(seconds=20)).topics[0].error_code)

    with settings.proxy(kafka3.bootstrap_servers) as proxy, connect(proxy.bootstrap) as connection:
        assert create(1, 3) == 0
        settings.write(settings.text(quotas=quota(0.01, 1), limits={"max_throttle": "100ms", "max_frame": "1KiB"}))
        send_hup(proxy)
        assert applied(proxy)["after_a_restart"] == []
        assert create(2, 2) == 0
        assert create(3, 1) == REFUSED
        settings.write(settings.text(quotas={}, limits={"max_throttle": "100ms", "max_frame": "1KiB"}))
        send_hup(proxy)
        applied(proxy, 2)
        assert create(4, 1) == 0, "no quota, no limit"

        def too_large() -> bool:
            try:
                connection.ask(3, 1, topics=[{"name": "x" * 200} for _ in range(10)])
            except ConnectionError:
                return True
            return False

        wait_until(too_large, "the new `max_frame` to hold on the open connection")
        assert "more than the limit of 1024" in proxy.wait_for("client connection closed", client=connection.address)["reason"]


@pytest.mark.kafka
def test_a_changed_file_is_noticed_and_more_clients_are_let_in(kafka1: LocalCluster, tmp_path: Path) -> None:
    settings = Settings(tmp_path, reload=OFTEN, limits={"max_connections_per_address": 1})
    with settings.proxy(kafka1.bootstrap_servers) as proxy, closing(let_in(proxy.bootstrap)):
        wait_until(lambda: turned_away(proxy.bootstrap), "the limit to hold")
        settings.write(settings.text(limits={"max_connections_per_address": 100}))
        assert applied(proxy)["why"] == "a file changed"
        assert not turned_away(proxy.bootstrap)
        settings.file.write_text(settings.text(limits={"max_connections_per_address": 1}))
        applied(proxy, 2)
        wait_until(lambda: turned_away(proxy.bootstrap), "the limit to hold again")


@pytest.mark.kafka
def test_rates_of_addresses_and_topics_hold_without_a_restart(kafka1: LocalCluster, tmp_path: Path) -> None:
    settings = Settings(tmp_path, reload=NEVER)
    with settings.proxy(kafka1.bootstrap_servers) as proxy:
        assert not turned_away(proxy.bootstrap)
        topics = {"orders": {"bytes_in": "1MiB"}}
        quotas = {"connections": {"per_address": 1}, "topic_rates": {"topics": topics}, "cold_read_lag": 5}
        settings.write(settings.text(quotas=quotas))
        send_hup(proxy)
        assert applied(proxy)["after_a_restart"] == []
        for _ in range(30):
            alive(proxy.bootstrap).close()
        wait_until(lambda: turned_away(proxy.bootstrap), "the rate to hold")


def test_what_needs_a_restart_is_named_until_then(tmp_path: Path) -> None:
    settings = Settings(tmp_path, reload=NEVER, listen={"bootstrap": "127.0.0.1:0"})
    with settings.proxy() as proxy:
        later = {"listen": {"bootstrap": "127.0.0.1:0", "advertise": "proxy.example.com"}, "quotas": {"default_partitions": 3}}
        settings.write(settings.text(**later))
        send_hup(proxy)
        assert applied(proxy)["after_a_restart"] == ["listen.advertise", "quotas.default_partitions"]
        settings.write(settings.text(limits={"max_in_flight": 7}))
        send_hup(proxy)
        assert applied(proxy, 2)["after_a_restart"] == ["listen.advertise", "quotas.default_partitions"], "they still wait"
        settings.write(settings.text(listen={"bootstrap": "127.0.0.1:0"}, quotas={}))
        send_hup(proxy)
        assert applied(proxy, 3)["after_a_restart"] == []


def test_a_listener_that_is_left_out_stays_until_a_restart(tmp_path: Path) -> None:
    more = {"internal": {"bootstrap": "127.0.0.1:0"}}
    settings = Settings(tmp_path, reload=NEVER, more_listeners=more)
    with settings.proxy() as proxy:
        internal = proxy.wait_for("started")["listeners"]["internal"]
        settings.write(settings.text(more_listeners={}))
        send_hup(proxy)
        assert "more_listeners.internal.bootstrap" in applied(proxy)["after_a_restart"]
        assert not turned_away(internal)


def swap(folder: Path, content: dict[str, str]) -> None:
    """Replace all files at once as Kubernetes does with a ConfigMap: they are links through `..data`, which is exchanged."""
    number = sum(1 for _ in folder.glob("..2*"))
    real = folder / f"..2{number}"
    real.mkdir(parents=True)
    for name, text in content.items():
        (real / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    (folder / "..data_tmp").symlink_to(real.name)
    os.rename(folder / "..data_tmp", folder / "..data")


def test_a_config_map_is_followed(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    settings = Settings(tmp_path, reload=OFTEN, limits={"max_in_flight": 5})
    proxy = settings.proxy()
    swap(mounted, {"settings.yaml": settings.file.read_text()})
    settings.file.unlink()
    settings.file.symlink_to(mounted / "settings.yaml")
    with proxy:
        swap(mounted, {"settings.yaml": settings.text(limits={"max_in_flight": 6})})
        applied(proxy)
        swap(mounted, {"settings.yaml": settings.text(limits={"max_in_flight": 0})})
        assert "`limits.max_in_flight`" in refused(proxy)


# ---------------------------------------------------------------------- TLS


class Tls:
    """A listener with TLS whose files can be exchanged."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ca")
        self._one, self._other = (self.authority.server(name, "127.0.0.1") for name in ("one", "other"))
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.put("one")

    def put(self, which: str, *, cert: bool = True, key: bool = True) -> None:
        pair = self._one if which == "one" else self._other
        for wanted, source, target in ((cert, pair.cert, self.cert), (key, pair.key, self.key)):
            if wanted:
                shutil.copy(source, target.with_suffix(".new"))
                target.with_suffix(".new").rename(target)

    @property
    def listen(self) -> dict[str, Any]:
        return {"bootstrap": "127.0.0.1:0", "tls": {"cert_file": str(self.cert), "key_file": str(self.key)}}

    def connect(self, address: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        return context.wrap_socket(alive(address), server_hostname="127.0.0.1")

    def shown(self, address: str) -> str:
        """Which certificate a new connection gets."""
        with self.connect(address) as sock:
            der = sock.getpeercert(binary_form=True)
        return {self._one.der: "one", self._other.der: "other"}[der or b""]


@pytest.mark.kafka
def test_a_new_certificate_is_for_new_connections_and_open_ones_stay(kafka3: LocalCluster, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    settings = Settings(tmp_path, reload=OFTEN, listen=tls.listen)
    with settings.proxy(kafka3.bootstrap_servers) as proxy, tls.connect(proxy.bootstrap) as sock:
        connection = Connection(sock)
        assert connection.ask(18, 2)
        assert tls.shown(proxy.bootstrap) == "one"
        tls.put("other", key=False)
        assert f"`listen.tls.key_file`: {tls.key} is not the key of {tls.cert}" in refused(proxy)
        assert tls.shown(proxy.bootstrap) == "one"
        tls.put("other", cert=False)
        applied(proxy)
        assert tls.shown(proxy.bootstrap) == "other"
        assert connection.ask(18, 2), "the open connection stays"
        assert proxy.metric("client_connections") >= 1


def test_files_that_refused_settings_name_are_watched(tmp_path: Path) -> None:
    """Settings come first, the certificate a moment later: no second change of the settings is needed."""
    tls = Tls(tmp_path)
    settings = Settings(tmp_path, reload=OFTEN, listen=tls.listen)
    with settings.proxy() as proxy:
        late = tmp_path / "late.crt"
        listen = {**tls.listen, "tls": {"cert_file": str(late), "key_file": str(tls.key)}}
        settings.write(settings.text(listen=listen))
        assert f"`listen.tls.cert_file`: {late} cannot be read" in refused(proxy)
        shutil.copy(tls.cert, late)
        assert applied(proxy)["after_a_restart"] == []


# ---------------------------------------------------------------------- what is refused


def spoil(change: Callable[[str], str]) -> Callable[[Settings], None]:
    return lambda settings: settings.write(change(settings.file.read_text()))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (spoil(lambda text: text + "limits: [\n"), r"is not YAML"),
        (spoil(lambda text: "limitz: {}\n" + text), r"line 1: `limitz`: there is no such setting; `limits` is probably meant"),
        (spoil(lambda text: text.replace("max_connections: 2", "max_connections: none")), r"`limits.max_connections`: 'none'"),
        (spoil(lambda _: "[" * 20_000), r"cannot be read"),
        (lambda settings: settings.file.unlink(), r"cannot be read: No such file or directory"),
    ],
    ids=["no YAML", "no such key", "no such value", "too deep", "no file"],
)
def test_a_bad_file_is_refused_whole_and_a_good_one_taken_again(
    kafka1: LocalCluster, tmp_path: Path, spoilt: Callable[[Settings], None], reason: str
) -> None:
    settings = Settings(tmp_path, reload=OFTEN, limits={"max_connections": 2})
    with settings.proxy(kafka1.bootstrap_servers) as proxy, closing(let_in(proxy.bootstrap)):
        good = settings.text(limits={"max_connections": 1})
        spoilt(settings)
        assert reason in refused(proxy)
        assert str(settings.file) in refused(proxy) or "RecursionError" in refused(proxy)
        assert not turned_away(proxy.bootstrap), "the old limit of 2 holds"
        settings.write(good)
        applied(proxy)
        wait_until(lambda: turned_away(proxy.bootstrap), "the new limit of 1 to hold")
        assert len(proxy.lines("settings refused")) == 1, "it is said once, not at every look"


@pytest.mark.kafka
def test_good_and_bad_together_are_refused_together(kafka1: LocalCluster, tmp_path: Path) -> None:
    settings = Settings(tmp_path, reload=NEVER, limits={"max_connections": 2})
    with settings.proxy(kafka1.bootstrap_servers) as proxy, closing(let_in(proxy.bootstrap)):
        tls = {"cert_file": "/nowhere/tls.crt", "key_file": "/nowhere/tls.key"}
        settings.write(settings.text(limits={"max_connections": 1}, listen={"bootstrap": "127.0.0.1:0", "tls": tls}))
        send_hup(proxy)
        assert "/nowhere/tls.crt cannot be read" in refused(proxy)
        assert proxy.wait_for("settings refused")["why"] == "SIGHUP"
        assert not turned_away(proxy.bootstrap)
