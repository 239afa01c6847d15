"""The report and `kafka-quota-proxy quotas suggest` advise the same limits, by the same log."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from click.testing import CliRunner

from advice.limits import HeldBack
from proxy.operate.quotas import quotas
from quota.catalogue import KEYS
from tests.reports.logs import Log

pytestmark = pytest.mark.spark

REAL = Path(__file__).parent / "throttled.jsonl"
"""What a proxy wrote in front of a broker, while a producer wrote ten times its rate and an admin created
topics faster than it may."""
SETTINGS = """
quotas:
  entities:
    - {user: ANONYMOUS, cluster_producer_byte_rate: 20480, controller_mutations_rate: 1, controller_mutations_burst: 4}
    - {user: "<default>", cluster_request_rate: 100, cluster_consumer_byte_rate: 1000}
    - {user: pair, client_id: "<default>", cluster_consumer_byte_rate: 1000}
    - {user: calm, max_topics: 10}
  topic_rates: {topics: {hot: {bytes_in: 1000}, calm: {bytes_in: 5000}}}
  stored_bytes: {topics: {hot: {hard: 5000}}}
tenants:
  apps: {users: [member], user_prefixes: [pa], cluster_consumer_byte_rate: 1000, cluster_request_rate: 50, max_topics: 5}
  pairs: {user_prefixes: [pair], cluster_consumer_byte_rate: 2000, max_partitions: 50, stored_bytes_hard: 1000}
