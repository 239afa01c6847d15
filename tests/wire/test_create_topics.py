"""CreateTopics: read a request, leave topics out of it, put topics into its response; what is newer passes."""

import datetime
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from proxy.wire.create_topics import read_request, refusal, with_refused, with_throttle, without
from proxy.wire.headers import client_id_end, request_body
from proxy.wire.primitives import BadBytes
from tests.messages import make, part_of, read_response, request, response
from tests.messages import read_request as kio_request
from tests.support import bad

NEW = range(2, 8)
REFUSABLE = (6, 7)


def frame_of(version: int, *topics: tuple[str, int, int], validate_only: bool = False) -> bytes:
    """A request of (name, partitions, assignments)."""
    topic = part_of(load_request_schema(19, version), "topics")
    assignment = part_of(topic, "assignments")
    made = tuple(
        make(
            topic,
            Random(1),
            name=name,
            num_partitions=n,
            assignments=tuple(assignment(partition_index=i, broker_ids=(1,)) for i in range(k)),
        )
        for name, n, k in topics
    )
    return request(19, version, topics=made, validate_only=validate_only)


def old_frame(version: int, *topics: tuple[str, int, int], validate_only: bool = False) -> bytes:
    """The same for versions 0 and 1, which kio does not know: that of version 2 without its last byte, for 0."""
    frame = bytearray(frame_of(2, *topics, validate_only=validate_only))
    frame[6:8] = version.to_bytes(2, "big")
    if version == 0:
        del frame[-1]
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


def any_frame(version: int, *topics: tuple[str, int, int], validate_only: bool = False) -> bytes:
    make_frame = frame_of if version >= 2 else old_frame
    return make_frame(version, *topics, validate_only=validate_only)


def body_of(frame: bytes) -> int:
    stop = client_id_end(frame, 0, len(frame))
    return request_body(frame, stop, len(frame), 19, int.from_bytes(frame[6:8], "big"))


@pytest.mark.parametrize("version", range(8))
def test_names_and_partitions(version):
    frame = any_frame(version, ("orders", 7, 0), ("ünï", -1, 3), ("left", -1, 0), ("zero", 0, 0), ("both", 5, 2))
    found = read_request(frame, body_of(frame), len(frame), version)
    assert [(topic.name, topic.partitions) for topic in found.topics] == [
        ("orders", 7),
        ("ünï", 3),
        ("left", -1),
        ("zero", 0),
        ("both", 5),
    ]
    assert not found.validate_only


@pytest.mark.parametrize("version", range(1, 8))
def test_validate_only(version):
    frame = any_frame(version, ("a", 1, 0), validate_only=True)
    assert read_request(frame, body_of(frame), len(frame), version).validate_only


