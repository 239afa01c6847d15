"""Three proxies with one Redis before a real Kafka with logins and an authorizer: real clients get the quota of the fleet,
whatever becomes of Redis, and whoever comes to another proxy takes along what it owes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import access, upstream
from tests.real.test_rates import stored
from tests.redis_server import RedisServer, Relay, needs_redis

pytestmark = [pytest.mark.kafka, needs_redis]

RATE = 400_000
BURST = 10
"""seconds of the quota that pass at once"""
BATCH = 16_384


class Fleet:
    """Three proxies; the last one reaches Redis by a relay."""

    def __init__(self, proxies: Sequence[ProxyProcess], redis: RedisServer, relay: Relay) -> None:
        self.proxies, self.redis, self.relay = proxies, redis, relay

    def up(self, *which: int) -> bool:
        return all(self.proxies[i].metric("ledger_up") == 1 for i in which)


@pytest.fixture(scope="module")
def fleet(tenants1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    quotas = {
        "entities": [
            {"client_id": "<default>", "cluster_producer_byte_rate": RATE},
            {"user": "tenant", "producer_ids_rate": 1000},
        ]
    }
    with RedisServer(folder / "redis") as redis, Relay(redis.port) as relay:

        def proxy(name: str, address: str) -> ProxyProcess:
            ledger = {"kind": "redis", "servers": [address], "timeout": "400ms", "stale_after": "1s"}
            settings = {"proxy_id": name, "quotas": quotas, "ledger": ledger, "upstream": upstream()}
            return ProxyProcess(folder / name, tenants1.bootstrap_servers, settings)

        with proxy("p0", redis.address) as p0, proxy("p1", redis.address) as p1, proxy("p2", relay.address) as p2:
            made = Fleet([p0, p1, p2], redis, relay)
            wait_until(lambda: made.up(0, 1, 2) and p0.metric("ledger_proxies") == 3, "all proxies to share the ledger")
            yield made


def create(kafka: LocalCluster, name: str) -> None:
    admin = AdminClient(access(kafka.bootstrap_servers))
    admin.create_topics([NewTopic(name, 6, 1)])[name].result(90)


def produce(
    bootstrap: str, client_id: str, topic: str, until: float | threading.Event, *, login: bool = True, size: int = BATCH
) -> int:
    """Bytes that a client got acknowledged, as many as it can until then, in records of this size."""
    done = 0

    def over() -> bool:
        return until.is_set() if isinstance(until, threading.Event) else time.monotonic() >= until

    def told(error: object, _: object) -> None:
        nonlocal done
        done += 0 if error else size

    settings = {"client.id": client_id, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer(access(bootstrap, **settings) if login else {"bootstrap.servers": bootstrap, **settings})
    while not over():
        producer.produce(topic, b"x" * size, on_delivery=told)
        while len(producer) >= 2 and not over():
            producer.poll(0.02)
    producer.purge()
    producer.flush(5)
    return done


def longer(first: float) -> Iterator[float]:
    """Seconds, twice as many each time: on a busy machine the first may be over before a client has connected."""
    return (min(first * 2.0**number, 16.0) for number in count())


def through(fleet: Fleet, client_id: str, topic: str, seconds: float, at: Sequence[int] = (0, 0, 0, 1, 2)) -> int:
    """What clients at these proxies get through together."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(len(at)) as pool:
        found = [pool.submit(produce, fleet.proxies[i].bootstrap, client_id, topic, until) for i in at]
        return sum(it.result() for it in found)


def used_up(proxies: Sequence[ProxyProcess], through: Callable[[float], int]) -> float:
    """Clients get through what they can, for a second and then for longer each time, until one is told to wait, so that nothing is
    free any more: the time before that. How much they got through would not do: on a busy machine that is less than the rate."""
    seconds = longer(1.0)

    def throttled() -> float:
        return sum(proxy.metric("throttled_requests_total", quota="producer_byte_rate") for proxy in proxies)

    def when_one_was() -> float | None:
        began, before = time.monotonic(), throttled()
        through(next(seconds))
        return began if throttled() > before else None

    found: float = wait_until(when_one_was, "a client to be told to wait")
    return found


def most(seconds: float, clients: int = 5, silent: float = 0.0) -> float:
    """What the fleet may have accepted: the burst, the rate, what each client had under way, and what passes in two intervals at
    the other proxies; `silent` seconds in which each counted for itself."""
    return RATE * (BURST + seconds + (2 * 0.1 + 0.2 + silent) * 2) + clients * 3 * BATCH


def test_clients_of_three_proxies_get_one_quota(fleet: Fleet, tenants1: LocalCluster, name: str) -> None:
    create(tenants1, name)
    # A burst that is used up within two intervals may be had at each proxy, and is a debt then.
    began, done = time.monotonic(), 0
    while done <= RATE * BURST * 0.8:
        done += through(fleet, name, name, 2)
    assert done + through(fleet, name, name, 6) <= most(time.monotonic() - began)
    assert sum(proxy.metric("ledger_learned_units_total") for proxy in fleet.proxies) > RATE * BURST
    # all of its clients move to one proxy, and find no burst there
    began = used_up(fleet.proxies, partial(through, fleet, name, name))
    assert through(fleet, name, name, 3, (2, 2)) <= RATE * (time.monotonic() - began + 2) + 6 * BATCH


