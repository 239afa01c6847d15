"""Looking at the sizes of topics: what is asked of which brokers when, and what follows of brokers that do not tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from proxy.hashing import murmur3
from proxy.upstream.cluster_client import DirectClient
from proxy.upstream.connector import Upstream
from proxy.upstream.dynamic_quotas import DynamicQuotas
from proxy.upstream.stored_bytes import StoredBytesWatch
from quota.engine import Engine
from quota.tenants import owner_of
from tests.clients.proxied import Recorder, until
from tests.fleet.meeting import run
from tests.upstream.describing import Describing, describing

APPS = {"topic_prefixes": ["apps."], "stored_bytes_hard": 1000, "stored_bytes_soft": 600}


class Watched:
    """A watch of two brokers, of whom the first has 300 bytes of apps.a; `now` is the time."""

    def __init__(self, brokers: list[Describing], **stored: Any) -> None:
        self.brokers, self.now, self.log = brokers, 0.0, Recorder()
        settings = Settings.model_validate({"tenants": {"apps": APPS}, "quotas": {"stored_bytes": stored}})
        self.engine = Engine(limits_of(settings), murmur3)
        addresses = [broker.address for broker in brokers]
        client = DirectClient(lambda: addresses, Upstream(60.0))
        self.watch = StoredBytesWatch(self.engine, settings.quotas.stored_bytes, client, cast(Any, self.log), lambda: self.now)
        self.holds(0, {"apps.a": [(0, 100), (1, 200)], "other": [(0, 5000)]})

    def holds(self, broker: int, topics: dict[str, list[tuple[int, int]]]) -> None:
        self.brokers[broker].dirs[0]["topics"] = topics

    @property
    def used(self) -> int:
        return self.engine.stored.of_tenants.budgets[owner_of("apps")].used

    async def look(self, after: float) -> int:
        self.now += after
        await self.watch.look()
        return self.used


def watched(work: Callable[[Watched], Any], **stored: Any) -> None:
    async def both() -> None:
        async with describing(2) as brokers:
            await work(Watched(brokers, **stored))

    run(both())


def test_all_is_looked_at_once_in_a_while_and_near_a_limit_more_often() -> None:
    async def work(w: Watched) -> None:
        assert await w.look(0.0) == 300
        w.holds(0, {"apps.a": [(0, 590)]})
        assert await w.look(30.0) == 300, "it is far from its limits"
        assert await w.look(30.0) == 590
        asked = [broker.asked_for_replicas for broker in w.brokers]
        w.holds(0, {"apps.a": [(0, 700)]})
        assert await w.look(4.9) == 590
        assert await w.look(0.1) == 700
        assert [broker.asked_for_replicas for broker in w.brokers] == asked, "only its own topics are asked for"
        assert w.log.find("stored bytes past the soft limit", entity="tenant apps", stored_bytes=700, throttle_factor=0.75)
        w.holds(0, {"apps.a": [(0, 1000)]})
        await w.look(5.0)
        assert w.log.find("stored bytes at the limit", limit_bytes=1000)
        w.holds(0, {})
        await w.look(5.0)
        assert [line["event"] for line in w.log.lines][2:] == ["stored bytes within the limits"]

    watched(work)


def test_a_broker_that_does_not_tell_frees_nothing_until_what_is_known_is_too_old() -> None:
    async def work(w: Watched) -> None:
        w.holds(1, {"apps.b": [(0, 50)]})
        assert await w.look(0.0) == 350
        w.brokers[0].error_code = 31
        w.holds(1, {})
        assert await w.look(60.0) == 350
        assert await w.look(5.0) == 350
        (line,) = w.log.find("stored bytes not seen")
        assert line["reason"] == "broker 0: it wants Describe on the cluster"
        assert await w.look(240.0) == 0
        w.brokers[0].error_code = 0
        assert await w.look(60.0) == 300
        assert w.log.find("stored bytes seen again")

    watched(work)


def test_while_nobody_tells_nothing_is_refused_and_it_is_said_once() -> None:
    async def work(w: Watched) -> None:
        for broker in w.brokers:
            broker.closes = True
        for _ in range(3):
            await w.look(5.0)
        assert len(w.log.find("stored bytes not seen")) == 1
        assert not w.engine.stored.of_tenants.budgets[owner_of("apps")].known

    watched(work)


def test_a_broken_log_dir_is_a_gap() -> None:
    async def work(w: Watched) -> None:
        w.brokers[0].dirs[0]["error"] = 56
        await w.look(0.0)
        assert w.log.find("stored bytes not seen", reason="broker 0: /data0: error 56")

    watched(work)


def test_nobody_is_asked_where_nobody_has_a_limit() -> None:
    async def work(w: Watched) -> None:
        w.engine.change(limits_of(Settings()))
        w.now = 1000.0
        await w.watch.look()
        assert [broker.asked for broker in w.brokers] == [[], []]

    watched(work)


def test_very_many_tenants_are_put_in_force_in_turns_and_their_topics_counted_anew() -> None:
    async def work() -> None:
        count, topics = 1500, 3000
        old = {f"t{i}": {"topic_prefixes": [f"t{i}."], "max_topics": 2} for i in range(count)}
        new = {f"t{i}": {"topic_prefixes": [f"t{(i + 1) % count}."], "max_topics": 3, "stored_bytes_hard": 5} for i in range(count)}
        settings, log = Settings.model_validate({"tenants": old}), Recorder()
        engine = Engine(limits_of(settings), murmur3)
        for i in range(topics):
            engine.owned.topic_sized(f"t{i % count}.{i}", 1 + (i % count == 7))
        quotas = DynamicQuotas(settings, engine, None, lambda: 0.0, str, cast(Any, log))
        quotas.use(Settings.model_validate({"tenants": new}))
        assert engine.owned.owned(owner_of("t7")) == (2, 4), "until the new ones are put together, the old ones hold"
        await until(lambda: engine.limits_version > 1)
        engine.owned.topic_sized("t8.new", 1)
        engine.owned.topic_sized("t8.8", 0)
        await until(lambda: not engine.owned.recounting)
        assert [engine.owned.owned(owner_of(name)) for name in ("t6", "t7", "t8")] == [(2, 4), (2, 2), (2, 2)]
        await until(lambda: log.find("more quotas changed"))
        quotas.use(settings)
        quotas.use(Settings.model_validate({"tenants": new}))
        await asyncio.sleep(0)
        await until(lambda: not quotas._renewing and not engine.owned.recounting)
        assert engine.owned.owned(owner_of("t6")) == (2, 4), "the last settings hold"

    run(work())
