"""Rates of topics by themselves: what is produced above them is slowed down or refused with the fence behind it, what is read is
charged topic by topic."""

from datetime import timedelta
from fractions import Fraction
from heapq import heappop, heappush
from random import Random

import pytest

from proxy.session.session import State
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.rates import RateLimit
from quota.kinds.topic_rates import TOPIC_IN, TOPIC_OUT, Above, TopicRateOptions, TopicTable
from quota.limits import Exempt
from tests.apis.produce_frames import asked, records, throttle, told, topic_id, write, written
from tests.apis.topic_frames import HEARTBEAT
from tests.messages import read_response, request
from tests.support import changed
from tests.wire.test_fetch import fetched
from tests.wire.test_share_fetch import share_fetched
from tests.wire.test_share_fetch import topic_id as share_topic_id

ORDERS = Entity(None, None, "orders")


def topics(w, above=Above.THROTTLE, bytes_in=None, bytes_out=None):
    tables = {
        kind: TopicTable({topic: RateLimit(rate) for topic, rate in (rates or {}).items()})
        for kind, rates in ((TOPIC_IN, bytes_in), (TOPIC_OUT, bytes_out))
    }
    w.engine.change(changed(w.engine.limits, TopicRateOptions(above), **tables))
    return w


def produce(d, parts, version=9, errors=None) -> float:
    """A request goes on whole and is answered; what its client is told to wait."""
    d.client(write(parts, 1, version))
    assert d.to_broker == write(parts, 1, version)
    d.broker(written(list(parts), 1, version, errors=errors))
    return throttle(d.to_client, version)


# ------------------------------------------------------------------ bytes_in


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_topic_above_its_rate_slows_its_producers_down_whoever_they_are(world, version):
    w = topics(world(), bytes_in={"orders": 100})
    w.cluster.names |= {topic_id(topic).bytes: topic for topic in ("orders", "bills")}
    alice, bob = w.dialogue("alice"), w.dialogue("bob")
    assert produce(alice, {("orders", 0): records(600)}, version) == 0
    assert produce(bob, {("orders", 1): records(400)}, version) == 0, "ten seconds of it at once"
    assert produce(alice, {("bills", 0): records(90_000)}, version) == 0, "another topic has no rate"
    assert produce(alice, {("orders", 0): records(300)}, version) == 3
    assert alice.session.state is State.MUTED
    bob.now = 1.0
    bob.client(write({("orders", 0): records(100)}, 1, version))
    assert (bob.to_broker, bob.session.state, bob.port.wake) == (b"", State.HELD, 3)
    carol = w.dialogue("carol")
    carol.now = 1.0
    assert produce(carol, {("bills", 0): records(100)}, version) == 0
    first = w.watcher.decisions[0][0]
    assert (first.quota, first.action, first.entity, first.limit) == (TOPIC_IN, Action.THROTTLE, ORDERS, 100)
    assert w.watcher.decisions[0][1].topics == ("orders",)


def test_it_holds_whether_or_not_the_total_is_exceeded(world):
    w = topics(world(topics=TopicLimits(1e9, {"orders": 1e8})), bytes_in={"orders": 100})
    assert produce(w.dialogue("alice"), {("orders", 0): records(1300)}) == 3


@pytest.mark.parametrize(("above", "code"), [(Above.TRANSIENT, 19), (Above.FAIL, 44)])
def test_what_is_above_is_refused_by_setting_and_the_rest_goes_on(world, above, code):
    w = topics(world(), above, bytes_in={"orders": 100})
    d = w.dialogue("alice")
    assert produce(d, {("orders", 0): records(1300)}) == 0, "the batch that exceeds the rate still goes on"
    d.client(write({("orders", 0): records(100), ("bills", 0): records(100), ("orders", 1): records(100)}))
    assert asked(d.to_broker) == [("bills", 0)]
    d.broker(written([("bills", 0)]))
    said = told(d.to_client)
    assert {part: error for part, (error, _) in said.items()} == {("orders", 0): code, ("bills", 0): 0, ("orders", 1): code}
    assert "topic orders is exceeded: 130 bytes/s on average, limit 100/s" in str(said["orders", 0][1])
    assert d.session.state is State.OPEN, "other topics share the connection"
    d.now = 3.1
    assert produce(d, {("orders", 0): records(100)}) == 0, "the debt is paid"
    ((decision, _),) = w.watcher.decisions
    assert (decision.quota, decision.action, decision.entity, decision.items) == (TOPIC_IN, Action.REFUSE, ORDERS, (0, 1))
    assert sum(row.refused.get(TOPIC_IN, 0) for row in w.rows()) == 2


