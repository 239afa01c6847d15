"""DeleteTopics (key 20, versions 0-6) as an API about items: names, or from version 6 on ids. Sources:
DeleteTopicsRequest/Response.json of Apache Kafka 4.3, and of 3.9 for version 0; KIP-516, KIP-599."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from proxy.wire.items import NO_ID, Item, ItemApi, Refusal, id_at, name_at
from proxy.wire.layout import TEXT, Array, Entity, Fixed, old_array, old_entity
from proxy.wire.primitives import INT16, Buffer, encode_string, string

KEY: Final = 20
_FIRST_WITH_IDS: Final = 6


class _DeleteTopics(ItemApi):
    key = KEY
    versions = (0, 6)
    first_refusable = 5
    first_throttle = 1
    answered = "responses"
    old_requests: ClassVar[Mapping[int, Entity]] = {
        0: old_entity(("topic_names", Array(TEXT, compact=False)), ("timeout", Fixed(4)))
    }
    old_responses: ClassVar[Mapping[int, Entity]] = {
        0: old_entity(("responses", old_array(("name", TEXT), ("error_code", Fixed(2)))))
    }

    def asked(self, version: int) -> str:
        return "topics" if version >= _FIRST_WITH_IDS else "topic_names"

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        element = topics.element
        if isinstance(element, Entity):
            spans = element.spans(buf, start, stop)
            return Item(string(buf, *spans["name"], topics.compact)[0], id_at(buf, spans), 0, start, stop)
        return Item(name_at(buf, start, stop, topics.compact)[0], NO_ID, 0, start, stop)

    def refused(self, topic: Item, version: int, refusal: Refusal) -> bytes:
        """Name and id as they were asked for."""
        name = b"\0" if topic.name is None else encode_string(topic.name, compact=True)
        topic_id = topic.topic_id if version >= _FIRST_WITH_IDS else b""
        return name + topic_id + INT16.pack(refusal.error) + encode_string(refusal.message, compact=True) + b"\0"


DELETE_TOPICS: Final = _DeleteTopics()
