"""ShareFetch responses: what they carry, read while they stream through; node endpoints never slip through."""

import dataclasses
import itertools
import sys
from random import Random
from uuid import UUID

import pytest
from kio.index import load_response_schema

from proxy.wire.headers import response_body
from proxy.wire.primitives import BadBytes
from proxy.wire.share_fetch import ShareFetchSums, blank_endpoints, read_share_fetch
from proxy.wire.walk import Walk
from tests.messages import make, part_of, read_response, request, response
from tests.support import World
from tests.wire.test_fetch import ENDPOINT_HOST, skip_as_java_does

VERSIONS = (1, 2)
HEADER = 9


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def share_fetched(version: int, chance: Random, *topics: tuple[str, list[int]], endpoints: int = 0) -> bytes:
    """A response with (topic, sizes of the records of its partitions)."""
    schema = load_response_schema(78, version)
    topic = part_of(schema, "responses")
    part = part_of(topic, "partitions")
    made = tuple(
        topic(
            topic_id=UUID(bytes=topic_id(name)),
            partitions=tuple(make(part, chance, records=chance.randbytes(size)) for size in sizes),
        )
        for name, sizes in topics
    )
    nodes = tuple(make(part_of(schema, "node_endpoints"), chance) for _ in range(endpoints))
    return response(78, version, 1, chance=chance, responses=made, node_endpoints=nodes)


def sums(frame: bytes, places: list[int]) -> tuple[dict[bytes, int], int, int]:
    """(bytes per topic, node endpoints, where these start) of a response that comes in reads which end at these places."""
    found = ShareFetchSums()
    walk = Walk(read_share_fetch(found, HEADER), len(frame))
    for a, b in itertools.pairwise([0, *places, len(frame)]):
        walk.feed(b"z" + frame[a:b] + b"z", 1, 1 + b - a)
    assert walk.done
    return {part.topic: part.size for part in found.topics}, found.endpoints, walk.at


