"""What proxies tell each other: every user has its own queue and allowance, and nobody pushes out what others tell."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.hashing import murmur3
from quota import fleet_events
from quota.engine import Engine
from quota.entity import Entity
from quota.fleet_events import BURST, MOST, PER_SECOND, FleetEvents
from quota.kinds.producer_ids import ProducerIdLimit, user_limit_table
from quota.turns import Turns
from tests.support import ALICE, limits_of

PART = ("orders", 0)


class Proxy:
    def __init__(self) -> None:
        self.now = 0.0
        self.engine = Engine(limits_of(), murmur3)
        self.events = FleetEvents(self.engine, lambda: self.now)

    def refuse(self, user: str, id: int) -> None:
        self.engine.fence.refused(user, id, 0, 0, PART, 19, "bytes_in", self.now)

    def told(self, most: int = 10**6) -> list[list[Any]]:
        return [event for _, (_, event) in self.events.take(most)]


def test_users_take_turns() -> None:
    turns: Turns[int] = Turns(100)
    for i in range(5):
        turns.put("mallory", i)
    turns.put("alice", 10)
    turns.put("bob", 20)
    taken = turns.take(4)
    assert taken == [("mallory", 0), ("alice", 10), ("bob", 20), ("mallory", 1)]
    turns.put_back(taken)
    assert len(turns) == 7
    assert [item for user, item in turns.take(9) if user == "mallory"] == [0, 1, 2, 3, 4]
    assert len(turns) == 0
    assert turns.take(1) == []


def test_nobody_pushes_out_what_others_tell() -> None:
    here, there = Proxy(), Proxy()
    for id in range(2 * MOST):
        here.refuse("mallory", id)
    here.refuse("alice", 7)
    assert here.events.lost > 0
    first = here.told(3)
    assert ["refused", "alice", 7, 0, 0, "orders", 0, 19, "bytes_in", False] in first
    there.events.hear("here", first + here.told(), 0.0, 1.0)
    assert there.engine.fence.blocks("alice", 7, 0, 1, PART, 2.0)
    assert there.engine.fence.blocks("mallory", 2 * MOST - 1, 0, 1, PART, 2.0), "what is lost is told as an overflow"
    assert there.engine.fence.blocks("alice", 2 * MOST - 1, 0, 1, PART, 2.0) is None


def test_a_user_tells_so_much_in_the_long_run() -> None:
    here = Proxy()
    for id in range(100_000):
        here.now = id / 100  # 1000 s
        here.events._ids("mallory", [id])
        if id % 100 == 0:
            here.told()
    assert here.events.told <= BURST + 1000 * PER_SECOND
    here.events._ids("alice", [1])
    assert ["ids", "alice", [1]] in here.told()


def test_mutes_of_one_user_leave_room_for_those_of_others() -> None:
    here = Proxy()
    for i in range(MOST + 10):
        here.engine.mutes.start("request_rate", Entity("mallory", f"made-up-{i}"), 50.0)
    here.told()
    for _ in range(2):
        here.engine.mutes.start("request_rate", Entity("alice", None), 50.0)
    assert len(here.told()) == 1, "the second one is known"


@pytest.mark.parametrize(
    "event",
    [
        ["refused", 7, 0, 0, "orders", 0, 19, "bytes_in"],
        ["admitted", 7, 0, 0, "orders", 0],
        ["refused", "alice", "7", 0, 0, "orders", 0, 19, "bytes_in", False],
        ["refused", "alice"],
        ["overflow", None],
        ["overflow"],
    ],
)
def test_fences_of_nobody_are_not_heard(event: list[Any]) -> None:
    here = Proxy()
    here.events.others = refuse_all
    here.events.hear("an older proxy", [event], 0.0, 1.0)
    assert here.events.heard == 0
    assert len(here.engine.fence) == 0
    assert not here.engine.fence.overflowing


def refuse_all(*_: object) -> None:
    raise ValueError


def test_producer_ids_that_another_proxy_counted_are_known_here() -> None:
    here, there = (Engine(limits_of(producer_ids=user_limit_table({ALICE: ProducerIdLimit(9)})), murmur3) for _ in range(2))
    told, heard = FleetEvents(there, lambda: 0.0), FleetEvents(here, lambda: 0.0)
    there.producer_ids.count("alice", [5, 6], 0.0)
    heard.hear("there", [event for _, (_, event) in told.take(10)], 0.0, 0.0)
    assert here.producer_ids.new("alice", [5, 6, 7], 0.0) == [2]


def test_of_very_many_users_those_are_forgotten_who_may_tell_as_much_as_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_events, "MOST", 10)
    here = Proxy()
    for number in range(100):
        here.now = float(number)
        here.events._ids(f"user-{number}", [1])
        here.told()
    assert len(here.events._allowances) <= 11
    assert here.events.lost == 0


def test_no_mute_of_another_proxy_lasts_longer_than_the_longest_here() -> None:
    here = Proxy()
    here.events.hear("there", [["mute", "producer_byte_rate", "alice", None, None, 1000.0]], 1.0, 5.0)
    assert here.engine.mutes.left("producer_byte_rate", ALICE, 5.0) == pytest.approx(29)
