"""Large requests about topics, and their answers, are looked at in several turns: the outcome is the same, and others are served in
between."""

from collections.abc import Callable
from functools import cache

import pytest

from proxy.session.held_answers import LARGE
from proxy.session.session import State
from quota.kinds.controller_mutations import MutationLimit
from tests.apis.topic_frames import (
    BEAT,
    HEARTBEAT,
    create,
    created,
    delete,
    deleted,
    described,
    grow,
    grown,
    heartbeat,
    metadata,
    subtopology,
)
from tests.messages import read_response
from tests.support import Dialogue, Entity, World

NAMES = tuple(f"topic-{i:05d}-".ljust(72, "x") for i in range(600))
SIZES = dict.fromkeys(NAMES, 1)
KEPT = NAMES[:450]
"""for which there is room"""
NONE: dict[str, int] = {}
Case = tuple[bytes, dict[str, int], bytes]
CASES: dict[str, Callable[[], Case]] = {
    "create": lambda: (create(7, 1, *SIZES.items()), NONE, created(7, 1, *KEPT)),
    "create, with errors": lambda: (create(7, 1, *SIZES.items()), NONE, created(7, 1, *KEPT, error=41)),
    "create what is there": lambda: (create(7, 1, *SIZES.items()), SIZES, created(7, 1, *NAMES, error=36)),
    "create, by an old client": lambda: (create(4, 1, *SIZES.items()), NONE, created(4, 1, *NAMES)),
    "delete": lambda: (delete(5, 1, *NAMES), SIZES, deleted(5, 1, *KEPT)),
    "delete what is not there": lambda: (delete(5, 1, *NAMES), NONE, deleted(5, 1, *NAMES)),
    "delete, by an old client": lambda: (delete(2, 1, *NAMES), SIZES, deleted(2, 1, *NAMES)),
    "create by naming": lambda: (metadata(12, 1, *NAMES), NONE, described(12, 1, dict.fromkeys(KEPT, 0))),
    "grow": lambda: (grow(3, 1, *((name, 2) for name in NAMES)), SIZES, grown(3, 1, *KEPT)),
}
"""Requests, what the broker says of their topics when it is asked, and its answers: large, and made where they are used."""


@cache
def made(name: str) -> Case:
    return CASES[name]()


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return made(request.param)


def limited() -> World:
    return World(limits={Entity("alice", None): MutationLimit(5, 450)})


def outcome(asked: bytes, there: dict[str, int], answer: bytes, *, in_turns: bool) -> tuple[object, ...]:
    """What comes of such a request and its answer, and how it stands then."""
    world = limited()
    d = world.dialogue("alice")
    d.port.out_of_time = in_turns
    d.client(asked)
    sent = b""
    while d.turns() + (not in_turns) and d.session.state is State.ASKING:
        sent += d.told(there)
    sent += d.to_broker
    turned = d.session.state
    d.broker(answer)
    if in_turns:
        assert d.turns() >= len(KEPT) // 100
    found = world.engine.find(world.engine.controller_mutations, "alice", "app")
    assert found is not None
    charged = world.engine.controller_mutations.average(found, 0.0)
    rows = [(row.key, row.requests, row.mutations, row.refused, row.throttle_ms) for row in world.rows()]
    assert d.session.idle
    assert world.services.budget.held == 0
    return sent, d.to_client, turned, d.session.state, charged, rows, world.watcher.decisions, world.cluster.sizes


def test_the_outcome_is_that_of_a_single_turn(case):
    assert outcome(*case, in_turns=True) == outcome(*case, in_turns=False)


def test_a_large_request_takes_several_turns_and_what_is_behind_it_waits(case):
    asked, there, _ = case
    d = limited().dialogue("alice")
    d.client(HEARTBEAT)
    d.port.out_of_time = True
    d.client(HEARTBEAT + asked + HEARTBEAT)
    assert d.to_broker == HEARTBEAT * 2
    d.broker(BEAT * 2)
    for _ in range(10):
        assert d.to_broker == b"", "before it is clear what is to be done"
        assert not d.port.reading
        d.turn()
    d.turns()
    while d.session.state is State.ASKING:
        assert d.told(there) == b"", "nothing behind it goes on"
        d.turns()
    got = d.to_broker
    assert got
    assert (HEARTBEAT in got) == (d.session.state is State.OPEN)


def test_an_answer_of_another_connection_does_not_wait():
    world = limited()
    d, other = world.dialogue("alice"), world.dialogue("bob")
    d.port.out_of_time = True
    d.client(made("create")[0])
    other.client(HEARTBEAT).broker(BEAT)
    assert other.to_broker == HEARTBEAT
    assert other.to_client == BEAT
    assert d.port.wants_turn


@pytest.mark.parametrize("turns", [0, 3, 9])
def test_a_client_that_leaves_in_the_midst_leaves_nothing_behind(case, turns):
    asked, there, _ = case
    world = limited()
    d = world.dialogue("alice")
    d.port.out_of_time = True
    d.client(asked)
    for _ in range(turns):
        d.turn()
    assert world.services.budget.held > 0
    d.session.client_lost()
    d.turns()
    while d.session.state is State.ASKING:
        d.told(there)
        d.turns()
    d.session.broker_lost(None)
    assert d.port.closes == 1
    assert world.services.budget.held == 0


