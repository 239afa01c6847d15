"""Policies of topics as clients see them: CreateTopics, CreatePartitions, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from tests.apis.test_topic_numbers import topics
from tests.apis.topic_frames import created, grow, grown
from tests.messages import make, part_of, read_response, request, response

POLICY = {
    "partitions": {"max": 10},
    "replication_factor": {"one_of": [3]},
    "retention_ms": {"max": 1000},
    "cleanup_policy": ["delete"],
}
RETENTION = "retention.ms 5000 is against the topic policy; allowed: at most 1000."
BROKER, TOPIC = 4, 2


def world_with(world: Any, **quotas: object) -> Any:
    w = world(knows_nothing=True)
    w.engine.change(limits_of(Settings.model_validate({"quotas": {"topic_policy": POLICY, **quotas}})))
    return w


def create(version: int, *wanted: dict[str, Any], validate_only: bool = False) -> bytes:
    """A CreateTopics request; `replicas` are those of assignments."""
    topic = part_of(load_request_schema(19, version), "topics")
    config, assignment = part_of(topic, "configs"), part_of(topic, "assignments")
    made = tuple(
        topic(
            name=one["name"],
            num_partitions=one.get("partitions", -1),
            replication_factor=one.get("replication_factor", -1),
            assignments=tuple(
                assignment(partition_index=i, broker_ids=tuple(replicas)) for i, replicas in enumerate(one.get("replicas", ()))
            ),
            configs=tuple(config(name=name, value=value) for name, value in one.get("configs", {}).items()),
        )
        for one in wanted
    )
    return request(19, version, 1, topics=made, validate_only=validate_only)


def alter(key: int, version: int, *resources: tuple[int, str, dict[str, str | None]], operation: int = 0) -> bytes:
    """An (Incremental)AlterConfigs request."""
    resource = part_of(load_request_schema(key, version), "resources")
    config = part_of(resource, "configs")
    how = {"config_operation": operation} if key == 44 else {}
    made = tuple(
        resource(
            resource_type=sort,
            resource_name=name,
            configs=tuple(config(name=config_name, value=value, **how) for config_name, value in configs.items()),
        )
        for sort, name, configs in resources
    )
    return request(key, version, 1, resources=made, validate_only=False)


def altered(key: int, version: int, *resources: tuple[int, str]) -> bytes:
    """The broker's answer."""
    result = part_of(load_response_schema(key, version), "responses")
    made = tuple(
        make(result, Random(1), error_code=0, error_message=None, resource_type=sort, resource_name=name)
        for sort, name in resources
    )
    return response(key, version, 1, responses=made)


def results(frame: bytes, key: int, version: int) -> list[tuple[int, str, int, str | None]]:
    answer = read_response(key, version, frame)
    return [(it.resource_type, it.resource_name, int(it.error_code), it.error_message) for it in answer.responses]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_against_the_policy_are_refused_and_the_others_go_on(world, version):
    w = world_with(world)
    d = w.dialogue("alice")
    good = [
        {"name": "a", "partitions": 10, "replication_factor": 3, "configs": {"retention.ms": "1000", "segment.bytes": "5"}},
        {"name": "b", "replicas": [[1, 2, 3], [2, 3, 4]]},
        {"name": "c", "configs": {"cleanup.policy": "delete"}},
    ]
    bad = [
        {"name": "d", "partitions": 11, "replication_factor": 3},
        {"name": "e", "partitions": 1, "replication_factor": 2},
        {"name": "f", "replicas": [[1, 2]]},
        {"name": "g", "partitions": 1, "configs": {"retention.ms": "5000"}},
        {"name": "h", "configs": {"cleanup.policy": "compact"}},
    ]
    d.client(create(version, *bad[:2], *good, *bad[2:]))
    assert d.to_broker == create(version, *good)
    d.broker(created(version, 1, "a", "b", "c"))
    found = topics(d.to_client, 19, version)
    assert [(name, error) for name, error, _ in found] == [(it["name"], 44) for it in bad[:2]] + [
        *((it["name"], 0) for it in good),
        *((it["name"], 44) for it in bad[2:]),
    ]
    messages = {name: message for name, error, message in found if error}
    assert messages["d"] == "partitions 11 is against the topic policy; allowed: at most 10."
    assert messages["e"] == messages["f"] == "replication factor 2 is against the topic policy; allowed: 3."
    assert messages["g"] == RETENTION
    assert messages["h"] == "cleanup.policy compact is against the topic policy; allowed: delete."
    assert {decision.quota for decision, _ in w.watcher.decisions} == {"topic_policy"}
    (row,) = [row for row in w.rows() if row.refused]
    assert row.refused == {"topic_policy": 5}


