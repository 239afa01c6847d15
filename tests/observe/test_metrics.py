"""The figures: what is counted is shown, and series do not grow with what clients call themselves beyond their bound."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy.observe.metrics import Gauges, ProxyCollector
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.tally import OTHER
from quota.decision import Action, Decision
from quota.entity import DEFAULT, Entity
from quota.kinds.connections import ConnectionLimits
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Check, Gap, Reason, StorageLimits, Volume
from quota.kinds.tenant_rates import TenantTable
from quota.kinds.topic_rates import TopicTable
from quota.produce import charge_producer_ids
from quota.rules import Rules
from quota.tenants import Tenant, Tenants
from tests.apis.topic_frames import create
from tests.messages import request, response
from tests.observe.support import LogFiles
from tests.observe.test_usage_log import BY, Log
from tests.support import World, changed, charge_mutations


def make_room(tmp_path, limits, producer_ids=None):
    log_files = LogFiles(tmp_path / "logs")
    world = World(limits=limits, producer_ids=producer_ids or {})
    latencies = world.services.latencies
    clock = SimpleNamespace(now=0.0)
    usage = UsageLog(world.tally, log_files.author, log_files.writer, 3, lambda: clock.now, lambda: clock.now, latencies=latencies)
    observer = Observer(Log(), usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    gauges = Gauges(
        client_connections=lambda: 7,
        brokers=lambda: 3,
        upstream_up=lambda: True,
        muted_connections=lambda: iter([True, False]),
        memory_held=lambda: 12345,
        memory_waiting=lambda: 2,
        settings_current=lambda: False,
        settings_applied=lambda: 4,
        settings_refused=lambda: 5,
        max_entities=lambda: shown.most,
        shares_quotas=lambda: shown.shares,
    )
    shown = SimpleNamespace(most=10, shares=False)
    world.services = replace(world.services, watcher=observer)
    registry = ProxyCollector(world.engine, world.tally, usage, observer, gauges, lambda: 0.0)
    return SimpleNamespace(world=world, usage=usage, observer=observer, registry=registry, shown=shown, clock=clock)


@pytest.fixture
def room(tmp_path):
    return make_room(tmp_path, {Entity(DEFAULT, None): MutationLimit(5, 500)})


def charge(room, user: str, client_id: str, partitions: int) -> None:
    found = room.world.engine.find(room.world.engine.controller_mutations, user, client_id)
    charge_mutations(room.world.engine, found, [partitions], refusable=True, now=0.0)


def figures(room) -> dict[str, float]:
    """Those of a proxy that shares nothing, without the label that says so."""
    scrape = generate_latest(room.registry).decode().replace('{scope="proxy"}', "")
    lines = scrape.replace(',scope="proxy"', "").replace('scope="proxy",', "").split("\n")
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
        room.usage.close_interval()


def test_how_long_brokers_take_is_a_histogram_by_api_and_broker(room):
    for broker, took in ((2, 0.003), (2, 0.1), (None, 0.5)):
        d = room.world.dialogue(broker=broker)
        d.client(request(12, 4, 1))
        d.now = took
        d.broker(response(12, 4, 1))
    room.observer.decided(replace(throttled(), throttle=1.5), replace(BY, broker=2))
    shown, name = figures(room), "kafka_quota_proxy_broker_seconds"
    of_two = {
        bound: shown[f'{name}_bucket{{api="Heartbeat",broker="2",le="{bound}"}}'] for bound in ("0.002", "0.004", "0.128", "+Inf")
    }
    assert of_two == {"0.002": 0, "0.004": 1, "0.128": 2, "+Inf": 2}
    assert shown[f'{name}_sum{{api="Heartbeat",broker="2"}}'] == pytest.approx(0.103)
    assert shown[f'{name}_count{{api="Heartbeat",broker="bootstrap"}}'] == 1
    assert shown['kafka_quota_proxy_quota_seconds_sum{api="CreateTopics",broker="2"}'] == 1.5


def throttled() -> Decision:
    return Decision("request_rate", Action.THROTTLE, Entity("alice", None), (), 2.0, 1.0, 1.0, "")


def test_refusals_and_mutes_are_shown(room):
    found = room.world.engine.find(room.world.engine.controller_mutations, "alice", "app")
    decision = charge_mutations(room.world.engine, found, [560, 1, 1], refusable=True, now=0.0).decision
    room.observer.decided(decision, BY)
    shown = figures(room)
    assert shown['kafka_quota_proxy_throttled_requests_total{quota="controller_mutations"}'] == 1
    assert shown['kafka_quota_proxy_refused_items_total{quota="controller_mutations"}'] == 2
    assert shown['kafka_quota_proxy_throttle_seconds_total{quota="controller_mutations"}'] == pytest.approx(12)
    assert shown['kafka_quota_proxy_muted_entities{quota="controller_mutations"}'] == 1


def test_what_net_and_the_log_know_is_shown(room):
    room.observer.client_failed("a", None, "x")
    room.observer.not_told(BY)
    shown = figures(room)
    wanted = {
        "client_connections": 7,
        "brokers": 3,
        "upstream_up": 1,
        "muted_connections": 1,
        "client_failures_total": 1,
        "broker_failures_total": 0,
        "unanswered_questions_total": 1,
        "memory_held_bytes": 12345,
        "memory_waiting_connections": 2,
        "settings_current": 0,
        'settings_reloads_total{outcome="applied"}': 4,
        'settings_reloads_total{outcome="refused"}': 5,
    }
    wanted |= {"usage_log_keys": 0, "usage_log_waiting_lines": 0, "usage_log_dropped_lines_total": 0}
    assert {name: shown[f"kafka_quota_proxy_{name}"] for name in wanted} == wanted


OF_ENTITIES = tuple(f"kafka_quota_proxy_controller_mutations_{name}{{" for name in ("rate", "left", "limit"))


def test_a_quota_is_shown_by_the_entity_that_owns_its_window(tmp_path):
    room = make_room(
        tmp_path,
        {
            Entity("alice", None): MutationLimit(5, 500),
            Entity("bob", "etl"): MutationLimit(50, 500),
            Entity(None, DEFAULT): MutationLimit(2, 20, Algorithm.TOKEN_BUCKET),
        },
    )
    for user, client_id, partitions in (("alice", "one", 400), ("bob", "etl", 100), ("carol", "ci", 25)):
        charge(room, user, client_id, partitions)
    shown, prefix = figures(room), "kafka_quota_proxy_controller_mutations"
    for labels, rate, limit, left in (
        ('user="alice",client_id=""', 4, 5, 100),
        ('user="bob",client_id="etl"', 10, 50, 400),
        ('user="carol",client_id="ci"', 2.5, 2, 0),
    ):
        names = [f"{prefix}_{name}{{{','.join(sorted(labels.split(',')))}}}" for name in ("rate", "limit", "left")]
        assert [shown[name] for name in names] == [pytest.approx(rate), limit, pytest.approx(left)]
    assert shown[f"{prefix}_entities"] == 3


def test_figures_of_what_proxies_share_say_whose_they_are(room):
    """Of figures of the fleet, each proxy tells all: their sum over proxies is no figure."""
    charge(room, "alice", "app", 100)
    for shares, scope in ((False, "proxy"), (True, "fleet")):
        room.shown.shares = shares
        families = {it.name: it for it in text_string_to_metric_families(generate_latest(room.registry).decode())}

        def scopes(name: str, families=families) -> set[str]:
            return {sample.labels.get("scope", "") for sample in families[f"kafka_quota_proxy_{name}"].samples}

        for name in ("controller_mutations_rate", "controller_mutations_limit", "bytes_in_rate", "sequence_fences"):
            assert scopes(name) == {scope}, name
        for name in ("client_connections", "requests", "controller_mutations_entities"):
            assert scopes(name) <= {""}, "each proxy's own"


def test_the_busiest_entities_are_shown_and_the_others_counted(room):
    for i in range(50):
        charge(room, f"user-{i}", "app", 10 + i)
    for most in (3, 0):
        room.shown.most = most
        shown = figures(room)
        users = {name.split('user="')[1].rstrip('"}') for name in shown if name.startswith(OF_ENTITIES)}
        assert users - {OTHER} == {f"user-{i}" for i in (49, 48, 47)[:most]}
        others = shown.get('kafka_quota_proxy_controller_mutations_rate{client_id="<other>",user="<other>"}')
        assert others == (pytest.approx(sum(10 + i for i in range(47)) / 100) if most else None)
        assert shown["kafka_quota_proxy_controller_mutations_entities"] == 50
    room.world.engine.sweep(1000.0)
    assert figures(room)["kafka_quota_proxy_controller_mutations_entities"] == 0


def test_names_from_outside_are_shown_short_apart_and_once_whatever_is_in_them(room):
    """A scrape in which a series stands twice, or a line that is none, is refused as a whole."""
    room.shown.most = 20
    long = "x" * 5000
    names = [long + "a", long + "b", "x" * 128, 'quote" \\ and\nline', "\ud800", "\ud801", "?", "\u2028", "ümlaut", "\0", OTHER]
    for i, name in enumerate(names):
        charge(room, name, "app", 100 - i)
    alike = next(text for text in labels_of(room) if text.startswith("x") and "~" in text)
    charge(room, alike, "app", 300)
    used = next(rate for name, rate in figures(room).items() if name.startswith(OF_ENTITIES[0]) and alike in name)
    assert used == 3, "300 of 100 windows: the busier of the two"
    shown = labels_of(room)
    assert len(shown) == len(set(shown)) == len(names) + 1, "whoever claims a name that is shown for another stands for both"
    assert all(len(text) <= 128 for text in shown)
    assert {"x" * 128, names[3], "?", "\u2028", "ümlaut", "\0"} <= set(shown)
    assert len([text for text in shown if text.startswith("xxx")]) == 3


def labels_of(room) -> list[str]:
    families = text_string_to_metric_families(generate_latest(room.registry).decode())
    rate = next(family for family in families if family.name == "kafka_quota_proxy_controller_mutations_rate")
    return [sample.labels["user"] for sample in rate.samples]


def test_clients_cannot_make_new_series_but_for_the_busiest(room):
    d = room.world.dialogue("alice")
    d.client(request(12, 4, 1, client_id="one"))
    room.usage.close_interval()
    before = figures(room).keys()
    for i in range(50):
        d = room.world.dialogue(f"user-{i}")
        d.client(request(12, 4, 1, client_id=f"client-{i}"))
        charge(room, f"user-{i}", f"client-{i}", 560)
        d.client(create(7, 2, (f"topic-{i}", 560), (f"other-{i}", 1)))
    names = figures(room).keys()
    of_entities = {name for name in names if name.startswith(OF_ENTITIES)}
    assert len(of_entities) == 3 * 10 + 1
    assert not any(f"{word}-" in name for name in names - of_entities for word in ("user", "client", "topic", "other"))
    assert not any(f"{word}-" in name for name in of_entities for word in ("topic", "other"))
    assert len(names - before - of_entities) <= 8


def test_made_up_api_keys_make_no_new_series(room):
    """Any peer that can connect can send any of 65536 keys, logged in or not."""
    for key in range(1000, 1300):
        frame = key.to_bytes(2, "big") + b"\0\0\0\0\0\1\xff\xff"
        room.world.dialogue().client(len(frame).to_bytes(4, "big") + frame)
    for _ in range(2):
        assert len([name for name in figures(room) if "requests_total{api=" in name]) <= 2
        room.usage.close_interval()


def test_producer_ids_are_shown_by_user(tmp_path):
    room = make_room(tmp_path, {}, {Entity("alice", None): 2})
    engine, prefix = room.world.engine, "kafka_quota_proxy_producer_ids"
    charge_producer_ids(engine, "alice", [1, 2, 3], 0.0)
    charge_producer_ids(engine, "bob", [1, 2, 3, 4], 0.0)
    shown = figures(room)
    of_alice = {
        name: shown[f'{prefix}_{name}{{user="alice"}}'] for name in ("rate", "tokens", "throttle_time_seconds", "limit", "active")
    }
    assert of_alice == {
        "rate": pytest.approx(3 / 36_000),
        "tokens": -1,
        "throttle_time_seconds": 30,
        "limit": 2,
        "active": pytest.approx(3, rel=0.02),
    }
    assert shown[f'{prefix}_active{{user="bob"}}'] == pytest.approx(4, rel=0.02)
    assert shown[f'{prefix}_throttle_time_seconds{{user="bob"}}'] == 0
    assert f'{prefix}_limit{{user="bob"}}' not in shown, "it has none"
    assert f'{prefix}_tokens{{user="bob"}}' not in shown
    assert shown[f"{prefix}_users"] == 2
    assert shown[f"{prefix}_filter_bytes"] == engine.producer_ids.size_bytes > 0
    assert shown['kafka_quota_proxy_muted_entities{quota="producer_ids"}'] == 1
    room.shown.most = 1
    assert [name for name in figures(room) if name.startswith(f"{prefix}_rate{{")] == [f'{prefix}_rate{{user="alice"}}']
    room.shown.most = 0
    assert [name for name in figures(room) if "{user=" in name] == []


def test_users_that_look_alike_are_shown_once(tmp_path):
    room = make_room(tmp_path, {})
    for user in ("\udc80", "\ufffd" * 3, "\udc81"):
        charge_producer_ids(room.world.engine, user, [1], 0.0)
    generate_latest(room.registry)
    names = [name for name in figures(room) if name.startswith("kafka_quota_proxy_producer_ids_active")]
    assert len(names) == len(set(names)) >= 1


def test_volumes_are_shown_while_there_is_a_storage_quota(room):
    storage = room.world.engine.storage
    assert not [name for name in figures(room) if "storage" in name]
    storage.change(StorageLimits(Below(100), Below(300), margin=0.0))
    volumes = [Volume(1, "/a", 1000, 200), Volume(2, '/b"\n', 1000, 900), Volume(None, "/c", 1000, 800)]
    gap = Gap(Reason.BROKER, "broker 3 does not answer", 3)
    storage.observe(Check(0.0, tuple(volumes), gaps=(gap,), brokers=frozenset({1, 2, 3})))
    shown = figures(room)
    of = "kafka_quota_proxy_storage_"
    assert shown[f"{of}throttle_factor"] == 0.5
    assert shown[f'{of}fallback_applied_total{{reason="broker_unknown"}}'] == 1
    assert (shown[f"{of}fallback"], shown[f"{of}limit_violations_total"]) == (1, 1)
    assert (shown[f"{of}active_brokers"], shown[f"{of}active_log_dirs"]) == (3, 3)
    assert shown[f'{of}throttling_volume{{broker="1",log_dir="/a"}}'] == 1
    assert shown[f'{of}volume_available_bytes{{broker="",log_dir="/c"}}'] == 800
    assert shown[f'{of}volume_seconds_to_limit{{broker="1",log_dir="/a"}}'] == float("inf")
    assert (shown[f"{of}used_bytes"], shown[f"{of}soft_limit_bytes"], shown[f"{of}hard_limit_bytes"]) == (1100, 2100, 2700)
    storage.observe(Check(1.0, (Volume(1, "/a", 1000, 900), *volumes[1:]), brokers=frozenset({1, 2, 3})))
    assert figures(room)[f'{of}throttling_volume{{broker="1",log_dir="/a"}}'] == 0, "what holds now"
    storage.change(StorageLimits(Below(100), Below(950), margin=0.0))
    assert figures(room)[f'{of}throttling_volume{{broker="1",log_dir="/a"}}'] == 1, "every volume that slows somebody"
    storage.observe(Check(2.0, tuple(volumes), brokers=frozenset({1, 2, 3})))
    room.shown.most = 1
    assert [name for name in figures(room) if "volume_factor" in name] == [f'{of}volume_factor{{broker="1",log_dir="/a"}}']


def test_rates_of_topics_and_of_addresses(room):
    engine = room.world.engine
    topics = TopicTable({"orders": RateLimit(100), "bills": RateLimit(5)})
    engine.change(changed(engine.limits, ConnectionLimits(1), topic_producer_byte_rate=topics))
    rules = Rules(engine, "alice", "app", 0.0)
    for topic, size in (("orders", 500), ("bills", 20)):
        rate = rules.topic_in(topic)
        assert rate is not None
        rate.charge(size, 0.0)
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2"):
        assert engine.arrive(host, 0.0) is None
    shown = figures(room)
    used, limit = "kafka_quota_proxy_topic_producer_byte_rate_used", "kafka_quota_proxy_topic_producer_byte_rate_limit"
    assert (shown[f'{used}{{topic="orders"}}'], shown[f'{limit}{{topic="orders"}}']) == (50, 100)
    assert (shown[f'{used}{{topic="bills"}}'], shown[f'{limit}{{topic="bills"}}']) == (2, 5)
    assert shown["kafka_quota_proxy_connection_rate_addresses"] == 2


def test_rates_of_tenants(room):
    engine = room.world.engine
    apps = TenantTable(Tenants({"apps": Tenant(users=("alice",))}), {"apps": RateLimit(100)})
    engine.change(changed(engine.limits, tenant_producer_byte_rate=apps))
    decision = Rules(engine, "alice", "app", 0.0).produce.charge(1500, 0.0)
    room.observer.decided(decision, BY)
    shown = figures(room)
    used, limit = "kafka_quota_proxy_tenant_producer_byte_rate_used", "kafka_quota_proxy_tenant_producer_byte_rate_limit"
    assert (shown[f'{used}{{tenant="apps"}}'], shown[f'{limit}{{tenant="apps"}}']) == (150, 100)
    labels = '{client_id="",quota="tenant_producer_byte_rate",tenant="apps",topic="",user=""}'
    assert shown[f"kafka_quota_proxy_entity_throttled_requests_total{labels}"] == 1


def test_traffic_of_the_busiest_is_shown_whether_limited_or_not(room):
    d = room.world.dialogue()
    d.client(request(12, 4, 1)).broker(response(12, 4, 1))
    room.clock.now = 10.0
    room.usage.close_interval()
    (name,) = [name for name in figures(room) if "client_bytes_in_rate" in name and OTHER not in name]
    assert figures(room)[name] == len(request(12, 4, 1)) / 10
    assert figures(room)[name.replace("bytes_in", "request")] == 0.1
    assert figures(room)[f'kafka_quota_proxy_client_request_rate{{client_id="{OTHER}",user="{OTHER}"}}'] == 0
    room.shown.most = 0
    assert not [name for name in figures(room) if "client_request_rate" in name]


def test_what_quotas_did_is_counted_by_entity(room):
    decision = Decision("request_rate", Action.THROTTLE, Entity("alice", None), (), 7.0, 5.0, 2.5, "why")
    for _ in range(2):
        room.observer.decided(decision, BY)
    room.observer.decided(replace(decision, action=Action.REFUSE, items=(0, 1), throttle=0.0), BY)
    room.observer.would_have(replace(decision, entity=Entity("bob", None)), BY)
    labels = '{client_id="",quota="request_rate",tenant="",topic="",user="alice"}'
    shown = figures(room)
    assert shown[f"kafka_quota_proxy_entity_throttle_seconds_total{labels}"] == 5
    assert shown[f"kafka_quota_proxy_entity_throttled_requests_total{labels}"] == 2
    assert shown[f"kafka_quota_proxy_entity_refused_items_total{labels}"] == 2
    assert not [name for name in shown if "bob" in name]
    room.shown.most = 0
    assert not [name for name in figures(room) if "entity_" in name]


def test_what_runs_is_told(room):
    (name,) = [name for name in figures(room) if "build_info" in name]
    for label in ("version=", "python=", "hot_path="):
        assert label in name