def test_redis_that_freezes_holds_up_nobody_and_counts_once(fleet: Fleet, tenants1: LocalCluster, name: str) -> None:
    create(tenants1, name)
    began = time.monotonic()
    through(fleet, name, name, 4)
    fleet.redis.freeze()
    try:
        wait_until(lambda: not any(proxy.metric("ledger_up") for proxy in fleet.proxies), "the ledger to be away")
        seconds = longer(1.0)
        wait_until(lambda: through(fleet, f"{name}-else", name, next(seconds)) > 10 * BATCH, "somebody else, who need not wait")
    finally:
        fleet.redis.thaw()
    wait_until(lambda: fleet.up(0, 1, 2), "the ledger to be up")
    for proxy in fleet.proxies:
        proxy.wait_for("ledger is away", detail="others are taken to go on as they did")
    began = time.monotonic()
    assert through(fleet, name, name, 4) <= most(time.monotonic() - began)


def test_redis_that_is_killed_or_emptied_makes_nothing_count_twice(fleet: Fleet, tenants1: LocalCluster, name: str) -> None:
    create(tenants1, name)
    began = time.monotonic()
    done = through(fleet, name, name, 4)
    restarts = [proxy.metric("ledger_restarts_total") for proxy in fleet.proxies]

    def seen(times: int) -> bool:
        """Whether each proxy has seen Redis start again so often."""
        now = [proxy.metric("ledger_restarts_total") for proxy in fleet.proxies]
        return all(late >= early + times for early, late in zip(restarts, now, strict=True))

    with fleet.redis.client() as client:
        client.flushall()
    done += through(fleet, name, name, 2)
    wait_until(lambda: seen(1), "all to see that it is empty")
    fleet.redis.kill()
    fleet.redis.start()
    wait_until(lambda: fleet.up(0, 1, 2), "the ledger to be up")
    done += through(fleet, name, name, 4)
    assert done <= most(time.monotonic() - began, silent=2.0)
    # nothing is owed that was counted twice: who waits a moment goes on
    seconds = longer(0.5)
    wait_until(lambda: through(fleet, name, name, next(seconds), (0, 1, 2)) >= BATCH, "the quota to let somebody go on")
    assert seen(2)


def test_a_proxy_that_is_cut_off_goes_by_its_share_and_comes_back(fleet: Fleet, tenants1: LocalCluster, name: str) -> None:
    create(tenants1, name)
    through(fleet, name, name, 3)
    fleet.relay.cut()
    try:
        wait_until(lambda: not fleet.proxies[2].metric("ledger_up"), "a proxy to be cut off")
        wait_until(lambda: fleet.up(0, 1), "the others to be up")
        through(fleet, name, name, 3)
        assert fleet.proxies[2].metric("ledger_estimated_units_total") > 0
    finally:
        fleet.relay.mend()
    wait_until(lambda: fleet.up(0, 1, 2), "the proxy to be back")
    began = time.monotonic()
    assert through(fleet, name, name, 4) <= most(time.monotonic() - began)


def test_a_producer_that_comes_to_another_proxy_is_not_new(fleet: Fleet, tenants1: LocalCluster, name: str) -> None:
    create(tenants1, name)
    before = fleet.proxies[1].metric("producer_ids_active", user="tenant")
    producer = Producer(access(fleet.proxies[0].bootstrap, **{"enable.idempotence": True, "client.id": name}))
    producer.produce(name, b"one")
    assert producer.flush(90) == 0

    def known() -> bool:
        return fleet.proxies[1].metric("producer_ids_active", user="tenant") > before + 0.5

    wait_until(known, "the other proxy to know its id")


@pytest.mark.skipif("FLEET_MINUTE" not in os.environ, reason="takes two minutes: `make test-fleet-minute` runs it")
def test_64_connections_at_four_proxies_hold_the_quota_for_a_minute(tenants1: LocalCluster, tmp_path: Path, name: str) -> None:
    """In shares of 32, 16, 11 and 5; once the burst is used up. What was accepted is what Kafka stored."""
    create(tenants1, name)
    shares, quotas = (32, 16, 11, 5), {"entities": [{"client_id": name, "cluster_producer_byte_rate": 4 * RATE}]}
    with RedisServer(tmp_path / "redis") as redis, ExitStack() as stack:
        settings = {"quotas": quotas, "ledger": {"kind": "redis", "servers": [redis.address]}, "upstream": upstream()}
        proxies = [
            stack.enter_context(ProxyProcess(tmp_path / str(i), tenants1.bootstrap_servers, {"proxy_id": f"p{i}", **settings}))
            for i in range(4)
        ]
        at = [proxy.bootstrap for proxy, share in zip(proxies, shares, strict=True) for _ in range(share)]
        until = time.monotonic() + 95
        with ThreadPoolExecutor(len(at)) as pool:
            clients = [pool.submit(produce, address, name, name, until) for address in at]
            wait_until(lambda: stored(tenants1, name) > 4 * RATE * (BURST + 10), "the burst to be used up", 60)
            began, before = time.monotonic(), stored(tenants1, name)
            time.sleep(max(min(60.0, until - time.monotonic() - 1), 1))
            rate = (stored(tenants1, name) - before) / (time.monotonic() - began)
            for client in clients:
                client.result()
        print(f"{rate / (4 * RATE):.4f} of the quota")
        assert rate == pytest.approx(4 * RATE, rel=0.03)
