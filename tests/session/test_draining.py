"""The proxy stops: what was read is answered, what was not is left to another proxy, and the connection ends."""

import pytest

from proxy.session.session import AT_ONCE, State
from proxy.wire.frames import HEADER_ROOM
from tests.apis.topic_frames import BEAT, HEARTBEAT, create
from tests.messages import batch, produce
from tests.support import byte_by_byte, split


@pytest.mark.parametrize("said", [b"", HEARTBEAT], ids=["nothing yet", "all is answered"])
def test_an_idle_connection_ends_at_once(world, said):
    d = world().dialogue()
    if said:
        d.client(said).broker(BEAT)
        assert (d.to_broker, d.to_client) == (said, BEAT)
    d.session.drain()
    assert d.session.state is State.CLOSED
    assert d.port.closes == 1


def test_answers_are_waited_for_and_nothing_more_is_read(world):
    d = world().dialogue()
    d.client(HEARTBEAT + HEARTBEAT)
    assert d.to_broker == HEARTBEAT * 2
    d.session.drain()
    assert not d.port.reading
    assert not d.port.closes
    d.broker(BEAT)
    assert not d.port.closes
    d.broker(BEAT)
    assert d.port.closes == 1
    assert d.to_client == BEAT * 2


def test_the_end_waits_for_the_last_byte_of_the_last_answer(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    d.session.drain()
    for byte in byte_by_byte(BEAT[:-1]):
        d.broker(byte)
    assert not d.port.closes
    d.broker(BEAT[-1:])
    assert d.port.closes == 1
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)


def test_a_request_that_has_begun_is_the_last(world):
    d = world().dialogue()
    begun, rest = split(HEARTBEAT, 10)
    d.client(begun)
    d.session.drain()
    assert d.session.state is State.LAST
    assert d.port.reading
    d.client(rest[:3], rest[3:] + HEARTBEAT + begun)
    assert d.to_broker == HEARTBEAT, "what comes behind it is for another proxy"
    assert not d.port.reading
    assert not d.port.closes
    d.broker(BEAT)
    assert d.port.closes == 1
    assert d.to_client == BEAT


def test_half_a_request_of_a_client_that_ends_is_no_request(world):
    d = world().dialogue()
    d.client(HEARTBEAT[:10])
    d.session.drain()
    d.session.client_ended()
    assert d.port.closes == 1


def test_the_first_request_is_answered_although_the_broker_is_not_connected_yet(world):
    d = world().dialogue(connected=False)
    d.client(HEARTBEAT + HEARTBEAT[:10])
    d.session.drain()
    assert not d.port.closes
    d.session.broker_connected(0)
    assert d.to_broker == HEARTBEAT
    d.client(HEARTBEAT[10:] + HEARTBEAT).broker(BEAT, BEAT)
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT * 2)
    assert d.port.closes == 1


def test_what_was_read_behind_too_many_requests_is_answered(world):
    d = world(max_in_flight=1).dialogue()
    d.client(HEARTBEAT + HEARTBEAT)
    d.session.drain()
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT * 2
    assert d.port.closes == 1


def test_a_client_that_is_muted_for_nothing_is_let_go(tired):
    d = tired.dialogue()
    d.client(create(7, 1, ("x", 1)))
    assert d.to_client
    assert d.session.state is State.MUTED
    d.session.drain()
    assert d.port.closes == 1


def test_a_muted_client_whose_request_was_read_gets_its_answer(tired):
    d = tired.dialogue()
    d.client(create(7, 1, ("x", 1)) + HEARTBEAT)
    assert d.to_client
    d.session.drain()
    assert not d.port.closes
    d.wake()
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert d.port.closes == 1


def test_a_held_request_goes_on_and_nothing_behind_it(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    first.now = second.now = 11.5
    frame = create(7, 2, ("y", 1))
    second.client(frame[:20])
    second.session.drain()
    second.client(frame[20:] + HEARTBEAT)
    assert second.session.state is State.HELD
    assert second.to_broker == b""
    second.wake()
    assert second.to_broker == frame


def test_draining_twice_is_draining_once(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    d.session.drain()
    d.session.drain()
    d.broker(BEAT)
    d.session.drain()
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    assert d.port.closes == 1


def test_a_request_whose_rest_was_read_behind_the_turn_is_answered(world):
    """A busy connection keeps what it reads for its next turn: the proxy must not wait for what is there already."""
    d = world().dialogue()
    d.port.out_of_time = True
    d.client(HEARTBEAT * (2 * AT_ONCE))
    assert d.to_broker == HEARTBEAT * AT_ONCE
    frame = produce(7, 1, batch(size=2 * HEADER_ROOM))
    begun, rest = split(frame, HEADER_ROOM + 100)
    d.turn()
    assert d.to_broker == HEARTBEAT * AT_ONCE
    d.client(begun)
    assert d.session.state is State.OPEN
    d.turn()
    d.client(rest)
    d.session.drain()
    d.turn()
    assert d.to_broker == frame
    assert not d.port.reading
