"""Whoever does not speak the protocol: one report, a close, and nothing that was not meant."""

import pytest

from tests.messages import request, response
from tests.support import byte_by_byte

HEARTBEAT = request(12, 4, 5)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\0\0\0\x07" + bytes(7),
        b"\xff\xff\xff\xff",
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xfe",
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\5",
    ],
    ids=["HTTP", "TLS", "too short for a header", "negative length", "client id of length -2", "client id longer than the frame"],
)
@pytest.mark.parametrize("cut", [lambda data: [data], byte_by_byte], ids=["whole", "byte by byte"])
def test_garbage_closes_with_one_report(world, garbage, cut):
    d = world().dialogue()
    d.client(*cut(garbage))
    assert d.port.closes == 1
    assert len(d.failures) == 1
    assert d.to_broker == b""


def test_a_frame_larger_than_allowed_is_refused_by_its_first_four_bytes(world):
    d = world(max_frame=2000).dialogue()
    d.client(b"\0\0\x07\xd1")
    assert "2001" in d.failures[0]
    assert "2000" in d.failures[0]


@pytest.mark.parametrize(("key", "version"), [(0, 14), (1, 19), (3, 14), (17, 2), (19, 8), (36, 3), (60, 3), (0, -1)])
def test_a_version_above_what_is_understood_closes(world, key, version):
    d = world().dialogue()
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\xff\xff" + bytes(20)
    d.client(len(frame).to_bytes(4, "big") + frame)
    assert d.port.closes == 1
    assert f"version {version} of API {key}" in d.failures[0]


def test_what_came_before_garbage_in_one_read_still_goes_on(world):
    """As it does when it comes in a read of its own."""
    d = world().dialogue()
    d.client(HEARTBEAT + b"\xff\xff\xff\xff")
    assert d.port.closes == 1
    assert d.to_broker == HEARTBEAT


def test_a_wrong_correlation_id_closes(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    assert d.to_broker
    d.broker(response(12, 4, 6))
    assert d.port.closes == 1
    (reason,) = d.world.watcher.broker_failures
    assert "6" in reason
    assert "5" in reason


def test_an_answer_that_was_not_asked_for_closes(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    assert d.to_broker
    answer = response(12, 4, 5)
    d.broker(answer)
    assert d.to_client == answer
    d.broker(answer)
    assert d.port.closes == 1
    assert len(d.world.watcher.broker_failures) == 1


def test_good_answers_before_a_bad_one_in_the_same_read_reach_the_client(world):
    d = world().dialogue()
    d.client(HEARTBEAT + HEARTBEAT)
    assert d.to_broker
    good = response(12, 4, 5)
    d.broker(good + response(12, 4, 99))
    assert d.port.closes == 1
    assert d.to_client == good


def test_a_broker_that_closes_in_the_middle_of_an_answer_ends_the_client_too(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    assert d.to_broker
    answer = response(12, 4, 5)
    d.broker(answer[:9])
    assert d.to_client == answer[:9]
    d.session.broker_lost(None)
    assert d.port.closes == 1
    assert d.world.watcher.broker_failures == []


def test_a_broker_that_cannot_be_reached_is_reported(world):
    d = world().dialogue(connected=False)
    d.client(HEARTBEAT)
    d.session.broker_lost("no connection")
    assert d.world.watcher.broker_failures == ["no connection"]
    assert d.port.closes == 1
    assert d.to_broker == b""


@pytest.mark.parametrize("key", [3, 10, 18, 19, 36, 55, 60, 78, 79, 0, 1])
def test_an_answer_cut_short_inside_its_frame_is_the_brokers_failure(world, key):
    """Its size field is right and its body is not: whatever is read of it must not be trusted."""
    version = {3: 12, 10: 4, 18: 3, 19: 7, 36: 2, 55: 2, 60: 1, 78: 1, 79: 1, 0: 10, 1: 17}[key]
    given = {"acks": 1} if key == 0 else {}
    for size in range(4, 12):
        d = world().dialogue()
        d.client(request(17, 1, 0, mechanism="PLAIN"), request(key, version, 1, **given))
        d.broker(response(17, 1, 0))
        assert d.to_broker
        assert d.to_client
        d.broker(size.to_bytes(4, "big") + b"\0\0\0\1" + b"\xff" * (size - 4))
        failures = d.world.watcher.broker_failures
        assert len(failures) + bool(d.to_client) == 1
        assert d.port.closes == len(failures)