def test_batches_behind_a_refused_one_wait_for_it(world):
    w = topics(world(), Above.TRANSIENT, bytes_in={"orders": 100})
    d = w.dialogue("alice")
    assert produce(d, {("orders", 0): records(1300, 7, 0, 0)}) == 0
    d.client(write({("orders", 0): records(100, 7, 0, 1)}))
    assert told(d.to_client)["orders", 0][0] == 19
    d.now = 60.0
    d.client(write({("orders", 0): records(100, 7, 0, 2)}))
    assert told(d.to_client)["orders", 0][0] == 19, "its predecessor was refused"
    assert d.to_broker == b""
    assert produce(d, {("orders", 0): records(100, 7, 0, 1)}) == 0
    assert produce(d, {("orders", 0): records(100, 7, 0, 2)}) == 0


def test_what_the_broker_does_not_write_is_given_back(world):
    w = topics(world(), bytes_in={"orders": 100})
    d = w.dialogue("alice")
    produce(d, {("orders", 0): records(900)}, errors={"orders": 6})
    assert w.engine.topic_in.level(ORDERS, 0.0) == 0


@pytest.mark.parametrize("above", list(Above))
def test_a_user_whom_nobody_has_confirmed_counts_with_the_answer(world, above):
    w = topics(world(strangers=True), above, bytes_in={"orders": 100})
    d = w.dialogue("mallory")
    d.client(write({("orders", 0): records(5000)}))
    assert d.to_broker
    assert w.engine.topic_in.level(ORDERS, 0.0) == 0, "until a broker has written it, it is nobody's"
    d.broker(written([("orders", 0)], errors={"orders": 29}))
    assert d.to_client
    assert w.engine.topic_in.level(ORDERS, 0.0) == 0
    d = w.dialogue("alice")
    d.client(write({("orders", 0): records(1300)}))
    assert d.to_broker
    d.broker(written([("orders", 0)]))
    assert throttle(d.to_client) == (3 if above is Above.THROTTLE else 0)
    assert w.engine.topic_in.level(ORDERS, 0.0) == 1300


def test_a_stranger_is_told_no_figures(world):
    w = topics(world(strangers=True), Above.FAIL, bytes_in={"orders": 100})
    w.engine.topic_in.meter(ORDERS, 0.0).record(2000, 0.0)
    d = w.dialogue("mallory")
    d.client(write({("orders", 0): records(100)}))
    code, message = told(d.to_client)["orders", 0]
    assert code == 44
    assert message == "The topic producer byte rate quota of topic orders is exceeded."


def test_many_topics_of_one_request(world):
    w = topics(world(), bytes_in={"a": 100, "b": 10})
    d = w.dialogue("alice")
    parts = {("a", 0): records(500), ("b", 0): records(90), ("c", 0): records(5000)}
    assert produce(d, parts) == 0
    assert [w.engine.topic_in.level(Entity(None, None, topic), 0.0) for topic in "abc"] == [500, 90, 0]
    assert produce(d, parts) == 8, "b: 180 - 100 bytes at 10/s; a is within its rate"
    assert [w.engine.topic_in.level(Entity(None, None, topic), 0.0) for topic in "abc"] == [1000, 180, 0]


@pytest.mark.parametrize("who", [{"users": frozenset({"alice"})}, {"topics": frozenset({"orders"})}])
def test_who_and_what_is_exempt(world, who):
    w = topics(world(exempt=Exempt(**who)), bytes_in={"orders": 1}, bytes_out={"orders": 1})
    d = w.dialogue("alice")
    assert produce(d, {("orders", 0): records(90_000)}) == 0
    assert read(d, ("orders", [90_000])) == 0


def test_observed_rates_let_everything_pass(world):
    w = topics(
        world(observed={TOPIC_IN: Action.REFUSE, TOPIC_OUT: Action.THROTTLE}), bytes_in={"orders": 1}, bytes_out={"orders": 1}
    )
    d = w.dialogue("alice")
    assert produce(d, {("orders", 0): records(90_000)}) == 0
    assert read(d, ("orders", [90_000])) == 0
    assert [(decision.quota, decision.action) for decision, _ in w.watcher.would] == [
        (TOPIC_IN, Action.REFUSE),
        (TOPIC_OUT, Action.THROTTLE),
    ]


