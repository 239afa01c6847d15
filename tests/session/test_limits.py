"""Every limit bites exactly where it says, is told to the watcher, and lets go again. The time is an argument."""

import pytest

from proxy.session.session import PROGRESS, STALLED, State
from tests.apis.topic_frames import BEAT, HEARTBEAT, create, created
from tests.messages import batch, produce, request, response
from tests.support import Dialogue, World, byte_by_byte, split

ODD = request(18, 3, 9)[:6] + b"\x7f\xff" + request(18, 3, 9)[8:]
"""A version of ApiVersions that the proxy answers itself."""


def large(size: int, number: int = 1) -> bytes:
    """A request of about so many bytes that nobody touches."""
    groups = request(15, 5, number, groups=())
    return (size - 4).to_bytes(4, "big") + groups[4:] + bytes(size - len(groups))


def metadata(size: int, number: int = 1) -> bytes:
    """A response of at least so many bytes that is held whole to be changed."""
    return response(3, 12, number, cluster_id="x" * size)


def half_sent(d: Dialogue, size: int) -> Dialogue:
    """The client sent so many bytes of a request, in two reads, and one byte is missing."""
    head, tail = split(large(size + 1)[:-1], 600)
    return d.client(head, tail)


def at(d: Dialogue, now: float) -> Dialogue:
    """The proxy's look at its connections."""
    d.now = now
    d.session.check(now)
    return d


def bitten(w: World) -> list[str]:
    return [limit for limit, _ in w.watcher.limits]


# ---------------------------------------------------------------------- requests in flight


def test_no_more_requests_are_looked_at_than_may_wait_for_answers(world):
    w = world(max_in_flight=3)
    d = w.dialogue()
    d.client(HEARTBEAT * 2)
    assert d.port.reading
    d.client(HEARTBEAT * 3)
    assert d.to_broker == HEARTBEAT * 3
    assert (d.session.state, d.port.reading, d.session.in_flight) == (State.FULL, False, 3)
    assert w.watcher.limits == [("max_in_flight", False)]
    d.client(HEARTBEAT)
    assert d.to_broker == b""
    d.broker(BEAT)
    assert d.to_broker == HEARTBEAT
    assert not d.port.reading
    d.broker(BEAT * 2)
    assert d.to_broker == HEARTBEAT * 2
    assert d.session.in_flight == 3
    d.broker(BEAT)
    assert d.port.reading
    assert d.session.state is State.OPEN
    assert d.to_client == BEAT * 4


def test_half_an_answer_makes_no_room_for_another_request(world):
    d = world(max_in_flight=1).dialogue()
    d.client(HEARTBEAT * 2)
    assert d.to_broker == HEARTBEAT
    head, tail = split(BEAT, 9)
    d.broker(head)
    assert d.to_broker == b""
    d.broker(tail)
    assert d.to_broker == HEARTBEAT
    assert d.to_client == BEAT


def test_answers_of_the_proxy_that_wait_for_their_turn_count_too(world):
    """Behind a request that a broker never answers, each would be kept."""
    w = world(max_in_flight=3)
    d = w.dialogue()
    d.client(HEARTBEAT + ODD * 50)
    assert d.to_broker == HEARTBEAT
    assert (d.session.state, d.session.in_flight, d.port.reading) == (State.FULL, 3, False)
    assert bitten(w) == ["max_in_flight"]
    d.broker(BEAT)
    assert d.to_client.startswith(BEAT)
    assert (d.session.state, d.session.in_flight, d.port.reading) == (State.OPEN, 0, True), "they cost nothing once they may go"


def test_produce_without_acks_is_never_in_flight(world):
    w = world(max_in_flight=2)
    d = w.dialogue()
    silent = b"".join(produce(9, i, batch(), acks=0) for i in range(10))
    d.client(silent)
    assert d.to_broker == silent
    assert d.port.reading
    assert w.watcher.limits == []


