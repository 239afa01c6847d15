"""Quotas from a file: a plan says who would be throttled and for how long, it is applied, and the proxy then does just that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from localkafka import LocalCluster
from proxy.cli import main
from tests.real.proxies import ProxyProcess, wait_until
from tests.reports.test_quotas import ENOUGH, RATE, late, produce_much

pytest.importorskip("pyspark")
from reports.quotas import foresee

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SETTINGS = {"quotas": {"dynamic": {}, "admins": ["ANONYMOUS"]}}
Quotas = Callable[..., Result]


@pytest.fixture
def quotas(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Quotas:
    """The commands, with a Spark that runs already."""
    monkeypatch.setattr(foresee, "spark_session", lambda _master, **_: nullcontext(spark))

    def run(proxy: ProxyProcess, command: str, *arguments: object) -> Result:
        return CliRunner().invoke(main, ["quotas", command, "--bootstrap-server", proxy.bootstrap, *map(str, arguments)])

    return run


def throttled(proxy: ProxyProcess, client_id: str) -> float:
    """Seconds."""
    return counted(proxy, client_id, "throttle_ms") / 1000


def counted(proxy: ProxyProcess, client_id: str, what: str) -> float:
    """By the log."""
    lines = [line for line in proxy.usage() if line["type"] == "usage" and line["client_id"] == client_id]
    return sum(float(line[what]) for line in lines)


def test_what_a_plan_says_is_what_the_proxy_then_does(kafka1: LocalCluster, quotas: Quotas, tmp_path: Path) -> None:
    file, plan = tmp_path / "new.yaml", tmp_path / "plan.json"
    file.write_text(
        "quotas:\n  entities:\n"
        f"    - client_id: planned\n      cluster_producer_byte_rate: {RATE}\n"
        f"    - client_id: planned-small\n      cluster_producer_byte_rate: {RATE}\n"
    )
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, dict(SETTINGS)) as proxy:
        wrote = produce_much(proxy.bootstrap, "planned-in", "planned", ENOUGH * RATE)
        produce_much(proxy.bootstrap, "planned-in", "planned-small", RATE)
        wait_until(lambda: any(line.get("client_id") == "planned-small" for line in proxy.usage()), "the usage to be logged")
        assert not throttled(proxy, "planned")

        made = quotas(proxy, "plan", file, "--logs", proxy.logs, "--hurt-above", "1m", "--out", plan, "--format", "markdown")
        assert made.exit_code == 2, made.output
        assert "| user ANONYMOUS, client-id planned |" in made.output
        told = json.loads(plan.read_text())["replayed"]["held_back"]
        assert [(one["owner"], one["line"]) for one in told] == [("user ANONYMOUS, client-id planned", 4)]
        assert told[0]["times"] >= 1, "more where a busy machine let it pause"
        hurt = quotas(proxy, "plan", file, "--logs", proxy.logs, "--format", "json")
        assert (hurt.exit_code, json.loads(hurt.output)["hurt"]) == (3, ["user ANONYMOUS, client-id planned"])

        tenant = tmp_path / "tenant.yaml"
        for members, code, who in (("other", 2, []), ("ANON", 3, ["tenant all"])):
            limits = f"    cluster_producer_byte_rate: {RATE}\n"
            tenant.write_text(f"tenants:\n  all:\n    user_prefixes: [{members}]\n{limits}")
            of_all = quotas(proxy, "plan", tenant, "--logs", proxy.logs, "--format", "json")
            assert (of_all.exit_code, json.loads(of_all.output)["hurt"]) == (code, who), of_all.output
        (of_tenant,) = json.loads(of_all.output)["replayed"]["held_back"]
        assert (of_tenant["line"], of_tenant["seconds"] >= told[0]["seconds"]) == (4, True), "it has what both clients sent"

        done = quotas(proxy, "apply", plan)
        assert (done.exit_code, done.output.count("altered")) == (0, 2), done.output
        wait_until(lambda: quotas(proxy, "plan", file).exit_code == 0, "the limits to be in force")
        took = produce_much(proxy.bootstrap, "planned-in", "planned", ENOUGH * RATE)
        produce_much(proxy.bootstrap, "planned-in", "planned-small", RATE)
    seconds = throttled(proxy, "planned")
    least, most = seconds * 0.9 - wrote, seconds * 1.1 + late(took, seconds)  # what it wrote slowly when it had no limit was less
    assert least <= told[0]["seconds"] <= most
    assert not throttled(proxy, "planned-small")


def test_a_plan_is_applied_to_the_state_it_was_made_from_alone(kafka1: LocalCluster, quotas: Quotas, tmp_path: Path) -> None:
    file, plan, logs = tmp_path / "new.yaml", tmp_path / "plan.json", tmp_path / "proxy" / "logs"
    unseen = tmp_path / "unseen.json"
    file.write_text("quotas: {entities: [{user: moved, cluster_request_rate: 5}]}")
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, dict(SETTINGS)) as proxy:
        assert quotas(proxy, "plan", file, "--out", plan).exit_code == 2
        quotas(proxy, "alter", "--user", "moved", "--add-config", "cluster_request_rate=7")
        refused = quotas(proxy, "apply", plan)
        assert refused.exit_code == 1
        assert "user moved cluster_request_rate is 7, and was not set" in refused.output

        assert quotas(proxy, "plan", file, "--out", plan).exit_code == 2
        produce_much(proxy.bootstrap, "planned-in", "other", 50_000)
        first = quotas(proxy, "apply", plan, "--observe-first", "1h", "--logs", logs)
        assert first.exit_code == 4, first.output
        assert re.search(r"observed for 3,[56]\d\d s more", first.output), first.output
        since = json.loads(plan.read_text())["observed_from"]
        again = quotas(proxy, "apply", plan, "--observe-first", "1h", "--logs", logs)
        assert (again.exit_code, json.loads(plan.read_text())["observed_from"]) == (4, since), "stopped and given again, it goes on"

        file.write_text("quotas: {connections: {networks: {10.1.2.3: 5}}}")
        assert quotas(proxy, "plan", file, "--out", unseen).exit_code == 2
        told = quotas(proxy, "apply", unseen, "--observe-first", "1s", "--wait", "--logs", logs)
        assert (told.exit_code, "connection_creation_rate of address 10.1.2.3" in told.output) == (1, True), told.output

        assert quotas(proxy, "apply", plan).exit_code == 0
        assert "nothing to do" in quotas(proxy, "apply", plan).output
        quotas(proxy, "alter", "--user", "moved", "--delete-config", "cluster_request_rate")


def test_what_was_observed_first_comes_into_force_unless_it_hurts_somebody_else(
    kafka1: LocalCluster, quotas: Quotas, tmp_path: Path
) -> None:
    file, plan, logs = tmp_path / "new.yaml", tmp_path / "plan.json", tmp_path / "proxy" / "logs"
    settings = {**SETTINGS, "logs": {"usage": {"path": str(logs), "interval": "1s"}}}
    with ProxyProcess(tmp_path / "proxy", kafka1.bootstrap_servers, settings) as proxy:

        def observed(limits: str, client_id: str | None) -> Result:
            """Plan these limits, and observe them for a second in which this client, if any, writes what is too much for them."""
            file.write_text(f"quotas: {{entities: [{limits}]}}")
            assert quotas(proxy, "plan", file, "--out", plan).exit_code == 2
            assert quotas(proxy, "apply", plan, "--observe-first", "1h", "--logs", logs).exit_code == 4
            if client_id is not None:
                produce_much(proxy.bootstrap, "planned-in", client_id, 100_000)
                wait_until(lambda: counted(proxy, client_id, "record_bytes") >= 100_000, "all of the usage to be logged")
            return quotas(proxy, "apply", plan, "--observe-first", "1s", "--logs", logs, "--wait")

        hurts = observed("{client_id: <default>, cluster_producer_byte_rate: 2000}", "bystander")
        assert hurts.exit_code == 3, hurts.output
        assert (
            "client-id bystander would have been held back by cluster_producer_byte_rate 2000 of client-id <default>"
            in hurts.output
        )
        assert quotas(proxy, "plan", file).exit_code == 2, "nothing was applied"

        done = observed("{client_id: somebody-else, cluster_producer_byte_rate: 2000}", "bystander-too")
        assert done.exit_code == 0, done.output
        assert "altered" in done.output
        quiet = observed("{client_id: somebody-else, cluster_producer_byte_rate: 3000}", None)
        assert quiet.exit_code == 0, quiet.output
