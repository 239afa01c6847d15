"""Any message of the protocol, made from kio's schemas. In: a schema class and a source of chance. Out: an entity, or its bytes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing
import uuid
from io import BytesIO
from random import Random
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import EntityType, api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from proxy.wire.kio_bridge import encode_request, encode_response

REAL_HOST = "real-host"
"""Every host name in a made message starts with this."""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_ERRORS = [code for code in ErrorCode if int(code) >= 0]


def api_versions() -> list[tuple[int, int]]:
    """(API key, version) of all that kio knows, without loading its schemas: that takes a second."""
    return [(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]]


@functools.cache
def schemas() -> list[tuple[str, int, int, type[Any]]]:
    """("request" or "response", API key, version, schema class) of all that kio knows."""
    load = {"request": load_request_schema, "response": load_response_schema}
    return [(kind, key, version, load[kind](key, version)) for key, version in api_versions() for kind in load]


def versions_of(key: int) -> list[int]:
    return [version for version, kinds in schema_name_map[api_key_map[key]].items() if EntityType.request in kinds]


@functools.cache
def _types(schema: type[Any]) -> dict[str, Any]:
    """Of its fields. Python evaluates them anew each time: a tenth of the time of the tests of messages."""
    return typing.get_type_hints(schema)


def make(schema: type[Any], chance: Random, **given: Any) -> Any:
    """An instance with every field filled by chance, tagged ones mostly too; `given` ones as they are."""
    hints = _types(schema)
    if isinstance(given.get("error_code"), int):
        given["error_code"] = ErrorCode(given["error_code"])
    values = {f.name: given[f.name] if f.name in given else _field(f, hints[f.name], chance) for f in dataclasses.fields(schema)}
    return schema(**values)


def part_of(schema: type[Any], name: str) -> type[Any]:
    """The class of the elements of a field."""
    hint = _types(schema)[name]
    kinds = [kind for kind in typing.get_args(hint) if typing.get_origin(kind) is tuple]
    inner: type[Any] = typing.get_args(kinds[0] if kinds else hint)[0]  # of a tuple that may be null
    return inner


def produce(version: int, correlation_id: int, records: bytes | None, topic: str = "orders", acks: int = 1) -> bytes:
    """A Produce request for partition 0 of one topic, the commonest. Since version 13 the topic is an id made of its name."""
    schema = load_request_schema(0, version)
    data = part_of(schema, "topic_data")
    part = part_of(data, "partition_data")
    named = {"name": topic} if version < 13 else {"topic_id": uuid.UUID(bytes=topic.encode().ljust(16, b"-"))}
    topics = (data(partition_data=(part(index=0, records=records),), **named),)
    return request(0, version, correlation_id, acks=acks, transactional_id=None, topic_data=topics)


def _field(f: Any, hint: Any, chance: Random) -> Any:
    kinds = typing.get_args(hint)
    if type(None) in kinds:
        (hint,) = (kind for kind in kinds if kind is not type(None))
        if chance.random() < 0.2 and "tag" not in f.metadata and f.metadata.get("kafka_type") != "uuid":
            return None
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(f, inner, chance) for _ in range(chance.randrange(0, 3)))
    return _value(f, hint, chance)


def _value(f: Any, hint: Any, chance: Random) -> Any:
    if dataclasses.is_dataclass(hint):
        return make(typing.cast(type[Any], hint), chance)
    kafka_type = f.metadata["kafka_type"]
    if f.name == "host":
        return f"{REAL_HOST}-{chance.randrange(100)}.internal"
    if f.name == "port":
        return chance.randrange(1, 0x7FFF)
    if kafka_type in _BITS:
        return chance.randrange(-(1 << _BITS[kafka_type] - 1), 1 << _BITS[kafka_type] - 1)
    if kafka_type in _UNSIGNED:
        return chance.randrange(1 << _UNSIGNED[kafka_type])
    return _OTHERS[kafka_type](chance)


_OTHERS: dict[str, Any] = {
    "string": lambda chance: "".join(chance.choices("abcñ漢😀.-_", k=chance.choice((0, 3, 9, 150)))),
    "bytes": lambda chance: chance.randbytes(chance.choice((0, 1, 40, 200))),
    "records": lambda chance: chance.randbytes(chance.choice((0, 1, 40, 200))),
    "bool": lambda chance: chance.random() < 0.5,
    "uuid": lambda chance: uuid.UUID(bytes=chance.randbytes(16)),
    "error_code": lambda chance: chance.choice(_ERRORS),
    "float64": lambda chance: float(chance.randrange(1000)),
    "timedelta_i32": lambda chance: datetime.timedelta(milliseconds=chance.randrange(1 << 20)),
    "timedelta_i64": lambda chance: datetime.timedelta(milliseconds=chance.randrange(1 << 20)),
    "datetime_i64": lambda chance: datetime.datetime.fromtimestamp(chance.randrange(1 << 30), datetime.UTC),
}


def encode(entity: Any) -> bytes:
    """The body of a message."""
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(schema: type[Any], body: bytes) -> Any:
    """kio's reading of a body; fails when it leaves bytes over."""
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body), f"{len(body) - size} bytes left over"
    return entity


def request(
    key: int, version: int, correlation_id: int = 1, client_id: str = "app", chance: Random | None = None, **given: Any
) -> bytes:
    """A whole request frame."""
    return encode_request(correlation_id, client_id, make(load_request_schema(key, version), chance or Random(key), **given))


def response(key: int, version: int, correlation_id: int = 1, chance: Random | None = None, **given: Any) -> bytes:
    """A whole response frame."""
    return encode_response(correlation_id, make(load_response_schema(key, version), chance or Random(key), **given))


def read_response(key: int, version: int, frame: bytes) -> Any:
    """kio's reading of a whole response frame, whose size field has to be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    schema = load_response_schema(key, version)
    start = 8 + (schema.__header_schema__.__version__ == 1)
    return decode(schema, frame[start:])


def read_request(key: int, version: int, frame: bytes) -> Any:
    """kio's reading of a whole request frame, whose size field has to be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    schema = load_request_schema(key, version)
    start = 14 + int.from_bytes(frame[12:14], "big") + (schema.__header_schema__.__version__ == 2)
    return decode(schema, frame[start:])


def correlation_id(frame: bytes) -> int:
    return int.from_bytes(frame[4:8], "big")


def batch(records: int = 3, size: int = 100, producer_id: int = -1, epoch: int = -1, sequence: int = -1, magic: int = 2) -> bytes:
    """A record batch of magic 2 as far as a skim looks at it: a header of 61 bytes, then anything."""
    header = bytes(16) + bytes([magic]) + bytes(26)
    header += producer_id.to_bytes(8, "big", signed=True) + epoch.to_bytes(2, "big", signed=True)
    header += sequence.to_bytes(4, "big", signed=True) + records.to_bytes(4, "big", signed=True)
    rest = max(size - len(header), 0)
    return header + (bytes(range(256)) * (rest // 256 + 1))[:rest]
