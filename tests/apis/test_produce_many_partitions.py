"""Produce requests of very many partitions, and their answers, are looked at in several turns: others are served in between, and
what was counted for a request that never goes out is given back."""

import pytest

from proxy.apis.produced import AT_ONCE
from proxy.session.held_answers import LARGE
from proxy.session.session import State
from quota.kinds.bytes_in import Mode, TopicLimits
from tests.apis.produce_frames import asked, records, told, write, written
from tests.apis.topic_frames import BEAT, HEARTBEAT, described
from tests.support import ALICE, Dialogue, World, last_frame

NAMES = [f"topic-{i:03}" for i in range(3 * AT_ONCE)]
PARTS = [(name, 0) for name in NAMES]
SIZE = 500
REQUEST = write({part: records(SIZE) for part in PARTS})


def busy(*, half: bool = False, **limits: object) -> World:
    """Everybody together is above the threshold; so are all topics, or, with `half`, every second of them."""
    explicit = {name: 1.0 if i % 2 else 300.0 for i, name in enumerate(NAMES)} if half else {}
    world = World(topics=TopicLimits(50_000.0 if half else 1000.0, explicit), **limits)  # type: ignore[arg-type]
    for name in NAMES:  # 200 bytes/s each
        world.engine.bytes_in.topic(name, 0.0).put(1000.0, 0.0)
        world.engine.bytes_in.total.put(1000.0, 0.0)
    return world


def dialogue(world: World, *, in_turns: bool = True) -> Dialogue:
    d = world.dialogue("alice")
    d.now = 6.0
    d.port.out_of_time = in_turns
    return d


CASES = {
    "all refused": busy,
    "half refused": lambda: busy(half=True),
    "all throttled": lambda: busy(topics_mode=Mode.THROTTLE),
    "over the byte rate": lambda: World(produce={ALICE: 100.0}),
    "not confirmed": lambda: World(produce={ALICE: 100.0}, topics=TopicLimits(1e9), strangers=True),
    "within": lambda: World(produce={ALICE: 1e9}, topics=TopicLimits(1e9)),
    "no quota": World,
}
each_case = pytest.mark.parametrize("world", CASES.values(), ids=CASES)


def outcome(world: World, *, in_turns: bool) -> tuple[object, ...]:
    d = dialogue(world, in_turns=in_turns)
    d.client(REQUEST)
    turns = d.turns()
    sent = d.to_broker
    if sent:
        d.broker(written(asked(sent)))
        turns += d.turns()
    if in_turns:
        assert turns >= len(PARTS) // AT_ONCE
    said = [(it.quota, it.action, sorted(it.items), round(it.throttle, 6)) for it, _ in world.watcher.decisions]
    rows = [(row.key, row.requests, row.record_bytes, row.refused, row.throttle_ms) for row in world.rows()]
    return asked(sent) if sent else None, d.to_client, d.session.state, said, rows, world.engine.bytes_in.total.count


@each_case
def test_the_outcome_is_that_of_a_single_turn(world):
    assert outcome(world(), in_turns=True) == outcome(world(), in_turns=False)


@each_case
def test_others_are_served_in_between_and_what_is_behind_waits(world):
    shared = world()
    d, other = dialogue(shared), shared.dialogue("bob")
    d.client(REQUEST + HEARTBEAT)
    assert d.port.wants_turn
    for _ in range(2):
        assert d.to_broker == b""
        assert not d.port.reading
        other.client(HEARTBEAT).broker(BEAT)
        assert (other.to_broker, other.to_client) == (HEARTBEAT, BEAT)
        d.turn()
    d.turns()
    assert d.session.state is not State.ASKING


def test_refused_and_written_partitions_are_merged_in_several_turns():
    d = dialogue(busy(half=True))
    d.client(REQUEST)
    d.turns()
    sent = asked(d.to_broker)
    assert sent == PARTS[::2]
    d.broker(written(sent))
    assert d.to_client == b"", "not before it was looked at as a whole"
    assert d.turns() > 2
    said = told(d.to_client)
    assert list(said) == PARTS
    assert [code for code, _ in said.values()] == [0, 19] * (len(PARTS) // 2)


@each_case
@pytest.mark.parametrize("turns", [0, 2, 4, 6])
def test_what_was_counted_is_given_back_if_the_request_never_goes_out(world, turns):
    shared = world()
    d = dialogue(shared)
    d.client(HEARTBEAT)
    meter = shared.engine.rates["producer_byte_rate"].meter(ALICE, d.now)
    before = shared.engine.bytes_in.total.count, meter.charged
    d.client(REQUEST)
    for _ in range(turns):
        if d.port.wants_turn:
            d.turn()
    assert d.to_broker in (HEARTBEAT, HEARTBEAT + REQUEST) or d.session.state is not State.ASKING
    if d.session.state is State.ASKING:
        d.session.broker_lost(None)
        assert (shared.engine.bytes_in.total.count, meter.charged) == pytest.approx(before)
        assert shared.services.budget.held == 0


def test_what_others_send_in_between_is_judged_as_if_it_came_before_the_rest():
    world = World(produce={ALICE: 1e9}, topics=TopicLimits(1e9))
    world.engine.looks_at_produce = True
    d, other = dialogue(world), world.dialogue("alice")
    other.now = 6.0
    world.engine.confirmed.revoke("alice", NAMES[0])
    d.client(REQUEST)
    d.turn()
    single = write({("mine", 0): records(SIZE)})
    other.client(single)
    assert other.to_broker == single
    d.turns()
    assert asked(d.to_broker) == PARTS
    assert world.engine.bytes_in.total.count == SIZE * (len(PARTS) + 1)


def test_a_small_request_is_judged_at_once():
    d = dialogue(busy())
    few = PARTS[: AT_ONCE // 2]
    asked = write({part: records(100) for part in few})
    assert len(asked) <= LARGE
    d.client(asked)
    assert not d.port.wants_turn
    assert len(told(d.to_client)) == len(few)


def test_a_request_without_an_answer_is_settled_in_several_turns():
    world = World(produce={ALICE: 1e9}, topics=TopicLimits(1e9), strangers=True)
    d = dialogue(world)
    d.client(write({part: records(SIZE) for part in PARTS}, acks=0))
    d.turns()
    sent = d.to_broker
    assert asked(sent[: last_frame(sent)]) == PARTS
    d.broker(described(12, 1, {}))
    assert d.turns() >= len(PARTS) // AT_ONCE
    assert world.engine.bytes_in.total.count == SIZE * len(PARTS)
