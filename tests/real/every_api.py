"""One plausible request for every API that a broker serves to clients, in every version, and the state that it needs.

In: one of the two sides (`twins`) and a version. Out: the fields of the request under test, or the answer itself where
asking is more than one request. Names start with `shared` where both sides look at the same thing, and are the side's own
where the request changes something. What is volatile in the answers, and which errors are wanted, stands at the end."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any, Final

from kio.index import load_response_schema
from kio.serial import entity_reader

from localkafka.versions import Release
from proxy.wire.headers import response_body
from tests.real.records import record_batch
from tests.real.twins import Side, ms, uid, until

Fields = dict[str, Any]
Case = Callable[[Side, int], "Fields | bytes"]

SHARED, OPEN = "shared", "shared-open"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
LONG = ms(300_000)
NOT_YET = {5, 14, 15, 16, 51}
"""Leader or coordinator not available, loading, not here; transaction still being completed: what passes by itself."""
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Types of config resources."""
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1\0\6shared" + b"\xff\xff\xff\xff"
"""As consumers send it: to a topic. A broker never answers JoinGroup of a consumer that sends anything else."""
ASSIGNMENT = b"\0\0" + b"\0\0\0\1\0\6shared" + b"\0\0\0\2\0\0\0\0\0\0\0\1" + b"\xff\xff\xff\xff"


# ------------------------------------------------------------------ the state


def prepare(direct: Side, through: Side) -> None:
    """What both sides look at, and topics of their own. Done directly."""
    names = [(SHARED, 3), (OPEN, 1)]
    for side in (direct, through):
        names += [(side.own(what), 1) for what in ("produce", "old", "records", "txn", "markers", "alter")]
        names += [(side.own(f"delete-{version}"), 1) for version in range(7)]
    for_ever = [{"name": "retention.ms", "value": "-1"}]  # the timestamps of records are long ago
    wanted = [{"name": name, "num_partitions": size, "replication_factor": 1, "configs": for_ever} for name, size in names]
    made = direct.ask(19, 7, topics=wanted, timeout=ms(30_000))
    assert {topic.error_code for topic in made.topics} == {0}
    ids = {topic.name: topic.topic_id for topic in made.topics}
    until(
        lambda: direct.ask(3, 12, topics=[{"name": name} for name, _ in names]).topics,
        lambda topics: all(topic.error_code == 0 and all(p.leader_id == 0 for p in topic.partitions) for topic in topics),
    )
    produce(direct, SHARED, record_batch(*(f"value {i}".encode() for i in range(5))))
    produce(direct, SHARED, record_batch(b"by 999", producer_id=999, epoch=0, sequence=0))
    for side in (direct, through):
        side.notes["ids"] = ids
        produce(side, side.own("records"), record_batch(*[b"x"] * 20))
    for key_type, key in ((0, "shared-group"), (1, "shared-txn")):
        until(lambda t=key_type, k=key: direct.ask(10, 2, key=k, key_type=t), lambda answer: answer.error_code == 0)
    commit(direct, "shared-group")
    opened = open_transaction(direct, "shared-txn", OPEN)
    assert opened[1] == 0
    if 71 in direct.notes["ranges"]:
        pushed = [config("metrics", "*"), config("interval.ms", "100")]
        settings = [{"resource_type": CLIENT_METRICS, "resource_name": "shared-metrics", "configs": pushed}]
        assert direct.ask(44, 1, resources=settings).responses[0].error_code == 0
    quota = {"entity": [{"entity_type": "client-id", "entity_name": "shared-client"}], "ops": [byte_rate()]}
    assert direct.ask(49, 1, entries=[quota]).entries[0].error_code == 0
    assert direct.ask(30, 3, creations=[acl("shared-acl")]).results[0].error_code == 0
    if 38 in direct.notes["ranges"]:
        token(direct)


def produce(side: Side, topic: str, records: bytes) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    until(
        lambda: side.ask(0, 9, acks=-1, timeout=ms(5000), topic_data=data).responses[0].partition_responses[0].error_code,
        lambda error: error == 0,
    )