"""


def made_up() -> list[bytes]:
    """Who is held back in other ways: by all that it does being refused, by one of its client ids, by its tenant, by a topic; and
    who is only watched."""
    log = Log()
    rate = {"quota": "consumer_byte_rate", "api": "Fetch", "api_key": 1, "limit": 1000.0, "topics": []}
    for at in range(0, 80, 2):
        for who, client in (("calm", "a"), ("watched", "a"), ("member", "a"), ("pair", "a"), ("pair", "b")):
            bytes_read = 1900 if who != "calm" else 100 + at
            log.usage(at, 2, principal=f"User:{who}", client_id=client, api="Fetch", api_key=1, response_bytes=bytes_read)
        for topic, size in (("hot", 2000), ("calm", 3000)):
            log.usage(at, 2, principal="User:calm", topic=topic, record_bytes=size)
        entity = {"user": "refused", "client_id": None}
        log.decision(at, quota="request_rate", entity=entity, principal="User:refused", limit=100.0, left_out=3)
    watched = {"user": "watched", "client_id": None}
    log.decision(1, **rate, mode="observe", action="throttle", entity=watched, principal="User:watched")
    tenant = {"user": None, "client_id": None, "tenant": "apps"}
    log.decision(1, **rate | {"quota": "tenant_consumer_byte_rate"}, action="hold", entity=tenant, principal="User:member")
    for at in range(0, 30, 2):
        pair = {"user": "pair", "client_id": "a"}
        log.decision(at, **rate, action="throttle", entity=pair, principal="User:pair", client_id="a", throttle_ms=700)
    topic = {"user": None, "client_id": None}
    hot = {"quota": "topic_producer_byte_rate", "topics": ["hot"], "limit": 1000.0, "entity": topic, "principal": "User:calm"}
    log.decision(2, **hot, action="throttle", throttle_ms=2500).decision(9, **hot, action="throttle", throttle_ms=2500)
    for minute in range(40):
        at = 60 * minute
        log.owned(at, tenant="apps", topic_count=3 + minute // 20, partition_count=9)
        log.owned(at, tenant="pairs", topic_count=1, partition_count=30, stored_bytes=700 + minute)
        log.owned(at, tenant=None, user="calm", topic_count=2, partition_count=4)
        log.owned(at, tenant=None, topic="hot", topic_count=None, partition_count=None, stored_bytes=4000)
    asked = {"principal": "User:calm", "api": "CreateTopics", "topics": ["apps.x"], "throttle_ms": 0, "limit": 5.0}
    log.decision(70, **asked, quota="tenant_topic_count", entity=tenant)
    log.decision(110, **asked, quota="tenant_topic_count", entity=tenant, left_out=2)
    log.decision(200, **asked | {"limit": 10.0}, quota="topic_count", entity={"user": "calm", "client_id": None})
    full = {"quota": "topic_stored_bytes", "topics": ["hot"], "limit": 5000.0, "entity": topic, "principal": "User:calm"}
    log.decision(80, **full, api="Produce", api_key=0)
    # Who is slowed down while a budget fills is so by a rate, in bytes a second: that is no limit of the budget.
    slowed = {**full, "api": "Produce", "api_key": 0, "limit": 9e6, "action": "throttle", "throttle_ms": 500}
    log.decision(90, **slowed)
    log.decision(95, **slowed | {"quota": "tenant_stored_bytes", "entity": {"user": "calm", "client_id": None}})
    log.decision(97, **slowed | {"quota": "tenant_stored_bytes", "entity": {**topic, "tenant": "pairs"}, "topics": []})
    return log.lines


def suggestions(folder: Path, *more: str) -> dict[tuple[Any, ...], tuple[float, dict[str, Any]]]:
    run = CliRunner().invoke(quotas, ["suggest", "--json", "--min-intervals", "1", "--from", str(folder), *more])
    assert run.exit_code == 0, run.output
    return {
        (KEYS[one["key"]].kind if one["key"] in KEYS else one["key"], *one["entity"].values()): (one["limit"], one["held_back"])
        for one in json.loads(run.stdout)
    }


def test_both_advise_the_same(make: Callable[..., Any], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    copy(REAL, logs / "usage-real-0-0.jsonl")
    (logs / "usage-made-up-0-0.jsonl").write_bytes(b"\n".join(made_up()) + b"\n")
    (tmp_path / "quotas.yaml").write_text(SETTINGS)
    report = make(quotas=tmp_path / "quotas.yaml", made=datetime(2026, 12, 1, tzinfo=UTC)).report
    rows = {(row.kind, row.whose): row for row in report.capacity.quotas.rows}
    (tmp_path / "settings.yaml").write_text("upstream: {bootstrap_servers: [kafka:9092]}" + SETTINGS)
    by = {way: suggestions(logs, "--by", way) for way in ("user", "both", "topic")}
    by["tenant"] = suggestions(logs, "--by", "tenant", "--tenants", str(tmp_path / "settings.yaml"))
    same = {
        ("producer_byte_rate", "user ANONYMOUS"): by["user"]["producer_byte_rate", "ANONYMOUS", None],
        ("controller_mutations", "user ANONYMOUS"): by["user"]["controller_mutations", "ANONYMOUS", None],
        ("request_rate", "user ANONYMOUS"): by["user"]["request_rate", "ANONYMOUS", None],
        ("request_rate", "user refused"): by["user"]["request_rate", "refused", None],
        ("consumer_byte_rate", "user calm"): by["user"]["consumer_byte_rate", "calm", None],
        ("consumer_byte_rate", "user watched"): by["user"]["consumer_byte_rate", "watched", None],
        ("consumer_byte_rate", "user member"): by["user"]["consumer_byte_rate", "member", None],
        ("consumer_byte_rate", "user pair, client a"): by["both"]["consumer_byte_rate", "pair", "a"],
        ("consumer_byte_rate", "user pair, client b"): by["both"]["consumer_byte_rate", "pair", "b"],
        ("topic_producer_byte_rate", "topic hot"): by["topic"]["topic_producer_byte_rate", "hot"],
        ("topic_producer_byte_rate", "topic calm"): by["topic"]["topic_producer_byte_rate", "calm"],
        ("tenant_consumer_byte_rate", "tenant apps"): by["tenant"]["consumer_byte_rate", "apps"],
        ("tenant_consumer_byte_rate", "tenant pairs"): by["tenant"]["consumer_byte_rate", "pairs"],
        ("tenant_request_rate", "tenant apps"): by["tenant"]["request_rate", "apps"],
        ("tenant_topic_count", "tenant apps"): by["tenant"]["topic_count", "apps"],
        ("tenant_partition_count", "tenant pairs"): by["tenant"]["partition_count", "pairs"],
        ("tenant_stored_bytes", "tenant pairs"): by["tenant"]["stored_bytes", "pairs"],
        ("topic_count", "user calm"): by["user"]["topic_count", "calm", None],
        ("topic_stored_bytes", "topic hot"): by["topic"]["topic_stored_bytes", "hot"],
    }
    for which, (limit, held_back) in same.items():
        assert (rows[which].suggested, rows[which].held_back) == (limit, HeldBack(**held_back)), which
    assert {whose for (_, whose), row in rows.items() if row.state == "hit"} == {
        *("user ANONYMOUS", "user refused", "user member", "user pair, client a", "topic hot", "tenant apps", "tenant pairs"),
        "user calm",
    }
    assert report.capacity.quotas.not_looked_at == ()
    full = rows["topic_stored_bytes", "topic hot"].held_back
    assert (full.limit, full.throttled, full.refused) == (5000, 1, 1)
    assert ("stored_bytes", "calm", None) not in by["user"]
    budget = rows["tenant_stored_bytes", "tenant pairs"].held_back
    assert (budget.limit, budget.throttled) == (None, 1)
    apps = rows["tenant_topic_count", "tenant apps"]
    assert (apps.held_back.refused, apps.held_back.intervals, apps.peak) == (4, 1, 4), "both within one minute"
    assert rows["tenant_partition_count", "tenant pairs"].suggested == 45
    assert rows["tenant_stored_bytes", "tenant pairs"].suggested == 1200, "one and a half times the most, in two figures"
    limits = {"producer_byte_rate": 20_480, "controller_mutations": 1}
    for kind, limit in limits.items():
        row = rows[kind, "user ANONYMOUS"]
        assert row.suggested > limit, "somebody who was held back is not advised to have less"
        assert row.held_back.limit == limit
        assert row.held_back.throttled_seconds > 0
    assert rows["request_rate", "user refused"].held_back.refused == 160, "40 that were written, and 3 with each that were not"
    assert report.capacity.quotas.hit == 12
