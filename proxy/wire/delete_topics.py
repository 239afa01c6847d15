"""DeleteTopics (key 20, versions 0-6) as an API about items: names, or from version 6 on ids. Sources:
DeleteTopicsRequest/Response.json of Apache Kafka 4.3, and of 3.9 for version 0; KIP-516, KIP-599."""

from __future__ import annotations

from functools import cache
from typing import Final

from proxy.wire.items import NO_ID, QUOTA_EXCEEDED, Item, ItemApi, id_at, name_at
from proxy.wire.kio_bridge import request_layout, response_layout
from proxy.wire.layout import Array, Entity, Fixed, Text
from proxy.wire.primitives import INT16, Buffer, encode_string, string

KEY: Final = 20
_FIRST_WITH_IDS: Final = 6


class _DeleteTopics(ItemApi):
    key = KEY
    versions = (0, 6)
    first_refusable = 5
    first_throttle = 1
    answered = "responses"

    def asked(self, version: int) -> str:
        return "topics" if version >= _FIRST_WITH_IDS else "topic_names"

    def request_layout(self, version: int) -> Entity:
        return _request_layout(version)

    def response_layout(self, version: int) -> Entity:
        return _response_layout(version)

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        element = topics.element
        if isinstance(element, Entity):
            spans = element.spans(buf, start, stop)
            return Item(string(buf, *spans["name"], topics.compact)[0], id_at(buf, spans), 0, start, stop)
        return Item(name_at(buf, start, stop, topics.compact)[0], NO_ID, 0, start, stop)

    def refused(self, topic: Item, version: int, message: str) -> bytes:
        """Name and id as they were asked for."""
        name = b"\0" if topic.name is None else encode_string(topic.name, compact=True)
        topic_id = topic.topic_id if version >= _FIRST_WITH_IDS else b""
        return name + topic_id + INT16.pack(QUOTA_EXCEEDED) + encode_string(message, compact=True) + b"\0"


DELETE_TOPICS: Final = _DeleteTopics()


@cache
def _request_layout(version: int) -> Entity:
    """Version 0 (brokers before 4.0) is like 1."""
    return request_layout(KEY, max(version, 1))


@cache
def _response_layout(version: int) -> Entity:
    """Version 0 has no throttle time."""
    if version >= 1:
        return response_layout(KEY, version)
    topic = Entity([("name", Text(compact=False)), ("error_code", Fixed(2))], None)
    return Entity([("responses", Array(topic, compact=False))], None)