def commit(side: Side, group: str) -> None:
    """An offset of a group that has no members."""
    topics = [{"name": SHARED, "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}]}]
    until(
        lambda: side.ask(8, 8, group_id=group, generation_id_or_member_epoch=-1, topics=topics).topics[0].partitions[0].error_code,
        lambda error: error == 0,
    )


def config(name: str, value: str) -> Fields:
    return {"name": name, "value": value, "config_operation": 0}


def byte_rate() -> Fields:
    return {"key": "producer_byte_rate", "value": 1e6, "remove": False}


def acl(topic: str) -> Fields:
    what = {"resource_type": 2, "resource_name": topic, "resource_pattern_type": 3}
    return {**what, "principal": "User:somebody", "host": "*", "operation": 3, "permission_type": 3}


def acl_filter(topic: str) -> Fields:
    what = {"resource_type_filter": 2, "resource_name_filter": topic, "pattern_type_filter": 3}
    return {**what, "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


def token(side: Side) -> Any:
    """A token that the broker knows, as it does a moment after the controller made it."""
    renewer = {"principal_type": "User", "principal_name": "renewer"}
    made = side.ask(38, 2, renewers=[renewer], max_lifetime=ms(3_600_000))
    assert made.error_code == 0
    until(lambda: side.ask(41, 2, owners=None).tokens, lambda tokens: made.token_id in {token.token_id for token in tokens})
    return made


def join(side: Side, group: str, version: int) -> Fields:
    """JoinGroup of a member that is the only one. Since version 4 the first answer just tells it its id."""
    fields: Fields = {"group_id": group, "session_timeout": LONG, "rebalance_timeout": LONG, "protocol_type": "consumer"}
    fields |= {"protocols": [{"name": "range", "metadata": SUBSCRIPTION}], "reason": "a test"}
    if version >= 4:
        told = side.ask(11, version, **fields)
        assert told.error_code == 79
        fields["member_id"] = told.member_id
    return fields


def joined(side: Side, group: str) -> Fields:
    """The member of a group that has just joined it."""
    answer = side.ask(11, 9, **join(side, group, 9))
    assert answer.error_code == 0
    return {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}


def synced(side: Side, group: str) -> Fields:
    """The member of a group that has its assignment."""
    member = joined(side, group)
    assert side.ask(14, 5, **assigning(member)).error_code == 0
    return member


def assigning(member: Fields) -> Fields:
    assignments = [{"member_id": member["member_id"], "assignment": ASSIGNMENT}]
    return {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}


def init_producer(side: Side, name: str) -> tuple[int, int]:
    """(producer id, epoch) for a transactional id."""
    fields = {"transactional_id": name, "transaction_timeout": LONG, "producer_id": -1, "producer_epoch": -1}
    answer = until(lambda: side.ask(22, 4, **fields), lambda answer: answer.error_code not in NOT_YET)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def open_transaction(side: Side, name: str, topic: str) -> tuple[int, int]:
    producer_id, epoch = init_producer(side, name)
    answer = side.ask(24, 3, **adding(name, producer_id, epoch, topic))
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return producer_id, epoch


def adding(name: str, producer_id: int, epoch: int, topic: str) -> Fields:
    topics = [{"name": topic, "partitions": [0]}]
    one = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
    return {**{f"v3_and_below_{field}": value for field, value in one.items()}, "transactions": [one]}


def asked(side: Side, key: int, version: int, fields: Callable[[int], Fields], done: Callable[[Any], Any]) -> bytes:
    """The answer frame of the first of several alike requests that is `done`; `fields` gets their number."""
    numbers = itertools.count()
    frames: list[bytes] = []

    def once() -> Any:
        frames.append(side.connection.ask(key, version, **fields(next(numbers))))
        return decode(key, version, frames[-1])

    until(once, done)
    return frames[-1]


def decode(key: int, version: int, frame: bytes) -> Any:
    """The kio entity in a response frame."""
    return entity_reader(load_response_schema(key, version))(frame, response_body(frame, 0, len(frame), key, version))[0]


# ------------------------------------------------------------------ the requests


def topic_of(side: Side, name: str, partitions: list[Fields] | list[int], field: str = "partitions") -> list[Fields]:
    """A topic under all the names that versions have for it."""
    return [{"name": name, "topic": name, "topic_name": name, "topic_id": side.notes["ids"][name], field: partitions}]


def produce_one(side: Side, version: int) -> Fields:
    data = topic_of(side, side.own("produce"), [{"index": 0, "records": record_batch(f"{version}".encode())}], "partition_data")
    return {"acks": -1, "timeout": ms(5000), "topic_data": data}


def fetch(side: Side, version: int) -> Fields:  # noqa: ARG001
    partitions = [
        {
            "partition": i,
            "current_leader_epoch": -1,
            "fetch_offset": i and 99,
            "log_start_offset": -1,
            "partition_max_bytes": 10_000,
        }
        for i in range(2)
    ]
    fields = {"replica_id": -1, "max_wait": ms(100), "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    return {**fields, "topics": topic_of(side, SHARED, partitions)}


def list_offsets(side: Side, version: int) -> Fields:
    times = [-1, -2, -3 if version >= 7 else 0]
    partitions = [{"partition_index": i, "current_leader_epoch": -1, "timestamp": time} for i, time in enumerate(times)]
    return {"replica_id": -1, "topics": topic_of(side, SHARED, partitions), "timeout": ms(5000)}


def metadata(side: Side, version: int) -> Fields:
    topics: list[Fields] = [{"name": SHARED}, {"name": OPEN}]
    if version >= 4:
        topics += [{"name": "missing"}]
    if version >= 12:
        topics += [{"name": None, "topic_id": side.notes["ids"][side.own("alter")]}]
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }


def offset_commit(side: Side, version: int) -> Fields:
    offset = {"partition_index": 1, "committed_offset": 7, "committed_leader_epoch": 0, "committed_metadata": "why"}
    topics = topic_of(side, SHARED, [offset])
    return {
        "group_id": side.own(f"commit-{version}"),
        "generation_id_or_member_epoch": -1,
        "retention_time": ms(-1),
        "topics": topics,
    }


def offset_fetch(side: Side, version: int) -> Fields:
    group = {"group_id": "shared-group", "member_epoch": -1, "topics": topic_of(side, SHARED, [0, 1], "partition_indexes")}
    other = {**group, "group_id": "missing-group", "topics": None}
    return {**group, "groups": [group, other], "require_stable": version >= 7}


def find_coordinator(side: Side, version: int) -> Fields:  # noqa: ARG001
    return {"key": "shared-group", "key_type": 0, "coordinator_keys": ["shared-group", "other-group"]}


def join_group(side: Side, version: int) -> Fields:
    return join(side, side.own(f"join-{version}"), version)


def heartbeat(side: Side, version: int) -> Fields:
    return synced(side, side.own(f"heartbeat-{version}"))


def leave_group(side: Side, version: int) -> Fields:
    member = synced(side, side.own(f"leave-{version}"))
    return {**member, "members": [{"member_id": member["member_id"], "reason": "done"}, {"member_id": "nobody"}]}


def sync_group(side: Side, version: int) -> Fields:
    return assigning(joined(side, side.own(f"sync-{version}")))


def describe_groups(side: Side, version: int) -> Fields:
    synced(side, side.own(f"describe-{version}"))
    return {"groups": [side.own(f"describe-{version}"), "missing-group"], "include_authorized_operations": True}


def create_topics(side: Side, version: int) -> Fields:
    topics = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": [{"name": "retention.ms", "value": "1000000"}]}
        for name in (side.own(f"create-{version}"), SHARED)
    ]
    return {"topics": topics, "timeout": ms(30_000)}


def delete_topics(side: Side, version: int) -> Fields:
    name = side.own(f"delete-{version}")
    return {"topic_names": [name], "topics": [{"name": name}], "timeout": ms(30_000)}


def delete_records(side: Side, version: int) -> Fields:
    return {"topics": topic_of(side, side.own("records"), [{"partition_index": 0, "offset": version + 1}]), "timeout": ms(30_000)}


def init_producer_id(side: Side, version: int) -> Fields:
    fields = {"transactional_id": side.own(f"init-{version}"), "transaction_timeout": ms(60_000)}
    return {**fields, "producer_id": -1, "producer_epoch": -1}


def offset_for_leader_epoch(side: Side, version: int) -> Fields:  # noqa: ARG001
    return {"replica_id": -1, "topics": topic_of(side, SHARED, [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}])}


def add_partitions_to_txn(side: Side, version: int) -> Fields:
    name = side.own(f"add-partitions-{version}")
    return adding(name, *init_producer(side, name), side.own("txn"))


def producer(side: Side, name: str) -> Fields:
    producer_id, epoch = init_producer(side, name)
    return {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "group_id": name}


def add_offsets_to_txn(side: Side, version: int) -> Fields:
    return producer(side, side.own(f"add-offsets-{version}"))


def end_txn(side: Side, version: int) -> Fields:
    name = side.own(f"end-{version}")
    producer_id, epoch = open_transaction(side, name, side.own("txn"))
    return {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "committed": version % 2 == 0}


def write_txn_markers(side: Side, version: int) -> Fields:
    topics = topic_of(side, side.own("markers"), [0], "partition_indexes")
    return {"markers": [{"producer_id": 4242, "producer_epoch": version, "transaction_result": True, "topics": topics}]}


def txn_offset_commit(side: Side, version: int) -> Fields:
    fields = producer(side, side.own(f"txn-commit-{version}"))
    assert side.ask(25, 3, **fields).error_code == 0
    offset = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 0, "committed_metadata": "why"}
    return {**fields, "generation_id": -1, "topics": topic_of(side, SHARED, [offset])}


