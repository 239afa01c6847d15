"""Versions that Kafka 3 serves and kio, whose schemas are those of Kafka 4, cannot write. In: a side. Out: bodies, made by hand.

Sources: the protocol guides of Kafka 3.9 and before. None of these versions has tagged fields, none names a broker."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from tests.real.every_api import SHARED, token
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
}
"""(API key, version) -> its body."""

CLOSED: Final = {(0, version) for version in range(3)}
"""(API key, version): Kafka 4 advertises these for the sake of old librdkafka, and closes the connection of whoever uses them
(KIP-896)."""

SAME_LENGTH: Final = {38: "token and times", 39: "the new time", 40: "the new time"}
"""Of these only the error and the length are compared, and what is volatile in them."""
