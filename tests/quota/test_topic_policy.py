"""Policies of topics. The table of docs/tenants.md about them is a test here."""

from __future__ import annotations

import pytest
import yaml

from proxy.config.limits import limits_of
from proxy.config.load import SettingsError, load_settings
from proxy.config.models import Settings
from proxy.hashing import murmur3
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.topic_policy import AskedTopic, judging
from quota.steps import finish_at_once
from quota.tenants import owner_of
from tests.quota.test_tenants import PAGE, rows

SETTINGS = yaml.safe_load(PAGE.split("## Policies of topics")[1].split("```yaml\n")[1].split("```")[0])


def engine_of(settings: object) -> Engine:
    return Engine(limits_of(Settings.model_validate(settings)), murmur3)


def asks(engine: Engine, *asked: AskedTopic, user: str = "alice") -> dict[int, tuple[Decision, str]]:
    return finish_at_once(judging(engine, user, asked, 0.0))


@pytest.mark.parametrize("row", rows("topic | asked for"), ids=str)
def test_the_table_of_the_page(row):
    topic, asked, refused = row
    thing, value = asked.rsplit(" ", 1)
    found = asks(engine_of(SETTINGS), AskedTopic(topic, True, {thing: value}))
    messages = [message for _, message in found.values()]
    assert messages == ([] if refused.startswith("no") else [refused])


def test_one_decision_tells_of_all_topics_that_are_against_one_rule_and_each_has_its_message():
    engine = engine_of(SETTINGS)
    wanted = [AskedTopic(f"payments.{i}", True, {"partitions": n}) for i, n in enumerate((13, 5, 20))]
    found = asks(engine, *wanted, AskedTopic("x", True, {"partitions": 60}))
    assert {i: message.split(" is")[0] for i, (_, message) in found.items()} == {
        0: "partitions 13",
        2: "partitions 20",
        3: "partitions 60",
    }
    decisions = [decision for decision, _ in found.values()]
    assert decisions[0] is decisions[1]
    assert [(it.entity, it.items, it.usage, it.limit, it.action) for it in decisions[1:]] == [
        (owner_of("payments"), (0, 2), 13, 12, Action.REFUSE),
        (Entity("alice", None), (3,), 60, 50, Action.REFUSE),
    ]


def test_a_topic_of_a_tenant_by_its_creator_has_the_policy_of_the_tenant():
    engine = engine_of({"tenants": {"apps": {"users": ["alice"], "topic_policy": {"partitions": {"max": 3}}}}})
    assert asks(engine, AskedTopic("t", True, {"partitions": 4}))
    assert not asks(engine, AskedTopic("t", True, {"partitions": 4}), user="bob")
    engine.owned.created("t", "alice")
    assert asks(engine, AskedTopic("t", False, {"partitions": 4}), user="bob")


def test_observed_policies_refuse_nothing_and_are_told():
    engine = engine_of({"quotas": {"topic_policy": {"partitions": {"max": 3}}, "observe": ["topic_policy"]}})
    assert asks(engine, AskedTopic("t", True, {"partitions": 4})) == {}
    assert [(it.quota, it.action) for it in engine.would] == [("topic_policy", Action.REFUSE)]


@pytest.mark.parametrize(
    "wrong",
    [
        "partitions: {}",
        "partitions: {min: 5, max: 3}",
        "partitions: {min: 1, one_of: [3]}",
        "partitions: {max: 0}",
        "retention_ms: {min: -1}",
        "cleanup_policy: [shred]",
        "retention: {max: 5}",
    ],
)
def test_what_is_no_policy_is_refused_with_its_line(tmp_path, wrong):
    path = tmp_path / "settings.yaml"
    path.write_text(f"quotas:\n  topic_policy:\n    {wrong}\n")
    with pytest.raises(SettingsError, match="line 3"):
        load_settings(path)