def delete_acls(side: Side, version: int) -> Fields:
    assert side.ask(30, 3, creations=[acl(side.own("acl"))]).results[0].error_code == 0
    return {"filters": [acl_filter(side.own("acl")), acl_filter(f"missing-{version}")]}


def describe_configs(side: Side, version: int) -> Fields:  # noqa: ARG001
    resources = [
        {"resource_type": TOPIC, "resource_name": SHARED, "configuration_keys": None},
        {"resource_type": BROKER, "resource_name": "0", "configuration_keys": ["advertised.listeners", "num.io.threads"]},
    ]
    return {"resources": resources, "include_synonyms": True, "include_documentation": True}


def alter_configs(side: Side, version: int) -> Fields:  # noqa: ARG001
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": [config("retention.ms", "1000")]}
        for name in (side.own("alter"), "missing")
    ]
    return {"resources": resources, "validate_only": True}


def alter_replica_log_dirs(side: Side, version: int) -> Fields:  # noqa: ARG001
    topics = topic_of(side, side.own("alter"), [0])
    return {
        "dirs": [{"path": side.notes["log_dir"], "topics": topics}, {"path": "/nowhere", "topics": topic_of(side, SHARED, [0])}]
    }


def sasl_handshake(side: Side, version: int) -> bytes:
    return side.connect().ask(17, version, mechanism="SCRAM-SHA-256")


