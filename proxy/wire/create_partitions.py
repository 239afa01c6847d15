"""CreatePartitions (key 37, versions 0-3) as an API about items. The amount of an item is the number of partitions that the
topic is to have in all. Source: CreatePartitionsRequest/Response.json of Apache Kafka 4.3; KIP-195, KIP-599."""

from __future__ import annotations

from typing import Final

from proxy.wire.items import NO_ID, Item, ItemApi, Refusal, name_at
from proxy.wire.layout import Array
from proxy.wire.primitives import INT16, INT32, Buffer, encode_string

KEY: Final = 37
_FIRST_FLEXIBLE: Final = 2


class _CreatePartitions(ItemApi):
    key = KEY
    versions = (0, 3)
    first_refusable = 3
    first_throttle = 0
    answered = "results"

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        """Name, partitions in all (int32): the same in all versions."""
        name, pos = name_at(buf, start, stop, topics.compact)
        return Item(name, NO_ID, INT32.unpack_from(buf, pos)[0], start, stop)

    def refused(self, topic: Item, version: int, refusal: Refusal) -> bytes:
        tagged = version >= _FIRST_FLEXIBLE
        error = INT16.pack(refusal.error) + encode_string(refusal.message, compact=tagged)
        return encode_string(topic.name or "", compact=tagged) + error + (b"\0" if tagged else b"")


CREATE_PARTITIONS: Final = _CreatePartitions()