def test_a_client_that_leaves_in_the_midst_of_its_answer_leaves_nothing_behind():
    world = limited()
    d = world.dialogue("alice")
    d.client(create(7, 1, *((name, 1) for name in KEPT)))
    d.port.out_of_time = True
    d.broker(created(7, 1, *KEPT))
    assert d.session.in_flight == 1
    d.turn()
    d.session.client_lost()
    d.turns()
    assert d.port.closes == 1
    assert d.to_client == b""
    assert world.services.budget.held == 0


def test_bytes_that_are_no_request_close_the_connection_in_whatever_turn():
    asked = made("create")[0]
    d = limited().dialogue("alice")
    d.port.out_of_time = True
    d.client(asked[:-2000] + b"\xff" * 2000)
    d.turns()
    assert d.port.closes == 1
    assert d.to_broker == b""


def test_a_request_that_is_not_large_is_looked_at_at_once():
    asked = create(7, 1, *((name, 1) for name in NAMES[:150]))
    assert len(asked) <= LARGE
    d = limited().dialogue("alice")
    d.port.out_of_time = True
    d.client(asked)
    assert d.to_broker == asked
    assert not d.port.wants_turn


def test_a_large_answer_to_a_client_over_its_request_rate_takes_several_turns_too() -> None:
    names = [f"topic-{i:05}" for i in range(2000)]
    world = World(limits={Entity("alice", None): MutationLimit(5, 15000)}, requests={Entity("alice", None): 0.1})
    d = world.dialogue("alice")
    d.client(HEARTBEAT).client(create(7, 2, *((name, 1) for name in names)))
    d.port.out_of_time = True
    d.broker(BEAT, created(7, 2, *names))
    assert d.port.wants_turn
    assert world.services.budget.held > 16_384
    assert d.turns() > 5
    told = d.to_client
    assert told.startswith(BEAT)
    assert read_response(19, 7, told[len(BEAT) :]).throttle_time.total_seconds() > 1
    assert d.session.state is State.MUTED
    assert world.services.budget.held == 0
    assert d.to_broker


PARTS = [subtopology(sources=("orders",), changelogs=tuple(f"part-{p}-{i}-changelog" for i in range(100))) for p in range(15)]
JOINING = heartbeat(4, "app", *PARTS)


def test_a_large_topology_is_read_and_charged_in_several_turns():
    world = World(limits={Entity("alice", None): MutationLimit(5, 10_000)})
    world.cluster.sizes = {"orders": 2}
    d, other = world.dialogue("alice"), world.dialogue("bob")
    d.port.out_of_time = True
    d.client(JOINING)
    assert d.port.wants_turn
    other.client(HEARTBEAT)
    assert other.to_broker == HEARTBEAT
    assert d.turns() > len(PARTS)
    assert d.told() == b""
    assert d.turns() > len(PARTS)
    assert d.to_broker == JOINING
    found = world.engine.find(world.engine.controller_mutations, "alice", "app")
    assert found is not None
    assert world.engine.controller_mutations.standing(found, 0.0).left == 10_000 - 2 * 1500


def charged(world: World) -> float:
    found = world.engine.find(world.engine.controller_mutations, "alice", "app")
    assert found is not None
    return world.engine.controller_mutations.standing(found, 0.0).average


def until_it_is_charged(d: Dialogue, more: int) -> None:
    """Turns until something is charged for the request that is looked at, and some more."""
    while not charged(d.world):
        d.turn()
    for _ in range(more):
        d.turn()
    assert d.to_broker == b"", "it went out by now"


@pytest.mark.parametrize("more", [0, 3, 20])
def test_a_member_that_leaves_while_it_is_charged_is_charged_for_nothing(more):
    world = World(limits={Entity("alice", None): MutationLimit(5, 10_000)})
    world.cluster.sizes = {"orders": 2}
    d = world.dialogue("alice")
    d.port.out_of_time = True
    d.client(JOINING)
    d.turns()
    d.told()
    until_it_is_charged(d, more)
    d.session.broker_lost(None)
    assert charged(world) == 0
    assert not len(world.services.expected)


CHARGED = [name for name in CASES if name not in ("create what is there", "delete what is not there")]


@pytest.mark.parametrize("name", CHARGED)
@pytest.mark.parametrize("more", [0, 2])
def test_topics_of_a_request_that_never_goes_out_cost_nothing(name, more):
    asked, there, _ = made(name)
    world = limited()
    d = world.dialogue("alice")
    d.port.out_of_time = True
    d.client(asked)
    while not charged(world):
        if d.port.wants_turn:
            d.turn()
        else:
            d.told(there)
    until_it_is_charged(d, more)
    d.session.broker_lost(None)
    assert charged(world) == 0
    assert not len(world.services.expected)
