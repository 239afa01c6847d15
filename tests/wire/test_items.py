"""CreateTopics, DeleteTopics, CreatePartitions: read a request, leave topics out of it, put topics into its response; what is
newer passes."""

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.wire.create_partitions import CREATE_PARTITIONS
from proxy.wire.create_topics import CREATE_TOPICS
from proxy.wire.delete_topics import DELETE_TOPICS
from proxy.wire.headers import client_id_end, flexible, request_body
from proxy.wire.items import NO_ID, Answered, ItemApi, Items, Refusal, Result
from proxy.wire.kio_bridge import encode_response
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.steps import finish_at_once
from tests.messages import make, part_of, read_request, read_response, request, response
from tests.support import bad

APIS = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
IDS = [UUID(int=0xA0 + i) for i in range(10)]
WHY = Refusal(89, "why")
FIRST_OF_KIO = {19: 2, 20: 1, 37: 0}


def cases(wanted: Callable[[ItemApi, int], bool] | None = None) -> Any:
    """A test of every API and version, or of those of which this is true."""
    every = [(api, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)]
    found = [case for case in every if wanted is None or wanted(*case)]
    return pytest.mark.parametrize(("api", "version"), found, ids=[f"{api.key}v{version}" for api, version in found])


def refusable(api: ItemApi, version: int) -> bool:
    return version >= {19: 6, 20: 5, 37: 3}[api.key]


def throttled(api: ItemApi, version: int) -> bool:
    return version >= {19: 2, 20: 1, 37: 0}[api.key]


def has_message(api: ItemApi, version: int) -> bool:
    return version >= {19: 1, 20: 5, 37: 0}[api.key]


def has_ids(api: ItemApi, version: int) -> bool:
    return api is DELETE_TOPICS and version >= 6


class Topic(NamedTuple):
    """A topic of a request: `amount` is its partitions or count, `assigned` how many explicit assignments it has."""

    name: str | None
    amount: int = 1
    assigned: int = 0
    topic_id: UUID | None = None


class Told(NamedTuple):
    """A topic of a response."""

    name: str | None
    error: int = 0
    message: str | None = None
    topic_id: UUID | None = None


def of_id(i: int) -> Topic:
    return Topic(None, topic_id=IDS[i])


def frame_of(api: ItemApi, version: int, *topics: Topic, validate_only: bool = False) -> bytes:
    """A request. Versions that kio does not know are made from the first that it does: all that differs is the last byte of
    CreateTopics version 0, which is not there."""
    known = max(version, FIRST_OF_KIO[api.key])
    schema: Any = load_request_schema(api.key, known)
    if api is DELETE_TOPICS and version < 6:
        frame = request(api.key, known, topic_names=tuple(topic.name for topic in topics))
    elif api is DELETE_TOPICS:
        element: Any = part_of(schema, "topics")
        frame = request(api.key, known, topics=tuple(element(name=t.name, topic_id=t.topic_id) for t in topics))
    else:
        element = part_of(schema, "topics")
        made = tuple(_topic(api, element, topic) for topic in topics)
        frame = request(api.key, known, topics=made, validate_only=validate_only)
    return sized(frame[:6] + version.to_bytes(2, "big") + frame[8 : len(frame) - (api is CREATE_TOPICS and version == 0)])


def _topic(api: ItemApi, element: Any, topic: Topic) -> Any:
    if api is CREATE_TOPICS:
        assignment: Any = part_of(element, "assignments")
        assigned = tuple(assignment(partition_index=i, broker_ids=(1,)) for i in range(topic.assigned))
        return some(element, name=topic.name, num_partitions=topic.amount, assignments=assigned)
    new: Any = part_of(element, "assignments")
    placed = tuple(new(broker_ids=(1, 2)) for _ in range(topic.assigned))
    return element(name=topic.name, count=topic.amount, assignments=placed or None)


@cache
def _sample(schema: Any) -> tuple[Any, frozenset[str]]:
    return make(schema, Random(1)), frozenset(field.name for field in fields(schema))


def some(schema: Any, **given: Any) -> Any:
    """Any entity with these fields, as far as it has them. Faster than `make` where many are needed."""
    sample, names = _sample(schema)
    return replace(sample, **{name: value for name, value in given.items() if name in names})


def as_kio_reads(api: ItemApi, version: int, frame: bytes) -> Any:
    """kio's reading of a request."""
    known = max(version, FIRST_OF_KIO[api.key])
    end = b"\0" if api is CREATE_TOPICS and version == 0 else b""
    return read_request(api.key, known, sized(frame[:6] + known.to_bytes(2, "big") + frame[8:] + end))


