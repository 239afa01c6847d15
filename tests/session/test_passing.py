"""What nobody touches goes through: the same buffers, the same order, whatever way it is cut."""

import itertools
from random import Random

import pytest

from proxy.session.session import State
from tests.messages import batch, produce, request, response
from tests.properties import share
from tests.support import byte_by_byte, split
from tests.wire.test_fetch import fetched

HEARTBEAT = 12


def _requests() -> list[bytes]:
    """One request of each kind of way through the session."""
    return [
        request(18, 3, 1),
        request(3, 12, 2),
        request(HEARTBEAT, 4, 3),
        request(1, 17, 4),
        request(19, 7, 5, topics=()),
        request(0, 9, 6, acks=-1, topic_data=()),
        request(HEARTBEAT, 1, 7, client_id="other"),
    ]


def _responses() -> list[bytes]:
    return [
        response(18, 3, 1, error_code=0),
        response(3, 12, 2),
        response(HEARTBEAT, 4, 3),
        response(1, 17, 4),
        response(19, 7, 5),
        response(0, 9, 6),
        response(HEARTBEAT, 1, 7),
    ]


def test_a_read_of_whole_untouched_frames_is_passed_on_as_the_very_same_buffer(world):
    d = world().dialogue()
    data = request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2)
    d.client(data)
    assert len(d.port.broker) == 1
    assert d.port.broker[0] is data
    answers = response(HEARTBEAT, 4, 1) + response(HEARTBEAT, 4, 2)
    d.broker(answers)
    assert len(d.port.client) == 1
    assert d.port.client[0] is answers
    assert d.to_broker == data
    assert d.to_client == answers


def test_a_large_request_in_pieces_goes_on_in_the_pieces_that_came(world):
    d = world().dialogue()
    d.client(request(HEARTBEAT, 4, 1))
    assert d.to_broker
    frame = request(11, 5, 2, protocols=(), protocol_type="x" * 30_000)
    pieces = [frame[:10_000], frame[10_000:20_000], frame[20_000:]]
    d.client(pieces[0], pieces[1])
    assert d.to_broker == b"", "a request is judged when it is whole, before any byte of it goes on"
    d.client(pieces[2])
    assert all(getattr(got, "obj", got) is sent for got, sent in zip(d.port.broker, pieces, strict=True))
    assert d.to_broker == frame


def test_what_a_read_brings_goes_on_by_one_call(world):
    d = world().dialogue()
    frames = [request(11, 5, number, protocols=(), protocol_type="x" * 3000) for number in range(4)]
    d.client(frames[0])
    assert d.to_broker
    calls = d.port.calls
    d.client(frames[1][:2000], frames[1][2000:] + frames[2] + frames[3])
    assert d.port.calls == calls + 1
    assert len(d.port.broker) == 3, "the piece that was there before, the rest of its frame, and the whole ones as one"
    assert d.to_broker == b"".join(frames[1:])


@pytest.mark.parametrize("key", [1, 15])
def test_what_a_read_brings_of_answers_is_one_piece(world, key):
    """Also where something is counted in them."""
    d = world().dialogue()
    version = {1: 12, 15: 5}[key]
    d.client(*(request(key, version, number) for number in range(3)))
    assert d.to_broker
    whole, large, last = (_answer(key, version, number, size) for number, size in enumerate((100, 300_000, 100)))
    calls = d.port.calls
    d.broker(whole + large[:20_000], large[20_000:] + last)
    assert d.port.calls == calls + 2
    assert len(d.port.client) == 2
    assert d.to_client == whole + large + last


def _answer(key: int, version: int, number: int, size: int) -> bytes:
    body = fetched(version, Random(number), ("orders", [size]))[8:] if key == 1 else b"x" * size
    return (len(body) + 4).to_bytes(4, "big") + number.to_bytes(4, "big") + body


def test_an_untouched_response_is_passed_on_before_it_is_whole(world):
    d = world().dialogue()
    d.client(request(HEARTBEAT, 4, 1))
    assert d.to_broker
    frame = response(15, 5, 1, groups=()) + b""
    head, tail = split(frame, 9)
    d.broker(head)
    assert d.to_client == head
    d.broker(tail)
    assert d.to_client == tail


def test_nothing_is_connected_before_the_client_speaks_and_nothing_is_sent_before_the_broker_is_there(world):
    d = world().dialogue(connected=False)
    assert d.port.connects == 0
    frame = request(HEARTBEAT, 4, 1)
    d.client(frame[:5], frame[5:])
    assert d.port.connects == 1
    assert not d.port.reading
    assert d.to_broker == b""
    d.session.broker_connected(0.0)
    assert d.port.reading
    assert d.to_broker == frame