@pytest.mark.parametrize("version", range(8))
def test_no_part_of_a_request_passes(version):
    frame = any_frame(version, ("orders", 7, 0), ("b", -1, 2))
    for size in range(body_of(frame), len(frame) - (version >= 5)):  # its own tagged fields are not looked at
        assert bad(read_request, frame, body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("refused", [{0}, {1}, {2}, {0, 2}, {0, 1, 2}, set()])
def test_a_request_without_some_topics_is_the_request_of_the_others(version, refused):
    frame = frame_of(version, ("a", 1, 0), ("b", -1, 2), ("c", 3, 0))
    start = body_of(frame)
    pieces = without(read_request(frame, start, len(frame), version), refused, frame, start, len(frame), version)
    rest = frame[4:start] + b"".join(pieces)
    got = kio_request(19, version, len(rest).to_bytes(4, "big") + rest)
    before = kio_request(19, version, frame)
    assert got.topics == tuple(topic for i, topic in enumerate(before.topics) if i not in refused)
    assert (got.timeout, got.validate_only) == (before.timeout, before.validate_only)


def answer(version: int, *names: str, error: int = 0, throttle_ms: int = 0) -> bytes:
    topic = part_of(load_response_schema(19, version), "topics")
    made = tuple(make(topic, Random(1), name=name, error_code=error, error_message=None) for name in names)
    return response(19, version, 6, topics=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


def errors(entity: Any) -> list[tuple[str, int, str | None]]:
    return [(topic.name, int(topic.error_code), topic.error_message) for topic in entity.topics]


@pytest.mark.parametrize("version", REFUSABLE)
def test_refused_topics_stand_behind_the_brokers_own(version):
    got = read_response(19, version, b"".join(with_refused(answer(version, "a", throttle_ms=5), version, ["x", "y"], "why", 1200)))
    assert errors(got) == [("a", 0, None), ("x", 89, "why"), ("y", 89, "why")]
    assert got.throttle_time == datetime.timedelta(milliseconds=1200)
    assert got.topics[0] == read_response(19, version, answer(version, "a")).topics[0]
    refused = got.topics[1]
    assert (refused.num_partitions, refused.replication_factor, refused.configs) == (-1, -1, ())


@pytest.mark.parametrize("version", REFUSABLE)
def test_a_refusal_of_everything(version):
    frame = refusal(6, version, ["x", "y"], "wäit", 1200)
    got = read_response(19, version, frame)
    assert errors(got) == [("x", 89, "wäit"), ("y", 89, "wäit")]
    assert got.throttle_time == datetime.timedelta(milliseconds=1200)
    assert frame[4:8] == b"\0\0\0\6"


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize(("own", "wanted"), [(0, 700), (699, 700), (9000, 9000)])
def test_the_larger_throttle_time_is_told(version, own, wanted):
    frame = b"".join(with_throttle(answer(version, "a", "b", throttle_ms=own), version, {"b": "slow"}, 700))
    got = read_response(19, version, frame)
    assert got.throttle_time == datetime.timedelta(milliseconds=wanted)
    assert errors(got) == [("a", 0, None), ("b", 0, "slow")]


@pytest.mark.parametrize("version", NEW)
def test_an_error_of_the_broker_keeps_its_own_message(version):
    got = read_response(19, version, b"".join(with_throttle(answer(version, "a", error=36), version, {"a": "slow"}, 700)))
    assert errors(got) == [("a", 36, None)]


def test_the_oldest_versions_have_no_throttle_time():
    zero = b"\0\0\0\x0e\0\0\0\6" + b"\0\0\0\1\0\2ab\0\0"
    assert b"".join(with_throttle(zero, 0, {"ab": "slow"}, 700)) == zero
    one = b"\0\0\0\x10\0\0\0\6" + b"\0\0\0\1\0\2ab\0\0\xff\xff"
    assert b"".join(with_throttle(one, 1, {"ab": "slow"}, 700)) == b"\0\0\0\x14\0\0\0\6" + b"\0\0\0\1\0\2ab\0\0\0\4slow"


def test_an_unknown_error_code_of_a_newer_broker_passes():
    frame = answer(7, "abc")
    at = frame.index(b"\4abc") + 4 + 16
    frame = frame[:at] + b"\x27\x0f" + frame[at + 2 :]
    got = b"".join(with_refused(frame, 7, ["x"], "why", 5))
    assert b"\x27\x0f" in got
    assert b"\2x" in got


def test_tagged_fields_of_a_newer_broker_pass():
    topic = part_of(load_response_schema(19, 7), "topics")
    made = make(topic, Random(1), name="abc", error_code=0, error_message=None, configs=(), topic_config_error_code=0)
    frame = response(19, 7, 6, topics=(made,))
    assert frame.endswith(b"\0\0")
    frame = frame[:-2] + b"\1\x63\2XY" + b"\1\x64\2ZZ"
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    merged = b"".join(with_refused(frame, 7, ["x"], "why", 5))
    assert b"\1\x63\2XY" in merged
    assert merged.endswith(b"\1\x64\2ZZ")
    told = b"".join(with_throttle(frame, 7, {"abc": "slow"}, 5))
    assert told.endswith(b"\1\x63\2XY\1\x64\2ZZ")
    assert b"\5slow" in told


def test_tagged_fields_of_a_newer_client_pass():
    topic = part_of(load_request_schema(19, 7), "topics")
    frame = request(19, 7, topics=(topic(name="orders", num_partitions=7, replication_factor=1, assignments=(), configs=()),))
    at = frame.index(b"\7orders") + 7 + 4 + 2 + 1 + 1
    assert frame[at] == frame[-1] == 0
    frame = frame[:at] + b"\1\x63\2ab" + frame[at + 1 : -1] + b"\1\x63\2XY"
    found = read_request(frame, body_of(frame), len(frame), 7)
    assert [topic.name for topic in found.topics] == ["orders"]
    assert b"".join(without(found, {0}, frame, body_of(frame), len(frame), 7)).endswith(b"\1\x63\2XY")


@pytest.mark.parametrize("version", [2, 5, 7])
def test_no_part_of_a_response_passes(version):
    frame = answer(version, "a", "bc")
    for size in range(8, len(frame) - 1):
        assert bad(with_throttle, frame[:size], version, {"a": "slow"}, 5), f"{size} of {len(frame)} bytes pass"
        if version >= 6:
            with pytest.raises(BadBytes):
                with_refused(frame[:size], version, ["x"], "why", 5)
