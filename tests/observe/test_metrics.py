"""The figures: what is counted is shown, and no label grows with what clients call themselves."""

from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from proxy.observe.metrics import Gauges, ProxyCollector, registry_of
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from quota.entity import DEFAULT, Entity
from quota.kinds.controller_mutations import MutationLimit
from tests.messages import request, response
from tests.observe.support import Desk
from tests.observe.test_usage_log import Log
from tests.session.creating import create
from tests.support import World


@pytest.fixture
def room(tmp_path):
    desk = Desk(tmp_path / "logs")
    world = World(limits={Entity(DEFAULT, None): MutationLimit(5, 500)})
    usage = UsageLog(world.tally, desk.author, desk.writer, 3, lambda: 0.0)
    observer = Observer(Log(), usage)
    gauges = Gauges(
        client_connections=lambda: 7,
        brokers=lambda: 3,
        upstream_up=lambda: True,
        muted_connections=lambda: 1,
        memory_held=lambda: 12345,
        memory_waiting=lambda: 2,
        settings_current=lambda: False,
        settings_applied=lambda: 4,
        settings_refused=lambda: 5,
    )
    world.services = type(world.services)(world.cluster, world.engine, world.tally, observer, world.services.understood)
    registry = registry_of(ProxyCollector(world.engine, world.tally, usage, observer, gauges, lambda: 0.0))
    return SimpleNamespace(world=world, usage=usage, observer=observer, registry=registry)


def figures(room) -> dict[str, float]:
    lines = generate_latest(room.registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith("kafka_quota_proxy"))}


def test_traffic_is_shown_at_once_and_stays_when_an_interval_ends(room):
    d = room.world.dialogue()
    d.client(request(12, 4, 1)).broker(response(12, 4, 1))
    sizes = len(request(12, 4, 1)), len(response(12, 4, 1))
    for _ in range(2):
        shown = figures(room)
        assert shown['kafka_quota_proxy_requests_total{api="Heartbeat"}'] == 1
        assert shown['kafka_quota_proxy_request_bytes_total{api="Heartbeat"}'] == sizes[0]
        assert shown['kafka_quota_proxy_response_bytes_total{api="Heartbeat"}'] == sizes[1]
        room.usage.close_interval(0.0)


def test_refusals_and_mutes_are_shown(room):
    d = room.world.dialogue("alice")
    d.client(create(7, 1, ("t", 560), ("x", 1), ("y", 1)))
    shown = figures(room)
    assert shown['kafka_quota_proxy_throttled_requests_total{quota="controller_mutations"}'] == 1
    assert shown['kafka_quota_proxy_refused_items_total{quota="controller_mutations"}'] == 2
    assert shown['kafka_quota_proxy_throttle_seconds_total{quota="controller_mutations"}'] == pytest.approx(12)
    assert shown['kafka_quota_proxy_muted_entities{quota="controller_mutations"}'] == 1


def test_what_net_and_the_log_know_is_shown(room):
    room.observer.client_failed("a", None, "x")
    shown = figures(room)
    wanted = {
        "client_connections": 7,
        "brokers": 3,
        "upstream_up": 1,
        "muted_connections": 1,
        "client_failures_total": 1,
        "broker_failures_total": 0,
        "memory_held_bytes": 12345,
        "memory_waiting_connections": 2,
        "settings_current": 0,
        'settings_reloads_total{outcome="applied"}': 4,
        'settings_reloads_total{outcome="refused"}': 5,
    }
    wanted |= {"usage_log_keys": 0, "usage_log_waiting_lines": 0, "usage_log_dropped_lines_total": 0}
    assert {name: shown[f"kafka_quota_proxy_{name}"] for name in wanted} == wanted


def test_clients_cannot_make_new_series(room):
    d = room.world.dialogue("alice")
    d.client(request(12, 4, 1, client_id="one"))
    room.usage.close_interval(0.0)
    before = figures(room).keys()
    for i in range(50):
        d = room.world.dialogue(f"user-{i}")
        d.client(request(12, 4, 1, client_id=f"client-{i}"))
        d.client(create(7, 2, (f"topic-{i}", 560), (f"other-{i}", 1)))
    names = figures(room).keys()
    assert not any(f"{word}-" in name for name in names for word in ("user", "client", "topic", "other"))
    assert len(names - before) <= 8


def test_made_up_api_keys_make_no_new_series(room):
    """Any peer that can connect can send any of 65536 keys, logged in or not."""
    for key in range(1000, 1300):
        frame = key.to_bytes(2, "big") + b"\0\0\0\0\0\1\xff\xff"
        room.world.dialogue().client(len(frame).to_bytes(4, "big") + frame)
    for _ in range(2):
        assert len([name for name in figures(room) if "requests_total{api=" in name]) <= 2
        room.usage.close_interval(0.0)
