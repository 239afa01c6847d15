"""Versions that kio, whose schemas are those of Kafka 4.0 to 4.3, cannot write: older ones, which Kafka 3 serves, and those of
Kafka 4.4. In: a side. Out: bodies, made by hand.

Sources: the protocol guides of Kafka 3.9 and before, and the schemas in the jar of Kafka 4.4's clients. None of the older versions
has tagged fields, all of 4.4 have them. None of all names a broker."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from tests.real.every_api import SHARED, commit, producer, streams_describe, token
from tests.real.twins import Side


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def array(*elements: bytes) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def numbers(form: str, *values: int) -> bytes:
    return struct.pack(">" + form, *values)


def topic(name: str, *partitions: bytes) -> bytes:
    """One topic in an array."""
    return array(text(name) + array(*partitions))


def message(magic: int) -> bytes:
    """A message of the formats before record batches."""
    stamp = numbers("q", 1_700_000_000_000) if magic else b""
    content = numbers("bb", magic, 0) + stamp + blob(b"key") + blob(b"old value")
    return numbers("q", 0) + blob(numbers("I", zlib.crc32(content)) + content)


def produce(side: Side, version: int) -> bytes:
    return numbers("hi", -1, 5000) + topic(side.own("old"), numbers("i", 0) + blob(message(1 if version == 2 else 0)))


def fetch(version: int) -> bytes:
    limit = numbers("i", 1 << 20) if version == 3 else b""
    return numbers("iii", -1, 100, 1) + limit + topic(SHARED, numbers("iqi", 0, 0, 10_000), numbers("iqi", 1, 99, 10_000))


def offset_commit(side: Side, version: int) -> bytes:
    who = text(side.own(f"old-commit-{version}")) + (numbers("i", -1) + text("") if version else b"")
    return who + topic(SHARED, numbers("iq", 1, 7) + (numbers("q", -1) if version else b"") + text("why"))


def create_topics(side: Side, version: int) -> bytes:
    names = (side.own(f"old-create-{version}"), SHARED)
    topics = [text(name) + numbers("ih", 2, 1) + array() + array(text("retention.ms") + text("1000000")) for name in names]
    return array(*topics) + numbers("i", 30_000) + (b"\0" if version else b"")


def acl(name: str) -> bytes:
    return numbers("b", 2) + text(name) + text("User:somebody") + text("*") + numbers("bb", 3, 3)


def acl_filter(name: str) -> bytes:
    return numbers("b", 2) + text(name) + text(None) + text(None) + numbers("bb", 1, 1)


NO_TAGS, NULL, EMPTY = b"\0", b"\0", b"\1"


def compact(value: str) -> bytes:
    """A text of less than 127 bytes, of flexible versions (KIP-482)."""
    return bytes([len(value) + 1]) + value.encode()


def compact_array(*elements: bytes) -> bytes:
    return bytes([len(elements) + 1]) + b"".join(elements)


def flexible(*fields: bytes) -> bytes:
    """A body, and before it the tags of its header."""
    return NO_TAGS + b"".join(fields) + NO_TAGS


def txn_offset_commit(side: Side) -> bytes:
    who = producer(side, side.own("txn-commit-6"))
    assert side.ask(25, 3, **who).error_code == 0
    member = numbers("i", -1) + EMPTY + NULL
    partition = numbers("iqi", 0, 7, 0) + compact("why") + NO_TAGS
    topics = compact_array(side.notes["ids"][SHARED].bytes + compact_array(partition) + NO_TAGS)
    names = compact(str(who["transactional_id"])) + compact(str(who["group_id"]))
    return flexible(names, numbers("qh", who["producer_id"], who["producer_epoch"]), member, topics)


def delete_groups(side: Side) -> bytes:
    """One, as the order of several is that of a hash of their names."""
    commit(side, side.own("delete-group-3"))
    return flexible(compact_array(compact(side.own("delete-group-3"))))


def describe_streams_group(side: Side) -> bytes:
    (group, _) = streams_describe(side, 1)["group_ids"]
    return flexible(compact_array(compact(group)), b"\1", b"\1")


def describe_topology(side: Side) -> bytes:
    return flexible(compact(side.own("streams-describe-1")), compact("somebody"), numbers("i", 0), EMPTY, EMPTY + NO_TAGS)


BODIES: Final[dict[tuple[int, int], Callable[[Side], bytes]]] = {
    **{(0, version): lambda side, v=version: produce(side, v) for version in range(3)},  # type: ignore[misc]
    **{(1, version): lambda side, v=version: fetch(v) for version in range(4)},  # type: ignore[misc]  # noqa: ARG005
    (2, 0): lambda side: numbers("i", -1) + topic(SHARED, numbers("iqi", 0, -1, 5)),  # noqa: ARG005
    (8, 0): lambda side: offset_commit(side, 0),
    (8, 1): lambda side: offset_commit(side, 1),
    (9, 0): lambda side: text("shared-group") + topic(SHARED, numbers("i", 0), numbers("i", 1)),  # noqa: ARG005
    **{(19, v): lambda side, v=v: create_topics(side, v) for v in range(2)},  # type: ignore[misc]
    (20, 0): lambda side: array(text(side.own("delete-0"))) + numbers("i", 30_000),
    **{(23, v): lambda side: topic(SHARED, numbers("ii", 0, 0)) for v in range(2)},  # noqa: ARG005
    (27, 0): lambda side: array(
        numbers("qhb", 4242, 0, 1) + topic(side.own("markers"), numbers("i", 0)) + numbers("i", 0),
    ),
    (29, 0): lambda side: acl_filter("shared-acl"),  # noqa: ARG005
    (30, 0): lambda side: array(acl(side.own("old-acl"))),
    (31, 0): lambda side: array(acl_filter(side.own("old-acl"))),
    (32, 0): lambda side: array(numbers("b", 2) + text(SHARED) + numbers("i", -1)),  # noqa: ARG005
    (34, 0): lambda side: array(text("/nowhere") + topic(SHARED, numbers("i", 0))),  # noqa: ARG005
    (35, 0): lambda side: topic(SHARED, numbers("i", 0)),  # noqa: ARG005
    (38, 0): lambda side: array(text("User") + text("renewer")) + numbers("q", 3_600_000),  # noqa: ARG005
    (39, 0): lambda side: blob(token(side).hmac) + numbers("q", 60_000),
    (40, 0): lambda side: blob(token(side).hmac) + numbers("q", 60_000),
    (41, 0): lambda side: array(text("User") + text("admin")),  # noqa: ARG005
    (18, 5): lambda side: flexible(compact("raw"), compact("1"), NULL, numbers("i", -1)),  # noqa: ARG005
    (28, 6): txn_offset_commit,
    (42, 3): delete_groups,
    (89, 1): describe_streams_group,
    (93, 0): describe_topology,
    (94, 0): lambda side: flexible(numbers("i", 99)),  # noqa: ARG005
}
"""(API key, version) -> its body."""

NAMES: Final = {93: "streams_group_topology_description_update", 94: "unregister_controller"}
"""API key -> the name of an API that kio does not know."""

LIKE: Final = {(18, 5): 4}
"""(API key, version) -> an older version whose answer has the same fields."""

CLOSED: Final = {(0, version) for version in range(3)}
"""(API key, version): Kafka 4 advertises these for the sake of old librdkafka, and closes the connection of whoever uses them
(KIP-896)."""

SAME_LENGTH: Final = {38: "token and times", 39: "the new time", 40: "the new time"}
"""Of these only the error and the length are compared, and what is volatile in them."""
