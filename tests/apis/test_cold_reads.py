"""Bytes of answers to Fetch that are far behind the end of the log have a rate of their own."""

import itertools
from datetime import timedelta
from random import Random

import pytest
from kio.index import load_response_schema

from proxy.session.session import State
from proxy.wire.fetch import FetchSums, fetch_sums, read_fetch
from proxy.wire.headers import flexible
from proxy.wire.walk import Walk
from quota.decision import Action
from quota.kinds.cold_reads import ColdReads
from tests.messages import make, part_of, read_response, request, response
from tests.support import ALICE, changed

VERSIONS = range(4, 19)


def fetched(version: int, *partitions: tuple[int, int, int]) -> bytes:
    """An answer with (high watermark, first offset, bytes of records) of each partition of a topic."""
    chance = Random(version)
    topic = part_of(load_response_schema(1, version), "responses")
    part = part_of(topic, "partitions")
    made = tuple(
        make(part, chance, high_watermark=end, records=(first.to_bytes(8, "big", signed=True) + bytes(size))[:size])
        for end, first, size in partitions
    )
    named = {"topic": "orders"} if version < 13 else {}
    endpoints = {"node_endpoints": ()} if version >= 16 else {}
    answer = bytearray(
        response(1, version, 1, chance=chance, responses=(make(topic, chance, partitions=made, **named),), **endpoints)
    )
    at = 8 + flexible(1, version)
    answer[at : at + 4] = bytes(4)  # the broker throttles nobody
    return bytes(answer)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_far_behind_the_end_however_they_are_cut(version):
    frame = fetched(version, (1000, 899, 300), (1000, 900, 70), (5, 900, 11), (10**15, 0, 5000), (10**15, 0, 0), (9, 1, 3))
    body = 8 + flexible(1, version)
    assert fetch_sums([(frame, 0, len(frame))], version, body, 100).cold == 5300
    assert fetch_sums([(frame, 0, len(frame))], version, body, 99).cold == 5370
    assert fetch_sums([(frame, 0, len(frame))], version, body).cold == 0
    chance = Random(1)
    several = [sorted(chance.randrange(len(frame)) for _ in range(chance.randrange(1, 9))) for _ in range(20)]
    for cuts in (list(range(1, len(frame))), *several):
        found = FetchSums(version, 100)
        walk = Walk(read_fetch(found, version, body), len(frame))
        for a, b in itertools.pairwise([0, *cuts, len(frame)]):
            walk.feed(frame[a:b], 0, b - a)
        assert found.cold == 5300


def cold(w):
    w.engine.change(changed(w.engine.limits, ColdReads(100)))
    return w


def read(d, *partitions, version=12) -> float:
    ask = request(1, version, 1, chance=Random(1))
    d.client(ask)
    assert d.to_broker == ask
    d.broker(fetched(version, *partitions))
    told: float = read_response(1, version, d.to_client).throttle_time.total_seconds()
    return told


HOT, BEHIND = (1000, 950, 5000), (1000, 10, 1500)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_a_backfill_is_slowed_down_and_others_are_not(world, version):
    w = cold(world(rates={"cold_read_rate": {ALICE: 100}}))
    d, tail, other = w.dialogue("alice"), w.dialogue("alice"), w.dialogue("bob")
    assert read(tail, HOT, version=version) == 0
    assert read(d, HOT, BEHIND, version=version) == 5
    assert d.session.state is State.MUTED
    assert read(tail, HOT, HOT, version=version) == 0, "what is in the page cache is free"
    assert read(other, BEHIND, version=version) == 0
    ((decision, _),) = w.watcher.decisions
    assert (decision.quota, decision.action, decision.entity) == ("cold_read_rate", Action.THROTTLE, ALICE)


def test_who_reads_cold_on_another_connection_waits_until_it_has_caught_up(world):
    w = cold(world(rates={"cold_read_rate": {ALICE: 100}}))
    first, second = w.dialogue("alice"), w.dialogue("alice")
    ask = request(1, 12, 1, chance=Random(1))
    assert read(second, (1000, 10, 100)) == 0
    assert read(first, BEHIND) == 6
    second.now = 1.0
    second.client(ask)
    assert (second.to_broker, second.session.state, second.port.wake) == (b"", State.HELD, 6)
    second.wake()
    assert second.to_broker == ask
    second.broker(fetched(12, HOT))
    assert second.to_client
    assert read(second, HOT) == 0, "it reads from the end by now"


def test_observing_shows_who_reads_cold(world):
    w = cold(world(rates={"cold_read_rate": {ALICE: 1}}, observed={"cold_read_rate": Action.THROTTLE}))
    d = w.dialogue("alice")
    assert read(d, BEHIND) == 0
    assert [(decision.quota, by.principal) for decision, by in w.watcher.would] == [("cold_read_rate", "User:alice")]


def test_an_answer_that_streams_mutes_behind_its_end(world):
    w = cold(world(rates={"cold_read_rate": {ALICE: 100}}, max_held_response=100))
    d = w.dialogue("alice")
    answer = fetched(16, BEHIND)
    d.client(request(1, 16, 1, chance=Random(1)))
    assert d.to_broker
    d.broker(answer[:300], answer[300:])
    assert d.to_client == answer
    assert (d.session.state, d.port.wake) == (State.MUTED, 5)


def test_an_answer_in_pieces_tells_of_the_throttle(world):
    w = cold(world(rates={"cold_read_rate": {ALICE: 100}}))
    d = w.dialogue("alice")
    answer = fetched(12, BEHIND)
    d.client(request(1, 12, 1, chance=Random(1)))
    assert d.to_broker
    d.broker(answer[:300], answer[300:])
    assert read_response(1, 12, d.to_client).throttle_time == timedelta(seconds=5)
    assert (d.session.state, d.port.wake) == (State.MUTED, 5)
