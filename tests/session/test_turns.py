"""Connections take turns: one with much to do goes on later, where it was, and nothing is lost or comes in another order."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from proxy.session.answers import AT_ONCE
from proxy.session.session import AT_ONCE as REQUESTS_AT_ONCE
from proxy.session.session import BUSY, LAST, State
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.messages import batch, produce, request, response
from tests.properties import examples
from tests.support import Dialogue, World

MANY = 5 * AT_ONCE


def calm(number: int) -> bytes:
    """An answer that is looked at, and goes on as it came."""
    return response(3, 12, number, brokers=(), topics=())


def test_a_turn_ends_and_the_next_goes_on_where_it_was(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    d.port.out_of_time = True
    d.client(HEARTBEAT * 5 * REQUESTS_AT_ONCE)
    assert d.to_broker == HEARTBEAT * (1 + REQUESTS_AT_ONCE)
    assert not d.port.reading
    for done in range(2, 5):
        d.turn()
        assert d.to_broker == HEARTBEAT * REQUESTS_AT_ONCE, done
    d.port.out_of_time = False
    d.turn()
    assert d.to_broker == HEARTBEAT * REQUESTS_AT_ONCE
    assert d.port.reading
    assert not d.port.wants_turn


def test_answers_take_turns_too(world):
    d = world().dialogue()
    asked = [request(3, 12, i) for i in range(3 * AT_ONCE)]
    told = [calm(i) for i in range(3 * AT_ONCE)]
    d.client(b"".join(asked))
    assert d.to_broker == b"".join(asked)
    d.port.out_of_time = True
    d.broker(b"".join(told))
    assert d.to_client == b"".join(told[:AT_ONCE])
    assert not d.port.reading_broker
    d.turn()
    assert d.to_client == b"".join(told[AT_ONCE : 2 * AT_ONCE])
    d.turn()
    assert d.to_client == b"".join(told[2 * AT_ONCE :])
    assert d.port.reading_broker
    assert not d.port.wants_turn


def test_of_what_a_client_left_behind_only_the_first_requests_go_on_that_want_answers(world):
    """A broker too stops at the first answer that it cannot deliver; what is left behind would hold up others for seconds."""
    d = world().dialogue()
    d.port.out_of_time = True
    d.client(HEARTBEAT * MANY)
    assert d.to_broker == HEARTBEAT * REQUESTS_AT_ONCE
    d.session.client_lost()
    d.port.out_of_time = False
    assert d.port.closes == 0
    d.turn()
    assert d.to_broker == HEARTBEAT * LAST
    assert d.port.closes == 1
    assert d.to_client == b""
    assert d.world.services.budget.held == 0


def test_what_wants_no_answers_goes_on_in_the_midst_of_a_turn_though_its_client_left(world):
    d = world().dialogue()
    silent = produce(7, 1, batch(), acks=0)
    d.port.out_of_time = True
    d.client(silent * MANY)
    d.session.client_lost()
    d.port.out_of_time = False
    d.turn()
    assert d.to_broker == silent * MANY
    assert d.port.closes == 1


def test_a_client_that_closed_its_half_gets_all_its_answers(world):
    d = world().dialogue()
    d.port.out_of_time = True
    d.client(HEARTBEAT * MANY)
    d.session.client_ended()
    assert d.port.closes == 0
    d.port.out_of_time = False
    d.turn()
    d.broker(BEAT * MANY)
    assert d.to_client == BEAT * MANY
    assert d.to_broker == HEARTBEAT * MANY
    assert d.port.closes == 1


def test_a_full_connection_goes_on_when_a_quarter_is_answered(world):
    """Not at each answer, which would look at what waits again and again."""
    d = world(max_in_flight=100).dialogue()
    d.client(HEARTBEAT * 150)
    assert d.session.state is State.FULL
    d.broker(BEAT * 25)
    assert d.to_broker == HEARTBEAT * 100
    d.broker(BEAT)
    assert d.to_broker == HEARTBEAT * 26
    assert d.to_client == BEAT * 26


def test_what_a_busy_connection_reads_waits_where_others_took_all_of_a_pass(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    d.port.out_of_time = True
    d.client(HEARTBEAT * (REQUESTS_AT_ONCE + 1))
    d.turn()
    assert d.to_broker == HEARTBEAT * (REQUESTS_AT_ONCE + 2)
    d.now = BUSY / 2
    d.client(HEARTBEAT)
    assert d.to_broker == b""
    assert not d.port.reading
    d.broker(BEAT)
    assert d.to_client == b""
    assert not d.port.reading_broker
    assert d.world.services.budget.held == len(HEARTBEAT) + len(BEAT)
    d.turn()
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    assert d.port.reading
    assert d.port.reading_broker
    assert d.world.services.budget.held == 0


def test_a_connection_that_was_not_busy_lately_never_waits_for_a_turn(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    d.port.out_of_time = True
    d.client(HEARTBEAT * (REQUESTS_AT_ONCE + 1))
    d.turn()
    d.now = 2 * BUSY
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT * (REQUESTS_AT_ONCE + 3)
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert not d.port.wants_turn


class Whims:
    """Whether a turn is over is decided by chance."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def __call__(self) -> bool:
        return self._chance.random() < 0.7


@examples(50)
@given(st.integers(0, 1 << 32))
def test_whenever_turns_end_everything_goes_on_in_its_order(seed):
    chance = Random(seed)
    d = Dialogue(World(max_in_flight=60), "alice", connected=True)
    d.session._answers._turn_over = d.port.turn_over = Whims(chance)  # type: ignore[method-assign]
    pairs = [(request(3, 12, i), calm(i)) if chance.random() < 0.5 else (HEARTBEAT, BEAT) for i in range(200)]
    to_send, to_answer = b"".join(q for q, _ in pairs), b"".join(a for _, a in pairs)
    went, came = b"", b""
    sent = answered = 0
    while len(came) < len(to_answer):
        if d.port.wants_turn:
            d.turn()
        elif d.port.reading and sent < len(to_send):
            size = chance.randrange(1, 9000)
            d.client(to_send[sent : sent + size])
            sent += size
        elif d.port.reading_broker and answered < len(went_answers(pairs, went)):
            size = chance.randrange(1, 9000)
            d.broker(went_answers(pairs, went)[answered : answered + size])
            answered = min(answered + size, len(went_answers(pairs, went)))
        else:
            raise AssertionError((d.session.state, d.port.reading, d.port.reading_broker, sent, answered, len(came)))
        went += d.to_broker
        came += d.to_client
    assert went == to_send
    assert came == to_answer


def went_answers(pairs: list[tuple[bytes, bytes]], went: bytes) -> bytes:
    """What the broker answers to what has come."""
    told, size = b"", 0
    for asked, answer in pairs:
        size += len(asked)
        if size > len(went):
            break
        told += answer
    return told
