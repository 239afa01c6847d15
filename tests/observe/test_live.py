"""What the console is told: bounded, in short, and of all workers as one."""

from __future__ import annotations

from typing import Any

from proxy.observe.live import DIGITS, MOST, NONE_TOOK, compact, merged, merged_one
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
    return {**zero, "requests": requests, "history": [[0.0, 1.0], [0.0, requests]], "limits": [], **more}


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
    assert found["clients"][0]["history"] == [[0, 2], [0, 3.5]]
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
    assert found["brokers"] == [{**broker, "connections": 7}]
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


def test_histories_are_short():
    (one,) = compact(part(client("x", 100.0)))["clients"]
    assert one["history"] == [[1.0, f"{DIGITS[0]}{DIGITS[63]}"], [100.0, f"{DIGITS[0]}{DIGITS[63]}"]]
    (idle,) = compact(part(client("x", 0.0, history=[[0, 0], [0, 0]])))["clients"]
    assert idle["history"] == [[0, "00"], [0, "00"]]


def test_how_long_brokers_take_is_of_all_workers() -> None:
    def took(seconds: float, count: int) -> dict[str, Any]:
        durations = Durations()
        durations.add(seconds, count)
        return {"id": 1, "address": "h:1", "connections": 1, "took": durations.counts}

    (one,) = compact(merged([part(brokers=[took(0.0032, 98)]), part(brokers=[took(0.5, 2)])]))["brokers"]
    assert (one["requests"], one["connections"]) == (100, 2)
    assert 3 <= one["p50_ms"] <= 4
    assert 400 <= one["p99_ms"] <= 600
    (idle,) = compact(part(brokers=[{"id": 1, "took": NONE_TOOK}]))["brokers"]
    assert (idle["requests"], idle["p50_ms"], idle["p99_ms"]) == (0, None, None)