def sasl_authenticate(side: Side, version: int) -> bytes:
    connection = side.connect()
    assert connection.decoded(17, 1, mechanism="PLAIN").error_code == 0
    assert connection.decoded(36, 2, auth_bytes=b"\0admin\0wrong").error_code == 58 if version == 0 else True
    connection = side.connect()
    assert connection.decoded(17, 1, mechanism="PLAIN").error_code == 0
    return connection.ask(36, version, auth_bytes=b"\0admin\0admin-secret")


def describe_tokens(side: Side, version: int) -> Fields:  # noqa: ARG001
    if side.letter == "d":
        token(side)  # so that all older ones are known, and both sides see the same
    return {"owners": [{"principal_type": "User", "principal_name": "admin"}]}


def create_partitions(side: Side, version: int) -> Fields:  # noqa: ARG001
    topics = [{"name": side.own("alter"), "count": 5, "assignments": None}, {"name": SHARED, "count": 2, "assignments": None}]
    return {"topics": topics, "timeout": ms(30_000), "validate_only": True}


def delete_groups(side: Side, version: int) -> Fields:
    commit(side, side.own(f"delete-group-{version}"))
    return {"groups_names": [side.own(f"delete-group-{version}"), "missing-group"]}


def offset_delete(side: Side, version: int) -> Fields:  # noqa: ARG001
    commit(side, side.own("offset-delete"))
    return {"group_id": side.own("offset-delete"), "topics": topic_of(side, SHARED, [{"partition_index": 0}])}


