"""CreateTopics (key 19, versions 0-7) as an API about items. The amount of an item is the number of its partitions, -1 where
the broker's default decides. Sources: CreateTopicsRequest/Response.json of Apache Kafka 4.3, and of 3.9 for versions 0 and
1; KIP-599."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from proxy.wire.items import NO_ID, Item, ItemApi, Refusal, name_at
from proxy.wire.layout import TEXT, Array, Entity, Fixed, Layout, old_array, old_entity
from proxy.wire.primitives import INT16, INT32, Buffer, array, encode_array_length, encode_string
from proxy.wire.topic_configs import Config, read_configs

KEY: Final = 19
_FIRST_FLEXIBLE: Final = 5
_NOTHING_MADE: Final = INT32.pack(-1) + INT16.pack(-1) + encode_array_length(0, compact=True) + b"\0"
"""No partitions, no replication factor, no configs, no tagged fields."""


def _old_request(*last: tuple[str, Layout]) -> Entity:
    topics = old_array(
        ("name", TEXT),
        ("num_partitions", Fixed(4)),
        ("replication_factor", Fixed(2)),
        ("assignments", old_array(("partition_index", Fixed(4)), ("broker_ids", Array(Fixed(4), compact=False)))),
        ("configs", old_array(("name", TEXT), ("value", TEXT))),
    )
    return old_entity(("topics", topics), ("timeout", Fixed(4)), *last)


def _old_response(*last: tuple[str, Layout]) -> Entity:
    return old_entity(("topics", old_array(("name", TEXT), ("error_code", Fixed(2)), *last)))


class Shape(NamedTuple):
    """What a topic is to be like: partitions and replication factor, -1 where the broker's default decides, and its configs."""

    partitions: int
    replication_factor: int
    configs: list[Config]


class _CreateTopics(ItemApi):
    key = KEY
    versions = (0, 7)
    first_refusable = 6
    first_throttle = 2
    answered = "topics"
    old_requests: ClassVar[Mapping[int, Entity]] = {0: _old_request(), 1: _old_request(("validate_only", Fixed(1)))}
    old_responses: ClassVar[Mapping[int, Entity]] = {0: _old_response(), 1: _old_response(("error_message", TEXT))}

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        """Name, partitions (int32), replication factor (int16), assignments: the same in all versions."""
        name, pos = name_at(buf, start, stop, topics.compact)
        partitions = INT32.unpack_from(buf, pos)[0]
        if partitions == -1:
            assigned, _ = array(buf, pos + 6, stop, topics.compact)
            partitions = assigned if assigned > 0 else -1
        return Item(name, NO_ID, partitions, start, stop)

    def shape(self, topic: Item, buf: Buffer, version: int) -> Shape:
        """What a topic of a request is to be like. A replication factor of assignments is that of the first."""
        topics = self.request_layout(version).array("topics")
        element = topics.element
        assert isinstance(element, Entity)
        spans = element.spans(buf, topic.start, topic.stop)
        replicas = INT16.unpack_from(buf, spans["replication_factor"][0])[0]
        assignments = element.array("assignments")
        count, pos = assignments.count(buf, *spans["assignments"])
        if count > 0:
            replicas = array(buf, pos + 4, topic.stop, topics.compact)[0]
        return Shape(topic.amount, replicas, list(read_configs(element.array("configs"), buf, *spans["configs"])))

    def refused(self, topic: Item, version: int, refusal: Refusal) -> bytes:
        """No id, no partitions, no configs. Version 0 has no message."""
        tagged = version >= _FIRST_FLEXIBLE
        name = encode_string(topic.name or "", compact=tagged) + (NO_ID if version >= 7 else b"")
        error = INT16.pack(refusal.error) + (encode_string(refusal.message, compact=tagged) if version else b"")
        return name + error + (_NOTHING_MADE if tagged else b"")


CREATE_TOPICS: Final = _CreateTopics()
