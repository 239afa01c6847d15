"""Fetch responses: what they carry, read while they stream through; node endpoints never slip through."""

import itertools
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from benchmarks.bench.frames import CASES, FETCH_VERSION
from loadtest.entities import response_frame
from proxy.session.session import State
from proxy.wire.fetch import FetchSums, blank_tags, fetch_sums, read_fetch, sums_ahead, usual_sums
from proxy.wire.headers import flexible, response_body
from proxy.wire.primitives import BadBytes, uvarint
from proxy.wire.walk import Walk
from tests.messages import make, part_of, request, response
from tests.support import ALICE, World

VERSIONS = range(4, 19)
ENDPOINT_HOST = b"real-host"


def fetched(version: int, chance: Random, *topics: tuple[str, list[int]], endpoints: int = 0) -> bytes:
    """A response with (topic, sizes of the records of its partitions)."""
    schema = load_response_schema(1, version)
    topic = part_of(schema, "responses")
    part = part_of(topic, "partitions")
    made = []
    for name, sizes in topics:
        named: dict[str, Any] = {"topic": name} if version < 13 else {"topic_id": UUID(bytes=name.encode().ljust(16, b"-"))}
        made.append(topic(partitions=tuple(make(part, chance, records=chance.randbytes(size)) for size in sizes), **named))
    given: dict[str, Any] = {"responses": tuple(made)}
    if version >= 16:
        given["node_endpoints"] = tuple(make(part_of(schema, "node_endpoints"), chance) for _ in range(endpoints))
    return response(1, version, 1, chance=chance, **given)


def sums(frame: bytes, version: int, places: list[int]) -> tuple[dict[bytes, int], int, int]:
    found = FetchSums(version)
    walk = Walk(read_fetch(found, version, 8 + flexible(1, version)), len(frame))
    cuts = [0, *places, len(frame)]
    for a, b in itertools.pairwise(cuts):
        walk.feed(b"z" + frame[a:b] + b"z", 1, 1 + b - a)
    assert walk.done
    at_once = usual_sums(b"z" + frame, 1, 1 + len(frame), version, 8 + flexible(1, version))
    assert (by_topic(at_once), at_once.root_tags) == (by_topic(found), found.root_tags)
    return by_topic(found), found.root_tags, walk.at if version >= 16 else -1  # before, nobody needs to know where it ends


