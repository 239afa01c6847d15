"""What the console is told: bounded, in short, in small steps, made again only where something has changed, and of all workers as
one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.hashing import murmur3
from proxy.observe.limit_sources import LimitSources
from proxy.observe.lines import Author
from proxy.observe.live import DIGITS, MOST, NONE_TOOK, Live, SeenConnection, State, digits, merged, merged_one, timed, undigits
from proxy.observe.operations import silent_log
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.requester import Requester
from proxy.session.tally import Tally, TallyKey
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import Entity
from quota.overrides import Table
from quota.steps import finish_at_once
from quota.windows.durations import Durations


def client(client_id: str, requests: float, **more: Any) -> dict[str, Any]:
    zero = {
        "user": "u",
        "client_id": client_id,
        "bytes_in": 1.0,
        "bytes_out": 2.0,
        "mutations": 0.0,
        "connections": 1,
        "producer_ids": None,
    }
    return {**zero, "requests": requests, "history": [digits([0.0, 1.0]), digits([0.0, requests])], "limits": [], **more}


def part(*clients: dict[str, Any], at: str = "a", **more: Any) -> dict[str, Any]:
    rest = {"about": {"proxy": at}, "decisions": [], "volumes": [], "brokers": [], "processes": [], "clients_known": len(clients)}
    return {"at": at, "clients": list(clients), **rest, **more}


def decision(seconds_ago: float, throttled: int) -> dict[str, Any]:
    entity = {"user": "u", "client_id": None, "topic": None}
    sums = {"throttle_seconds": 1.5, "throttled_requests": throttled, "refused_items": 0}
    return {"quota": "q", "mode": "enforce", "entity": entity, "seconds_ago": seconds_ago, **sums}


def test_clients_at_several_workers_are_one():
    used = {"quota": "q", "usage": 3.0, "limit": 5.0}
    found = merged(
        [part(client("x", 1.0, limits=[used])), part(client("x", 2.5, limits=[{**used, "usage": 4.0}]), client("y", 1), at="b")]
    )
    assert [(it["client_id"], it["requests"], it["connections"]) for it in found["clients"]] == [("x", 3.5, 2), ("y", 1, 1)]
    assert [undigits(it) for it in found["clients"][0]["history"]] == [[0, 2], [0, 3.5]]
    assert found["clients"][0]["limits"] == [{**used, "usage": 4.0}], "each worker tells the usage of all"
    assert found["about"] == {"proxy": "b"}, "the newest"
    assert merged([part(client("x", 1.0))])["clients"] == [client("x", 1.0)]


def test_decisions_and_brokers_add_up():
    broker = {"id": 1, "address": "h:1", "connections": 2, "took": NONE_TOOK}
    volume = {"broker": 1, "log_dir": "/a"}
    a = part(decisions=[decision(9, 2)], brokers=[broker], volumes=[volume])
    b = part(decisions=[decision(3, 5)], brokers=[{**broker, "connections": 5}], volumes=[volume])
    found = merged([a, b])
    (one,) = found["decisions"]
    assert (one["seconds_ago"], one["throttled_requests"], one["throttle_seconds"]) == (3, 7, 3.0)
    assert [(it["id"], it["connections"]) for it in found["brokers"]] == [(1, 7)]
    assert found["volumes"] == [volume]


def test_it_is_bounded():
    found = merged([part(*(client(f"{worker}-{i}", i) for i in range(MOST))) for worker in range(3)])
    assert len(found["clients"]) == MOST
    assert found["clients_known"] == 3 * MOST
    assert min(it["requests"] for it in found["clients"]) > MOST / 2, "the busiest"


def test_one_client_at_several_workers():
    a = {"limits": [], "connections": [1], "topics": [{"topic": "t", "bytes": 5}], "decisions": []}
    b = {
        "limits": [{"usage": 1.0}],
        "connections": [2],
        "topics": [{"topic": "t", "bytes": 7}, {"topic": "s", "bytes": 1}],
        "decisions": [3],
    }
    found = merged_one([a, b])
    assert (found["connections"], found["decisions"], found["limits"]) == ([1, 2], [3], [{"usage": 1.0}])
    assert found["topics"] == [{"topic": "t", "bytes": 12}, {"topic": "s", "bytes": 1}]


def test_histories_are_short() -> None:
    assert digits([0.0, 50.0, 100.0], 10) == [10.0, f"{DIGITS[0]}{DIGITS[32]}{DIGITS[63]}"]
    assert digits([0.0, 0.0]) == [0, "00"]
    values = [float(i) for i in range(60)]
    assert undigits(digits(values)) == pytest.approx(values, abs=59 / 126 + 1e-9)


def test_how_long_brokers_take_is_of_all_workers() -> None:
    def took(seconds: float, count: int) -> dict[str, Any]:
        durations = Durations()
        durations.add(seconds, count)
        return {"id": 1, "address": "h:1", "connections": 1, "took": durations.counts}

    (one,) = merged([part(brokers=[took(0.0032, 98)]), part(brokers=[took(0.5, 2)])])["brokers"]
    assert (one["requests"], one["connections"]) == (100, 2)
    assert 3 <= one["p50_ms"] <= 4
    assert 400 <= one["p99_ms"] <= 600
    idle = timed({"id": 1, "took": NONE_TOOK})
    assert (idle["requests"], idle["p50_ms"], idle["p99_ms"]) == (0, None, None)


# ---------------------------------------------------------------------- of one process


@dataclass
class Room:
    """A proxy with an engine, a log and clients, and no sockets. `settings`: its limits."""

    settings: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    connected: list[str] = field(default_factory=list)
    """client ids of user u with a connection"""
    looked_at: int = 0
    """connections that were looked at"""

    def __post_init__(self) -> None:
        self.tally = Tally()
        self.engine = Engine(limits_of(Settings.model_validate(self.settings)), murmur3)
        self.usage = UsageLog(self.tally, Author("", ""), None, 1, lambda: self.now, lambda: self.now)
        self.observer = Observer(silent_log(), self.usage, ThrottleStatus(lambda: self.now, lambda: self.now))
        self.positions: dict[Entity, int] = {}
        self.in_force: Table = {}
        sources = LimitSources(lambda: self.positions, lambda: self.in_force, dict, lambda key: f"settings.yaml:{len(key)}")
        state = State(sources, self.connections, lambda: [{"id": 1, "address": "h:1"}], list, dict)
        self.live = Live(self.engine, self.usage, self.observer, state, lambda: self.now, lambda: self.now)

    def connections(self) -> Iterator[SeenConnection]:
        for name in self.connected:
            self.looked_at += 1
            client = SimpleNamespace(principal="User:u", user="u", client_id=name, address="h:5")
            yield SeenConnection(client, "open", name == "muted", 1.0, "h:1", 1, "lib 1")

    def traffic(self, client_id: str, requests: int) -> None:
        held = self.tally.take(TallyKey("User:u", client_id, None, None, 0))
        held.requests += requests
        self.tally.give_back(held)

    def ten_seconds(self) -> None:
        self.now += 10.0
        self.usage.close_interval()

    def throttle(self, client_id: str) -> None:
        decision = Decision("request_rate", Action.THROTTLE, Entity("u", client_id), (), 2.0, 1.0, 1.0, "why")
        self.observer.decided(decision, Requester("User:u", client_id, "h:5", 0, 9))

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(b"".join(finish_at_once(self.live.part())))
        return found

    def clients(self) -> dict[str, dict[str, Any]]:
        return {it["client_id"]: it for it in self.told()["clients"]}


def test_all_of_a_client_is_told() -> None:
    room = Room({"quotas": {"entities": [{"user": "u", "client_id": "a", "cluster_request_rate": 10}]}}, connected=["a", "muted"])
    room.positions = {Entity("u", "a"): 3}
    room.in_force = {Entity("u", "a"): {"cluster_request_rate": 10.0}}
    room.traffic("a", 50)
    room.traffic("lone\ud800surrogate", 1)
    room.ten_seconds()
    rate = room.engine.rates["request_rate"]
    found = room.engine.find(rate, "u", "a")
    assert found is not None
    rate.charge(found, [20], room.now)
    room.throttle("a")
    told = room.told()
    one = next(it for it in told["clients"] if it["client_id"] == "a")
    assert (one["user"], one["requests"], one["connections"], one["producer_ids"], one["tenant"]) == ("u", 5, 1, None, None)
    assert one["history"] == [[0, DIGITS[0] * 60], [5.0, DIGITS[0] * 59 + DIGITS[63]]]
    (limit,) = one["limits"]
    assert limit == {
        "quota": "request_rate",
        "unit": "requests/s",
        "usage": 2.0,
        "limit": 10.0,
        "source": "quotas.entities[3].cluster_request_rate: user u, client-id a",
        "place": "settings.yaml:4",
        "observed": False,
    }
    assert [(it["entity"]["client_id"], it["message"]) for it in told["decisions"]] == [("a", "why")]
    assert (told["clients_known"], told["about"]["muted_connections"]) == (3, 1)
    assert [(it["id"], it["connections"]) for it in told["brokers"]] == [(1, 2)]
    assert len(told["clients"]) == 3, "one whose name is no text, too"


def test_a_step_looks_at_one_client_or_connection() -> None:
    """Between steps the event loop can go on, so no number of clients keeps others waiting."""
    room = Room(connected=[f"c{i}" for i in range(500)])
    for i in range(400):
        room.traffic(f"c{i}", i)
        room.throttle(f"c{i}")
    rows = [len(room.tally) for _ in room.usage.closing()]
    assert max(before - after for before, after in pairwise([400, *rows])) == 1
    room.looked_at, looked_at = 0, [0]
    for _ in room.live.part():
        looked_at.append(room.looked_at)
    assert max(after - before for before, after in pairwise(looked_at)) == 1
    assert len(looked_at) > 500 + 400 + 500 + 200, "connections, ranks, clients and decisions"


def test_what_has_not_changed_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room({"quotas": {"entities": [{"user": "u", "cluster_request_rate": 10}]}})
    for name in ("a", "b", "c"):
        room.traffic(name, 10)
    room.ten_seconds()
    looked, resolved = list[str](), list[Entity]()
    rate = room.engine.rates["request_rate"]
    monkeypatch.setattr(room.live, "_traffic", lambda *it, real=room.live._traffic: looked.append("traffic") or real(*it))
    monkeypatch.setattr(room.live, "_told", lambda *it, real=room.live._told: looked.append("limit") or real(*it))
    monkeypatch.setattr(room.live, "_limits_of", lambda it, real=room.live._limits_of: resolved.append(it) or real(it))
    assert [it["limits"][0]["usage"] for it in room.clients().values()] == [0, 0, 0]
    assert (looked.count("traffic"), looked.count("limit"), len(resolved)) == (3, 1, 3), "one window is shared by three"
    found = room.engine.find(rate, "u", "a")
    assert found is not None
    rate.charge(found, [50], room.now)
    looked.clear()
    resolved.clear()
    assert [it["limits"][0]["usage"] for it in room.clients().values()] == [5, 5, 5], "usage is of now"
    assert (looked, resolved) == (["limit"], [])
    room.engine.change(limits_of(Settings.model_validate({"quotas": {"entities": [{"user": "u", "cluster_request_rate": 7}]}})))
    assert [it["limits"][0]["limit"] for it in room.clients().values()] == [7, 7, 7], "other limits are seen at once"
    room.traffic("a", 30)
    room.ten_seconds()
    assert room.clients()["a"]["requests"] == 3


def test_the_throttled_and_the_busiest_are_shown_where_they_are_too_many() -> None:
    room = Room(connected=[f"idle-{i}" for i in range(300)])
    for i in range(MOST):
        room.traffic(f"c{i}", i + 1)
    room.ten_seconds()
    room.throttle("idle-7")
    room.throttle("c3")
    told = room.told()
    names = [it["client_id"] for it in told["clients"]]
    assert (len(names), told["clients_known"]) == (MOST, MOST + 300)
    assert names[:3] == ["c3", "idle-7", f"c{MOST - 1}"]
    assert not [it for it in names[2:] if it.startswith("idle")]
