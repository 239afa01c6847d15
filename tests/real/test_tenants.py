"""A tenant of two users with real clients and logins: together they store no more than the tenant may, whatever client ids they
claim, and its limit is altered while they run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from localkafka import LocalCluster
from proxy.cli import main
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess
from tests.real.tenancy import access, upstream
from tests.real.test_rates import create, stored

pytestmark = pytest.mark.kafka

RATE, BURST, BATCH, ENOUGH = 200_000, 10, 16_384, 14
RECORD = 5000


@pytest.fixture(scope="module")
def shared(tenants3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    apps = {"users": ["other"], "user_prefixes": ["tenan"], "topic_prefixes": ["apps."], "cluster_producer_byte_rate": RATE}
    settings = {
        "tenants": {"apps": apps},
        "quotas": {"entities": [{"user": "other", "cluster_producer_byte_rate": 100 * RATE}]},
        "upstream": upstream(),
    }
    with ProxyProcess(tmp_path_factory.mktemp("tenants"), tenants3.bootstrap_servers, settings) as proxy:
        yield proxy


def command(*arguments: str) -> str:
    run = run_command(["tenants", *arguments], 300)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return run.stdout


def quotas_command(*arguments: str) -> str:
    run = run_command(["quotas", *arguments], 300)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return run.stdout


def test_users_of_a_tenant_store_no_more_than_it_may_whatever_they_claim(
    shared: ProxyProcess, tenants3: LocalCluster, name: str
) -> None:
    name = f"apps.{name}"
    create(tenants3, name)
    clients = [(user, f"app-{i}") for i, user in enumerate(("tenant", "other", "tenant", "other"))]
    settings = {"log_level": 2, "batch.size": BATCH, "queue.buffering.max.messages": 50}
    producers = [Producer({**access(shared.bootstrap, user), **settings, "client.id": claimed}) for user, claimed in clients]
    errors: list[str] = []
    began = time.monotonic()
    size, look = 0, began
    while size < ENOUGH * RATE:
        for i, producer in enumerate(producers):
            producer.poll(0.01)
            for _ in range(50 - len(producer)):
                producer.produce(
                    name, b"x" * RECORD, partition=i, on_delivery=lambda e, _: errors.append(str(e)) if e is not None else None
                )
        if time.monotonic() > look:
            size, look = stored(tenants3, name), time.monotonic() + 0.2
            assert size <= RATE * (BURST + time.monotonic() - began) + 2 * BATCH * len(clients)
        assert time.monotonic() < began + 60, f"{size} bytes in a minute"
    for producer in producers:
        assert producer.flush(90) == 0
    assert not errors
    assert shared.lines("over quota", quota="tenant_producer_byte_rate", entity="tenant apps", action="throttle")
    assert not shared.lines("over quota", quota="producer_byte_rate"), "the limit of the user is far away"
    (one,) = json.loads(command("--admin", shared.admin, "--json"))["tenants"]
    assert (one["tenant"], one["topics"], one["partitions"]) == ("apps", 1, 5)
    assert [(it["quota"], it["limit"]) for it in one["quotas"]] == [("tenant_producer_byte_rate", RATE)]
    assert one["quotas"][0]["usage"] > RATE / 2
    assert "other, tenan*" in command("--admin", shared.admin)
    assert shared.metric("tenant_producer_byte_rate_limit", tenant="apps") == RATE


def test_the_limit_of_a_tenant_is_altered_while_it_runs(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    quotas = {"admins": ["ANONYMOUS"], "dynamic": {"topic": name}}
    settings = {"tenants": {"apps": {"users": ["ANONYMOUS"]}}, "quotas": quotas, "reload": {"interval": "100ms"}}
    with ProxyProcess(tmp_path, kafka1.bootstrap_servers, settings) as proxy:
        place = ["--bootstrap-server", proxy.bootstrap, "--entity-type", "tenants"]
        who = [*place, "--entity-name", "apps"]
        proxy.wait_for("quotas read")
        assert "altered" in quotas_command("alter", *who, "--add-config", "cluster_producer_byte_rate=1KiB")
        changed = proxy.wait_for("quota changed", entity="tenant apps")
        assert (changed["quota"], changed["old"], changed["new"]) == ("cluster_producer_byte_rate", None, 1024)
        found = json.loads(quotas_command("describe", *place, "--json"))
        assert found == [{"entity": {"tenant": "apps"}, "quotas": {"cluster_producer_byte_rate": 1024}}]
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 2})
        producer.produce(name + "-data", bytes(15_000))
        assert producer.flush(90) == 0
        assert proxy.wait_for("over quota", quota="tenant_producer_byte_rate", entity="tenant apps")["limit"] == 1024
        quotas_command("alter", *who, "--delete-config", "cluster_producer_byte_rate")
        proxy.wait_for("quota changed", entity="tenant apps", new=None)
        assert quotas_command("describe", *place) == "no quotas\n"


def test_check_config_tells_what_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("tenants: {a: {users: [a-1], user_prefixes: [a-]}, b: {cluster_request_rate: 5}}")
    result = CliRunner().invoke(main, ["check-config", str(tmp_path / "settings.yaml")])
    assert result.exit_code == 0
    assert "`tenants.a.users`: `a-1` begins with one of its `user_prefixes` already" in result.output
    assert "`tenants.b` has limits and no users" in result.output
