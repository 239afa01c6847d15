"""The skim: what is in a Produce request, without its records, however it is cut."""

import contextlib
import itertools
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, get_type_hints

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.wire.primitives import BadBytes
from proxy.wire.produce import MAX_PRODUCER_IDS, errors_of, skim, throttle_at, went_well, with_throttle
from tests.apis.produce_frames import written
from tests.messages import batch, encode, make, part_of, read_response, response
from tests.support import bad

VERSIONS = range(3, 14)


def body(
    version: int, *topics: tuple[str, list[tuple[int, bytes | None]]], acks: int = -1, transactional_id: str | None = None
) -> bytes:
    schema = load_request_schema(0, version)
    data = part_of(schema, "topic_data")
    part = part_of(data, "partition_data")
    made = []
    for name, parts in topics:
        named: dict[str, Any] = {"name": name} if version < 13 else {"topic_id": _id(name)}
        made.append(data(partition_data=tuple(part(index=i, records=records) for i, records in parts), **named))
    return encode(make(schema, Random(1), acks=acks, transactional_id=transactional_id, topic_data=tuple(made)))


def _id(name: str) -> Any:
    from uuid import UUID

    return UUID(bytes=named(13, name))


def named(version: int, name: str) -> bytes:
    return name.encode() if version < 13 else name.encode().ljust(16, b"-")[:16]


def facts(data: bytes, version: int, places: list[int] | None = None) -> tuple[int, list[tuple[bytes, list[tuple[Any, ...]]]]]:
    """Skim a body, cut at these places, each piece somewhere inside a buffer of its own."""
    cuts = [0, *(places or []), len(data)]
    chunks = [(b"zz" + data[a:b] + b"zzz", 2, 2 + b - a) for a, b in itertools.pairwise(cuts)]
    found = skim(chunks, version, details=True)
    assert [(it.topic, it.size, it.records) for it in skim(chunks, version).topics] == [
        (it.topic, it.size, it.records) for it in found.topics
    ]
    for batches in found.batches or []:
        for b in batches:
            assert data[b.start : b.start + 4] == b.partition.to_bytes(4, "big")
            assert b.stop - b.start >= 4 + b.size
    return found.acks, [
        (part.topic, [b[:6] for b in batches]) for part, batches in zip(found.topics, found.batches or [], strict=True)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_partitions_sizes_and_batch_headers(version):
    one, two = batch(3, 100, 7_000_000_000, 5, 41), batch(9, 5000)
    data = body(version, ("orders", [(0, one), (11, two)]), ("ünï", [(2, None)]), acks=1, transactional_id="tx" * 90)
    assert facts(data, version) == (
        1,
        [
            (named(version, "orders"), [(0, 100, 7_000_000_000, 5, 41, 3), (11, 5000, -1, -1, -1, 9)]),
            (named(version, "ünï"), [(2, 0, -1, -1, -1, None)]),
        ],
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_however_it_is_cut_it_is_read_the_same(version):
    for seed in range(60):
        chance = Random(seed)
        topics = [
            (
                f"t{i}" * chance.choice((1, 50)),
                [(p, batch(p, chance.choice((61, 70, 300, 3000)))) for p in range(chance.randrange(4))],
            )
            for i in range(chance.randrange(5))
        ]
        data = body(version, *topics)
        wanted = facts(data, version)
        assert [len(batches) for _, batches in wanted[1]] == [len(parts) for _, parts in topics]
        for _ in range(20):
            places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 30)))
            assert facts(data, version, places) == wanted
        if len(data) < 3000:
            assert facts(data, version, list(range(1, len(data)))) == wanted