def alter_scram(side: Side, version: int) -> Fields:  # noqa: ARG001
    salted = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    return {"upsertions": [{"name": side.own("user"), **salted}], "deletions": [{"name": side.own("nobody"), "mechanism": 2}]}


def update_features(side: Side, version: int) -> Fields:  # noqa: ARG001
    level = next(
        f.max_version_level
        for f in side.ask(18, 3, client_software_name="raw", client_software_version="1").finalized_features
        if f.name == "metadata.version"
    )
    updates = [{"feature": "metadata.version", "max_version_level": level, "upgrade_type": 1}]
    return {"feature_updates": updates, "timeout": ms(30_000), "validate_only": True}


# ------------------------------------------------------------------ groups of the new protocols


def new_member(group: str) -> Fields:
    return {
        "group_id": group,
        "member_id": MEMBER,
        "member_epoch": 0,
        "subscribed_topic_names": [SHARED],
        "rebalance_timeout": LONG,
    }


def consumer_heartbeat(side: Side, version: int) -> Fields:
    member = new_member(side.own(f"consumer-{version}"))
    return {**member, "member_id": MEMBER if version else "", "topic_partitions": []}


def consumer_describe(side: Side, version: int) -> Fields:
    group = side.own(f"consumer-describe-{version}")
    newest = side.notes["ranges"][68][1]
    answer = side.ask(68, newest, **{**new_member(group), "member_id": MEMBER if newest else "", "topic_partitions": []})
    assert answer.error_code == 0
    return {"group_ids": [group, "missing-group"], "include_authorized_operations": True}


def share_heartbeat(side: Side, version: int) -> Fields:
    return new_member(side.own(f"share-{version}"))


def share_member(side: Side, group: str) -> None:
    """Join a share group that begins at the start of the topic, and wait for all partitions."""
    settings = [{"resource_type": GROUP, "resource_name": group, "configs": [config("share.auto.offset.reset", "earliest")]}]
    assert side.ask(44, 1, resources=settings).responses[0].error_code == 0
    described = [{"resource_type": GROUP, "resource_name": group, "configuration_keys": ["share.auto.offset.reset"]}]
    until(  # the broker hears of it a moment after the controller
        lambda: side.ask(32, 4, resources=described).results[0].configs,
        lambda configs: [entry.value for entry in configs] == ["earliest"],
    )
    member = new_member(group)
    found: list[Any] = []

    def beat() -> Any:
        answer = side.ask(76, 1, **{**member, "member_epoch": found[-1].member_epoch if found else 0})
        found.append(answer)
        assert answer.error_code == 0, answer.error_message
        return answer.assignment

    until(beat, lambda given: given and sum(len(topic.partitions) for topic in given.topic_partitions) == 3)


def share_describe(side: Side, version: int) -> Fields:
    share_member(side, side.own(f"share-describe-{version}"))
    return {"group_ids": [side.own(f"share-describe-{version}"), "missing-group"], "include_authorized_operations": True}


def share_fetch(side: Side, version: int) -> bytes:
    return acquired(side, side.own(f"share-fetch-{version}"), version)


