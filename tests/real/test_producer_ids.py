"""Producer ids on a real broker: a user whose clients are made anew again and again is slowed down, and nobody else is."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from localkafka import LocalCluster
from tests.certs import Authority
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.secured import USERS, librdkafka, librdkafka_login

pytestmark = pytest.mark.kafka
LIMIT, STORM = 3, 8


def settings_of(folder: Path, authority: Authority) -> dict[str, Any]:
    own = authority.server("proxy", "127.0.0.1", "localhost")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "password").write_text(USERS["proxy"])
    return {
        "listen": {"bootstrap": "127.0.0.1:0", "tls": {"cert_file": str(own.cert), "key_file": str(own.key)}},
        "upstream": {
            "tls": {"ca_file": str(authority.file)},
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password_file": str(folder / "password")},
        },
        "limits": {"max_throttle": "2s"},  # of the hour that the quota would ask for
        "quotas": {
            "entities": [{"user": "alice", "producer_ids_rate": LIMIT}],
            "producer_ids": {"state_file": str(folder / "ids")},
        },
    }


class Client:
    """A new producer of a user, with an id of its own. What it is told is kept."""

    def __init__(self, proxy: ProxyProcess, authority: Authority, user: str) -> None:
        self.told: list[float] = []
        self.errors: list[object] = []
        self.delivered = 0
        self.producer = Producer(
            {
                **librdkafka(proxy.bootstrap, authority, **librdkafka_login("PLAIN", user)),
                "enable.idempotence": True,
                "linger.ms": 0,
                "throttle_cb": lambda event: self.told.append(event.throttle_time),
                "error_cb": self.errors.append,
            }
        )

    def send(self, topic: str) -> None:
        self.producer.produce(topic, b"x", on_delivery=self._done)
        assert self.producer.flush(90) == 0
        self.producer.poll(0)

    def _done(self, error: object, _: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(error)


def test_a_storm_of_new_producers_is_slowed_down_and_an_ordinary_one_is_not(
    secure_kafka: LocalCluster, authority: Authority, name: str, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, authority)
    with ProxyProcess(tmp_path, secure_kafka.bootstrap_servers, settings) as proxy:
        over, ordinary = threading.Event(), Client(proxy, authority, "bob")

        def go_on() -> None:
            while not over.is_set():
                ordinary.send(f"{name}-bob")

        beside = threading.Thread(target=go_on)
        beside.start()
        storm = []
        try:
            for _ in range(STORM):
                storm.append(Client(proxy, authority, "alice"))
                storm[-1].send(f"{name}-alice")
        finally:
            over.set()
            beside.join()
        assert [client.delivered for client in storm] == [1] * STORM, "late, and without an error"
        assert [client.errors for client in storm] == [[]] * STORM
        assert not any(client.told for client in storm[:LIMIT])
        # Each is told what is left when the broker has answered: nothing, if that took as long.
        told = [client.told for client in storm[LIMIT:]]
        assert 0 < max(itertools.chain(*told)) <= 2, told
        assert proxy.metric("held_requests_total", quota="producer_ids") > 0, "those that came while another was muted"
        assert proxy.metric("throttled_requests_total", quota="producer_ids") >= STORM - LIMIT
        assert proxy.metric("producer_ids_tokens", user="alice") == LIMIT - STORM
        assert proxy.metric("producer_ids_active", user="bob") == pytest.approx(1, rel=0.1)
        assert (ordinary.errors, ordinary.told) == ([], [])
        assert ordinary.delivered > 0
        decided = wait_until(lambda: [line for line in proxy.usage() if line["type"] == "decision"], "decisions in the usage log")
        assert {(line["quota"], line["principal"]) for line in decided} == {("producer_ids", "User:alice")}
    with ProxyProcess(tmp_path, secure_kafka.bootstrap_servers, settings) as proxy:
        proxy.wait_for("producer ids remembered", users=2)
        assert proxy.metric("producer_ids_tokens", user="alice") == LIMIT - STORM, "a restart does not forget"
        late, calm = Client(proxy, authority, "alice"), Client(proxy, authority, "bob")
        late.send(f"{name}-alice")
        calm.send(f"{name}-bob")
        assert (late.delivered, late.errors, calm.delivered, calm.told) == (1, [], 1, [])
        proxy.wait_for("over quota", quota="producer_ids")


def test_a_corrupt_state_is_ignored(secure_kafka: LocalCluster, authority: Authority, name: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, authority)
    (tmp_path / "ids").write_bytes(b"producer_ids 1\nand nothing else")
    with ProxyProcess(tmp_path, secure_kafka.bootstrap_servers, settings) as proxy:
        (line,) = proxy.lines("producer ids forgotten")
        assert "bytes" in line["reason"]
        client = Client(proxy, authority, "alice")
        client.send(f"{name}-alice")
        assert (client.delivered, client.told) == (1, [])
    assert (tmp_path / "ids").read_bytes().startswith(b"producer_ids 1\n")
    assert len((tmp_path / "ids").read_bytes()) > 100
