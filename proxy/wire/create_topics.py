"""CreateTopics (key 19, versions 0-7) as an API about items. The amount of an item is the number of its partitions, -1 where
the broker's default decides. Sources: CreateTopicsRequest/Response.json of Apache Kafka 4.3, and of 3.9 for versions 0 and
1; KIP-599."""

from __future__ import annotations

from functools import cache
from typing import Final

from proxy.wire.items import NO_ID, QUOTA_EXCEEDED, Item, ItemApi, name_at
from proxy.wire.kio_bridge import request_layout, response_layout
from proxy.wire.layout import Array, Entity, Fixed, Text
from proxy.wire.primitives import INT16, INT32, Buffer, array, encode_array_length, encode_string

KEY: Final = 19


class _CreateTopics(ItemApi):
    key = KEY
    versions = (0, 7)
    first_refusable = 6
    first_throttle = 2
    answered = "topics"

    def request_layout(self, version: int) -> Entity:
        return _request_layout(version)

    def response_layout(self, version: int) -> Entity:
        return _response_layout(version)

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        """Name, partitions (int32), replication factor (int16), assignments: the same in all versions."""
        name, pos = name_at(buf, start, stop, topics.compact)
        partitions = INT32.unpack_from(buf, pos)[0]
        if partitions == -1:
            assigned, _ = array(buf, pos + 6, stop, topics.compact)
            partitions = assigned if assigned > 0 else -1
        return Item(name, NO_ID, partitions, start, stop)

    def refused(self, topic: Item, version: int, message: str) -> bytes:
        """No id, no partitions, no configs."""
        name = encode_string(topic.name or "", compact=True) + (NO_ID if version >= 7 else b"")
        error = INT16.pack(QUOTA_EXCEEDED) + encode_string(message, compact=True)
        return name + error + INT32.pack(-1) + INT16.pack(-1) + encode_array_length(0, compact=True) + b"\0"


CREATE_TOPICS: Final = _CreateTopics()


@cache
def _request_layout(version: int) -> Entity:
    """kio knows versions 2 and up; 0 and 1 (brokers before 4.0) are alike, but 0 has no validate_only."""
    if version >= 2:
        return request_layout(KEY, version)
    text = Text(compact=False)
    assignment = Entity([("partition_index", Fixed(4)), ("broker_ids", Array(Fixed(4), compact=False))], None)
    config = Entity([("name", text), ("value", text)], None)
    assignments, configs = Array(assignment, compact=False), Array(config, compact=False)
    topic = Entity(
        [
            ("name", text),
            ("num_partitions", Fixed(4)),
            ("replication_factor", Fixed(2)),
            ("assignments", assignments),
            ("configs", configs),
        ],
        None,
    )
    rest = [("timeout", Fixed(4)), *([("validate_only", Fixed(1))] if version == 1 else [])]
    return Entity([("topics", Array(topic, compact=False)), *rest], None)


@cache
def _response_layout(version: int) -> Entity:
    if version >= 2:
        return response_layout(KEY, version)
    text = Text(compact=False)
    message = [("error_message", text)] if version == 1 else []
    return Entity([("topics", Array(Entity([("name", text), ("error_code", Fixed(2)), *message], None), compact=False))], None)