def acquired(side: Side, group: str, version: int) -> bytes:
    """ShareFetch, asked until the first records are acquired: the broker reads the state of the group in the background."""
    share_member(side, group)

    def fields(number: int) -> Fields:
        side.notes["share epoch"] = number + 1
        topics = topic_of(side, SHARED, [{"partition_index": 0}])
        wanted = {"max_wait": ms(200), "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
        return {"group_id": group, "member_id": MEMBER, "share_session_epoch": number, **wanted, "topics": topics}

    return asked(side, 78, version, fields, lambda answer: any(p.acquired_records for t in answer.responses for p in t.partitions))


def share_acknowledge(side: Side, version: int) -> Fields:
    group = side.own(f"share-acknowledge-{version}")
    acquired(side, group, version)
    batch = {"first_offset": 0, "last_offset": 2, "acknowledge_types": [1]}
    strange = {"first_offset": 70, "last_offset": 71, "acknowledge_types": [1]}
    partitions = [
        {"partition_index": 0, "acknowledgement_batches": [batch]},
        {"partition_index": 9, "acknowledgement_batches": [strange]},
    ]
    session = {"group_id": group, "member_id": MEMBER, "share_session_epoch": side.notes["share epoch"]}
    return {**session, "topics": topic_of(side, SHARED, partitions)}


def streams_member(group: str) -> Fields:
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [SHARED]}]}
    tasks: Fields = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    own = {"process_id": "process", "user_endpoint": {"host": "client.example", "port": 8080}, "client_tags": []}
    return {**new_member(group), "topology": topology, **tasks, **own}


def streams_heartbeat(side: Side, version: int) -> Fields:
    return streams_member(side.own(f"streams-{version}"))


def streams_describe(side: Side, version: int) -> Fields:
    assert side.ask(88, 0, **streams_member(side.own(f"streams-describe-{version}"))).error_code == 0
    return {"group_ids": [side.own(f"streams-describe-{version}"), "missing-group"], "include_authorized_operations": True}


# ------------------------------------------------------------------ the state of share groups


def state(side: Side, group: str, **more: Any) -> Fields:
    partition = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0, **more}
    return {"group_id": side.own(group), "topics": topic_of(side, SHARED, [partition])}


def initialized(side: Side, group: str) -> None:
    find = {"key_type": 2, "coordinator_keys": [f"{side.own(group)}:{share_id(side)}:0"]}
    until(lambda: side.ask(10, 6, **find).coordinators[0].error_code, lambda error: error == 0)
    until(lambda: side.ask(83, 0, **state(side, group)).results[0].partitions[0].error_code, lambda error: error not in NOT_YET)


def share_id(side: Side) -> str:
    import base64

    topic_id: uuid.UUID = side.notes["ids"][SHARED]
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def initialize_state(side: Side, version: int) -> Fields:  # noqa: ARG001
    initialized(side, "state-warm")
    return state(side, "state-initialize")


def write_state(side: Side, version: int) -> Fields:
    initialized(side, f"state-write-{version}")
    batch = {"first_offset": 0, "last_offset": 2, "delivery_state": 2, "delivery_count": 1}
    return state(side, f"state-write-{version}", state_batches=[batch], delivery_complete_count=3)


def read_state(side: Side, version: int) -> Fields:
    initialized(side, f"state-read-{version}")
    return state(side, f"state-read-{version}")


def delete_state(side: Side, version: int) -> Fields:
    initialized(side, f"state-delete-{version}")
    return state(side, f"state-delete-{version}")


def read_summary(side: Side, version: int) -> Fields:
    initialized(side, f"state-summary-{version}")
    return state(side, f"state-summary-{version}")


def share_offsets(side: Side, version: int) -> Fields:
    group = side.own(f"share-offsets-{version}")
    altered = until(lambda: side.ask(91, 0, **offsets(side, group)), lambda answer: answer.error_code not in NOT_YET)
    assert altered.error_code == 0, altered
    return {
        "groups": [{"group_id": group, "topics": topic_of(side, SHARED, [0, 1])}, {"group_id": "missing-group", "topics": None}]
    }


def offsets(side: Side, group: str) -> Fields:
    return {"group_id": group, "topics": topic_of(side, SHARED, [{"partition_index": 0, "start_offset": 2}])}


