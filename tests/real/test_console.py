"""The console: what it shows of clients nobody limits, where limits come from, who may read it, and that workers tell as one."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, libversion

from localkafka import LocalCluster
from tests.certs import Authority
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect

pytestmark = pytest.mark.kafka

METADATA = 3


def ask(proxy: ProxyProcess, path: str, tls: ssl.SSLContext | None = None, **headers: str) -> tuple[int, bytes]:
    host, _, port = proxy.admin.rpartition(":")
    if tls is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=90)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=90, context=tls)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def live(proxy: ProxyProcess) -> dict[str, Any]:
    status, body = ask(proxy, "/live")
    assert status == 200
    told: dict[str, Any] = json.loads(body)
    return told


def client(proxy: ProxyProcess, client_id: str) -> dict[str, Any] | None:
    return next((it for it in live(proxy)["clients"] if it["client_id"] == client_id), None)


def test_clients_are_shown_limited_or_not_and_where_their_limits_come_from(kafka1: LocalCluster, tmp_path: Path) -> None:
    limited = {"client_id": "limited", "cluster_request_rate": 1000}
    with ProxyProcess(tmp_path, kafka1.bootstrap_servers, {"quotas": {"entities": [limited]}}) as proxy:
        with connect(proxy.bootstrap) as one, connect(proxy.bootstrap) as other:
            one.client_id, other.client_id = "limited", "日本 🚀"

            def traffic() -> dict[str, Any] | None:
                """What is shown once ten seconds are over, in which requests and answers were counted."""
                for connection in (one, other):
                    connection.decoded(METADATA, 12)
                found = client(proxy, "日本 🚀")
                return found if found is not None and found["requests"] and found["bytes_out"] else None

            free = wait_until(traffic, "ten seconds to be over")
            bound = client(proxy, "limited")
            assert bound is not None
            assert free["limits"] == []
            assert free["bytes_in"] > 0
            assert free["bytes_out"] > free["bytes_in"]
            greatest, digits = free["history"][1]
            assert greatest >= free["requests"]
            assert len(digits) == 60
            (limit,) = bound["limits"]
            assert (limit["quota"], limit["limit"]) == ("request_rate", 1000)
            assert limit["source"] == "quotas.entities[0].cluster_request_rate: client-id limited"
            assert limit["place"].rpartition(":")[0] == str(tmp_path / "settings.yaml")
            told = json.loads(ask(proxy, "/client?user=ANONYMOUS&client_id=limited")[1])
            assert [it["source"] for it in told["limits"]] == ["quotas.entities[0].cluster_request_rate: client-id limited"]
            assert len(told["connections"]) == 1
            assert told["connections"][0]["address"].startswith("127.0.0.1:")
            assert told["connections"][0]["software"] == "", "it has not said"
            assert told["connections"][0]["broker"] == kafka1.bootstrap_servers
            producer = Producer({"bootstrap.servers": proxy.bootstrap, "client.id": "library"})

            def timed() -> dict[str, Any] | None:
                producer.produce("console", b"x")
                producer.flush(60)
                return next((it for it in live(proxy)["brokers"] if it["requests"]), None)

            broker = wait_until(timed, "an interval with requests to a broker to be over")
            assert 0 <= broker["p50_ms"] <= broker["p99_ms"]
            of_library = json.loads(ask(proxy, "/client?user=ANONYMOUS&client_id=library")[1])
            (software,) = {it["software"] for it in of_library["connections"]}
            assert software.startswith("confluent-kafka-python ")
            assert libversion()[0] in software
            of_user = json.loads(ask(proxy, "/client?user=ANONYMOUS")[1])
            assert {it["client_id"] for it in of_user["connections"]} >= {"limited", "日本 🚀", "library"}

            def written() -> bool:
                """In the last interval."""
                producer.produce("console", b"x")
                producer.flush(60)
                return "console" in {it["topic"] for it in json.loads(ask(proxy, "/client?user=ANONYMOUS")[1])["topics"]}

            wait_until(written, "an interval in which the topic was written to")
        assert gzip.decompress(ask(proxy, "/live", **{"Accept-Encoding": "gzip"})[1]).startswith(b"{")


def test_who_may_read(kafka1: LocalCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.server("admin", "localhost")
    token, users = tmp_path / "token", tmp_path / "users"
    token.write_text("s3cret\n")
    users.write_text("# people\nann:pass:word\n")
    auth = {"token_file": str(token), "users_file": str(users)}
    admin = {"listen": "127.0.0.1:0", "auth": auth, "tls": {"cert_file": str(pair.cert), "key_file": str(pair.key)}}
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, {"admin": admin}, wait_ready=False) as proxy:

        def status(path: str = "/live", authorization: str | None = None) -> int:
            return ask(proxy, path, context, **({"Authorization": authorization} if authorization else {}))[0]

        def basic(text: str) -> str:
            return "Basic " + base64.b64encode(text.encode()).decode()

        command = ["throttles", "--admin", proxy.admin.replace("127.0.0.1", "localhost"), "--ca-file", str(authority.file)]
        refused = run_command(command, 300)
        assert refused.returncode == 1
        assert "it wants a login: give --token-file" in refused.stderr
        allowed = run_command([*command, "--json", "--token-file", str(token)], 300)
        assert json.loads(allowed.stdout)["throttled"] == [], allowed.stderr
        for path in ("/live", "/", "/metrics", "/throttles", "/client", "/nothing"):
            assert status(path) == 401
        assert status("/healthz") == 200
        assert status(authorization="Bearer s3cret") == 200
        assert status(authorization=basic("ann:pass:word")) == 200
        for wrong in (
            "Bearer s3cre",
            "Bearer",
            basic("ann:pass"),
            basic("bob:pass:word"),
            "Basic ?",
            "bearer ann:pass:word",
            "Digest x",
        ):
            assert status(authorization=wrong) == 401, wrong
        token.write_text("another-one")
        assert status(authorization="Bearer s3cret") == 401
        assert status(authorization="Bearer another-one") == 200
        token.unlink()
        assert status(authorization="Bearer another-one") == 401


def test_a_file_of_logins_that_cannot_be_used_is_said_at_the_start(kafka1: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("nobody\n")
    for name, said in (("users", "each line must be name:password"), ("none", "No such file or directory")):
        settings = tmp_path / "settings.yaml"
        settings.write_text(json.dumps({"admin": {"listen": "127.0.0.1:0", "auth": {"users_file": str(tmp_path / name)}}}))
        run = run_command(
            ["serve", "--config", str(settings), "--upstream", kafka1.bootstrap_servers, "--listen", "127.0.0.1:0"], 60
        )
        assert run.returncode == 1
        assert "`admin.auth`" in run.stderr
        assert said in run.stderr