def test_a_new_number_in_flight_holds_from_the_next_look_on(world):
    w = world(max_in_flight=1)
    d = w.dialogue()
    w.services.bounds.max_in_flight = 2
    at(d, 1)
    d.client(HEARTBEAT * 3)
    assert d.to_broker == HEARTBEAT * 2


# ---------------------------------------------------------------------- the first request


@pytest.mark.parametrize("said", [b"", HEARTBEAT[:-1]], ids=["nothing", "half a request"])
def test_who_does_not_say_what_it_wants_is_not_waited_for(world, said):
    w = world()
    d = w.dialogue()
    if said:
        d.client(said)
    assert at(d, 30).port.closes == 0
    assert at(d, 30.1).port.closes == 1
    assert w.watcher.limits == [("first_request_timeout", True)]
    assert d.to_broker == b""


def test_the_first_request_is_waited_for_from_the_moment_the_client_came(world):
    """Byte by byte it takes as long as any other way."""
    w = world()
    d = w.dialogue()
    for i, byte in enumerate(byte_by_byte(HEARTBEAT[:29]), 1):
        at(d, i).client(byte)
    assert d.port.closes == 0
    at(d, 30.1)
    assert d.port.closes == 1
    assert bitten(w) == ["first_request_timeout"]


def test_after_its_first_request_a_client_may_be_silent(world):
    d = world().dialogue()
    d.client(HEARTBEAT).broker(BEAT)
    at(d, 500)
    assert d.port.closes == 0
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)


def test_the_time_in_which_the_broker_is_connected_is_not_the_clients(world):
    d = world().dialogue(connected=False)
    d.client(HEARTBEAT)
    at(d, 60)
    assert d.port.closes == 0
    d.session.broker_connected(60)
    at(d, 60)
    assert d.port.closes == 0
    assert d.to_broker == HEARTBEAT


# ---------------------------------------------------------------------- a request that does not become whole


def slow(w: World) -> Dialogue:
    """A client that said its first request and got its answer."""
    d = w.dialogue()
    d.client(HEARTBEAT).broker(BEAT)
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    return d


@pytest.mark.parametrize("size", [40, 3000], ids=["short", "long"])
def test_a_slow_sender_is_closed_however_often_it_sends(world, size):
    w = world()
    d = slow(w)
    frame = large(size)
    at(d, 100).client(frame[: size - 30])
    at(d, 100)
    for second, byte in enumerate(byte_by_byte(frame[size - 30 : -1]), 101):
        at(d, second).client(byte)
    at(d, 220)
    assert d.port.closes == 0
    at(d, 220.1)
    assert d.port.closes == 1
    assert w.watcher.limits == [("request_timeout", True)]
    assert d.to_broker == b"", "half a request costs the broker nothing"


def test_requests_that_straddle_reads_for_ever_are_no_slow_request(world):
    w = world()
    d = slow(w)
    for second in range(0, 400, 10):
        at(d, second).client(HEARTBEAT[20:] * (second > 0) + HEARTBEAT + HEARTBEAT[:20])
        at(d, second)
        assert d.to_broker
        d.broker(BEAT * (1 + (second > 0)))
        assert d.to_client
    assert d.port.closes == 0
    assert w.watcher.limits == []


def test_large_requests_that_straddle_reads_for_ever_are_no_slow_request(world):
    d = slow(world())
    stream = large(3000) * 200
    for second, start in enumerate(range(0, len(stream), 2000)):
        at(d, second).client(stream[start : start + 2000])
        at(d, second)
    assert d.port.closes == 0
    assert d.to_broker == stream


def test_the_time_does_not_run_while_the_client_is_not_read(world):
    """Whether the session wants it or the broker does not take more."""
    w = world()
    d = slow(w)
    d.client(large(3000)[:2000])
    at(d, 10)
    d.port.reading = False
    at(d, 500)
    assert d.port.closes == 0
    d.port.reading = True
    d.session._last = 500
    at(d, 510)
    assert d.port.closes == 0
    at(d, 640)
    assert bitten(w) == ["request_timeout"]


# ---------------------------------------------------------------------- silence