def large(version: int = 2, endpoints: int = 2) -> bytes:
    return share_fetched(version, Random(1), ("a", [300]), ("b", [20]), endpoints=endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_per_topic_however_it_is_cut(version):
    for seed in range(12):
        chance = Random(seed)
        topics = [
            (f"t{i}", [chance.choice((0, 1, 60, 4000)) for _ in range(chance.randrange(4))]) for i in range(chance.randrange(4))
        ]
        frame = share_fetched(version, chance, *topics, endpoints=seed % 3)
        got = sums(frame, [])
        assert got[:2] == ({topic_id(name): sum(sizes) for name, sizes in topics}, seed % 3)
        for _ in range(15):
            assert sums(frame, sorted(chance.randrange(len(frame)) for _ in range(chance.randrange(1, 20)))) == got
        assert sums(frame, list(range(1, len(frame)))) == got


def test_a_text_that_waits_for_its_rest_leaves_no_exception_behind():
    # compiled, a generator that waits inside a handler leaves what it caught with its caller: from there on each exception of
    # the thread would hang on the one before, with the bytes their frames hold
    frame = response(78, 2, 1, chance=Random(1), error_message="m" * 100)
    walk = Walk(read_share_fetch(ShareFetchSums(), HEADER), len(frame))
    walk.feed(frame[:50], 0, 50)
    assert not walk.done
    assert sys.exc_info() == (None, None, None)


def test_long_error_messages_and_many_acquired_batches_are_skipped():
    schema = load_response_schema(78, 2)
    topic = part_of(schema, "responses")
    part = part_of(topic, "partitions")
    acquired = tuple(make(part_of(part, "acquired_records"), Random(i)) for i in range(500))
    told = make(
        part, Random(1), error_message="e" * 3000, acknowledge_error_message="a" * 900, acquired_records=acquired, records=b"r"
    )
    made = topic(topic_id=UUID(bytes=topic_id("t")), partitions=(told, told))
    frame = response(78, 2, 1, error_message="m" * 20_000, responses=(made,), node_endpoints=())
    wanted = {topic_id("t"): 2}, 0
    assert sums(frame, [])[:2] == wanted
    assert sums(frame, list(range(50, len(frame), 97)))[:2] == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_no_part_of_a_response_passes(version):
    frame = large(version, endpoints=1)
    for size in range(HEADER, sums(frame, [])[2]):
        with pytest.raises(BadBytes):
            sums(frame[:size], [])


def streamed(version: int, frame: bytes, cuts: list[int]) -> bytes:
    """What a client gets of a response that is too large to be held."""
    world = World(max_held_response=10)
    d = world.dialogue()
    d.client(request(78, version, 1))
    d.broker(*(frame[a:b] for a, b in itertools.pairwise([0, *cuts, len(frame)])))
    assert world.watcher.broker_failures == []
    world.dialogues[0].port.broker.clear()
    return d.to_client


def check_blanked(got: bytes, frame: bytes, cuts: list[int]) -> None:
    """All but the endpoints is there, in as many bytes, as a client reads it."""
    at = sums(frame, [])[2]
    assert len(got) == len(frame)
    assert got[:at] == frame[:at], cuts
    assert got[at] == 1, "the node endpoints are an empty array"
    assert skip_as_java_does(got, at + 1) == len(got), cuts


@pytest.mark.parametrize("version", VERSIONS)
def test_streamed_node_endpoints_are_blanked_wherever_the_reads_end(version):
    frame = large(version)
    at = sums(frame, [])[2]
    assert ENDPOINT_HOST in frame[at:]
    for cut in (*range(at - 20, len(frame)), 9, 40):
        got = streamed(version, frame, [cut])
        assert ENDPOINT_HOST not in got
        check_blanked(got, frame, [cut])


def test_streamed_node_endpoints_are_blanked_byte_by_byte_and_at_random():
    for seed in range(40):
        chance = Random(seed)
        frame = share_fetched(2, chance, ("a", [100, 5]), ("b", [chance.randrange(50)]), endpoints=2)
        cuts = sorted({chance.randrange(12, len(frame)) for _ in range(9)}) if seed else list(range(12, len(frame)))
        check_blanked(streamed(2, frame, cuts), frame, cuts)


@pytest.mark.parametrize("endpoints", [1, 30], ids=["a short section", "a section longer than 128 bytes"])
def test_a_blanked_response_is_what_it_was_without_endpoints(endpoints):
    """The unused tag is the one thing that kio does not survive; without it all is as the broker said."""
    frame = large(endpoints=endpoints)
    at = sums(frame, [])[2]
    got = streamed(2, frame, [100])[:at] + b"\1\0"
    blanked = read_response(78, 2, (len(got) - 4).to_bytes(4, "big") + got[4:])
    assert blanked == dataclasses.replace(read_response(78, 2, frame), node_endpoints=())


@pytest.mark.parametrize("cuts", [[11], [40], [9, 200], list(range(12, 380, 3))])
def test_a_streamed_response_without_endpoints_is_not_touched(cuts):
    frame = large(endpoints=0)
    assert streamed(2, frame, [cut for cut in cuts if cut < len(frame)]) == frame


def test_endpoints_that_cannot_be_there_end_the_connection():
    frame = large(endpoints=0)
    assert frame[-2:] == b"\1\0"
    frame = frame[:-2] + b"\2\0"
    world = World(max_held_response=10)
    d = world.dialogue()
    d.client(request(78, 2, 1)).broker(frame[:100], frame[100:])
    assert "node endpoints in 2 bytes" in world.watcher.broker_failures[0]
    assert frame[:100].startswith(d.to_client)


@pytest.mark.parametrize("size", [13, 100, 131, 132, 1000])
def test_blanks_are_as_long_as_asked_and_say_nothing(size):
    blank = blank_endpoints(size)
    assert len(blank) == size
    assert blank[0] == 1
    assert skip_as_java_does(blank, 1) == size
    with pytest.raises(BadBytes, match="node endpoints in 12 bytes"):
        blank_endpoints(12)


@pytest.mark.parametrize("cuts", [[], [50], [20, 21, 300]])
def test_a_held_response_shows_the_proxy_instead(cuts):
    world = World()
    d = world.dialogue()
    frame = large()
    d.client(request(78, 2, 1)).broker(*(frame[a:b] for a, b in itertools.pairwise([0, *cuts, len(frame)])))
    got = d.to_client
    assert ENDPOINT_HOST not in got
    assert got.count(b"proxy.example") == 2
    assert response_body(got, 0, len(got), 78, 2) == HEADER


def test_a_held_response_that_ends_too_early_ends_the_connection():
    frame = large()
    short = (300).to_bytes(4, "big") + frame[4:304]
    for cuts in ([], [100]):
        world = World()
        d = world.dialogue()
        d.client(request(78, 2, 1)).broker(*(short[a:b] for a, b in itertools.pairwise([0, *cuts, len(short)])))
        assert world.watcher.broker_failures
        assert d.to_client == b""
