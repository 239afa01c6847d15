"""Requests that are looked at together are what they are when each is read by itself; so are answers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.frames import FrameCutter
from proxy.wire.headers import client_id_end, request_body
from proxy.wire.primitives import BadBytes
from proxy.wire.produce import skim, went_well
from proxy.wire.runs import Requests, Run, unread_requests
from tests.apis.produce_frames import records, write, written
from tests.properties import examples

CLIENT_ID = b"\0\3app"
PARTS = (("a", 0), ("a", 1), ("b", 0), ("longer", 0))
versions = st.sampled_from((3, 8, 9, 12, 13))


def known(version: int) -> Requests:
    """One request to each of these partitions came before."""
    requests = Requests(version)
    for part in PARTS:
        learn(requests, version, write({part: records(100)}, version=version))
    return requests


def learn(requests: Requests, version: int, frame: bytes) -> None:
    stop = client_id_end(frame, 0, len(frame))
    body = request_body(frame, stop, len(frame), 0, version)
    requests.remember((frame, 0, len(frame), None), stop, skim([(frame, body, len(frame))], version), CLIENT_ID)


def read(frame: bytes, version: int) -> tuple[bytes, int, int, int, int] | None:
    """(topic, acks, bytes, records, producer id) of a request about one partition, read byte by byte; None of any other."""
    try:
        stop = client_id_end(frame, 0, len(frame))
        body = request_body(frame, stop, len(frame), 0, version)
        found = skim([(frame, body, len(frame))], version, producer_ids=True)
    except BadBytes:
        return None
    if not found.exact or found.partition_count != 1 or len(found.topics) != 1 or not found.producer_ids:
        return None
    part = found.topics[0]
    return part.topic, found.acks, part.size, part.records, found.producer_ids[0]


def frames_of(run: Run) -> list[bytes]:
    found, at = [], run.start
    while at < run.stop:
        stop = at + 4 + int.from_bytes(run.data[at : at + 4], "big", signed=True)
        found.append(run.data[at:stop])
        at = stop
    return found


@given(
    versions,
    st.lists(st.tuples(st.sampled_from(PARTS), st.integers(61, 20_000), st.sampled_from((-1, 7, 1 << 40))), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    st.booleans(),
)
@examples(600)
def test_a_request_is_only_ever_taken_for_what_it_is(
    version: int, sent: list[tuple[tuple[str, int], int, int]], broken: list[tuple[float, int]], cut: bool
) -> None:
    """Whatever byte is another one: what is taken for a run of requests gives, frame by frame, what reading each gives."""
    data = bytearray(b"".join(write({part: records(size, id)}, n, version) for n, (part, size, id) in enumerate(sent, 5)))
    for where, byte in broken:
        data[int(where * (len(data) - 1))] = byte
    whole = bytes(data[: len(data) * 2 // 3]) if cut else bytes(data)
    requests, at = known(version), 0
    while (run := requests.run(whole, at, 100, 1 << 20)) is not None:
        frames = frames_of(run)
        assert (run.start, run.stop, run.count) == (at, at + sum(map(len, frames)), len(frames))
        what = [read(frame, version) for frame in frames]
        assert run.shape is not None
        assert what == [
            (run.shape.topic, run.shape.acks, size, one[3], run.producer_id)
            for size, one in zip(run.sizes, what, strict=True)
            if one
        ]
        assert (run.carried, run.records) == (sum(one[2] for one in what if one), sum(one[3] for one in what if one))
        ids = [int.from_bytes(frame[8:12], "big", signed=True) for frame in frames]
        assert ids == list(range(run.correlation_id, run.correlation_id + run.count))
        at = run.stop
    if not broken and not cut:
        assert at == len(whole), "all of them are like the ones before"


def test_requests_to_several_partitions_come_in_several_runs():
    frames = [write({part: records(100)}, n) for n, part in enumerate([("a", 0), ("a", 0), ("a", 1), ("longer", 0), ("a", 0)], 1)]
    data, requests, counts, at = b"".join(frames), known(9), [], 0
    while (run := requests.run(data, at, 100, 1 << 20)) is not None:
        counts.append((b"" if run.shape is None else run.shape.topic, run.count))
        at = run.stop
    assert counts == [(b"a", 2), (b"a", 1), (b"longer", 1), (b"a", 1)]


@pytest.mark.parametrize(
    ("most", "largest", "expected"), [(100, 1 << 20, 3), (2, 1 << 20, 2), (100, 100, 0)], ids=["all", "in flight", "too large"]
)
def test_a_run_ends_where_a_limit_is_reached(most, largest, expected):
    data = b"".join(write({("a", 0): records(100)}, n) for n in (1, 2, 3))
    run = known(9).run(data, 0, most, largest)
    assert (0 if run is None else run.count) == expected


def test_another_client_id_makes_them_unknown():
    requests = known(9)
    frame = write({("a", 0): records(100)})
    other = bytes(bytearray(CLIENT_ID))
    stop = client_id_end(frame, 0, len(frame))
    found = skim([(frame, request_body(frame, stop, len(frame), 0, 9), len(frame))], 9)
    requests.remember((frame, 0, len(frame), None), stop, found, b"\0\3oth")
    assert requests.claimed == b"\0\3oth" != other
    assert requests.run(write({("a", 1): records(100)}), 0, 1, 1 << 20) is None


@given(versions, st.integers(1, 5), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=2), st.integers(0, 40))
@examples(400)
def test_an_answer_is_only_ever_taken_for_what_it_is(
    version: int, count: int, broken: list[tuple[float, int]], missing: int
) -> None:
    """Whatever byte is another one: answers that are taken together say, each by itself, that all was written."""
    first = written([("a", 0)], 9, version)
    run = known(version).run(write({("a", 0): records(100)}, version=version), 0, 1, 1 << 20)
    assert run is not None
    assert run.shape is not None
    run.shape.learn(first, 0, len(first))
    data = bytearray(b"".join(written([("a", 0)], n, version) for n in range(10, 10 + count)))
    for where, byte in broken:
        data[int(where * (len(data) - 1))] = byte
    whole = bytes(data[: len(data) - missing])
    passed = run.shape.answers(whole, 0, 10, count)
    assert passed % len(first) == 0
    for n in range(passed // len(first)):
        at = n * len(first)
        assert int.from_bytes(whole[at + 4 : at + 8], "big") == 10 + n
        assert went_well(whole, at, at + len(first), version)
    if not broken:
        assert passed == len(whole) // len(first) * len(first)


def test_an_answer_with_an_error_is_not_learned():
    run = known(9).run(write({("a", 0): records(100)}), 0, 1, 1 << 20)
    assert run is not None
    assert run.shape is not None
    failed = written([("a", 0)], 1, errors={"a": 6})
    run.shape.learn(failed, 0, len(failed))
    assert run.shape.answers(failed, 0, 1, 1) == 0


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_large_request_of_which_only_the_beginning_stands_in_one_piece(version: int) -> None:
    data = write({("a", 0): records(20_000)}, 5, version)
    for cuts in ((9000,), (1000, 9000, len(data) - 3)):
        pieces = [data[a:b] for a, b in itertools.pairwise((0, *cuts, len(data)))]
        run = known(version).one((pieces[0], 0, len(pieces[0]), pieces))
        whole = known(version).run(data, 0, 1, 1 << 20)
        assert run is not None
        assert whole is not None
        assert (run.carried, run.records, run.correlation_id) == (whole.carried, whole.records, 5)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from((0, 0, 0, 1, 2))), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    st.integers(0, 60),
    st.integers(1, 6),
)
@examples(400)
def test_requests_that_are_not_read_are_cut_as_each_by_itself(
    sent: list[tuple[int, int]], broken: list[tuple[float, int]], missing: int, most: int
) -> None:
    """Whatever byte is another one: a run is of whole requests of one API, version and client id, and of numbers that follow."""
    heads = (b"\0\1\0\x0c", b"\0\1\0\x0d", b"\0\0\0\x0c")
    frames = [heads[head] + (7 + n).to_bytes(4, "big") + CLIENT_ID + bytes(size) for n, (size, head) in enumerate(sent)]
    data = bytearray(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    for where, byte in broken:
        data[int(where * (len(data) - 1))] = byte
    whole, largest = bytes(data[: max(len(data) - missing, 0)]), 70
    cutter, at = FrameCutter(largest - 4), 0
    cutter.feed(whole)
    while (run := unread_requests(whole, at, most, largest, CLIENT_ID)) is not None:
        assert (run.start, 0 < run.count <= most) == (at, True)
        first = cutter.in_read() and whole[at + 4 : at + 8]
        for n in range(run.count):
            assert cutter.next() == (whole, at, at + 4 + int.from_bytes(whole[at : at + 4], "big"), None)
            assert whole[at + 4 : at + 8] == first
            assert int.from_bytes(whole[at + 8 : at + 12], "big", signed=True) == run.correlation_id + n
            assert whole[at + 12 : client_id_end(whole, at, run.stop)] == CLIENT_ID
            at += 4 + int.from_bytes(whole[at : at + 4], "big")
        assert (run.stop, run.version) == (at, int.from_bytes(bytes(first)[2:], "big"))
    if (
        not broken
        and not missing
        and all(head == 0 and len(frame) + 4 <= largest for frame, (_, head) in zip(frames, sent, strict=True))
    ):
        assert at == len(whole), "nothing is left for a look by itself"