@pytest.mark.parametrize("side", ["client", "broker"])
def test_any_cut_in_two_gives_the_same_bytes(world, side):
    sent, answered = b"".join(_requests()), b"".join(_responses())
    whole = world().dialogue()
    whole.client(sent).broker(answered)
    wanted = whole.to_broker, whole.to_client
    assert wanted[0] == sent
    data = sent if side == "client" else answered
    for at in range(1, len(data), len(data) // share(len(data))):
        d = world().dialogue()
        d.client(*(split(sent, at) if side == "client" else [sent]))
        d.broker(*(split(answered, at) if side == "broker" else [answered]))
        assert (d.to_broker, d.to_client) == wanted, f"cut at {at}"
        assert d.failures == d.world.watcher.broker_failures == []


def test_byte_by_byte_gives_the_same_bytes(world):
    sent, answered = b"".join(_requests()), b"".join(_responses())
    whole, slow = world().dialogue(), world().dialogue()
    whole.client(sent).broker(answered)
    slow.client(*byte_by_byte(sent)).broker(*byte_by_byte(answered))
    assert (slow.to_broker, slow.to_client) == (whole.to_broker, whole.to_client)


def test_random_cuts_of_random_traffic_give_the_same_bytes_and_the_same_sums(world):
    for seed in range(60):
        chance = Random(seed)
        sent, answered = [], []
        for i in range(12):
            key, version = chance.choice(
                [(0, 9), (0, 11), (0, 13), (1, 11), (1, 17), (3, 12), (10, 4), (12, 4), (18, 3), (19, 7), (60, 1)]
            )
            given = {"acks": 1} if key == 0 else {}
            sent.append(request(key, version, i, chance=chance, **given))
            answered.append(response(key, version, i, chance=chance))
        results = []
        for pieces in (False, True):
            w = world()
            d = w.dialogue()
            d.client(*(_cut(b"".join(sent), chance) if pieces else [b"".join(sent)]))
            d.broker(*(_cut(b"".join(answered), chance) if pieces else [b"".join(answered)]))
            results.append((d.to_broker, d.to_client, sorted(map(repr, w.rows()))))
            assert w.watcher.client_failures == w.watcher.broker_failures == [], seed
        assert results[0] == results[1], seed


def _cut(data: bytes, chance: Random) -> list[bytes]:
    places = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(chance.randrange(1, 40)))})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def test_an_api_that_nobody_knows_passes_whatever_its_version(world):
    d = world().dialogue()
    frame = b"\0\0\0\x11" + (700).to_bytes(2, "big") + (99).to_bytes(2, "big") + b"\0\0\0\7" + b"\0\3app" + b"????"
    d.client(frame)
    assert d.to_broker == frame
    answer = b"\0\0\0\7\0\0\0\7!!!"
    d.broker(answer)
    assert d.to_client == answer


def test_a_null_client_id_passes(world):
    d = world().dialogue()
    frame = b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\xff\xff\0"
    d.client(frame)
    assert d.to_broker == frame
    assert d.session.client.client_id is None


@pytest.mark.parametrize("at", [20, 511, 513, 600])
def test_a_long_client_id_is_understood_wherever_the_read_ends(world, at):
    d = world().dialogue()
    frame = request(3, 12, 1, client_id="x" * 700)
    frame += request(11, 5, 2, client_id="x" * 700, protocols=(), protocol_type="y" * 3000)
    d.client(*split(frame, at))
    assert d.failures == []
    assert d.to_broker == frame


def test_produce_without_acks_gets_no_answer(world):
    d = world().dialogue()
    silent, asked = request(0, 9, 1, acks=0, topic_data=()), request(HEARTBEAT, 4, 2)
    d.client(silent + asked)
    assert d.to_broker == silent + asked
    assert d.session.in_flight == 1
    answer = response(HEARTBEAT, 4, 2)
    d.broker(answer)
    assert d.to_client == answer