def alter_share_offsets(side: Side, version: int) -> Fields:  # noqa: ARG001
    return offsets(side, side.own("share-alter"))


def delete_share_offsets(side: Side, version: int) -> Fields:  # noqa: ARG001
    group = side.own("share-delete")
    assert side.ask(91, 0, **offsets(side, group)).error_code == 0
    return {"group_id": group, "topics": [{"topic_name": SHARED}, {"topic_name": "missing"}]}


# ------------------------------------------------------------------ telemetry


def push_telemetry(side: Side, version: int) -> Fields:  # noqa: ARG001
    told = side.ask(71, 0)
    assert told.error_code == 0
    return {"client_instance_id": told.client_instance_id, "subscription_id": told.subscription_id, "metrics": b"some metrics"}


CASES: Final[dict[int, Case]] = {
    0: produce_one,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: lambda side, version: {},  # noqa: ARG005
    17: sasl_handshake,
    18: lambda side, version: {"client_software_name": "raw", "client_software_version": "1"},  # noqa: ARG005
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    28: txn_offset_commit,
    29: lambda side, version: acl_filter("shared-acl"),  # noqa: ARG005
    30: lambda side, version: {"creations": [acl(side.own(f"acl-{version}"))]},
    31: delete_acls,
    32: describe_configs,
    33: alter_configs,
    34: alter_replica_log_dirs,
    35: lambda side, version: {"topics": topic_of(side, SHARED, [0, 1, 2])},  # noqa: ARG005
    36: sasl_authenticate,
    37: create_partitions,
    38: lambda side, version: {"max_lifetime": ms(3_600_000)},  # noqa: ARG005
    39: lambda side, version: {"hmac": token(side).hmac, "renew_period": ms(60_000)},  # noqa: ARG005
    40: lambda side, version: {"hmac": token(side).hmac, "expiry_time_period": ms(60_000)},  # noqa: ARG005
    41: describe_tokens,
    42: delete_groups,
    43: lambda side, version: {"topic_partitions": topic_of(side, SHARED, [0]), "timeout": ms(30_000)},  # noqa: ARG005
    44: alter_configs,
    45: lambda side, version: {  # noqa: ARG005
        "topics": topic_of(side, SHARED, [{"partition_index": 0, "replicas": [0]}, {"partition_index": 1, "replicas": None}]),
        "timeout": ms(30_000),
    },
    46: lambda side, version: {"topics": topic_of(side, SHARED, [0], "partition_indexes"), "timeout": ms(30_000)},  # noqa: ARG005
    47: offset_delete,
    48: lambda side, version: {"components": [{"entity_type": "client-id", "match_type": 2, "match": None}]},  # noqa: ARG005
    49: lambda side, version: {  # noqa: ARG005
        "entries": [{"entity": [{"entity_type": "user", "entity_name": side.own("user")}], "ops": [byte_rate()]}],
        "validate_only": True,
    },
    50: lambda side, version: {"users": [{"name": "admin"}, {"name": "missing"}]},  # noqa: ARG005
    51: alter_scram,
    55: lambda side, version: {  # noqa: ARG005
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    },
    57: update_features,
    60: lambda side, version: {"include_cluster_authorized_operations": True, "endpoint_type": 1},  # noqa: ARG005
    61: lambda side, version: {"topics": topic_of(side, SHARED, [0, 1], "partition_indexes")},  # noqa: ARG005
    64: lambda side, version: {"broker_id": 99},  # noqa: ARG005
    65: lambda side, version: {"transactional_ids": ["shared-txn", "missing-txn"]},  # noqa: ARG005
    66: lambda side, version: {"duration_filter": -1},  # noqa: ARG005
    68: consumer_heartbeat,
    69: consumer_describe,
    71: lambda side, version: {},  # noqa: ARG005
    72: push_telemetry,
    74: lambda side, version: {},  # noqa: ARG005
    75: lambda side, version: {  # noqa: ARG005
        "topics": [{"name": SHARED}, {"name": "missing"}],
        "response_partition_limit": 2,
    },
    76: share_heartbeat,
    77: share_describe,
    78: share_fetch,
    79: share_acknowledge,
    80: lambda side, version: {  # noqa: ARG005
        "voter_id": 7,
        "voter_directory_id": uid(7),
        "listeners": [{"name": "CONTROLLER", "host": "voter.example", "port": 9093}],
        "timeout": ms(1000),
    },
    81: lambda side, version: {"voter_id": 7, "voter_directory_id": uid(7)},  # noqa: ARG005
    83: initialize_state,
    84: read_state,
    85: write_state,
    86: delete_state,
    87: read_summary,
    88: streams_heartbeat,
    89: streams_describe,
    90: share_offsets,
    91: alter_share_offsets,
    92: delete_share_offsets,
}
"""API key -> its request."""

