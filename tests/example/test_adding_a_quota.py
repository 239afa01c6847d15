"""docs/adding-a-quota.md, done: its code is added to a copy of the sources, and all that the page promises is tried with a proxy
that runs from the copy, in front of a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.example.copies import EVERYBODY, KEY, KIND, Copy, describe
from tests.real.proxies import wait_until
from tests.redis_server import RedisServer, needs_redis

pytestmark = pytest.mark.kafka


def test_a_limit_of_the_settings_throttles_and_is_shown_and_logged(start: Any) -> None:
    proxy = start("one", {"entities": [EVERYBODY]})
    told = describe(proxy, 8)
    assert told[0] == 0, "the first answers are within the limit"
    assert max(told) > 0
    line = proxy.wait_for("over quota", quota=KIND)
    assert line["principal"] == "User:ANONYMOUS"
    assert line["api"] == "DescribeGroups"
    assert proxy.metric("throttled_requests_total", quota=KIND) > 0
    assert proxy.metric(f"{KIND}_used", client_id="", user="ANONYMOUS") > 0
    assert proxy.metric(f"{KIND}_limit", client_id="", user="ANONYMOUS") == 50
    status, body = proxy.get("/throttles")
    assert status == 200
    assert KIND in body


def test_it_is_altered_and_described_while_the_proxy_runs(start: Any, copy: Copy) -> None:
    proxy = start("one", {"dynamic": {"topic": "__example_quotas"}, "admins": ["ANONYMOUS"]})
    at = ("-m", "proxy", "quotas", "{}", "--bootstrap-server", proxy.bootstrap)
    assert max(describe(proxy, 8)) == 0
    run = [word.format("alter") for word in at]
    copy.python(*run, "--entity-type", "users", "--entity-default", "--add-config", f"{KEY}=50")
    proxy.wait_for("quota changed", quota=KEY)
    wait_until(lambda: max(describe(proxy, 4)) > 0, "the limit to hold")
    run = [word.format("describe") for word in at]
    assert KEY in copy.python(*run).stdout


def test_it_can_be_observed_only(start: Any) -> None:
    proxy = start("one", {"entities": [EVERYBODY], "observe": [KIND]})
    assert max(describe(proxy, 8)) == 0
    assert proxy.metric("would_have_total", action="throttle", quota=KIND) > 0


@pytest.mark.nightly  # tests/quota/test_kinds.py: what one proxy charges, another learns
@needs_redis
def test_proxies_of_a_fleet_add_up(start: Any, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        ledger = {"kind": "redis", "servers": [redis.address]}
        one, two = (start(name, {"entities": [EVERYBODY]}, ledger=ledger) for name in ("one", "two"))
        describe(two, 1)
        assert max(describe(one, 8)) > 0
        wait_until(lambda: max(describe(two, 1)) > 0, "the other proxy to learn of it", 20)


def test_a_wrong_limit_is_refused_with_its_line(copy: Copy, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"upstream: {{bootstrap_servers: [localhost:1]}}\nquotas:\n  entities:\n    - {{user: a, {KIND}: -1}}\n")
    run = copy.python("-m", "proxy", "check-config", str(settings), check=False)
    assert run.returncode != 0
    assert f"line 4: `quotas.entities[0].{KIND}`" in run.stderr