def test_produce_without_acks_again_and_again_gets_no_answer(world):
    d = world().dialogue()
    sent = b"".join(produce(9, i, batch(), acks=0) for i in range(4))
    d.client(*[sent[i : i + len(sent) // 4] for i in range(0, len(sent), len(sent) // 4)])
    assert d.to_broker == sent
    assert d.session.in_flight == 0


def test_a_broken_request_that_begins_like_the_last_is_broken_all_the_same(world):
    d = world().dialogue()
    frame = produce(9, 1, batch())
    d.client(frame).client(frame[:-3] + b"\1\2\3")
    assert d.to_broker == frame
    assert len(d.failures) == 1


def test_in_flight_counts_what_is_not_answered_in_full(world):
    d = world().dialogue()
    d.client(request(HEARTBEAT, 4, 1) + request(3, 12, 2))
    assert d.to_broker
    assert d.session.in_flight == 2
    answer = response(HEARTBEAT, 4, 1)
    d.broker(answer[:10])
    assert d.session.in_flight == 2
    d.broker(answer[10:])
    assert d.session.in_flight == 1
    assert d.to_client == answer


def test_a_client_that_goes_away_ends_its_broker_connection_and_gives_its_sums_back(world):
    w = world()
    d = w.dialogue()
    d.client(request(HEARTBEAT, 4, 1))
    assert d.to_broker
    d.session.client_lost()
    d.session.client_lost()
    assert d.port.closes == 1
    assert d.session.state is State.CLOSED
    assert len(w.rows()) == 1
    assert len(w.tally) == 0


def test_what_comes_after_the_end_is_ignored(world):
    d = world().dialogue()
    d.client(request(HEARTBEAT, 4, 1))
    assert d.to_broker
    d.session.broker_lost(None)
    d.client(request(HEARTBEAT, 4, 2)).broker(response(HEARTBEAT, 4, 1))
    d.session.wake(1.0)
    d.session.broker_connected(1.0)
    d.session.broker_lost("again")
    assert d.port.closes == 1
    assert d.world.watcher.broker_failures == []


def test_a_hundred_requests_alike_are_counted_each(world):
    w = world()
    d = w.dialogue()
    for i in range(100):
        frame = produce(9, i, batch(records=2, size=100 + i))
        d.client(frame)
        assert d.to_broker == frame
    (row,) = [row for row in w.rows() if row.key.topic == "orders"]
    assert (row.requests, row.records, row.record_bytes) == (100, 200, sum(range(100, 200)))


def test_requests_alike_are_counted_for_the_client_id_that_each_has(world):
    """A connection may claim one after the other; requests of an earlier one are known by how they begin."""
    w = world()
    d = w.dialogue()
    one, other = (produce(9, 1, batch(records=1, size=100)).replace(b"\0\3app", name) for name in (b"\0\3one", b"\0\3two"))
    changes = request(HEARTBEAT, 1, 7, client_id="two")
    d.client(one + one).client(changes + one).client(other + other + one).client(one).client(other)
    assert d.to_broker == one + one + changes + one + other + other + one + one + other
    rows = {(row.key.client_id, row.key.api_key): row.requests for row in w.rows() if row.key.topic in ("orders", None)}
    assert rows == {("one", 0): 5, ("two", 0): 3, ("two", HEARTBEAT): 1}


def test_a_frame_with_bytes_behind_its_body_does_not_teach_a_wrong_beginning(world):
    """What is remembered of it would let a later request pass for a smaller one than it is."""
    w = world()
    d = w.dialogue()
    records = bytearray(batch(records=1, size=1000))
    records[598:600] = b"\x91\x03"  # the size of 400 bytes, as a compact length
    records[600:] = batch(records=1, size=400)
    body = produce(9, 1, bytes(records))[4:] + bytes(600)
    first = len(body).to_bytes(4, "big") + body
    second = produce(9, 2, bytes(records))
    d.client(first).client(second)
    assert d.to_broker == first + second
    assert [row.record_bytes for row in w.rows() if row.key.topic == "orders"] == [2000]


@pytest.mark.parametrize("behind", [1, 2, 3], ids=["of the partition", "of the topic", "of the request"])
def test_tagged_fields_do_not_teach_a_wrong_beginning(world, behind):
    """The same with a field that nobody knows in one of the three sections at the end."""
    w = world()
    d = w.dialogue()
    records = bytearray(batch(records=1, size=1000))
    records[600:602] = b"\x8f\x03"  # the size of 398 bytes
    records[602:] = batch(records=1, size=398)
    second = produce(9, 2, bytes(records))
    body = second[4:-3] + bytes(behind - 1) + b"\1\x63" + b"\xd7\x04" + bytes(599) + bytes(3 - behind)
    first = len(body).to_bytes(4, "big") + body
    d.client(first).client(second)
    assert d.failures == []
    assert d.to_broker == first + second
    assert [row.record_bytes for row in w.rows() if row.key.topic == "orders"] == [2000]


def test_records_that_look_like_a_request_do_not_teach_a_wrong_beginning(world):
    """The same with records so made that the wrong beginning looks right for the request that teaches it."""
    w = world()
    d = w.dialogue()
    same = batch(records=1, size=1000)[:600]
    teaching = same + b"\xe9\x07" + batch(records=1, size=1000)[:398]  # the size of 1000 bytes, and the header of a batch
    using = same + b"\x8f\x03" + batch(records=1, size=398)
    body = produce(9, 1, teaching)[4:-3] + b"\1\x63\xd7\x04" + bytes(599) + bytes(2)
    first, second = len(body).to_bytes(4, "big") + body, produce(9, 2, using)
    d.client(first).client(second)
    assert d.failures == []
    assert d.to_broker == first + second
    assert [row.record_bytes for row in w.rows() if row.key.topic == "orders"] == [2000]


@pytest.mark.parametrize("version", range(3, 14))
def test_records_are_counted_the_same_the_first_time_and_when_recognized(world, version):
    w = world()
    d = w.dialogue()
    for _ in range(3):
        frame = produce(version, 1, batch(records=7, size=321))
        d.client(frame)
        assert d.to_broker == frame
        (row,) = [row for row in w.rows() if row.key.topic is not None]
        assert (row.requests, row.records, row.record_bytes) == (1, 7, 321)


def test_apis_that_a_client_makes_up_take_no_memory(world):
    w = world()
    d = w.dialogue()
    for i in range(900):
        frame = bytearray(request(HEARTBEAT, 1, i + 1))
        frame[4:6] = (1000 + i).to_bytes(2, "big")
        d.client(bytes(frame))
    assert d.to_broker
    assert len(d.session.client._api_sums) == 201
    assert sum(row.requests for row in w.rows()) == 900