@pytest.mark.parametrize("version", [3, 9, 13])
def test_no_part_of_a_request_passes(version):
    data = body(version, ("orders", [(0, batch(3, 100)), (1, batch(4, 200))]), ("b", [(2, batch(1, 61))]))
    for size in range(len(data)):
        for places in ([], [size // 2], list(range(1, size))):
            assert bad(facts, data[:size], version, places), f"{size} of {len(data)} bytes pass, cut at {places[:3]}"


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("lie", [1, -1, 1 << 20, 0x7FFFFFF0])
def test_a_lying_length_of_records_is_bad_or_read_as_what_it_says(version, lie):
    data = bytearray(body(version, ("orders", [(0, batch(3, 100))])))
    at = bytes(data).index(batch(3, 100)) - (4 if version < 9 else 1)
    if version < 9:
        data[at : at + 4] = min(100 + lie, 0x7FFFFFFF).to_bytes(4, "big")
    else:
        from proxy.wire.primitives import encode_uvarint

        data[at : at + 1] = encode_uvarint(101 + lie)
    if lie > 4:
        with pytest.raises(BadBytes):
            facts(bytes(data), version)
    else:
        with contextlib.suppress(BadBytes):
            assert facts(bytes(data), version)[1][0][1][0][1] == 100 + lie


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (9, b"\0\xff\xff\0\0\0\1\xff\xff\xff\xff\x0f"),
        (9, b"\0\xff\xff\0\0\0\1\2\2t\xff\xff\xff\xff\x0f"),
        (3, b"\xff\xff\xff\xff\0\0\0\1\x7f\xff\xff\xff"),
        (3, b"\xff\xff\xff\xff\0\0\0\1\0\0\0\1\0\1t\x7f\xff\xff\xff"),
        (3, b"\xff\xff\xff\xff\0\0\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xfe"),
        (9, b"\0\xff\xff\0\0\0\1\1\xff\xff\xff\xff\x0f"),
    ],
    ids=["topics", "partitions", "topics, old", "partitions, old", "records of -2", "tags"],
)
def test_claimed_numbers_are_not_believed(version, data):
    for tail in (b"", bytes(30)):
        with pytest.raises(BadBytes):
            facts(data + tail, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_magic_gives_sizes_only(version):
    assert facts(body(version, ("t", [(0, batch(3, 100, magic=1))])), version)[1][0][1] == [(0, 100, -1, -1, -1, None)]
    assert facts(body(version, ("t", [(0, b"x" * 60)])), version)[1][0][1] == [(0, 60, -1, -1, -1, None)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_before_record_batches_have_no_transactional_id(version):
    data = b"\0\1\0\0\x75\x30" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\5" + b"\0\0\0\x0a" + bytes(10)
    assert facts(data, version) == (1, [(b"t", [(5, 10, -1, -1, -1, None)])])


def test_unknown_tagged_fields_are_passed_over():
    data = body(9, ("t", [(0, batch(1, 61))]))
    assert data.endswith(b"\0\0\0")
    tagged = data[:-3] + b"\1\x63\2ab" + b"\1\x64\x90\1" + bytes(144) + b"\2\1\0\2\3abc"
    assert facts(tagged, 9) == facts(data, 9)
    assert facts(tagged, 9, list(range(1, len(tagged)))) == facts(data, 9)


def answered(version: int, *partitions: int, **given: Any) -> bytes:
    """A response about topics with so many partitions each, in which all went well, but for what the first is given."""
    schema = load_response_schema(0, version)
    topic = part_of(schema, "responses")
    part = part_of(topic, "partition_responses")
    made = []
    for i, count in enumerate(partitions):
        named: dict[str, Any] = {"name": f"t{i}"} if version < 13 else {"topic_id": _id(f"t{i}")}
        parts = [
            part(index=p, error_code=ErrorCode.none, base_offset=7, record_errors=(), **(given if (i, p) == (0, 0) else {}))
            for p in range(count)
        ]
        made.append(topic(partition_responses=tuple(parts), **named))
    return response(0, version, 1, responses=tuple(made), node_endpoints=())


@pytest.mark.parametrize("version", range(10, 14))
def test_a_response_in_which_all_went_well_went_well(version):
    for frame in (answered(version, 3, 1, 0, 20), answered(version, 1), answered(version)):
        assert went_well(b"ab" + frame + b"cd", 2, 2 + len(frame), version)


@pytest.mark.parametrize("version", range(10, 14))
def test_of_other_responses_that_is_not_said(version):
    leader = part_of(part_of(load_response_schema(0, version), "responses"), "partition_responses")
    hint = get_type_hints(leader)["current_leader"]
    for told in ({"error_message": "no"}, {"error_message": ""}, {"current_leader": hint(leader_id=1, leader_epoch=2)}):
        frame = answered(version, 2, 1, **told)
        assert not went_well(frame, 0, len(frame), version), told
    for seed in range(200):  # whatever is in it: never said of one that does name a broker
        frame = response(0, version, 1, chance=Random(seed))
        if b"real-host" in frame:
            assert not went_well(frame, 0, len(frame), version), seed
    frame = answered(version, 2, 1)
    for size in range(9, len(frame)):
        with contextlib.suppress(BadBytes):
            assert not went_well(frame, 0, size, version), size


# ---------------------------------------------------------------------- producer ids and throttle times


@pytest.mark.parametrize("version", VERSIONS)
def test_producer_ids_of_all_batches_each_once(version: int) -> None:
    made = [batch(producer_id=id) for id in (7, 7, -1, 2**62, 7, -1)]
    data = body(version, ("a", list(enumerate(made[:4]))), ("b", list(enumerate([*made[4:], None, batch(magic=1, producer_id=9)]))))
    assert skim([(data, 0, len(data))], version).producer_ids is None, "nobody asked"
    for size in (len(data), 200, 7):
        cut = [data[i : i + size] for i in range(0, len(data), size)]
        found = skim([(piece, 0, len(piece)) for piece in cut], version, producer_ids=True)
        assert found.producer_ids == [7, -1, 2**62]


def test_producer_ids_beyond_what_a_producer_has_are_not_listed() -> None:
    data = body(9, ("a", [(id, batch(producer_id=id)) for id in range(50)]))
    assert skim([(data, 0, len(data))], 9, producer_ids=True).producer_ids == list(range(MAX_PRODUCER_IDS + 1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_a_throttle_time_is_set_and_nothing_else(version: int, seed: int) -> None:
    """Whatever the answer holds, node endpoints and unknown tagged fields behind it too."""
    frame = response(0, version, 5, chance=Random(seed))
    before = read_response(0, version, frame)
    longer = before.throttle_time + timedelta(milliseconds=1)
    got = with_throttle(frame, version, round(longer.total_seconds() * 1000))
    assert read_response(0, version, got) == replace(before, throttle_time=longer)
    assert with_throttle(frame, version, 0) == frame, "the broker's own, if that is longer"


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_an_answer_that_is_cut_has_no_throttle_time(version: int) -> None:
    frame = response(0, max(version, 3), 5)
    cuts = range(8, throttle_at(frame, 0, len(frame), version) + 4) if version > 8 else range(8, 12)
    assert all(bad(with_throttle, frame[:cut], version, 5) for cut in cuts)


# ---------------------------------------------------------------------- what the broker wrote


@pytest.mark.parametrize("version", range(3, 14))
def test_errors_are_told_by_topic_and_partition(version):
    """Whatever else stands in the answer: messages, record errors, tagged fields."""
    for seed in range(50):
        frame = response(0, version, 1, chance=Random(seed))
        entity = read_response(0, version, frame)
        expected = {
            (topic.name.encode() if version < 13 else topic.topic_id.bytes, part.index): int(part.error_code)
            for topic in entity.responses
            for part in topic.partition_responses
        }
        assert errors_of(frame, version) == expected


@pytest.mark.parametrize("version", range(3, 14))
def test_one_error_among_many_is_seen_at_a_glance(version):
    parts = [(topic, index) for topic in ("orders", "bills") for index in range(3)]
    assert went_well(written(parts, 1, version), 0, len(written(parts, 1, version)), version)
    for topic, index in parts:
        for error in (1, 29, -1):
            frame = written(parts, 1, version, errors={f"{topic}-{index}": error})
            assert not went_well(frame, 0, len(frame), version)
