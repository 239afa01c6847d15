"""What `/tenants` and `kafka-quota-proxy tenants` tell."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.hashing import murmur3
from proxy.observe.lines import Holds
from proxy.observe.tenants import NumberWarnings, PrefixWarnings, holdings, seen
from proxy.operate.show import console
from proxy.operate.tenants import tables, tenants
from quota.engine import Engine
from quota.entity import Entity
from quota.limits import Limits
from quota.rules import Rules
from quota.steps import finish_at_once
from quota.tenants import Tenant, Tenants, owner_of
from tests.clients.proxied import Recorder

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
    return finish_at_once(seen(tenants_of(SETTINGS.tenants), engine, sizes, 0.0))


def test_what_a_tenant_owns_and_uses_is_told():
    a, b = told()["tenants"]
    assert (a["tenant"], a["topics"], a["partitions"]) == ("a", 2, 5), "the longest prefix owns a topic"
    assert (b["tenant"], b["topics"], b["partitions"], b["quotas"]) == ("b", 1, 5, [])
    assert a["quotas"] == [{"quota": "tenant_request_rate", "unit": "requests/s", "usage": 2.0, "limit": 10.0, "observed": True}]
    assert told()["of_nobody"] == {"topics": 1, "partitions": 7}


def test_topics_of_no_prefix_are_those_of_the_tenant_of_who_created_them():
    engine = Engine(limits_of(SETTINGS), murmur3)
    engine.owned.created("else", "a-1")
    found = finish_at_once(seen(tenants_of(SETTINGS.tenants), engine, {"else": 7}, 0.0))
    assert [(one["tenant"], one["topics"], one["partitions"]) for one in found["tenants"]] == [("a", 1, 7), ("b", 0, 0)]
    assert found["of_nobody"] == {"topics": 0, "partitions": 0}


def test_prefixes_without_topics_are_told():
    a, b = told()["tenants"]
    assert (a["prefixes_without_topics"], b["prefixes_without_topics"]) == ([], [])
    engine = Engine(limits_of(SETTINGS), murmur3)
    found = finish_at_once(seen(tenants_of(SETTINGS.tenants), engine, {"b.c.1": 2}, 0.0))
    assert [one["prefixes_without_topics"] for one in found["tenants"]] == [["a."], []], "`b.c.1` begins with `b.` too"
    made = console()
    with made.capture() as shown:
        made.print(tables({"proxy": "p", **found}))
    assert "(no topics)" in shown.get()


def test_prefixes_without_topics_are_logged_once_all_topics_are_known_and_again_for_other_tenants():
    lines, sizes = LinesLog(), {"b.c.1": 2}
    warnings = PrefixWarnings(lambda: sizes, lines)  # type: ignore[arg-type]

    def look(tenants: Tenants) -> list[tuple[str, list[str]]]:
        finish_at_once(warnings.look(tenants))
        told, lines.told = lines.told, []
        return told

    tenants = tenants_of(SETTINGS.tenants)
    assert look(tenants) == []
    warnings.topics_known = True
    assert look(tenants) == [("a", ["a."])]
    assert look(tenants_of(SETTINGS.tenants)) == [], "said once"
    assert look(Tenants({"x": Tenant(topic_prefixes=("x.", "y."))})) == [("x", ["x.", "y."])]


def test_a_limit_below_what_there_is_is_told_once():
    log = Recorder()

    def limits(most: int) -> Limits:
        return limits_of(Settings.model_validate({"tenants": {"a": {"topic_prefixes": ["a."], "max_topics": most}}}))

    engine = Engine(limits(3), murmur3)
    warnings = NumberWarnings(engine, log)  # type: ignore[arg-type]
    for i in range(3):
        engine.owned.topic_sized(f"a.{i}", 1)

    def look() -> list[tuple[str, int, int]]:
        finish_at_once(warnings.look())
        told, log.lines = log.lines, []
        return [(line["entity"], line["usage"], line["limit"]) for line in told]

    assert look() == []
    engine.change(limits(2))
    assert [look(), look()] == [[("tenant a", 3, 2)], []]
    engine.change(limits(1))
    assert look() == [("tenant a", 3, 1)], "another limit"
    engine.owned.topic_sized("a.0", 0)
    engine.owned.topic_sized("a.1", 0)
    assert look() == []
    engine.owned.topic_sized("a.1", 1)
    assert look() == [("tenant a", 2, 1)], "it was within its limit meanwhile"


def test_the_usage_log_is_told_of_those_who_have_most():
    settings = {
        "tenants": {name: {"topic_prefixes": [f"{name}."], "max_topics": 9, "stored_bytes_hard": 900} for name in ("a", "b", "c")},
        "quotas": {"stored_bytes": {"topics": {"b.1": {"hard": 500}}}},
    }
    engine = Engine(limits_of(Settings.model_validate(settings)), murmur3)
    for topic, partitions, creator in (("a.1", 3, "alice"), ("a.2", 1, "bob"), ("b.1", 2, None), ("d.1", 9, "alice")):
        engine.owned.topic_sized(topic, partitions)
        if creator is not None:
            engine.owned.created(topic, creator)

    def told(most: int = 9, *, topics_known: bool = True) -> list[Holds]:
        return finish_at_once(holdings(engine, most, topics_known=topics_known))

    alice, bob = (Entity(user, None) for user in ("alice", "bob"))
    a, b = map(owner_of, "ab")
    assert told() == [Holds(a, 2, 4), Holds(b, 1, 2), Holds(alice, 2, 12), Holds(bob, 1, 1)]
    assert told(1) == [Holds(a, 2, 4), Holds(alice, 2, 12)]
    assert told(topics_known=False) == [], "numbers say nothing before all topics are known"
    look = finish_at_once(engine.stored.begin(1.0, everything=True))
    look.brokers[1] = {"a.1": {0: 30, 1: 40}, "b.1": {0: 100}, "c": {0: 5}}
    engine.stored.understand(look)
    finish_at_once(engine.stored.finish(look))
    engine.stored.topic("b.1").take(50)
    topics = [Holds(Entity(None, None, name), stored=size) for name, size in (("b.1", 150), ("a.1", 70), ("c", 5))]
    assert told()[0] == Holds(a, 2, 4, 70), "what was written since the look counts where there is a limit"
    assert told()[1] == Holds(b, 1, 2, 150)
    assert told()[-3:] == topics
    assert told(2)[-2:] == topics[:2]
    assert Holds(a, stored=70) in told(topics_known=False)


class LinesLog:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def warning(self, event: str, *, tenant: str, topic_prefixes: list[str], detail: str) -> None:
        assert event == "prefixes without topics"
        assert detail
        self.told.append((tenant, topic_prefixes))


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
