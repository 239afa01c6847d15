"""What a member of a Streams group says of its topology."""

from random import Random

import pytest

from proxy.wire.headers import client_id_end, request_body
from proxy.wire.steps import finish_at_once
from proxy.wire.streams_group_heartbeat import Internal, Subtopology, error_of, read_heartbeat, try_again
from tests.apis.topic_frames import heartbeat, subtopology
from tests.messages import read_response, request, response
from tests.support import bad

FULL = [
    subtopology(sources=("orders", "users"), repartitions={"a-repartition": 8, "b-repartition": 0}),
    subtopology(repartition_sources=("x",), changelogs=("a-changelog", "b-changelog")),
]


def read(frame: bytes, end: int | None = None, most: int = 1000):
    found, too_many = read_at_most(frame, end, most)
    assert not too_many
    return found


def read_at_most(frame: bytes, end: int | None, most: int):
    end = len(frame) if end is None else end
    body = request_body(frame, client_id_end(frame, 0, len(frame)), len(frame), 88, 0)
    return finish_at_once(read_heartbeat(frame, body, end, 0, most))


def test_a_member_that_joins():
    found = read(heartbeat(4, "app", *FULL))
    assert (found.group, found.member, found.epoch) == ("app", "m", 0)
    assert found.topology == (
        Subtopology(("orders", "users"), (Internal("a-repartition", 8), Internal("b-repartition", 0)), ()),
        Subtopology((), (Internal("x", 0),), (Internal("a-changelog", 0), Internal("b-changelog", 0))),
    )
    assert [part.names for part in found.topology] == [4, 3]


def test_a_member_that_is_there():
    found = read(heartbeat(4, "app", epoch=7))
    assert (found.group, found.epoch, found.topology) == ("app", 7, None)


@pytest.mark.parametrize("chance", range(30))
def test_any_request_is_read(chance):
    frame = request(88, 0, 4, chance=Random(chance), client_id="app")
    assert read(frame) is not None


def test_no_part_of_a_topology_passes():
    frame = heartbeat(4, "app", *FULL)
    at = frame.index(b"b-changelog") + len(b"b-changelog")
    for size in range(40, at):
        assert bad(read, frame, size), f"{size} of {len(frame)} bytes pass"


def test_no_more_topics_are_read_than_are_wanted():
    frame = heartbeat(4, "app", *FULL)
    assert len(read(frame, most=8).topology) == 2
    for most in range(7):
        found, too_many = read_at_most(frame, len(frame), most)
        assert too_many
        assert (found.group, found.topology) == ("app", ())


def test_errors_are_seen():
    for error in (0, 14, 29):
        assert error_of(response(88, 0, 4, error_code=error), 0) == error


def test_the_proxys_own_answer():
    asked = read(heartbeat(0x01020304, "app", *FULL))
    frame = try_again(0x01020304, 0, asked, "later, ünï")
    told = read_response(88, 0, frame)
    assert frame[4:8] == b"\1\2\3\4"
    assert (int(told.error_code), told.error_message, told.member_id, told.member_epoch) == (14, "later, ünï", "m", 0)
    assert told.throttle_time.total_seconds() == 0
    assert told.active_tasks is None