def test_a_silent_connection_is_closed(world):
    w = world()
    d = slow(w)
    at(d, 600)
    assert d.port.closes == 0
    at(d, 600.1)
    assert d.port.closes == 1
    assert w.watcher.limits == [("idle_timeout", True)]


def test_what_the_broker_says_is_no_silence(world):
    d = slow(world())
    d.client(HEARTBEAT)
    d.now = 500.0
    d.broker(BEAT)
    at(d, 700)
    assert d.port.closes == 0
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    at(d, 1101)
    assert d.port.closes == 1


def test_who_waits_for_an_answer_is_not_silent(world):
    d = slow(world())
    d.client(HEARTBEAT)
    at(d, 10_000)
    assert d.port.closes == 0
    assert d.to_broker == HEARTBEAT


def test_who_is_muted_is_not_silent(tired):
    d = tired.dialogue()
    tired.services.bounds.idle_timeout = 5.0
    d.client(create(7, 9, ("x", 1)))
    assert d.to_client
    at(d, 11)
    assert (d.session.state, d.port.closes) == (State.MUTED, 0)
    d.wake()
    at(d, 12)
    assert d.port.closes == 1


def test_who_is_not_read_because_its_broker_is_slow_is_not_silent(world):
    d = slow(world())
    d.port.reading = False
    at(d, 10_000)
    assert d.port.closes == 0


# ---------------------------------------------------------------------- connections of a user


def test_one_connection_too_many_of_a_user_is_closed_after_its_login(world):
    w = world(max_connections_per_principal=2)
    first, second = w.dialogue().log_in("alice"), w.dialogue().log_in("alice")
    third = w.dialogue().log_in("alice")
    assert [d.port.closes for d in (first, second, third)] == [0, 0, 1]
    assert w.watcher.limits == [("max_connections_per_principal", True)]
    assert w.dialogue().log_in("bob").port.closes == 0
    first.session.client_lost()
    assert w.dialogue().log_in("alice").port.closes == 0


def test_one_that_was_refused_takes_no_place(world):
    w = world(max_connections_per_principal=1)
    first = w.dialogue().log_in("alice")
    for _ in range(3):
        assert w.dialogue().log_in("alice").port.closes == 1
    first.session.client_lost()
    assert w.dialogue().log_in("alice").port.closes == 0


def test_a_login_again_takes_no_second_place(world):
    w = world(max_connections_per_principal=1)
    d = w.dialogue().log_in("alice").log_in("alice")
    assert d.port.closes == 0
    d.log_in("bob")
    assert d.port.closes == 0
    assert w.dialogue().log_in("alice").port.closes == 0, "its place is free"


def test_clients_without_a_login_are_not_counted(world):
    w = world(max_connections_per_principal=1)
    for _ in range(5):
        assert slow(w).port.closes == 0


def test_a_user_known_by_certificate_is_closed_at_its_first_word(world):
    w = world(max_connections_per_principal=1)
    first, second = w.dialogue(), w.dialogue()
    first.session.client.identify("alice")
    second.session.client.identify("alice")
    first.client(HEARTBEAT)
    second.client(HEARTBEAT)
    assert (first.port.closes, second.port.closes) == (0, 1)
    assert second.port.connects == 0, "the broker never sees it"
    assert first.to_broker == HEARTBEAT


# ---------------------------------------------------------------------- memory of all


def test_beyond_the_total_all_but_one_stop_reading_and_go_on_in_their_order(world):
    w = world(memory_total=3400)
    one, two, three, four = (half_sent(slow(w), 1000) for _ in range(4))
    assert [d.port.reading for d in (one, two, three)] == [True] * 3
    assert four.port.reading, "one always goes on"
    one.client(large(1001)[-1:])
    assert one.to_broker == large(1001)
    half_sent(one, 1000)
    assert not one.port.reading
    assert w.services.budget.waiting == 1
    assert w.watcher.limits == [("memory_total", False)]
    four.client(large(1001)[-1:])
    assert four.to_broker == large(1001)
    assert one.port.reading
    for d in (one, two, three):
        d.client(large(1001)[-1:])
        assert d.to_broker == large(1001)
    assert w.services.budget.held == w.services.budget.waiting == 0