def sized(frame: bytes) -> bytes:
    """The frame with the size that it has."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def body_of(frame: Buffer, at: int = 0) -> int:
    """Where the body of the request at `at` starts."""
    key, version = (int.from_bytes(frame[at + i : at + i + 2], "big") for i in (4, 6))
    return request_body(frame, client_id_end(frame, at, len(frame)), len(frame), key, version)


def read(api: ItemApi, version: int, frame: Buffer) -> Items:
    return finish_at_once(api.read(frame, body_of(frame), len(frame), version))


def items_of(api: ItemApi, version: int, *topics: Topic | str) -> Items:
    """What is read of a request about these."""
    return read(api, version, frame_of(api, version, *(Topic(t) if isinstance(t, str) else t for t in topics)))


def answer(api: ItemApi, version: int, *told: Told | str, throttle_ms: int = 0) -> bytes:
    """The broker's response."""
    rows = [Told(t) if isinstance(t, str) else t for t in told]
    if version < FIRST_OF_KIO[api.key]:
        return sized(bytes(4) + b"\0\0\0\1" + _old_body(api, version, rows))
    element = part_of(load_response_schema(api.key, version), api.answered)
    made = tuple(
        some(element, name=t.name, topic_id=t.topic_id, error_code=ErrorCode(t.error), error_message=t.message) for t in rows
    )
    return respond(api, version, made, throttle_time=timedelta(milliseconds=throttle_ms))


def respond(api: ItemApi, version: int, rows: tuple[Any, ...], **given: Any) -> bytes:
    return response(api.key, version, **given | {api.answered: rows})


def _old_body(api: ItemApi, version: int, rows: list[Told]) -> bytes:
    def text(value: str | None) -> bytes:
        return b"\xff\xff" if value is None else len(value.encode()).to_bytes(2, "big") + value.encode()

    body = len(rows).to_bytes(4, "big")
    for row in rows:
        body += text(row.name) + row.error.to_bytes(2, "big") + (text(row.message) if has_message(api, version) else b"")
    return body


def told_by(api: ItemApi, version: int, frame: bytes) -> list[Told]:
    """kio's reading of a response, of which kio knows the version."""
    rows = getattr(read_response(api.key, version, frame), api.answered)
    return [
        Told(row.name, int(row.error_code), getattr(row, "error_message", None), getattr(row, "topic_id", None)) for row in rows
    ]


def rows_of(api: ItemApi, version: int, frame: bytes) -> Any:
    """All that a response says of its topics."""
    return getattr(read_response(api.key, version, frame), api.answered)


def throttle_of(api: ItemApi, version: int, frame: bytes) -> int:
    waited: timedelta = read_response(api.key, version, frame).throttle_time
    return round(waited.total_seconds() * 1000)


def read_at_once(api: ItemApi, buf: Buffer, pos: int, end: int, version: int) -> Items:
    return finish_at_once(api.read(buf, pos, end, version))


def answered(api: ItemApi, version: int, items: Items, frame: Buffer) -> Answered:
    return finish_at_once(api.answer(frame, version, items))


def results(api: ItemApi, frame: Buffer, version: int, items: Items) -> dict[int, Result]:
    return dict(answered(api, version, items, frame).results)


def merge(
    api: ItemApi,
    version: int,
    items: Items,
    which: set[int],
    frame: bytes,
    throttle_ms: int = 0,
    refused: dict[int, Refusal] | None = None,
) -> bytes:
    refused = refused or dict.fromkeys(which, WHY)
    return b"".join(finish_at_once(api.with_refused(answered(api, version, items, frame), items, refused, throttle_ms)))


def explain(api: ItemApi, version: int, items: Items, told: set[int], frame: bytes, throttle_ms: int = 0) -> bytes:
    return b"".join(finish_at_once(api.with_throttle(answered(api, version, items, frame), told, "slow", throttle_ms)))


def names_and_errors(api: ItemApi, version: int, frame: bytes) -> list[tuple[str | None, int]]:
    return [(row.name, row.error) for row in told_by(api, version, frame)]


# ---------------------------------------------------------------------------------------------------------------- requests


@cases()
def test_which_versions_can_be_refused_and_told_of_a_throttle(api, version):
    assert (version >= api.first_refusable, version >= api.first_throttle) == (refusable(api, version), throttled(api, version))