def test_a_topic_that_owes_more_than_throttles_can_pay_refuses_until_it_owes_less(world):
    """Throttles are 30 s at most; each of many producers brings a request per throttle, whatever the topic owes."""
    w = topics(world(), bytes_in={"orders": 100})
    assert produce(w.dialogue("alice"), {("orders", 0): records(3500)}) == 25, "1000 pass at once, 2500 are owed"
    others = [w.dialogue(user) for user in ("bob", "carol")]
    for d in others:
        d.client(write({("orders", 0): records(200)}))
        assert (d.to_broker, d.session.state, d.port.wake) == (b"", State.HELD, 10)
    w.engine.topic_in.meter(ORDERS, 10.0).record(1000, 10.0)
    for d, later in zip(others, (5, 7), strict=True):
        d.wake()
        assert d.to_broker == b""
        answer = d.to_client
        assert told(answer)["orders", 0][0] == 19, "every client sends it again"
        assert throttle(answer, 9) == later, "when 20 s are owed; the other one behind the 2 s of the first"
        assert (d.session.state, d.port.wake) == (State.MUTED, 10 + later)
    d = others[0]
    d.wake()
    d.client(write({("orders", 0): records(200)}))
    d.wake()
    assert asked(d.to_broker) == [("orders", 0)]
    d.broker(written([("orders", 0)]))
    assert throttle(d.to_client, 9) == 12, "25 s after the start 1000 bytes are still owed, and these 200"
    refusals = [one for one, _ in w.watcher.decisions if one.action is Action.REFUSE]
    assert [(one.quota, one.entity, one.throttle) for one in refusals] == [(TOPIC_IN, ORDERS, 5), (TOPIC_IN, ORDERS, 7)]


@pytest.mark.parametrize("observed", [False, True])
def test_what_would_be_lost_or_is_only_observed_is_not_refused(world, observed):
    w = topics(world(observed={TOPIC_IN: Action.THROTTLE} if observed else {}), bytes_in={"orders": 100})
    w.engine.topic_in.meter(ORDERS, 0.0).record(90_000, 0.0)
    d = w.dialogue("alice")
    frame = write({("orders", 0): records(100)}, acks=-1 if observed else 0)
    d.client(frame)
    assert d.to_broker.startswith(frame)
    if observed:
        d.broker(written([("orders", 0)]))
        assert told(d.to_client)["orders", 0][0] == 0


@pytest.mark.parametrize("connections", [1, 10, 100])
@pytest.mark.parametrize("above", [Above.THROTTLE, Above.TRANSIENT])
def test_a_topic_gets_its_rate_over_a_minute(world, connections, above):
    """Producers that always want more, in simulated time; the bytes that brokers got, in exact arithmetic. One that is refused
    comes again after 40 ms for each connection, so that together they ask for six times the rate."""
    rate, size = 2000, 500
    w = topics(world(max_throttle=600.0), above, bytes_in={"orders": rate})
    dialogues = [w.dialogue(f"user{i}") for i in range(connections)]
    due = [(Fraction(i, 1000), i) for i in range(connections)]
    frame, answer = write({("orders", 0): records(size)}), written([("orders", 0)])
    got = Fraction(0)
    now = Fraction(0)
    while now < 100:
        now, i = heappop(due)
        d = dialogues[i]
        d.now = float(now)
        if d.session.state in (State.HELD, State.MUTED):
            d.session.wake(d.now)
        if d.session.state in (State.NEW, State.OPEN):
            d.client(frame)
        if d.to_broker:
            got += size if now >= 40 else 0
            d.broker(answer)
        said = d.to_client
        waits = d.session.state in (State.HELD, State.MUTED)
        refused = not waits and said and told(said)["orders", 0][0]
        later = now + Fraction(40 * max(connections, 10) if refused else 1, 1000)
        heappush(due, (max(Fraction(d.port.wake), now) if waits else later, i))
    assert got / 60 == pytest.approx(rate, rel=0.02)


# ------------------------------------------------------------------ bytes_out


