"""Processes tell each other by events that they are there; each knows the others, and when it heard of them last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from proxy.config.ledger import Ledger
from proxy.fleet.fleet import Fleet
from proxy.fleet.members import EVERY, LIFE, MOST, Member, Members
from proxy.hashing import murmur3
from quota.engine import Engine
from tests.fleet.memory_store import Memory, MemoryStore
from tests.fleet.simulated import run_simulated
from tests.support import limits_of

HERE = Member("edge-1", None, "0.2.0", 5.0, 3, True, 7)
THERE = Member("edge-2", 1, "0.1.0", 60.0, 9, False, 6)


def told_by(member: Member) -> list[Any]:
    return Members("x", lambda: member).tell()


def names(members: Members, now: float) -> set[str]:
    return {it["proxy"] for it in members.seen(now)}


def test_proxies_of_one_store_know_each_other() -> None:
    """By the fleet of each, as proxies have it; one that ends is seen for a while, the store's outage is no reason to forget."""

    async def work() -> None:
        memory = Memory()
        stores: dict[str, list[MemoryStore]] = {"a": [], "b": []}

        def proxy(name: str, member: Member) -> Fleet:
            def opened(_: float) -> MemoryStore:
                stores[name].append(MemoryStore(memory, name))
                return stores[name][-1]

            clock = asyncio.get_running_loop().time
            fleet = Fleet(Ledger(), Engine(limits_of(), murmur3), name, clock, structlog.get_logger(), opened)
            fleet.introduce(Members(name, lambda: member))
            return fleet

        here, there = proxy("a", HERE), proxy("b", THERE)
        tasks = [asyncio.create_task(fleet.run()) for fleet in (here, there)]
        await asyncio.sleep(EVERY)
        own, other = here.processes()
        assert own == {**HERE._asdict(), "boot": "a", "seconds_ago": 0.0}
        assert (other["boot"], other["proxy"], other["worker"], other["version"]) == ("b", "edge-2", 1, "0.1.0")
        assert other["seconds_ago"] <= EVERY
        assert other["uptime"] - other["seconds_ago"] == pytest.approx(60, abs=0.6)
        assert (other["quota_topic"], other["limits"], other["connections"]) == (False, 6, 9)
        for store in stores["a"]:
            store.away = True
        await asyncio.sleep(3 * LIFE)
        assert here.processes()[1]["seconds_ago"] > 2 * LIFE, "it is this proxy that hears nothing"
        for store in stores["a"]:
            store.away = False
        await asyncio.sleep(2 * EVERY)
        assert here.processes()[1]["seconds_ago"] <= EVERY
        tasks[1].cancel()
        await asyncio.sleep(LIFE / 2)
        assert len(here.processes()) == 2
        await asyncio.sleep(LIFE)
        assert len(here.processes()) == 1
        tasks[0].cancel()

    run_simulated(work())


def test_what_is_old_or_too_much_is_not_taken() -> None:
    members = Members("a", lambda: HERE)
    members.hear("late", told_by(THERE), LIFE, 100.0)
    assert names(members, 100.0) == {"edge-1"}
    for i in range(2 * MOST):
        members.hear(str(i), told_by(THERE), 0.0, 100.0)
    assert len(members.seen(100.0)) == MOST + 1
    members.hear("0", told_by(THERE._replace(proxy="long" * 1000)), 0.0, 100.0)
    assert max(map(len, names(members, 100.0))) < 200


@pytest.mark.parametrize(
    "wrong",
    [
        ["process"],
        ["process", "edge-2", "1", "0.1.0", 60.0, 9, False, 6],
        ["process", "edge-2", None, "0.1.0", float("nan"), 9, False, 6],
        ["process", "edge-2", None, "0.1.0", 10**400, 9, False, 6],
        ["process", "edge-2", None, "0.1.0", 60.0, 9, "up", 6],
        ["process", "edge-2", None, "0.1.0", 60.0, {}, True, 6],
        ["process", None, None, "0.1.0", 60.0, 1, True, 6],
    ],
)
def test_what_makes_no_sense_is_refused(wrong: list[Any]) -> None:
    members = Members("a", lambda: HERE)
    with pytest.raises(ValueError, match="not what a process says"):
        members.hear("b", wrong, 0.0, 0.0)
    assert names(members, 0.0) == {"edge-1"}