def test_requests_that_only_validate_are_judged_too(world):
    d = world_with(world).dialogue("alice")
    d.client(create(7, {"name": "a", "partitions": 11}, validate_only=True))
    assert d.to_broker == b""
    assert topics(d.to_client, 19, 7)[0][:2] == ("a", 44)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_up_to_the_policy(world, version):
    d = world_with(world).dialogue("alice")
    d.client(grow(version, 1, ("a", 11), ("b", 10)))
    assert d.to_broker == grow(version, 1, ("b", 10))
    d.broker(grown(version, 1, "b"))
    assert [(name, error) for name, error, _ in topics(d.to_client, 37, version)] == [("a", 44), ("b", 0)]


@pytest.mark.parametrize(("key", "version"), [(33, 0), (33, 1), (33, 2), (44, 0), (44, 1)])
def test_configs_against_the_policy_are_refused_and_other_resources_go_on(world, key, version):
    d = world_with(world).dialogue("alice")
    bad = (TOPIC, "a", {"segment.bytes": "5", "retention.ms": "5000"})
    good = [
        (TOPIC, "b", {"retention.ms": "1000"}),
        (BROKER, "a", {"retention.ms": "5000"}),
        (TOPIC, "c", {"retention.ms": None}),
    ]
    d.client(alter(key, version, good[0], bad, *good[1:]))
    assert d.to_broker == alter(key, version, *good)
    d.broker(altered(key, version, *((sort, name) for sort, name, _ in good)))
    assert results(d.to_client, key, version) == [
        (TOPIC, "b", 0, None),
        (TOPIC, "a", 44, RETENTION),
        (BROKER, "a", 0, None),
        (TOPIC, "c", 0, None),
    ]


@pytest.mark.parametrize(("key", "version"), [(33, 0), (33, 1), (33, 2), (44, 0), (44, 1)])
def test_the_proxy_answers_where_nothing_is_left(world, key, version):
    d = world_with(world).dialogue("alice")
    d.client(alter(key, version, (TOPIC, "a", {"retention.ms": "5000"})))
    assert d.to_broker == b""
    assert results(d.to_client, key, version) == [(TOPIC, "a", 44, RETENTION)]


@pytest.mark.parametrize(("operation", "refused"), [(0, True), (1, False), (2, True), (3, False)])
def test_what_sets_or_appends_is_judged(world, operation, refused):
    """1 sets back to the default, 3 takes something out of a list."""
    d = world_with(world).dialogue("alice")
    asked = alter(44, 1, (TOPIC, "a", {"cleanup.policy": "compact"}), operation=operation)
    d.client(asked)
    assert d.to_broker == (b"" if refused else asked)
    assert bool(d.to_client) == refused


def test_without_a_policy_configs_are_not_looked_at(world):
    d = world().dialogue("alice")
    asked = alter(44, 1, (TOPIC, "a", {"retention.ms": "5000"}))
    d.client(asked)
    assert d.to_broker == asked
    assert d.session.in_flight == 1


def test_policies_and_numbers_refuse_each_what_is_theirs(world):
    w = world_with(world, entities=[{"user": "alice", "max_topics": 1}])
    d = w.dialogue("alice")
    d.client(create(7, {"name": "a", "partitions": 99}, {"name": "b", "partitions": 1}, {"name": "c", "partitions": 1}))
    assert d.to_broker.endswith(create(7, {"name": "b", "partitions": 1}))
    d.broker(created(7, 1, "b"))
    found = topics(d.to_client, 19, 7)
    assert [(name, error) for name, error, _ in found] == [("a", 44), ("b", 0), ("c", 44)]
    assert found[2][2] == "user alice has 1 of 1 topics (max_topics); 1 more is too many."


def test_who_and_what_is_exempt_is_not_judged(world):
    w = world()
    exempt = {"users": ["root"], "topics": ["free"]}
    w.engine.change(limits_of(Settings.model_validate({"quotas": {"topic_policy": POLICY}, "exempt": exempt})))
    for user, name in (("root", "a"), ("alice", "free")):
        d = w.dialogue(user)
        asked = alter(44, 1, (TOPIC, name, {"retention.ms": "5000"}))
        d.client(asked)
        assert d.to_broker == asked
