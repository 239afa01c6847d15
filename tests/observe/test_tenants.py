"""What `/tenants` and `kafka-quota-proxy tenants` tell."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from click.testing import CliRunner

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.hashing import murmur3
from proxy.observe.tenants import seen
from proxy.operate.show import console
from proxy.operate.tenants import tables, tenants
from quota.engine import Engine
from quota.rules import Rules

SETTINGS = Settings.model_validate(
    {
        "tenants": {
            "b": {"topic_prefixes": ["b."]},
            "a": {"users": ["alice"], "user_prefixes": ["a-"], "topic_prefixes": ["a.", "b.c."], "cluster_request_rate": 10},
        },
        "quotas": {"observe": ["tenant_request_rate"]},
    }
)


def told() -> dict[str, Any]:
    engine = Engine(limits_of(SETTINGS), murmur3)
    (rate,) = Rules(engine, "alice", "any", 0.0).request
    rate.record(20, 0.0)
    sizes = {"a.1": 3, "b.c.1": 2, "b.1": 5, "else": 7}
    return asyncio.run(seen(tenants_of(SETTINGS.tenants), engine, sizes, 0.0, partial(asyncio.sleep, 0)))


def test_what_a_tenant_owns_and_uses_is_told():
    a, b = told()["tenants"]
    assert (a["tenant"], a["topics"], a["partitions"]) == ("a", 2, 5), "the longest prefix owns a topic"
    assert (b["tenant"], b["topics"], b["partitions"], b["quotas"]) == ("b", 1, 5, [])
    assert a["quotas"] == [{"quota": "tenant_request_rate", "unit": "requests/s", "usage": 2.0, "limit": 10.0, "observed": True}]
    assert told()["of_nobody"] == {"topics": 1, "partitions": 7}


def test_people_get_a_table():
    made = console()
    with made.capture() as shown:
        made.print(tables({"proxy": "p", **told()}))
    text = shown.get()
    assert "alice, a-*" in text
    assert "tenant_request_rate (observed only)" in text
    assert "1 topics with 7 partitions belong to no tenant" in text


def test_a_proxy_that_does_not_answer_is_named():
    result = CliRunner().invoke(tenants, ["--admin", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "the admin listener of a proxy does not answer at 127.0.0.1:1" in result.output