def read(d, *found, version=11, share=False) -> float:
    """A Fetch is answered with these topics; what its client is told."""
    key = 78 if share else 1
    make = share_fetched if share else fetched
    d.client(request(key, version, 1, chance=Random(1)))
    assert d.to_broker == request(key, version, 1, chance=Random(1))
    answer = make(version, Random(3), *found)
    answer = bytearray(answer)
    at = 8 + (1 if version >= 12 or share else 0)
    answer[at : at + 4] = bytes(4)
    d.broker(bytes(answer))
    got: float = read_response(key, version, d.to_client).throttle_time.total_seconds()
    return got


@pytest.mark.parametrize("version", [4, 11, 12, 13, 16, 18])
def test_an_answer_of_many_topics_is_charged_topic_by_topic(world, version):
    w = topics(world(), bytes_out={"orders": 100, "bills": 1000})
    w.cluster.names |= {name.encode().ljust(16, b"-"): name for name in ("orders", "bills", "other")}
    d = w.dialogue("alice")
    assert read(d, ("orders", [400, 200]), ("bills", [700]), ("other", [90_000]), version=version) == 0
    assert w.engine.topic_out.level(ORDERS, 0.0) == 600
    assert w.engine.topic_out.level(Entity(None, None, "bills"), 0.0) == 700
    assert read(d, ("orders", [900]), ("bills", [700]), version=version) == 5
    assert d.session.state is State.MUTED
    ((decision, by),) = w.watcher.decisions
    assert (decision.quota, decision.entity, by.topics) == (TOPIC_OUT, ORDERS, ("orders",))


@pytest.mark.parametrize("version", [1, 2])
def test_answers_to_share_fetch_are_too(world, version):
    w = topics(world(), bytes_out={"orders": 100})
    w.cluster.names[share_topic_id("orders")] = "orders"
    d = w.dialogue("alice")
    assert read(d, ("orders", [1500]), ("bills", [700]), version=version, share=True) == 5


def test_who_reads_from_a_topic_above_its_rate_waits_and_others_do_not(world):
    w = topics(world(), bytes_out={"orders": 100})
    alice, bob, carol = w.dialogue("alice"), w.dialogue("bob"), w.dialogue("carol")
    assert read(bob, ("orders", [100])) == 0
    assert read(carol, ("bills", [100])) == 0
    assert read(alice, ("orders", [1400])) == 5
    for d in (bob, carol):
        d.now = 1.0
        d.client(request(1, 11, 1, chance=Random(1)))
    assert (bob.to_broker, bob.session.state, bob.port.wake) == (b"", State.HELD, 5)
    assert carol.to_broker
    bob.wake()
    assert bob.to_broker


def test_an_answer_that_streams_mutes_behind_its_end(world):
    w = topics(world(max_held_response=100), bytes_out={"orders": 100})
    d = w.dialogue("alice")
    answer = fetched(16, Random(3), ("orders".ljust(16, "-"), [1500]))
    w.cluster.names[b"orders".ljust(16, b"-")] = "orders"
    d.client(request(1, 16, 1, chance=Random(1)))
    assert d.to_broker
    d.broker(answer[:200])
    assert d.session.state is State.OPEN
    d.broker(answer[200:])
    assert d.to_client == answer, "its beginning is out when the bytes of its topics are known"
    assert (d.session.state, d.port.wake) == (State.MUTED, 5)
    d.client(HEARTBEAT)
    assert d.to_broker == b""
    d.wake()
    assert d.to_broker == HEARTBEAT


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_an_answer_in_pieces_tells_of_the_throttle(world, version):
    """What it owes to its topics is known at its end; its throttle time stands at its beginning."""
    w = topics(world(), bytes_out={"orders": 100})
    topic = "orders" if version < 13 else "orders".ljust(16, "-")
    w.cluster.names[b"orders".ljust(16, b"-")] = "orders"
    d = w.dialogue("alice")
    answer = bytearray(fetched(version, Random(3), (topic, [1500])))
    at = 8 + (version >= 12)
    answer[at : at + 4] = bytes(4)
    d.client(request(1, version, 1, chance=Random(1)))
    assert d.to_broker
    d.broker(bytes(answer[:200]))
    assert d.to_client == b""
    d.broker(bytes(answer[200:]))
    assert read_response(1, version, d.to_client).throttle_time == timedelta(seconds=5)
    assert (d.session.state, d.port.wake) == (State.MUTED, 5)
