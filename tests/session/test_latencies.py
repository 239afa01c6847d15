"""How long brokers take is seen for each broker and API, whatever way requests and answers come."""

import pytest

from proxy.session.latencies import OTHER_BROKERS, Latencies, Part, Place
from quota.kinds.controller_mutations import MutationLimit
from tests.apis.produce_frames import written
from tests.apis.topic_frames import delete
from tests.messages import batch, produce, request, response
from tests.support import ANYBODY, World

HEARTBEAT, FETCH, JOIN_GROUP = 12, 1, 11


def took(w, broker, api, part=Part.BROKER):
    """(requests, seconds of all of them)."""
    times = dict(w.services.latencies).get(Place(part, broker, api))
    return (0, 0.0) if times is None else (sum(times.counts), pytest.approx(times.seconds))


def test_the_time_of_an_answer_is_from_the_request_to_the_first_of_it():
    w = World()
    d = w.dialogue(broker=3)
    d.client(request(HEARTBEAT, 4, 1))
    answer = response(HEARTBEAT, 4, 1)
    d.now = 0.25
    d.broker(answer[:9])
    d.now = 5.0
    d.broker(answer[9:])
    assert took(w, 3, HEARTBEAT) == (1, 0.25)
    assert took(w, 4, HEARTBEAT) == (0, 0)


def test_a_request_behind_others_of_its_connection_takes_time_once_they_are_answered():
    w = World()
    d = w.dialogue(broker=3)
    d.client(b"".join(request(HEARTBEAT, 4, i) for i in range(1, 4)))
    for i, now in ((1, 0.5), (2, 0.6), (3, 0.7)):
        d.now = now
        d.broker(response(HEARTBEAT, 4, i))
    assert took(w, 3, HEARTBEAT) == (3, 0.7)


def test_answers_that_come_together_shared_the_time():
    w = World()
    d = w.dialogue(broker=1)
    for first, last, now in ((1, 1, 0.0), (2, 11, 1.0)):
        d.client(b"".join(produce(9, i, batch()) for i in range(first, last + 1)))
        d.now = now
        d.broker(b"".join(written([("orders", 0)], i) for i in range(first, last + 1)))
    assert took(w, 1, 0) == (11, 1.0)


@pytest.mark.parametrize("api", [(FETCH, 12), (JOIN_GROUP, 5)])
def test_what_waits_by_design_is_not_the_brokers_time(api):
    w = World()
    d = w.dialogue(broker=1)
    d.client(request(*api, 1))
    d.now = 0.5
    d.broker(response(*api, 1))
    assert took(w, 1, api[0]) == (0, 0)
    assert took(w, 1, api[0], Part.WAIT) == (1, 0.5)


def test_a_client_that_does_not_take_its_answers_does_not_make_its_broker_slow():
    w = World()
    d = w.dialogue(broker=1)
    d.client(request(HEARTBEAT, 4, 1))
    d.session.client_full()
    d.session.client_drained(30.0)
    d.now = 30.1
    d.broker(response(HEARTBEAT, 4, 1))
    assert took(w, 1, HEARTBEAT) == (1, pytest.approx(0.1))


def test_what_the_proxy_asks_first_is_time_in_the_proxy():
    w = World(limits={ANYBODY: MutationLimit(5, 5)})
    d = w.dialogue()
    d.client(delete(6, 1, "a"))
    d.now = 0.3
    d.told({"a": 2})
    d.now = 0.5
    d.broker(response(20, 6, 1, responses=()))
    assert took(w, None, 20, Part.PROXY) == (1, 0.3)
    assert took(w, None, 20) == (1, 0.2)


def test_memory_is_bounded_whatever_brokers_and_apis_there_are():
    latencies = Latencies()
    for i in range(10_000):
        latencies.of(i, i).add(1.0)
        latencies.of(i, 0).add(1.0)
    places = dict(latencies)
    assert len(places) < 400
    assert sum(sum(times.counts) for times in places.values()) == 20_000
    assert sum(places[Place(Part.BROKER, OTHER_BROKERS, 0)].counts) > 9000


def test_of_two_proxies_in_a_test_each_has_its_own():
    one, other = World(), World()
    one.dialogue(broker=1).client(request(HEARTBEAT, 4, 1)).broker(response(HEARTBEAT, 4, 1))
    assert took(one, 1, HEARTBEAT)[0] == 1
    assert took(other, 1, HEARTBEAT)[0] == 0
