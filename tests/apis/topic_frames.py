"""Requests that charge controller mutations and their answers, and a heartbeat to see whether a session looks at anything."""

import datetime
import uuid
from dataclasses import replace
from random import Random
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.wire.kio_bridge import parts_of
from quota.kinds.controller_mutations import MutationLimit
from tests.messages import make, part_of, request, response

FIVE = MutationLimit(5, 500)
"""The quota of the example in seed s1: a burst of 560 is 12 s too much."""


def create(version: int, number: int, *topics: tuple[str, int], validate_only: bool = False, client_id: str = "app") -> bytes:
    """A CreateTopics request of (name, partitions)."""
    topic = part_of(load_request_schema(19, version), "topics")
    made = tuple(topic(name=name, num_partitions=n, replication_factor=1, assignments=(), configs=()) for name, n in topics)
    return request(19, version, number, client_id=client_id, topics=made, validate_only=validate_only)


def created(version: int, number: int, *names: str, throttle_ms: int = 0, error: int = 0, partitions: int = -1) -> bytes:
    """The broker's answer; `partitions` as it says that there are, -1 where it says nothing of them."""
    topic = part_of(load_response_schema(19, version), "topics")
    one = make(topic, Random(1), name="", error_code=error, error_message=None, num_partitions=partitions)
    made = tuple(replace(one, name=name) for name in names)
    return response(19, version, number, topics=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


def delete(version: int, number: int, *topics: str | uuid.UUID, client_id: str = "app") -> bytes:
    """A DeleteTopics request of names or ids."""
    if version < 6:
        return request(20, version, number, client_id=client_id, topic_names=topics)
    topic = part_of(load_request_schema(20, version), "topics")
    made = tuple(topic(name=t, topic_id=None) if isinstance(t, str) else topic(name=None, topic_id=t) for t in topics)
    return request(20, version, number, client_id=client_id, topics=made)


def deleted(version: int, number: int, *topics: str | uuid.UUID, throttle_ms: int = 0, error: int = 0) -> bytes:
    """The broker's answer."""
    topic = part_of(load_response_schema(20, version), "responses")
    named = [{"name": t} if isinstance(t, str) else {"name": None, "topic_id": t} for t in topics]
    ids = {"topic_id": None} if version >= 6 else {}
    one = make(topic, Random(1), name=None, **ids, error_code=error, error_message=None)
    made = tuple(replace(one, **each) for each in named)
    return response(20, version, number, responses=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


def grow(version: int, number: int, *topics: tuple[str, int], validate_only: bool = False) -> bytes:
    """A CreatePartitions request of (name, partitions in all)."""
    topic = part_of(load_request_schema(37, version), "topics")
    made = tuple(topic(name=name, count=n, assignments=None) for name, n in topics)
    return request(37, version, number, topics=made, validate_only=validate_only)


def grown(version: int, number: int, *names: str, throttle_ms: int = 0, error: int = 0) -> bytes:
    """The broker's answer."""
    topic = part_of(load_response_schema(37, version), "results")
    one = make(topic, Random(1), name="", error_code=error, error_message=None)
    made = tuple(replace(one, name=name) for name in names)
    return response(37, version, number, results=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


def metadata(version: int, number: int, *names: str, create: bool = True) -> bytes:
    """A client's Metadata request."""
    topic = part_of(load_request_schema(3, version), "topics")
    made = tuple(topic(name=name, **({"topic_id": None} if version >= 10 else {})) for name in names)
    flag = {"allow_auto_topic_creation": create} if version >= 4 else {}
    return request(3, version, number, topics=made, **flag)


def described(
    version: int,
    number: int,
    sizes: dict[str, int],
    ids: dict[str, uuid.UUID] | None = None,
    errors: dict[str, int] | None = None,
) -> bytes:
    """An answer about topics; one of 0 partitions is not there, if `errors` say nothing else."""
    topic = part_of(load_response_schema(3, version), "topics")
    part = part_of(topic, "partitions")
    parts = [make(part, Random(i)) for i in range(max(sizes.values(), default=0))]
    one = make(topic, Random(1), partitions=())

    def told(name: str, n: int) -> Any:
        id = (ids or {}).get(name) or (uuid.uuid5(uuid.NAMESPACE_DNS, name) if n else None)
        error = ErrorCode((errors or {}).get(name, 0 if n else 3))
        of_name = {"name": name or None} | ({"topic_id": id} if version >= 10 else {})
        return replace(one, **of_name, error_code=error, partitions=tuple(parts[:n]))

    made = tuple(told(name, n) for name, n in sizes.items())
    return response(3, version, number, topics=made, brokers=())


def sizes_told(number: int, asked: Any, sizes: dict[str, int], names: dict[bytes, str]) -> bytes:
    """The answer to the proxy's question."""
    wanted = {topic.name or names.get(topic.topic_id.bytes, ""): topic.topic_id for topic in asked}
    return described(12, number, {name: sizes.get(name, 0) for name in wanted}, {name: i for name, i in wanted.items() if i})


HEARTBEAT = request(12, 4, 77)
BEAT = response(12, 4, 77)


def subtopology(
    *,
    sources: tuple[str, ...] = (),
    repartitions: dict[str, int] | None = None,
    repartition_sources: tuple[str, ...] = (),
    changelogs: tuple[str, ...] = (),
) -> Any:
    """A part of a topology; `repartition_sources` are those whose partitions the brokers decide."""
    part = part_of(part_of_topology(), "subtopologies")
    info = part_of(part, "state_changelog_topics")

    def infos(topics: dict[str, int]) -> tuple[Any, ...]:
        return tuple(info(name=name, partitions=n, replication_factor=0, topic_configs=()) for name, n in topics.items())

    return part(
        subtopology_id="0",
        source_topics=sources,
        state_changelog_topics=infos(dict.fromkeys(changelogs, 0)),
        repartition_source_topics=infos({**(repartitions or {}), **dict.fromkeys(repartition_sources, 0)}),
        copartition_groups=(),
    )


def part_of_topology() -> Any:
    return parts_of(load_request_schema(88, 0)).Topology


def heartbeat(number: int, group: str, *parts: Any, epoch: int = 0, member: str = "m") -> bytes:
    """A StreamsGroupHeartbeat; one of a member that is there has no topology."""
    topology = part_of_topology()(epoch=0, subtopologies=parts) if parts else None
    return request(88, 0, number, group_id=group, member_id=member, member_epoch=epoch, topology=topology)


def beat(number: int, error: int = 0) -> bytes:
    """The broker's answer."""
    return response(88, 0, number, error_code=error)