@cases()
def test_names_and_amounts(api, version):
    topics = [Topic("orders", 7), Topic("ünï", -1, 3), Topic("left", -1), Topic("zero", 0), Topic("both", 5, 2)]
    wanted = {19: [7, 3, -1, 0, 5], 20: [0, 0, 0, 0, 0], 37: [7, -1, -1, 0, 5]}[api.key]
    found = items_of(api, version, *topics)
    assert [(t.name, t.topic_id, t.amount) for t in found.topics] == [
        (topic.name, NO_ID, amount) for topic, amount in zip(topics, wanted, strict=True)
    ]
    assert [topic.label for topic in found.topics] == ["orders", "ünï", "left", "zero", "both"]
    assert not found.validate_only


@cases()
def test_a_request_about_nothing(api, version):
    found = items_of(api, version)
    assert found.topics == []
    assert results(api, answer(api, version), version, found) == {}


@cases(has_ids)
def test_a_topic_may_be_named_by_its_id(api, version):
    both = Topic("both", topic_id=IDS[2])
    found = items_of(api, version, "orders", of_id(1), both, of_id(3)).topics
    assert [(t.name, t.topic_id) for t in found] == [
        ("orders", NO_ID),
        (None, IDS[1].bytes),
        ("both", IDS[2].bytes),
        (None, IDS[3].bytes),
    ]
    assert [t.key for t in found] == [("orders", NO_ID), (None, IDS[1].bytes), ("both", NO_ID), (None, IDS[3].bytes)]
    assert [t.label for t in found] == ["orders", f"topic id {IDS[1].hex}", "both", f"topic id {IDS[3].hex}"]


@cases(lambda api, version: api is not DELETE_TOPICS and (api, version) != (CREATE_TOPICS, 0))
def test_validate_only(api, version):
    for wanted in (True, False):
        frame = frame_of(api, version, Topic("a"), validate_only=wanted)
        assert read(api, version, frame).validate_only is wanted


@cases(lambda api, version: api is DELETE_TOPICS or (api, version) == (CREATE_TOPICS, 0))
def test_what_cannot_only_validate_never_does(api, version):
    assert not read(api, version, frame_of(api, version, Topic("a"), validate_only=True)).validate_only