def test_who_waits_longest_goes_on_first(world):
    w = world(memory_total=1500)
    waiting = [half_sent(slow(w), 1000) for _ in range(5)]
    assert [d.port.reading for d in waiting] == [True, True, False, False, False]
    waiting[1].session.client_lost()
    assert [d.port.reading for d in waiting] == [True, True, True, False, False]
    waiting[2].client(large(1001)[-1:])
    assert waiting[2].to_broker == large(1001)
    assert [d.port.reading for d in waiting] == [True, True, True, True, False]


def test_a_waiter_that_is_not_read_is_not_overdue(world):
    w = world(memory_total=1000)
    first, second = half_sent(slow(w), 1000), half_sent(slow(w), 1000)
    third = half_sent(slow(w), 1000)
    assert not third.port.reading
    for now in (1, 119, 600):
        at(third, now)
    assert third.port.closes == 0
    assert [d.port.closes for d in (first, second)] == [0, 0]


def test_who_holds_memory_for_which_others_wait_and_gets_no_further_is_closed(world):
    """Else a few clients that send half a request and fall silent hold up everybody, one after the other."""
    w = world(memory_total=1500)
    silent = [half_sent(slow(w), 1000) for _ in range(2)]
    other = half_sent(slow(w), 1000)
    assert not other.port.reading
    at(silent[1], STALLED)
    assert not other.port.reading
    at(silent[1], STALLED + 0.1)
    assert silent[1].port.closes == 1
    assert w.watcher.limits[-1] == ("memory_total", True)
    assert other.port.reading
    other.client(large(1001)[-1:])
    assert other.to_broker == large(1001)
    at(silent[0], 100)
    assert silent[0].port.closes == 0, "nobody waits any more"


def test_who_trickles_while_others_wait_is_closed_too(world):
    w = world(memory_total=1500)
    slowly, other = slow(w), slow(w)
    frame = large(5000)
    slowly.client(frame[:600], frame[600:2000])
    half_sent(other, 1000)
    assert not other.port.reading
    for second in range(1, 7):
        slowly.now = second
        slowly.client(b"x")
        at(slowly, second)
    assert slowly.port.closes == 1
    assert other.port.reading


