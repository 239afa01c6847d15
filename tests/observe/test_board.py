"""Who is throttled now, and what was refused within the last hour."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.observe.limit_sources import LimitSources
from proxy.observe.throttle_status import HOUR, MOST, ThrottleStatus, unit_of
from proxy.operate.throttles import whose
from proxy.session.requester import Requester
from quota.addresses import owner_of
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.steps import finish_at_once

ALICE = Entity("alice", None)
NOWHERE = LimitSources(dict, dict, dict, lambda _: None)


class Room:
    def __init__(self) -> None:
        self.now = 1000.0
        self.throttle_status = ThrottleStatus(lambda: self.now, lambda: 1_700_000_000.0 + self.now)

    def decide(
        self,
        action: Action,
        throttle: float,
        *topics: str,
        entity: Entity = ALICE,
        items: int = 1,
        mode: str = "enforce",
        user: str = "alice",
    ) -> None:
        decision = Decision("controller_mutations", action, entity, tuple(range(items)), 7.5, 5, throttle, "why")
        by = Requester(f"User:{user}", "app", "10.0.0.1:5", 19, 7, topics)
        self.throttle_status.decided(decision, by, mode)

    def throttled(self) -> list[dict[str, Any]]:
        return list(finish_at_once(self.throttle_status.seen(NOWHERE))["throttled"])

    def refused(self) -> dict[str | None, int]:
        return {line["topic"]: line["items"] for line in finish_at_once(self.throttle_status.seen(NOWHERE))["refused_last_hour"]}


def test_since_when_and_until_when():
    room = Room()
    room.decide(Action.THROTTLE, 10)
    room.now += 4
    room.decide(Action.THROTTLE, 2)
    (one,) = room.throttled()
    assert (one["usage"], one["limit"], one["quota"], one["action"]) == (7.5, 5, "controller_mutations", "throttle")
    assert one["entity"] == {"user": "alice", "client_id": None, "topic": None}
    assert one["since"] == "2023-11-14T22:30:00.000Z"
    assert one["until"] == "2023-11-14T22:30:10.000Z", "the longer of the two"
    assert (one["seconds_left"], one["requests"]) == (6, 2)
    room.now += 6
    assert room.throttled() == []
    room.decide(Action.THROTTLE, 1)
    assert room.throttled()[0]["since"] == "2023-11-14T22:30:10.000Z", "anew"


def test_an_address_is_told_as_such():
    room = Room()
    room.decide(Action.REFUSE, 1, entity=owner_of("10.0.0.7"), user="ANONYMOUS")
    (one,) = room.throttled()
    assert one["entity"] == {"user": None, "client_id": None, "topic": None, "address": "10.0.0.7"}
    assert whose(one) == "address 10.0.0.7"
    room.decide(Action.THROTTLE, 1, entity=Entity(None, None, "orders"))
    assert [whose(one) for one in room.throttled()] == ["topic orders", "address 10.0.0.7"]


def test_who_is_held_is_throttled_by_what_holds_it():
    room = Room()
    room.decide(Action.HOLD, 5)
    assert room.throttled() == []
    room.decide(Action.THROTTLE, 3)
    room.decide(Action.HOLD, 9)
    (one,) = room.throttled()
    assert (one["seconds_left"], one["requests"], one["action"]) == (3, 2, "throttle")


def test_what_was_refused_by_topic_within_an_hour():
    room = Room()
    room.decide(Action.REFUSE, 1, "a", "b", items=2)
    room.now += HOUR / 2
    room.decide(Action.REFUSE, 1, "a", items=3)
    room.decide(Action.THROTTLE, 1, "a")
    assert room.refused() == {"a": 2, "b": 1, None: 2}
    assert list(room.refused())[-1] == "b", "the most first"
    room.now += HOUR / 2
    assert room.refused() == {"a": 1, None: 2}
    room.now += HOUR
    assert room.refused() == {}
    room.throttle_status.sweep()
    assert not room.throttle_status._refused
    assert not room.throttle_status._throttled


def test_what_is_observed_stands_apart():
    room = Room()
    room.decide(Action.REFUSE, 5, "a", mode="observe")
    room.decide(Action.REFUSE, 3, "a")
    assert [(one["mode"], one["seconds_left"]) for one in room.throttled()] == [("enforce", 3), ("observe", 5)]
    assert [line["mode"] for line in finish_at_once(room.throttle_status.seen(NOWHERE))["refused_last_hour"]] == [
        "enforce",
        "observe",
    ]


def test_memory_is_bounded_and_nobody_pushes_out_the_lines_of_others():
    room = Room()
    room.decide(Action.REFUSE, 100, "mine")
    for i in range(3 * MOST):
        room.now += 0.001
        entity = Entity("mallory", f"client-{i}" + "x" * 1000)
        room.decide(Action.REFUSE, 100, f"topic-{i}", entity=entity, user="mallory")
    seen = finish_at_once(room.throttle_status.seen(NOWHERE))
    assert len(seen["throttled"]) == len(seen["refused_last_hour"]) < 0.9 * MOST
    others = {"user": "mallory", "client_id": "<others>", "topic": None}
    assert seen["throttled"][0]["entity"] == others
    assert seen["refused_last_hour"][0]["entity"] == others
    assert sum(line["items"] for line in seen["refused_last_hour"]) == 1 + 3 * MOST
    assert len(seen["throttled"][1]["entity"]["client_id"]) == 200
    assert room.refused()["mine"] == 1
    assert seen["throttled"][-1]["entity"]["user"] == "alice"
    room.decide(Action.REFUSE, 100, "bills", entity=Entity("bob", None), user="bob")
    assert room.refused()["bills"] == 1
    room.now += 2 * HOUR
    room.throttle_status.sweep()
    assert (room.throttle_status._throttled_shares.held, room.throttle_status._refused_shares.held) == (0, 0)
    for _ in range(500):
        room.now += 30
        room.decide(Action.REFUSE, 1, "same")
    (same,) = (sums for (_, topic), sums in room.throttle_status._refused.items() if topic == "same")
    assert len(same._slices) <= 61


@pytest.mark.parametrize("quota", ["storage", "tenant_stored_bytes", "topic_stored_bytes"])
@pytest.mark.parametrize(("action", "unit"), [(Action.THROTTLE, "bytes/s"), (Action.HOLD, "bytes"), (Action.REFUSE, "bytes")])
def test_what_is_full_refuses_by_bytes_and_what_fills_slows_by_a_rate(quota: str, action: Action, unit: str) -> None:
    decision = Decision(quota, action, Entity("alice", None), (), 40.0, 41.0, 0.0, "", 0.0)
    assert unit_of(decision) == unit