@cases()
def test_no_part_of_a_request_passes(api, version):
    frame = frame_of(api, version, Topic("orders", 7), Topic("b", -1, 2))
    own_tags = flexible(api.key, version)  # these are not looked at
    for size in range(body_of(frame), len(frame) - own_tags):
        assert bad(read_at_once, api, frame, body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"
        assert bad(read_at_once, api, frame[:size], body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"


@cases()
def test_a_name_that_is_no_utf_8_does_not_pass(api, version):
    frame = frame_of(api, version, Topic("orders")).replace(b"orders", b"or\xffers")
    assert bad(read, api, version, frame)


@cases()
def test_more_topics_than_there_are_bytes_do_not_pass(api, version):
    frame = frame_of(api, version, Topic("orders"))
    start = read(api, version, frame).start
    many, size = (b"\xff\xff\xff\xff\x07", 1) if flexible(api.key, version) else (b"\x7f\xff\xff\xff", 4)
    assert bad(read, api, version, sized(frame[:start] + many + frame[start + size :]))


@cases()
def test_a_topic_without_a_name_passes_only_where_it_may_have_an_id(api, version):
    frame = frame_of(api, version, Topic(""), Topic("b"))
    at = read(api, version, frame).topics[0].start
    null = b"\0" if flexible(api.key, version) else b"\xff\xff"
    frame = frame[:at] + null + frame[at + len(null) :]
    if has_ids(api, version):
        assert [topic.key for topic in read(api, version, frame).topics] == [(None, NO_ID), ("b", NO_ID)]
    else:
        assert bad(read, api, version, frame)


@cases()
def test_a_request_in_the_midst_of_others(api, version):
    frame = frame_of(api, version, Topic("orders", 7), Topic("b", 2))
    start = body_of(frame)
    alone = read(api, version, frame)
    data = memoryview(b"before" + frame + frame)
    assert body_of(data, 6) == 6 + start
    found = finish_at_once(api.read(data, 6 + start, 6 + len(frame), version))
    assert [(t.name, t.amount, t.start - 6, t.stop - 6) for t in found.topics] == [
        (t.name, t.amount, t.start, t.stop) for t in alone.topics
    ]
    pieces = finish_at_once(api.without(found, {0}, data, 6 + start, 6 + len(frame), version))
    assert b"".join(pieces) == b"".join(finish_at_once(api.without(alone, {0}, frame, start, len(frame), version)))


@cases()
@pytest.mark.parametrize("refused", [{0}, {1}, {2}, {0, 2}, {0, 1, 2}, set()])
def test_a_request_without_some_topics_is_the_request_of_the_others(api, version, refused):
    second = of_id(1) if has_ids(api, version) else Topic("b", -1, 2)
    frame = frame_of(api, version, Topic("a", 1), second, Topic("c", 3))
    start = body_of(frame)
    pieces = finish_at_once(api.without(read(api, version, frame), refused, frame, start, len(frame), version))
    rest = sized(frame[:start] + b"".join(pieces))
    got, before = as_kio_reads(api, version, rest), as_kio_reads(api, version, frame)
    asked = api.asked(version)
    assert getattr(got, asked) == tuple(topic for i, topic in enumerate(getattr(before, asked)) if i not in refused)
    assert got.timeout == before.timeout
    assert getattr(got, "validate_only", None) == getattr(before, "validate_only", None)
    if not refused:
        assert rest == frame


@cases()
def test_a_request_without_some_of_very_many_topics(api, version):
    """The length of the array takes fewer bytes than before."""
    frame = frame_of(api, version, *(Topic(f"t{i}") for i in range(300)))
    start = body_of(frame)
    pieces = finish_at_once(api.without(read(api, version, frame), set(range(2, 300)), frame, start, len(frame), version))
    rest = sized(frame[:start] + b"".join(pieces))
    assert [topic.name for topic in read(api, version, rest).topics] == ["t0", "t1"]
    assert len(getattr(as_kio_reads(api, version, rest), api.asked(version))) == 2


@cases(lambda api, version: version == api.versions[1])
def test_tagged_fields_of_a_newer_client_pass(api, version):
    frame = frame_of(api, version, Topic("orders", 7), Topic("b", 1))
    first = read(api, version, frame).topics[0]
    assert frame[first.stop - 1] == frame[-1] == 0
    frame = sized(frame[: first.stop - 1] + b"\1\x63\2ab" + frame[first.stop : -1] + b"\1\x63\2XY")
    found = read(api, version, frame)
    assert [topic.name for topic in found.topics] == ["orders", "b"]
    without_b = b"".join(finish_at_once(api.without(found, {1}, frame, body_of(frame), len(frame), version)))
    assert b"\1\x63\2ab" in without_b
    assert without_b.endswith(b"\1\x63\2XY")
    nothing = b"".join(finish_at_once(api.without(found, {0, 1}, frame, body_of(frame), len(frame), version)))
    assert b"\1\x63\2ab" not in nothing
    assert nothing.endswith(b"\1\x63\2XY")


# --------------------------------------------------------------------------------------------------------------- responses


@cases()
def test_what_became_of_each_topic(api, version):
    items = items_of(api, version, "a", "b", "c", "d")
    frame = answer(api, version, Told("d"), Told("a", 36), Told("c", 7, "late"), Told("nobody asked", 3))
    got = results(api, frame, version, items)
    assert {i: result.error for i, result in got.items()} == {0: 36, 2: 7, 3: 0}, "nothing is said of b"
    if api is CREATE_TOPICS and version >= 5:
        rows = rows_of(api, version, frame)
        assert {i: result.partitions for i, result in got.items()} == {
            0: rows[1].num_partitions,
            2: rows[2].num_partitions,
            3: rows[0].num_partitions,
        }
    else:
        assert {result.partitions for result in got.values()} == {-1}


@pytest.mark.parametrize("version", [5, 6, 7])
@pytest.mark.parametrize("partitions", [-1, 1, 12])
def test_how_many_partitions_a_topic_got(version, partitions):
    element = part_of(load_response_schema(19, version), "topics")
    row = make(element, Random(1), name="a", error_code=0, num_partitions=partitions)
    frame = response(19, version, topics=(row,))
    assert results(CREATE_TOPICS, frame, version, items_of(CREATE_TOPICS, version, "a")) == {0: Result(0, partitions)}


@cases()
def test_a_topic_that_stands_twice_has_two_results_or_one(api, version):
    items = items_of(api, version, "a", "b", "a")
    both = results(api, answer(api, version, Told("a", 42), Told("a", 36), "b"), version, items)
    assert {i: result.error for i, result in both.items()} == {0: 42, 1: 0, 2: 36}
    once = results(api, answer(api, version, Told("a", 42), "b"), version, items)
    assert {i: result.error for i, result in once.items()} == {0: 42, 1: 0}


@cases(has_ids)
@pytest.mark.parametrize("name", [None, "orders"])
def test_a_result_is_found_by_its_id_whether_or_not_it_has_a_name(api, version, name):
    items = items_of(api, version, of_id(1), "users", of_id(2))
    frame = answer(api, version, Told("users", 0, None, IDS[5]), Told(None, 100, None, IDS[2]), Told(name, 29, None, IDS[1]))
    assert {i: result.error for i, result in results(api, frame, version, items).items()} == {0: 29, 1: 0, 2: 100}


@cases(refusable)
def test_refused_topics_stand_in_the_order_of_the_request(api, version):
    items = items_of(api, version, "x", "a", "y", "b", "z")
    frame = answer(api, version, Told("a", 0, None, IDS[1]), Told("b", 36, "there", IDS[2]), throttle_ms=5)
    merged = merge(api, version, items, {0, 2, 4}, frame, 1200)
    got = told_by(api, version, merged)
    assert [(row.name, row.error, row.message) for row in got] == [
        ("x", 89, "why"),
        ("a", 0, None),
        ("y", 89, "why"),
        ("b", 36, "there"),
        ("z", 89, "why"),
    ]
    assert throttle_of(api, version, merged) == 1200
    assert (rows_of(api, version, merged)[1], rows_of(api, version, merged)[3]) == rows_of(api, version, frame)
    assert merged[4:8] == frame[4:8]


@cases(refusable)
def test_one_refused_topic_says_what_kafka_says(api, version):
    items = items_of(api, version, "a", "x")
    rows = rows_of(api, version, merge(api, version, items, {1}, answer(api, version, "a")))
    assert rows[1] == kafka_refuses(api, version, items.topics[1].name, None, "why")


@cases(refusable)
@pytest.mark.parametrize("seed", range(5))
def test_the_broker_may_answer_in_any_order(api, version, seed):
    """DeleteTopics of KRaft shuffles its results."""
    names = [f"t{i}" for i in range(8)]
    shuffled = names[:4] + names[6:]
    Random(seed).shuffle(shuffled)
    merged = merge(api, version, items_of(api, version, *names), {4, 5}, answer(api, version, *shuffled))
    assert names_and_errors(api, version, merged) == [(name, 89 if name in ("t4", "t5") else 0) for name in names]


@cases(refusable)
def test_a_topic_that_the_broker_leaves_out_is_left_out(api, version):
    merged = merge(api, version, items_of(api, version, "a", "x", "b"), {1}, answer(api, version, "b"))
    assert names_and_errors(api, version, merged) == [("x", 89), ("b", 0)]


@cases(refusable)
def test_a_topic_that_nobody_asked_for_stands_at_the_end(api, version):
    frame = answer(api, version, Told("other", 3), "b", Told("another", 3), "a")
    merged = merge(api, version, items_of(api, version, "a", "x", "b"), {1}, frame)
    assert names_and_errors(api, version, merged) == [("a", 0), ("x", 89), ("b", 0), ("other", 3), ("another", 3)]


@cases(refusable)
def test_a_name_that_was_asked_for_twice_keeps_as_many_results_as_the_broker_gave(api, version):
    items = items_of(api, version, "a", "x", "a")
    twice = merge(api, version, items, {1}, answer(api, version, Told("a", 42), Told("a", 36)))
    assert names_and_errors(api, version, twice) == [("a", 42), ("x", 89), ("a", 36)]
    once = merge(api, version, items, {1}, answer(api, version, Told("a", 42)))
    assert names_and_errors(api, version, once) == [("a", 42), ("x", 89)]
    thrice = merge(api, version, items, {1}, answer(api, version, Told("a", 1), Told("a", 2), Told("a", 3)))
    assert names_and_errors(api, version, thrice) == [("a", 1), ("x", 89), ("a", 2), ("a", 3)]


@cases(refusable)
def test_one_of_two_of_a_name_may_be_refused(api, version):
    items = items_of(api, version, "a", "a")
    assert names_and_errors(api, version, merge(api, version, items, {0}, answer(api, version, "a"))) == [("a", 89), ("a", 0)]
    assert names_and_errors(api, version, merge(api, version, items, {1}, answer(api, version, "a"))) == [("a", 0), ("a", 89)]


@cases(has_ids)
@pytest.mark.parametrize("named", [False, True])
def test_refused_ids_stand_in_the_order_of_the_request(api, version, named):
    items = items_of(api, version, of_id(1), "a", of_id(2), of_id(3), "x", of_id(4))
    name = "secret" if named else None
    frame = answer(
        api,
        version,
        Told(name, 100, None, IDS[4]),
        Told("other", 3, None, IDS[9]),
        Told("a", 0, None, IDS[7]),
        Told(name, 0, None, IDS[2]),
    )
    assert told_by(api, version, merge(api, version, items, {0, 3, 4}, frame)) == [
        Told(None, 89, "why", IDS[1]),
        Told("a", 0, None, IDS[7]),
        Told(name, 0, None, IDS[2]),
        Told(None, 89, "why", IDS[3]),
        Told("x", 89, "why", None),
        Told(name, 100, None, IDS[4]),
        Told("other", 3, None, IDS[9]),
    ]


@cases(has_ids)
def test_a_name_and_an_id_of_one_topic_have_one_result(api, version):
    """So Kafka answers: "The provided topic name maps to an ID that was already supplied."."""
    frame = answer(api, version, Told("a", 42, None, IDS[1]))
    for topics in (("a", of_id(1), "x"), (of_id(1), "a", "x")):
        items = items_of(api, version, *topics)
        assert names_and_errors(api, version, merge(api, version, items, {2}, frame)) == [("a", 42), ("x", 89)]
        assert {result.error for result in results(api, frame, version, items).values()} == {42}


@cases(has_ids)
def test_a_message_for_the_name_and_for_the_id_of_one_topic_is_told_once(api, version):
    items = items_of(api, version, "a", of_id(1))
    got = explain(api, version, items, {0, 1}, answer(api, version, Told("a", 0, None, IDS[1])))
    assert told_by(api, version, got) == [Told("a", 0, "slow", IDS[1])]


@cases(has_ids)
def test_what_has_neither_name_nor_id_takes_the_result_of_nobody_else(api, version):
    """Kafka says INVALID_REQUEST of it. A name that is not there has no id in its result either."""
    items = items_of(api, version, Topic(None), "missing", "x")
    frame = answer(api, version, Told("missing", 3), Told(None, 42))
    merged = merge(api, version, items, {2}, frame)
    assert names_and_errors(api, version, merged) == [(None, 42), ("missing", 3), ("x", 89)]
    assert {i: result.error for i, result in results(api, frame, version, items).items()} == {0: 42, 1: 3}


def kafka_refuses(api: ItemApi, version: int, name: str | None, topic_id: UUID | None, message: str) -> Any:
    """What Kafka 4.2 says of a topic that the quota refuses."""
    element: Any = part_of(load_response_schema(api.key, version), api.answered)
    more: dict[str, Any] = {"topic_id": topic_id} if version >= {19: 7, 20: 6, 37: 99}[api.key] else {}
    if api is CREATE_TOPICS:
        more |= {"num_partitions": -1, "replication_factor": -1, "configs": (), "topic_config_error_code": 0}
    return element(name=name, error_code=ErrorCode.throttling_quota_exceeded, error_message=message, **more)


@cases(refusable)
@pytest.mark.parametrize("message", ["wäit", "long " * 100])
def test_a_refusal_of_everything_is_what_kafka_writes(api, version, message):
    topics: list[Topic] = [Topic("x"), Topic("ü" * 200), *([of_id(3)] if has_ids(api, version) else [])]
    items = items_of(api, version, *topics)
    frame = finish_at_once(api.refusal(6, version, items, dict.fromkeys(range(len(topics)), Refusal(89, message)), 1200))
    schema: Any = load_response_schema(api.key, version)
    rows = tuple(kafka_refuses(api, version, topic.name, topic.topic_id, message) for topic in topics)
    assert frame == encode_response(6, schema(throttle_time=timedelta(milliseconds=1200), **{api.answered: rows}))
    assert rows_of(api, version, frame) == rows
    assert throttle_of(api, version, frame) == 1200
    assert frame[4:8] == b"\0\0\0\6"
    assert {result.error for result in results(api, frame, version, items).values()} == {89}


@cases(refusable)
def test_a_refusal_is_the_merger_with_an_answer_about_nothing(api, version):
    items = items_of(api, version, "x", "y")
    assert merge(api, version, items, {0, 1}, answer(api, version), 700) == finish_at_once(
        api.refusal(1, version, items, dict.fromkeys(range(2), WHY), 700)
    )


@cases(lambda api, version: api is not DELETE_TOPICS and version >= FIRST_OF_KIO[api.key])
def test_a_violation_of_a_policy_is_told_in_all_versions(api, version):
    """44 POLICY_VIOLATION is older than the quota of mutations (KIP-108)."""
    items = items_of(api, version, "x", "y")
    refused = {1: Refusal(44, "too many")}
    got = merge(api, version, items, {1}, answer(api, version, Told("x", 0)), refused=refused)
    assert names_and_errors(api, version, got) == [("x", 0), ("y", 44)]
    alone = finish_at_once(api.refusal(1, version, items, {0: refused[1], 1: refused[1]}, 0))
    assert names_and_errors(api, version, alone) == [("x", 44), ("y", 44)]
    assert [row.error_message for row in rows_of(api, version, alone)] == ["too many"] * 2


OWN_AND_WANTED = pytest.mark.parametrize(("own", "wanted"), [(0, 700), (699, 700), (700, 700), (9000, 9000)])


@cases(lambda api, version: throttled(api, version) and version >= FIRST_OF_KIO[api.key])
@OWN_AND_WANTED
def test_the_larger_throttle_time_is_told(api, version, own, wanted):
    items = items_of(api, version, "a", "b")
    frame = answer(api, version, "a", "b", throttle_ms=own)
    got = explain(api, version, items, {1}, frame, 700)
    assert throttle_of(api, version, got) == wanted
    message = "slow" if has_message(api, version) else None
    assert [(row.name, row.error, row.message) for row in told_by(api, version, got)] == [("a", 0, None), ("b", 0, message)]
    assert rows_of(api, version, got)[0] == rows_of(api, version, frame)[0]
    assert throttle_of(api, version, explain(api, version, items, set(), frame, 700)) == wanted


@cases(refusable)
@OWN_AND_WANTED
def test_the_larger_throttle_time_is_told_besides_refused_topics(api, version, own, wanted):
    merged = merge(api, version, items_of(api, version, "a", "x"), {1}, answer(api, version, "a", throttle_ms=own), 700)
    assert throttle_of(api, version, merged) == wanted


@cases(lambda api, version: version >= FIRST_OF_KIO[api.key])
def test_an_error_of_the_broker_keeps_its_own_message(api, version):
    items = items_of(api, version, "a", "b", "c")
    frame = answer(api, version, Told("c"), Told("a", 36), Told("b", 7, "late"))
    got = told_by(api, version, explain(api, version, items, {0, 1, 2}, frame, 700))
    late, slow = ("late", "slow") if has_message(api, version) else (None, None)
    assert [(row.name, row.error, row.message) for row in got] == [("c", 0, slow), ("a", 36, None), ("b", 7, late)]


@cases(lambda api, version: version >= FIRST_OF_KIO[api.key])
def test_a_message_for_a_topic_of_which_the_broker_says_nothing_is_not_told(api, version):
    items = items_of(api, version, "a", "b")
    frame = answer(api, version, "a", throttle_ms=700)
    assert explain(api, version, items, {1}, frame, 700) == frame


@cases(has_ids)
def test_a_message_is_told_by_id_too(api, version):
    items = items_of(api, version, of_id(1), of_id(2))
    frame = answer(api, version, Told("b", 0, None, IDS[2]), Told(None, 0, None, IDS[1]))
    assert [row.message for row in told_by(api, version, explain(api, version, items, {1}, frame))] == ["slow", None]
    assert [row.message for row in told_by(api, version, explain(api, version, items, {0}, frame))] == [None, "slow"]


@pytest.mark.parametrize("api", [CREATE_TOPICS, DELETE_TOPICS])
def test_the_oldest_versions_have_no_throttle_time(api):
    items = items_of(api, 0, "ab")
    zero = b"\0\0\0\x0e\0\0\0\6" + b"\0\0\0\1\0\2ab\0\0"
    assert explain(api, 0, items, {0}, zero, 700) == zero


def test_version_1_of_create_topics_has_a_message_but_no_throttle_time():
    items = items_of(CREATE_TOPICS, 1, "ab", "c")
    one = b"\0\0\0\x17\0\0\0\6" + b"\0\0\0\2\0\2ab\0\0\xff\xff" + b"\0\1c\0\x24\xff\xff"
    told = b"\0\0\0\x1b\0\0\0\6" + b"\0\0\0\2\0\2ab\0\0\0\4slow" + b"\0\1c\0\x24\xff\xff"
    assert explain(CREATE_TOPICS, 1, items, {0, 1}, one, 700) == told


def test_version_1_of_delete_topics_has_a_throttle_time_but_no_message():
    items = items_of(DELETE_TOPICS, 1, "ab")
    one = b"\0\0\0\x12\0\0\0\6" + b"\0\0\0\5" + b"\0\0\0\1\0\2ab\0\0"
    told = b"\0\0\0\x12\0\0\0\6" + b"\0\0\2\xbc" + b"\0\0\0\1\0\2ab\0\0"
    assert explain(DELETE_TOPICS, 1, items, {0}, one, 700) == told


@cases()
def test_an_unknown_error_code_of_a_newer_broker_passes(api, version):
    items = items_of(api, version, "abc", "x")
    frame = answer(api, version, Told("abc", 89, None, IDS[1]))
    at = frame.index(b"abc") + 3 + (16 if IDS[1].bytes in frame else 0)
    assert frame[at : at + 2] == b"\0\x59"
    frame = frame[:at] + b"\x27\x0f" + frame[at + 2 :]
    assert results(api, frame, version, items)[0].error == 9999
    told = explain(api, version, items, {0}, frame, 5)
    assert b"\x27\x0f" in told
    assert b"slow" not in told
    if refusable(api, version):
        merged = merge(api, version, items, {1}, frame, 5)
        assert {i: result.error for i, result in results(api, merged, version, items).items()} == {0: 9999, 1: 89}


@cases(lambda api, version: flexible(api.key, version))
def test_tagged_fields_of_a_newer_broker_pass(api, version):
    element = part_of(load_response_schema(api.key, version), api.answered)
    row = make(element, Random(1), name="abc", error_code=0, error_message=None, configs=(), topic_config_error_code=0)
    frame = respond(api, version, (row,))
    assert frame.endswith(b"\0\0")
    assert frame[8] == 0
    frame = sized(frame[:8] + b"\1\x62\2WW" + frame[9:-2] + b"\1\x63\2XY" + b"\1\x64\2ZZ")
    items = items_of(api, version, "x", "abc")
    assert results(api, frame, version, items)[1].error == 0
    told = explain(api, version, items, {1}, frame, 5)
    assert told[8:13] == b"\1\x62\2WW"
    assert told.endswith(b"\1\x63\2XY\1\x64\2ZZ")
    assert (b"\5slow" in told) == has_message(api, version)
    if refusable(api, version):
        merged = merge(api, version, items, {0}, frame, 5)
        assert merged == sized(merged)
        assert merged[8:13] == b"\1\x62\2WW"
        assert merged.endswith(b"\1\x63\2XY\1\x64\2ZZ")
        assert merged.index(b"\2x") < merged.index(b"\4abc")


@cases()
def test_no_part_of_a_response_passes(api, version):
    items = items_of(api, version, "a", "bc", "x")
    frame = answer(api, version, "a", "bc")
    for size in range(len(frame) - flexible(api.key, version)):  # its own tagged fields are not looked at
        part = frame[:size]
        assert bad(answered, api, version, items, part), f"{size} of {len(frame)} bytes pass"
        assert bad(explain, api, version, items, {0}, part, 5), f"{size} of {len(frame)} bytes pass"
        if refusable(api, version):
            with pytest.raises(BadBytes):
                merge(api, version, items, {2}, part, 5)


@cases(refusable)
def test_very_many_topics_are_merged_in_their_order(api, version):
    items, refused, frame = many(api, version, 5000)
    merged = merge(api, version, items, refused, frame)
    wanted = [(topic.name, 89 if i in refused else 0) for i, topic in enumerate(items.topics)]
    assert names_and_errors(api, version, merged) == wanted


@cases(refusable)
def test_ten_times_as_many_topics_are_ten_times_the_work(api, version):
    few, lots = many(api, version, 200), many(api, version, 2000)
    assert calls(lambda: merge(api, version, *lots)) < 11 * calls(lambda: merge(api, version, *few))


def many(api: ItemApi, version: int, count: int) -> tuple[Items, set[int], bytes]:
    """A request of so many topics, every other one refused, and the shuffled answer about the others."""
    names = [f"topic-{i}" for i in range(count)]
    kept = names[::2]
    Random(1).shuffle(kept)
    return items_of(api, version, *names), set(range(1, count, 2)), answer(api, version, *kept)


def calls(run: Callable[[], object]) -> int:
    """How many functions are called."""
    count, before = 0, sys.getprofile()

    def called(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