LISTINGS: Final = {16, 66, 74}
"""APIs that list what belongs to both sides."""
LISTINGS_BEFORE: Final[dict[int, Release]] = {35: (3, 9)}
"""APIs that list it in older releases: without the partitions that nobody asked for."""


def lists(key: int, release: Release) -> bool:
    """Does an API list what belongs to both sides?"""
    return key in LISTINGS or release < LISTINGS_BEFORE.get(key, (0, 0))


BY_HASH: Final = {15, 42, 69, 77, 89, 90}
"""APIs whose answers are in the order of a hash of groups' names."""

_TOKEN: Final = {
    "token_id": "random",
    "hmac": "of the token's id",
    **dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), "when it was made"),
}
_PRODUCER: Final = {"producer_id": "a new one for every transactional id"}
VOLATILE: Final[dict[int, dict[str, str]]] = {
    18: {"finalized_features_epoch": "the offset of the cluster's metadata, which grows twice a second"},
    19: {"topic_id": "random for a new topic"},
    22: _PRODUCER,
    26: _PRODUCER,
    35: {"total_bytes": "the disk's, shared with everybody", "usable_bytes": "the disk's, shared with everybody"},
    38: _TOKEN,
    39: {"expiry_timestamp": "a minute from now"},
    40: {"expiry_timestamp": "a minute from now"},
    55: {
        "high_watermark": "grows all the time",
        "log_end_offset": "grows all the time",
        "last_fetch_timestamp": "now",
        "last_caught_up_timestamp": "now",
    },
    68: {"member_id": "version 0: random, made by the broker"},
    69: {"member_id": "version 0 of 68: random, made by the broker"},
    71: {"client_instance_id": "random, made by the broker", "subscription_id": "a checksum of what the client is, too"},
}
"""API key -> field -> why its values cannot be the same twice. Members' ids of classic groups end with a UUID, which is
blanked in every string."""

WANTED_ERRORS: Final[dict[int, set[int]]] = {
    1: {1},  # an offset that is out of range
    3: {3},  # a topic that is not there, here and below
    13: {25},  # an unknown member
    15: {69},  # a group that is not there, here and below
    19: {36},  # a topic that is there already
    33: {3},
    34: {57},  # a log dir that is not there
    37: {37},  # fewer partitions
    42: {69},
    43: {84},  # it leads already
    44: {3},
    45: {85},  # there is no reassignment
    50: {91},  # a user that is not there
    51: {91},
    64: {102},  # a broker that is not there
    65: {105},  # a transactional id that is not there
    69: {69},
    75: {3},
    77: {69},
    79: {3},
    80: {35},  # the quorum is not a dynamic one
    81: {35},
    89: {69},
    92: {3},
}
"""API key -> errors that its request asks for; any other is a request that does not test what it should."""

ERRORS_SINCE: Final[dict[int, Release]] = {15: (4, 0)}
"""API key -> since when it has versions with its error."""


def wanted_errors(key: int, release: Release) -> set[int]:
    """Those that the requests for all versions of an API ask for."""
    return WANTED_ERRORS.get(key, set()) if release >= ERRORS_SINCE.get(key, (0, 0)) else set()
