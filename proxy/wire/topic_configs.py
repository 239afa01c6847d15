"""AlterConfigs (key 33, versions 0-2) and IncrementalAlterConfigs (key 44, versions 0-1) as APIs about items, and configs of topics
in these and in CreateTopics. An item is a resource; only those of topics have the name of a topic. Sources:
(Incremental)AlterConfigsRequest/Response.json of Apache Kafka 4.3; KIP-133, KIP-339."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.wire.headers import flexible
from proxy.wire.items import NO_ID, Item, ItemApi, Key, Refusal
from proxy.wire.layout import Array, Entity
from proxy.wire.primitives import INT16, Buffer, encode_string, string

ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44
TOPIC: Final = 2
"""The type of a resource that is a topic."""
SET, DELETE, APPEND, SUBTRACT = range(4)


class Config(NamedTuple):
    """A config of a request: its value, None where it has none, and what is to be done with it."""

    name: str
    value: str | None
    operation: int = SET


def read_configs(configs: Array, buf: Buffer, pos: int, end: int) -> Iterator[Config]:
    """The configs of an array that stands at `pos`."""
    element = configs.element
    assert isinstance(element, Entity)
    count, pos = configs.count(buf, pos, end)
    for _ in range(count):
        spans, pos = element.read(buf, pos, end)
        name, _ = string(buf, *spans["name"], configs.compact)
        value, _ = string(buf, *spans["value"], configs.compact)
        operation = buf[spans["config_operation"][0]] if "config_operation" in spans else SET
        yield Config(name or "", value, operation)


class AlterConfigsApi(ItemApi):
    """Either of them."""

    first_refusable = 0
    first_throttle = 0
    answered = "responses"

    def __init__(self, key: int, last: int) -> None:
        self.key, self.versions = key, (0, last)  # type: ignore[misc]

    def asked(self, version: int) -> str:  # noqa: ARG002
        return "resources"

    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:  # noqa: ARG002
        element = topics.element
        assert isinstance(element, Entity)
        name, _ = self.named(buf, element.spans(buf, start, stop), topics.compact)
        return Item(name, NO_ID, 0, start, stop)

    def named(self, buf: Buffer, spans: dict[str, tuple[int, int]], compact: bool) -> Key:
        """The name of a topic. The type of other resources stands before their names, with a sign that no topic has."""
        name, _ = string(buf, *spans["resource_name"], compact)
        sort = buf[spans["resource_type"][0]]
        return (name or "" if sort == TOPIC else f"{sort}:{name}"), NO_ID

    def refused(self, topic: Item, version: int, refusal: Refusal) -> bytes:
        """Only topics are refused."""
        tagged = flexible(self.key, version)
        error = INT16.pack(refusal.error) + encode_string(refusal.message, compact=tagged)
        return error + bytes((TOPIC,)) + encode_string(topic.name or "", compact=tagged) + (b"\0" if tagged else b"")

    def configs(self, topic: Item, buf: Buffer, version: int) -> Iterator[Config]:
        """What is to be done with the configs of a topic of a request."""
        element = self.request_layout(version).array("resources").element
        assert isinstance(element, Entity)
        return read_configs(element.array("configs"), buf, *element.spans(buf, topic.start, topic.stop)["configs"])


APIS: Final = (AlterConfigsApi(ALTER_CONFIGS, 2), AlterConfigsApi(INCREMENTAL_ALTER_CONFIGS, 1))


def is_topic(item: Item) -> bool:
    """True if a resource is a topic."""
    return ":" not in (item.name or ":")