def by_topic(found: FetchSums) -> dict[bytes, int]:
    return {part.topic: part.size for part in found.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_per_topic_however_it_is_cut(version):
    for seed in range(8):
        chance = Random(seed)
        topics = [
            (f"t{i}", [chance.choice((0, 1, 60, 4000)) for _ in range(chance.randrange(4))]) for i in range(chance.randrange(4))
        ]
        frame = fetched(version, chance, *topics, endpoints=seed % 2)
        wanted = {name.encode() if version < 13 else name.encode().ljust(16, b"-"): sum(sizes) for name, sizes in topics}
        got = sums(frame, version, [])
        assert got[0] == wanted
        for _ in range(15):
            assert sums(frame, version, sorted(chance.randrange(len(frame)) for _ in range(chance.randrange(1, 20)))) == got
        assert sums(frame, version, list(range(1, len(frame)))) == got


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_no_part_of_a_response_passes(version):
    frame = fetched(version, Random(3), ("a", [10, 70]), ("b", [0]), endpoints=1)
    stop = sums(frame, version, [])[2] if version >= 16 else len(frame)
    for size in range(9, stop):
        with pytest.raises(BadBytes):
            sums(frame[:size], version, [])


def streamed(version: int, frame: bytes, cuts: list[int]) -> bytes:
    """What a client gets of a response that is too large to be held."""
    world = World(max_held_response=10)
    d = world.dialogue()
    d.client(request(1, version, 1))
    places = [0, *cuts, len(frame)]
    d.broker(*(frame[a:b] for a, b in itertools.pairwise(places)))
    assert world.watcher.broker_failures == []
    return d.to_client


def skip_as_java_does(frame: bytes, pos: int) -> int:
    """Read a section of tagged fields of which none is known: number, then (tag, size, bytes) each, tags rising."""
    count, pos = uvarint(frame, pos, len(frame))
    last = -1
    for _ in range(count):
        tag, pos = uvarint(frame, pos, len(frame))
        assert tag > last
        assert tag > 0, "tag 0 is known: the node endpoints"
        size, pos = uvarint(frame, pos, len(frame))
        last, pos = tag, pos + size
    return pos


@pytest.mark.parametrize("version", [16, 17, 18])
def test_streamed_node_endpoints_are_blanked_wherever_the_reads_end(version):
    frame = fetched(version, Random(1), ("a", [300]), ("b", [20]), endpoints=2)
    tags = sums(frame, version, [])[2]
    assert ENDPOINT_HOST in frame[tags:]
    for at in (*range(tags - 20, len(frame)), 9, 40):
        got = streamed(version, frame, [at])
        assert len(got) == len(frame)
        assert got[:tags] == frame[:tags], f"cut {tags - at} bytes before the tags"
        assert ENDPOINT_HOST not in got
        assert skip_as_java_does(got, tags) == len(got), f"cut {tags - at} bytes before the tags: {got[tags : tags + 9].hex()}"


def test_streamed_node_endpoints_are_blanked_byte_by_byte_and_at_random():
    for seed in range(40):
        chance = Random(seed)
        frame = fetched(17, chance, ("a", [100, 5]), ("b", [chance.randrange(50)]), endpoints=2)
        tags = sums(frame, 17, [])[2]
        cuts = sorted({chance.randrange(12, len(frame)) for _ in range(9)}) if seed else list(range(12, len(frame)))
        got = streamed(17, frame, cuts)
        assert got[:tags] == frame[:tags], seed
        assert skip_as_java_does(got, tags) == len(got), seed


@pytest.mark.parametrize(
    "section", [b"\1\x63\0", b"\1\x63\1x", b"\1\x63\2xy", b"\1\0\1\1"], ids=["3 bytes", "4 bytes", "5 bytes", "no endpoint"]
)
def test_a_short_section_of_tagged_fields_does_no_harm_to_a_stream(section):
    frame = fetched(17, Random(1), ("a", [300]))
    assert frame[-1] == 0
    frame = frame[:-1] + section
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    got = streamed(17, frame, [100])
    assert len(got) == len(frame)
    assert got[: -len(section)] == frame[: -len(section)]


@pytest.mark.parametrize("size", [6, 7, 100, 1000, 100_000])
def test_blank_tags_are_as_long_as_asked_and_say_nothing(size):
    blank = blank_tags(size)
    assert len(blank) == size
    assert skip_as_java_does(blank, 0) == size


def test_a_held_response_shows_the_proxy_instead():
    world = World()
    d = world.dialogue()
    frame = fetched(17, Random(1), ("a", [300]), endpoints=2)
    d.client(request(1, 17, 1)).broker(frame[:50], frame[50:])
    got = d.to_client
    assert ENDPOINT_HOST not in got
    assert got.count(b"proxy.example") == 2
    assert response_body(got, 0, len(got), 1, 17) == 9


def usual(version: int, chance: Random, *topics: tuple[str, list[int]]) -> bytes:
    """A response as brokers mostly send them: no aborted transactions, no tagged fields."""
    parts = lambda sizes: [  # noqa: E731
        {"error_code": ErrorCode.none, "high_watermark": chance.randrange(9), "records": chance.randbytes(size)} for size in sizes
    ]
    named = lambda name: {"topic": name} if version < 13 else {"topic_id": UUID(bytes=name.encode().ljust(16, b"-"))}  # noqa: E731
    made = [{**named(name), "partitions": parts(sizes)} for name, sizes in topics]
    return response_frame(1, version, error_code=ErrorCode.none, responses=made)


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_what_is_known_before_a_response_ends_is_what_reading_all_of_it_gives(version):
    """Wherever its first read ends, and wherever in that it begins."""
    known = 0
    for seed in range(40):
        chance = Random(seed)
        sizes = lambda chance: [chance.choice((0, 1, 60, 400)) for _ in range(chance.randrange(4))]  # noqa: E731
        topics = [*((f"t{i}", sizes(chance)) for i in range(chance.randrange(3))), ("last", [*sizes(chance), 200])]
        plain = usual(version, chance, *topics)
        tagged = fetched(version, chance, *topics, endpoints=seed % 2 if version >= 16 else 0)
        ends = plain[:-1] + b"\1\x63\0"  # a tagged field of the response itself
        for frame in (plain, tagged, (len(ends) - 4).to_bytes(4, "big") + ends[4:]):
            body = 8 + flexible(1, version)
            whole = fetch_sums([(frame, 0, len(frame))], version, body, 3)
            for at in range(9, len(frame)):
                start = chance.choice((0, 5))
                found = sums_ahead(bytes(start) + frame[:at], start, len(frame), version, body, 3)
                if found is not None:
                    known += 1
                    assert (by_topic(found), found.cold) == (by_topic(whole), whole.cold), f"seed {seed}, cut at {at}"
                    assert whole.root_tags == 0
    assert known > 40 * 170, "all but the first bytes of the last records are enough of a usual one"


def test_nothing_is_known_of_older_versions_before_they_end():
    frame = fetched(11, Random(1), ("a", [300]))
    assert all(sums_ahead(frame[:at], 0, len(frame), 11, 8) is None for at in range(9, len(frame)))


LARGE = CASES["fetch-64k"].answer()
"""of one partition, in a version that may name node endpoints"""


def test_a_large_response_that_may_be_held_passes_as_it_comes_when_its_end_is_known():
    world = World(max_held_response=1 << 20)
    d = world.dialogue()
    d.client(request(1, FETCH_VERSION, 0))
    d.broker(LARGE[:1000])
    assert d.to_client == LARGE[:1000]
    d.broker(LARGE[1000:30_000], LARGE[30_000:])
    assert d.to_client == LARGE[1000:]
    (row,) = [row for row in world.rows() if row.key.topic_id is not None]
    assert (row.requests, row.record_bytes) == (1, usual_sums(LARGE, 0, len(LARGE), FETCH_VERSION, 9).topics[0].size)


@pytest.mark.parametrize("at", [1000, 40_000])
def test_one_that_is_throttled_tells_so_and_mutes_behind_its_end(at):
    world = World(max_held_response=1 << 20, consume={ALICE: 10}, max_throttle=300)
    d = world.dialogue("alice")
    d.client(request(1, FETCH_VERSION, 0))
    d.broker(LARGE[:at])
    assert d.session.state is State.OPEN, "the mute begins with the end of the answer"
    d.broker(LARGE[at:])
    got = d.to_client
    assert int.from_bytes(got[9:13], "big") == 300_000
    assert got[:9] + bytes(4) + got[13:] == LARGE
    assert d.session.state is State.MUTED


def test_blanks_are_not_as_long_as_a_response_says():
    with pytest.raises(BadBytes):
        blank_tags(750_000_000)
