"""The ledger on a real Redis: proxies' engines in one process, each with its own connections, and what becomes of their windows."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from localkafka.ports import HeldPort
from proxy.config.ledger import Ledger as Settings
from proxy.fleet.fleet import Fleet, redis_store
from proxy.hashing import murmur3
from proxy.session.budget import Census
from proxy.session.presence import Presence
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.rates import RateLimit, RateMeter
from quota.limit_table import LimitTable
from quota.produce import charge_producer_ids
from tests.certs import Authority
from tests.redis_server import RedisServer, needs_redis, program
from tests.support import limits_of

pytestmark = needs_redis

ALICE = Entity("alice", None)
RATE = 100_000.0
FAST = {"kind": "redis", "sync_interval": "20ms", "timeout": "400ms", "stale_after": "600ms"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(running: RedisServer) -> RedisServer:
    """An empty one."""
    with running.client() as client:
        client.flushall()
    return running


class Proxy:
    """The engine and the ledger of one proxy."""

    def __init__(self, name: str, address: str, **more: Any) -> None:
        limits = limits_of(producer_byte_rate=LimitTable({ALICE: RateLimit(RATE)}))
        self.engine = Engine(limits, murmur3)
        self.settings = Settings.model_validate({**FAST, "servers": [address], **more})
        self.clock = asyncio.get_running_loop().time
        self.fleet = Fleet(self.settings, self.engine, name, self.clock, structlog.get_logger(), redis_store(self.settings, name))
        self.link = self.fleet.link
        self.census = Census(100, per_principal=2)
        self.fleet.count(Presence(self.census))

    @property
    def meter(self) -> RateMeter:
        return self.engine.rates["producer_byte_rate"].meter(ALICE, self.clock())

    def charge(self, amount: float) -> None:
        found = self.engine.rates["producer_byte_rate"].find("alice", "")
        assert found is not None
        self.engine.rates["producer_byte_rate"].charge(found, (amount,), self.clock())

    def counted(self) -> int:
        usage = self.engine.producer_ids.standing("alice", self.clock())
        return 0 if usage is None else usage.counted

    def level(self) -> float:
        return self.engine.rates["producer_byte_rate"].level(ALICE, self.clock())


@contextlib.asynccontextmanager
async def proxies(*made: Proxy) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(proxy.fleet.run()) for proxy in made]
    try:
        for proxy in made:
            await until(lambda proxy=proxy: proxy.link.up)  # type: ignore[misc]
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(it, asyncio.CancelledError) for it in ended), ended


async def until(true: Callable[[], bool], limit: float = 90.0) -> None:
    async with asyncio.timeout(limit):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_what_one_proxy_charges_fills_the_window_of_the_other(redis: RedisServer) -> None:
    async def test() -> None:
        a, b = Proxy("a", redis.address), Proxy("b", redis.address)
        async with proxies(a, b):
            b.charge(1)
            a.charge(RATE * 90)  # so much that it is not over before a busy machine looks
            most = a.meter.wait(a.clock())
            await until(lambda: b.level() > RATE * 8)
            await until(lambda: b.link.ledger.proxies == 2)
            b.charge(RATE * 60)
            await until(lambda: a.meter.wait(a.clock()) > most)
            # who comes to a third proxy has no burst any more
            c = Proxy("c", redis.address)
            async with proxies(c):
                c.charge(1)
                await until(lambda: c.meter.wait(c.clock()) > 0.1)

    run(test)


def test_keys_are_of_one_version_and_expire(redis: RedisServer) -> None:
    with redis.client() as client:

        def totals() -> dict[str, bytes | None]:
            """What each owner has used in all."""
            return {key.decode().partition("}:")[2]: client.hget(key, "t") for key in client.scan_iter() if b"}:k/" in key}

        async def test() -> None:
            a = Proxy("a", redis.address, namespace="here", shards=3)
            async with proxies(a):
                for total in b"5", b"10":
                    a.charge(5)
                    await until(lambda total=total: totals() == {"k/producer_byte_rate/alice/-/-": total})  # type: ignore[misc]
            client.delete("{here/1/0}:events")
            ends_at_once = redis_store(a.settings, "b")(10.0)
            await ends_at_once.append_event({"e": "[]"})
            await ends_at_once.close()

        run(test)
        assert client.xlen("{here/1/0}:events") == 1
        for key in client.scan_iter():
            assert key.startswith(b"{here/1/")
            assert 0 < client.ttl(key) <= 7 * 86400, key


def test_a_frozen_redis_keeps_nobody_waiting_and_counts_once(redis: RedisServer) -> None:
    """A stall of half a second before Redis is frozen makes a proxy think that it is away: then the scene begins again."""

    async def scene(namespace: str) -> bool:
        a, b = (Proxy(name, redis.address, namespace=namespace) for name in "ab")
        async with proxies(a, b):
            for proxy in (a, b):
                proxy.charge(RATE)
            await until(lambda: a.level() + b.level() > RATE * 3.9)
            redis.freeze()
            try:
                a.charge(RATE)
                await until(lambda: not a.link.up and not b.link.up)
                if any(proxy.link.ledger.counts.estimated for proxy in (a, b)):
                    return False
                before = a.level()
                a.charge(RATE)
                assert a.level() == pytest.approx(before + RATE, rel=0.01)
                await until(lambda: a.level() == pytest.approx(before + 2 * RATE, rel=0.1))  # b, as it had a half
            finally:
                redis.thaw()
            await until(lambda: a.link.up and b.link.up)
            await until(lambda: b.level() >= RATE * 3.9)
            await asyncio.sleep(0.2)
            # a: 3 of its own, 1 of b, about 1 that was estimated; b: 1 of its own, 3 of a
            assert a.level() == pytest.approx(RATE * 5, rel=0.1)
            assert b.level() == pytest.approx(RATE * 4, rel=0.02)
            return True

    assert any(asyncio.run(scene(f"scene-{number}")) for number in range(5))


def test_a_producer_that_comes_to_another_proxy_is_not_new(redis: RedisServer) -> None:
    async def test() -> None:
        a, b = Proxy("a", redis.address), Proxy("b", redis.address)
        async with proxies(a, b):
            for id in range(5):
                charge_producer_ids(a.engine, "alice", [id], a.clock())
            await until(lambda: b.counted() == 5)
            for id in range(7):
                charge_producer_ids(b.engine, "alice", [id], b.clock())
            await until(lambda: a.counted() == 7)
            assert b.counted() == 7
            late = Proxy("c", redis.address)
            async with proxies(late):
                await until(lambda: late.counted() == 7)

    run(test)


def test_fences_and_mutes_hold_at_other_proxies(redis: RedisServer) -> None:
    async def test() -> None:
        a, b = Proxy("a", redis.address), Proxy("b", redis.address)
        part = ("orders", 3)
        async with proxies(a, b):
            a.engine.fence.refused("alice", 7, 0, 10, part, 19, "bytes_in", a.clock())
            await until(lambda: b.engine.fence.blocks("alice", 7, 0, 11, part, b.clock()) is not None)
            assert b.engine.fence.blocks("alice", 7, 0, 10, part, b.clock()) is None
            late = Proxy("c", redis.address)
            async with proxies(late):
                await until(lambda: late.engine.fence.blocks("alice", 7, 0, 11, part, late.clock()) is not None)
                b.engine.fence.admitted("alice", 7, 0, 10, part)
                await until(lambda: not a.engine.fence.by_id and not late.engine.fence.by_id)
            a.engine.mutes.start("producer_byte_rate", ALICE, a.clock() + 20)
            await until(lambda: b.engine.mutes.left("producer_byte_rate", ALICE, b.clock()) > 15)
            a.engine.mutes.start("request_rate", ALICE, a.clock() + 0.5)
            a.engine.mutes.start("consumer_byte_rate", ALICE, a.clock() + 9)
            await until(lambda: b.engine.mutes.left("consumer_byte_rate", ALICE, b.clock()) > 5)
            assert not b.engine.mutes.left("request_rate", ALICE, b.clock()), "short ones are not worth telling"

    run(test)


def test_connections_of_a_user_count_at_all_proxies(redis: RedisServer) -> None:
    async def test() -> None:
        a, b, c = (Proxy(name, redis.address) for name in "abc")
        async with proxies(a, b):
            assert all(a.census.identify("ANONYMOUS", "alice") for _ in range(2))
            await until(lambda: not b.census.identify("ANONYMOUS", "alice") or bool(b.census.forget("alice")))
            b.census.forget("alice")
            assert b.census.identify("ANONYMOUS", "bob")
            a.census.forget("alice")
            await until(lambda: b.census.elsewhere["alice"] == 1)
            assert b.census.identify("ANONYMOUS", "alice")
            async with proxies(c):
                await until(lambda: c.census.elsewhere["alice"] == 2)
                redis.freeze()
                try:
                    await until(lambda: not c.link.up)
                    assert not c.census.identify("ANONYMOUS", "alice"), "what was known last holds"
                finally:
                    redis.thaw()

    run(test)


def test_what_is_told_while_redis_is_away_is_told_when_it_is_back(redis: RedisServer) -> None:
    async def test() -> None:
        a, b = Proxy("a", redis.address), Proxy("b", redis.address)
        async with proxies(a, b):
            charge_producer_ids(a.engine, "alice", [1], a.clock())
            await until(lambda: b.counted() == 1)
            redis.kill()
            await until(lambda: not a.link.up)
            charge_producer_ids(a.engine, "alice", [2], a.clock())
            a.charge(RATE)
            await asyncio.sleep(0.3)
            redis.start()
            charge_producer_ids(a.engine, "alice", [3], a.clock())
            await until(lambda: b.counted() == 3)
            await until(lambda: a.link.up and b.link.up)

    run(test)


def test_a_cluster_shares_the_shards(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--cluster-enabled", "yes") as server:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            deadline = time.monotonic() + 90
            while client.cluster("INFO")["cluster_state"] != "ok":
                assert time.monotonic() < deadline
                time.sleep(0.02)
        run(lambda: exchange(server.address, mode="cluster", shards=4))


def test_sentinels_say_where_redis_is(redis: RedisServer, tmp_path: Path) -> None:
    name = program()
    assert name is not None
    with HeldPort() as port:
        config = tmp_path / "sentinel.conf"
        config.write_text(f"port {port.number}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {redis.port} 1\n")
        process = subprocess.Popen([name, str(config), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            run(lambda: exchange(port.address, mode="sentinel", sentinel_master="main"))
        finally:
            process.kill()
            process.wait()


def test_tls_and_a_user_with_no_more_rights_than_needed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own, port = authority.server("redis", "localhost", "127.0.0.1"), HeldPort()
    tls = ["--tls-port", str(port.number), "--port", "0", "--tls-cert-file", str(own.cert), "--tls-key-file", str(own.key)]
    tls += ["--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", "no"]
    rights = ["user", "proxy", "on", ">very-secret", "resetchannels", "~{fleet/*", "+@all", "-@dangerous", "-@admin"]
    settings = {"tls": {"ca_file": str(authority.file)}, "username": "proxy", "namespace": "fleet"}
    with RedisServer(tmp_path, *tls, port=port, ssl=True, ssl_ca_certs=str(authority.file)) as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", *rights[1:])
        (tmp_path / "password").write_text("very-secret\n")
        run(lambda: exchange(server.address, **settings, password_file=str(tmp_path / "password")))
        for wrong, said in (
            ({**settings, "password": "not-this-one"}, "refuses the login"),
            ({**settings, "password": "very-secret", "namespace": "of-others"}, "does not allow it"),
            ({**settings, "password": "very-secret", "tls": {}}, "certificate is not trusted"),
            ({**settings, "password": "very-secret", "tls": None}, "cannot be reached"),
        ):
            run(lambda wrong=wrong, said=said: fails(server.address, said, **wrong))


async def exchange(address: str, **more: Any) -> None:
    """Two proxies tell each other all that there is."""
    a, b = Proxy("a", address, **more), Proxy("b", address, **more)
    async with proxies(a, b):
        b.charge(1)
        a.charge(RATE)
        await until(lambda: b.level() > RATE * 0.9)
        charge_producer_ids(a.engine, "alice", [1], a.clock())
        await until(lambda: b.counted() == 1)


async def fails(address: str, said: str, **more: Any) -> None:
    """A proxy that says why it does not get through, and no secret."""
    proxy = Proxy("a", address, **more)
    task = asyncio.create_task(proxy.fleet.run())
    try:
        await until(lambda: said in proxy.link.why_not)
        assert "secret" not in proxy.link.why_not
        assert "not-this-one" not in proxy.link.why_not
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
