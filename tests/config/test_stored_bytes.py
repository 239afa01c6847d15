"""Settings of stored bytes, in the file and altered while proxies run: each mistake is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.limits import limits_of
from proxy.config.load import load_settings
from proxy.config.models import Settings
from proxy.config.tenants import useless
from quota.catalogue import STORED_HARD, STORED_SOFT, TOPIC_STORED
from quota.entity import Entity
from quota.keys import wrong_together, wrong_value
from quota.kinds.stored_bytes import TENANT_STORED, StoredBytesOptions, StoredLimit
from quota.overrides import together
from quota.tenants import owner_of
from tests.config.test_storage import mistake

TOPICS = "quotas.stored_bytes.topics.orders"


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("tenants: {a: {stored_bytes_hard: 0}}", "tenants.a.stored_bytes_hard", "greater than or equal to 1"),
        ("tenants: {a: {stored_bytes_hard: -5}}", "tenants.a.stored_bytes_hard", "a size, such as"),
        ("tenants: {a: {stored_bytes_hard: 2EiB}}", "tenants.a.stored_bytes_hard", ""),
        ("tenants: {a: {stored_bytes_soft: 1GB}}", "tenants.a", "`stored_bytes_soft` needs `stored_bytes_hard` beside it"),
        ("tenants: {a: {stored_bytes_soft: 2kB, stored_bytes_hard: 1kB}}", "tenants.a", "2000 is above `stored_bytes_hard` 1000"),
        ("quotas: {stored_bytes: {topics: {orders: {soft: 1GB}}}}", f"{TOPICS}.hard", "required"),
        ("quotas: {stored_bytes: {topics: {orders: {hard: 0}}}}", f"{TOPICS}.hard", "greater than or equal to 1"),
        ("quotas: {stored_bytes: {topics: {orders: {hard: 1, soft: 2}}}}", TOPICS, "`soft` 2 is above `hard` 1"),
        ("quotas: {stored_bytes: {mode: refuse}}", "quotas.stored_bytes.mode", "'transient' or 'fail'"),
        ("quotas: {stored_bytes: {check_interval: 0}}", "quotas.stored_bytes.check_interval", "greater than or equal to 1"),
        ("quotas: {entities: [{user: alice, stored_bytes_hard: 1GB}]}", "quotas.entities", "stored_bytes_hard"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, key: str, says: str) -> None:
    told = mistake(tmp_path, text + "\n")
    assert key in told
    assert says in told


def test_limits_of_tenants_and_topics(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(
        "tenants: {a: {stored_bytes_soft: 1kB, stored_bytes_hard: 2kB}, b: {stored_bytes_hard: 3kB}}\n"
        "quotas: {stored_bytes: {topics: {orders: {hard: 4kB}}, mode: fail, count_replicas: true, check_interval: 2s}}\n"
    )
    limits = limits_of(load_settings(tmp_path / "settings.yaml"))
    assert dict(limits.table(TENANT_STORED).owned()) == {
        owner_of("a"): StoredLimit(2000, 1000),
        owner_of("b"): StoredLimit(3000, 3000),
    }
    assert dict(limits.table(TOPIC_STORED).owned()) == {Entity(None, None, "orders"): StoredLimit(4000, 4000)}
    options = limits.option(StoredBytesOptions)
    assert options is not None
    assert (options.fails, options.replicas, options.interval, options.near_interval) == (True, True, 2.0, 2.0)


def test_a_tenant_that_can_own_no_topics_has_no_use_for_a_limit_of_them() -> None:
    settings = Settings.model_validate({"tenants": {"a": {"stored_bytes_hard": 1}, "b": {"stored_bytes_hard": 1, "users": ["x"]}}})
    assert useless(settings.tenants) == ["`tenants.a` limits topics and can own none: set `topic_prefixes`, or its users"]


@pytest.mark.parametrize(
    ("entity", "value", "says"),
    [
        (Entity("alice", None), 5.0, "for tenants only"),
        (owner_of("a"), 0.0, "out of range"),
        (owner_of("a"), -1.0, "out of range"),
        (owner_of("a"), 1.5, "not a whole number of bytes"),
        (owner_of("a"), float("nan"), "out of range"),
        (owner_of("a"), 5.0, None),
    ],
)
def test_what_cannot_be_altered(entity: Entity, value: float, says: str | None) -> None:
    wrong = wrong_value(entity, STORED_HARD, value)
    assert wrong is None if says is None else says in (wrong or "")


def test_a_soft_limit_that_does_not_fit_the_hard_one_is_refused_and_left_out_where_the_two_come_from_two_places() -> None:
    tenant = owner_of("a")
    assert wrong_together({STORED_SOFT: 5.0}) == "`stored_bytes_soft` needs `stored_bytes_hard` beside it"
    assert "is above" in (wrong_together({STORED_SOFT: 5.0, STORED_HARD: 4.0}) or "")
    assert wrong_together({STORED_SOFT: 5.0, STORED_HARD: 5.0}) is None
    assert together({tenant: {STORED_SOFT: 5.0, STORED_HARD: 9.0}}, {tenant: {STORED_HARD: 4.0}}, tenant) == {STORED_HARD: 4.0}
