"""Produce requests of which a part is refused: what goes on is the rest, and the answer tells of both."""

import itertools
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from proxy.wire.produce import skim
from proxy.wire.refusals import Refusal, parts_of, refusal, with_refused, without
from proxy.wire.steps import finish_at_once
from tests.messages import batch, make, part_of, read_response, response
from tests.wire.test_produce import body, named

VERSIONS = range(3, 14)
WHY = Refusal(19, "topic orders is over its threshold, ünd so on")


def a_request(chance: Random, version: int) -> bytes:
    topics = [
        (f"t{i}", [(p, batch(p, chance.choice((61, 100, 3000)))) for p in range(chance.randrange(4))])
        for i in range(chance.randrange(5))
    ]
    return body(version, *topics, acks=1, transactional_id=chance.choice((None, "tx")))


def asked(entity: Any, version: int) -> dict[tuple[bytes, int], bytes | None]:
    return {
        (topic.name.encode() if version < 13 else topic.topic_id.bytes, part.index): bytes(part.records)
        for topic in entity.topic_data
        for part in topic.partition_data
    }


def decoded(data: bytes, version: int) -> Any:
    entity, size = entity_reader(load_request_schema(0, version))(data, 0)
    assert size == len(data)
    return entity


@pytest.mark.parametrize("version", VERSIONS)
def test_what_goes_on_is_the_rest_however_it_was_cut(version):
    for seed in range(60):
        chance = Random(seed)
        data = a_request(chance, version)
        cuts = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(chance.randrange(4)))})
        pieces = [(b"zz" + data[a:b] + b"z", 2, 2 + b - a) for a, b in itertools.pairwise(cuts)]
        found = skim(pieces, version, details=True)
        parts = parts_of(found)
        refused = {part for part in parts if chance.random() < 0.5}
        whole, rest = decoded(data, version), decoded(b"".join(finish_at_once(without(pieces, found, version, refused))), version)
        assert asked(rest, version) == {part: records for part, records in asked(whole, version).items() if part not in refused}
        assert (rest.acks, rest.timeout, rest.transactional_id) == (whole.acks, whole.timeout, whole.transactional_id)
        assert all(topic.partition_data for topic in rest.topic_data) or any(not topic.partition_data for topic in whole.topic_data)


def told(entity: Any, version: int) -> dict[tuple[bytes, int], tuple[int, int, str | None]]:
    """(topic, partition) to (error code, base offset, message), in the order of the response."""
    return {
        (topic.name.encode() if version < 13 else topic.topic_id.bytes, part.index): (
            int(part.error_code),
            part.base_offset,
            getattr(part, "error_message", None),
        )
        for topic in entity.responses
        for part in topic.partition_responses
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_to_what_is_refused_whole(version):
    parts = [(named(version, "orders"), 3), (named(version, "orders"), 1), (named(version, "bills"), 0)]
    answer = read_response(0, version, finish_at_once(refusal(7, version, dict.fromkeys(parts, WHY), 250)))
    assert told(answer, version) == dict.fromkeys(parts, (19, -1, WHY.message if version >= 8 else None))
    assert list(told(answer, version)) == parts
    assert answer.throttle_time.total_seconds() == 0.25


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_s_answer_with_what_is_refused_besides(version):
    schema = load_response_schema(0, version)
    topic_schema = part_of(schema, "responses")
    part_schema = part_of(topic_schema, "partition_responses")
    for seed in range(60):
        chance = Random(seed)
        order = [(named(version, f"t{i}"), p) for i in range(chance.randrange(1, 5)) for p in range(chance.randrange(1, 4))]
        refused = {part: WHY for part in order if chance.random() < 0.5}
        there = [part for part in order if part not in refused]
        chance.shuffle(there)
        topics = []
        for name, parts in itertools.groupby(sorted(there, key=lambda part: part[0]), lambda part: part[0]):
            which: dict[str, Any] = {"name": name.decode()} if version < 13 else {"topic_id": UUID(bytes=name)}
            made = tuple(make(part_schema, chance, index=p, error_code=ErrorCode.none, base_offset=1000 + p) for _, p in parts)
            topics.append(make(topic_schema, chance, partition_responses=made, **which))
        frame = response(0, version, 9, chance, responses=tuple(topics))
        before = read_response(0, version, frame)
        after = read_response(0, version, finish_at_once(with_refused(frame, version, order, refused)))
        wanted = {**told(before, version), **dict.fromkeys(refused, (19, -1, WHY.message if version >= 8 else None))}
        assert told(after, version) == wanted
        assert [part[0] for part in told(after, version)] == [part[0] for part in order]
        assert after.throttle_time == before.throttle_time
        assert getattr(after, "node_endpoints", ()) == getattr(before, "node_endpoints", ())