def test_who_gets_on_is_not_closed_while_others_wait(world):
    w = world(max_frame=1 << 24, memory_total=1500)
    one, other = slow(w), slow(w)
    one.client(large(10 << 20)[:1000])
    one.client(bytes(1000))
    half_sent(other, 1000)
    assert not other.port.reading
    for second in range(1, 30):
        one.now = second
        one.client(bytes(PROGRESS // 4))
        at(one, second)
    assert one.port.closes == 0


def test_who_waited_itself_has_time_again(world):
    w = world(memory_total=1500)
    first, second, third = (half_sent(slow(w), 1000) for _ in range(3))
    for now in range(1, 100):
        at(third, now)
    first.session.client_lost()
    second.session.client_lost()
    assert third.port.reading
    fourth, fifth = half_sent(slow(w), 1000), half_sent(slow(w), 1000)
    assert not fifth.port.reading
    at(third, 101)
    assert third.port.closes == 0
    assert fourth.port.closes == 0


def test_a_session_that_ends_gives_its_memory_back(world):
    w = world(memory_total=1000)
    first, second = half_sent(slow(w), 2000), half_sent(slow(w), 1000)
    assert (first.port.reading, second.port.reading) == (True, False)
    first.session.client_lost()
    assert second.port.reading
    second.session.client_lost()
    assert w.services.budget.held == 0


def test_a_session_that_ends_while_it_waits_is_waited_for_no_more(world):
    w = world(memory_total=1000)
    first, second, third = half_sent(slow(w), 2000), half_sent(slow(w), 1000), half_sent(slow(w), 1000)
    second.session.client_lost()
    first.session.client_lost()
    assert third.port.reading
    assert w.services.budget.waiting == 0


def test_more_memory_lets_those_who_wait_go_on(world):
    w = world(memory_total=1000)
    half_sent(slow(w), 2000)
    second = half_sent(slow(w), 1000)
    w.services.budget.total = 1 << 20
    third = half_sent(slow(w), 1000)
    assert third.port.reading
    third.client(large(1001)[-1:])
    assert third.to_broker == large(1001)
    assert second.port.reading


def test_memory_does_not_open_what_is_blocked_for_another_reason(world):
    w = world(memory_total=1500, max_in_flight=2)
    first, second, third = half_sent(slow(w), 1000), half_sent(slow(w), 1000), slow(w)
    third.client(HEARTBEAT * 2)
    assert third.to_broker == HEARTBEAT * 2
    assert third.session.state is State.FULL
    third.session.memory_free()
    assert not third.port.reading
    first.session.client_lost()
    second.session.client_lost()
    assert not third.port.reading
    third.broker(BEAT)
    assert third.port.reading
    assert third.to_client == BEAT


def short_of_memory_and_full(w: World) -> tuple[Dialogue, Dialogue]:
    """(who has the memory, who waits for it with as many requests in flight as there may be)."""
    other, d = half_sent(slow(w), 2000), slow(w)
    d.client(request(3, 12, 1) + HEARTBEAT + HEARTBEAT)
    assert d.to_broker
    d.broker(metadata(500)[:400])
    assert d.session.state is State.FULL
    assert w.services.budget.waiting == 1
    return other, d


def test_who_waits_for_memory_and_is_blocked_is_read_only_when_both_are_over(world):
    w = world(memory_total=1000, max_in_flight=2)
    other, d = short_of_memory_and_full(w)
    other.session.client_lost()
    assert (d.port.reading_broker, d.port.reading) == (True, False)
    d.broker(metadata(500)[400:])
    assert d.port.reading is False, "the request that waited is in flight now"
    d.broker(BEAT)
    assert d.port.reading
    assert d.to_broker
    assert d.to_client


def test_who_is_blocked_no_more_and_waits_for_memory_is_not_read(world):
    w = world(memory_total=1000, max_in_flight=2)
    other, d = short_of_memory_and_full(w)
    w.services.bounds.max_in_flight = 9
    at(d, 1).broker(metadata(500)[400:450])
    assert d.to_broker == HEARTBEAT
    assert (d.session.state, d.port.reading) == (State.OPEN, False)
    other.session.client_lost()
    assert d.port.reading


def test_an_answer_that_is_held_is_charged_and_stops_its_broker(world):
    w = world(memory_total=12_000)
    half_sent(slow(w), 10_000)
    answer = metadata(8000)
    asking = [slow(w).client(request(3, 12, 1)) for _ in range(2)]
    for d in asking:
        assert d.to_broker
        d.broker(answer[:4000])
    ahead, waits = asking
    assert ahead.port.reading_broker
    assert (waits.port.reading_broker, waits.port.reading) == (False, False)
    ahead.broker(answer[4000:])
    assert ahead.to_client
    assert (waits.port.reading_broker, waits.port.reading) == (True, True)
    waits.broker(answer[4000:])
    assert waits.to_client
    assert w.services.budget.held == 10_000


def test_who_waits_for_memory_for_a_request_waits_for_answers_too(world):
    w = world(memory_total=1000)
    half_sent(slow(w), 2000)
    d = slow(w)
    d.client(request(3, 12, 1))
    assert d.to_broker
    half_sent(d, 1000)
    assert (d.port.reading, d.port.reading_broker) == (False, True)
    d.broker(metadata(500)[:400])
    assert not d.port.reading_broker


def test_a_request_that_becomes_whole_while_its_session_waits_for_memory_ends_the_wait(world):
    """Its last bytes were read before."""
    w = world(memory_total=1000)
    half_sent(slow(w), 2000)
    d = slow(w)
    head, tail = split(large(2000), 1500)
    d.client(head[:700], head[700:])
    assert not d.port.reading
    d.client(tail)
    assert d.to_broker == large(2000)
    assert d.port.reading
    assert w.services.budget.waiting == 0


def test_an_answer_that_has_to_be_held_and_cannot_be_is_the_brokers_failure(world):
    w = world(memory_total=5000)
    d = slow(w)
    d.client(request(3, 12, 1))
    assert d.to_broker
    d.broker(metadata(6000)[:1000])
    (reason,) = w.watcher.broker_failures
    assert "limits.memory_total" in reason
    assert d.port.closes == 1
    assert w.services.budget.held == 0


def test_an_answer_larger_than_the_total_streams_where_it_need_not_be_held(world):
    w = world(memory_total=5000)
    d = slow(w)
    d.client(request(15, 5, 1, groups=()))
    assert d.to_broker
    answer = (100_000 - 4).to_bytes(4, "big") + b"\0\0\0\1" + bytes(100_000 - 8)
    for start in range(0, len(answer), 1000):
        d.broker(answer[start : start + 1000])
    assert d.to_client == answer
    assert w.watcher.limits == w.watcher.broker_failures == []


def test_small_requests_of_others_pass_while_memory_is_short(world):
    w = world(memory_total=1000)
    half_sent(slow(w), 2000)
    d = slow(w)
    for _ in range(3):
        d.client(HEARTBEAT[:9], HEARTBEAT[9:]).broker(BEAT)
        assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)


def test_small_requests_and_answers_in_many_pieces_pass_while_memory_is_short(world):
    """Who comes anew would wait for its first answers behind all who hold the memory."""
    w = world(memory_total=5 << 18)
    for _ in range(2):
        half_sent(slow(w), 1 << 20)
    d = slow(w)
    d.client(large(1000)[:600], large(1000)[600:800])
    assert (d.port.reading, w.services.budget.waiting) == (True, 0)
    d.client(large(1000)[800:]).broker(response(15, 5, 1, groups=()))
    assert d.to_broker == large(1000)
    assert d.to_client
    asked, told = request(3, 12, 2), metadata(700, 2)
    d.client(asked).broker(told[:600])
    assert d.to_broker == asked
    assert (d.port.reading_broker, w.services.budget.waiting) == (True, 0)
    d.broker(told[600:])
    assert b"x" * 700 in d.to_client
    half_sent(d, 2000)
    assert (d.port.reading, w.services.budget.waiting) == (False, 1)


# ---------------------------------------------------------------------- a client that closes its half


def test_the_answers_to_what_was_sent_still_come_then_the_end(world):
    d = slow(world())
    d.client(HEARTBEAT * 2)
    d.session.client_ended()
    assert d.port.closes == 0
    d.broker(BEAT)
    assert d.port.closes == 0
    d.broker(BEAT)
    assert d.port.closes == 1
    assert (d.to_broker, d.to_client) == (HEARTBEAT * 2, BEAT * 2)


@pytest.mark.parametrize("said", [b"", HEARTBEAT[:-1]], ids=["nothing", "half a request"])
def test_with_nothing_to_answer_the_end_comes_at_once(world, said):
    d = slow(world())
    if said:
        d.client(said)
    d.session.client_ended()
    assert d.port.closes == 1
    assert d.failures == []


def test_the_end_before_a_word_is_no_failure(world):
    w = world()
    d = w.dialogue()
    d.session.client_ended()
    assert d.port.closes == 1
    assert d.port.connects == 0
    assert w.watcher.limits == d.failures == []


def test_what_was_sent_while_the_broker_is_connected_is_still_answered(world):
    d = world().dialogue(connected=False)
    d.client(HEARTBEAT)
    d.session.client_ended()
    assert d.port.closes == 0
    d.session.broker_connected(1.0)
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert d.port.closes == 1


def test_what_was_sent_behind_a_mute_is_still_answered(tired):
    d = tired.dialogue()
    d.client(create(7, 9, ("x", 1)) + HEARTBEAT)
    assert d.to_client
    d.session.client_ended()
    assert d.port.closes == 0
    d.wake()
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert d.port.closes == 1


def test_a_request_that_is_held_still_goes_on(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    frame = create(4, 2, ("y", 1))
    second.client(frame)
    assert second.session.state is State.HELD
    second.session.client_ended()
    assert second.port.closes == 0
    second.wake()
    assert (second.session.state, second.port.closes) == (State.HELD, 0)
    second.wake()
    assert second.to_broker == frame
    second.broker(created(4, 2, "y"))
    assert second.to_client
    assert second.port.closes == 1


def test_requests_beyond_those_in_flight_still_go_on(world):
    d = world(max_in_flight=1).dialogue()
    d.client(HEARTBEAT * 3)
    d.session.client_ended()
    for _ in range(3):
        assert d.port.closes == 0
        assert d.to_broker == HEARTBEAT
        d.broker(BEAT)
        assert d.to_client == BEAT
    assert d.port.closes == 1


# ---------------------------------------------------------------------- a client that is gone


def test_what_was_sent_without_acks_reaches_the_broker_although_the_client_is_gone(world):
    d = world().dialogue(connected=False)
    silent = produce(9, 1, batch(), acks=0)
    d.client(silent)
    d.session.client_lost()
    assert d.port.closes == 0
    d.session.broker_connected(1.0)
    assert d.to_broker == silent
    assert d.port.closes == 1


def test_answers_that_nobody_takes_go_nowhere(world):
    d = world().dialogue(connected=False)
    d.client(HEARTBEAT)
    d.session.client_lost()
    d.session.broker_connected(1.0)
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == b""
    assert d.port.closes == 1


def test_a_broker_that_never_answers_does_not_keep_what_a_client_left_behind(world):
    """The broker hangs: nothing will ever come."""
    w = world(max_in_flight=1)
    gone, ended = w.dialogue(), w.dialogue()
    for d in (gone, ended):
        d.client(HEARTBEAT * 2)
        assert d.to_broker == HEARTBEAT
    gone.session.client_lost()
    ended.session.client_ended()
    for d in (gone, ended):
        at(d, 600)
        assert d.port.closes == 0
        at(d, 600.1)
        assert d.port.closes == 1
    assert bitten(w) == ["max_in_flight"] * 2 + ["idle_timeout"] * 2


# ---------------------------------------------------------------------- after the end


def test_nothing_bites_after_the_end(world):
    w = world()
    d = slow(w)
    d.session.client_lost()
    at(d, 10_000)
    d.session.slow_side()
    d.session.memory_free()
    assert w.watcher.limits == []
    assert d.port.closes == 1


def test_a_slow_side_is_told(world):
    w = world()
    slow(w).session.slow_side()
    assert w.watcher.limits == [("memory_per_connection", False)]


def test_a_new_largest_frame_holds_from_the_next_look_on(world):
    w = world(max_frame=2000)
    d = slow(w)
    w.services.bounds.max_frame = 5000
    at(d, 1).client(large(3000))
    assert d.to_broker == large(3000)


# ---------------------------------------------------------------------- names that are too long


def test_a_name_longer_than_any_topic_has_is_remembered_in_part(world):
    """Else a client fills the memory with names: a string may have 32 KiB."""
    w = world()
    d = slow(w)
    frames = [produce(9, 1, batch(), topic=f"{'x' * 5000}{i}", acks=0) for i in range(3)]
    d.client(*frames)
    assert d.to_broker == b"".join(frames)
    (topic,) = [row for row in w.rows() if row.key.topic is not None]
    assert (len(topic.key.topic), topic.requests) == (249, 3)


def test_a_client_id_is_remembered_in_part_if_it_is_very_long(world):
    w = world()
    d = w.dialogue()
    frame = request(12, 4, 5, client_id="é" * 5000)
    d.client(frame)
    assert d.to_broker == frame
    assert d.session.client.client_id == "é" * 512
