"""What proxies tell each other keeps its age: while it waits to be told, while nobody can read it, and whatever the clocks are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from proxy.fleet.events import FleetEventStream
from proxy.fleet.redis_store import RedisStore
from proxy.fleet.store import StoreError
from proxy.hashing import murmur3
from quota.engine import Engine, Limits
from quota.entity import Entity
from quota.fleet_events import FleetEvents
from quota.limit_table import LimitTable
from tests.fleet.simulated import run_simulated

ALICE = Entity("alice", None)
QUOTA = "producer_byte_rate"


class Stream:
    """A store in simulated time. Its wall clock is `ahead` of the loop's, and it may be away."""

    def __init__(self, ahead: float = 1_700_000_000.0) -> None:
        self.entries: list[tuple[bytes, dict[bytes, bytes]]] = []
        self.ahead, self.away = ahead, False
        self._number = 0

    def key(self, shard: int, rest: str) -> str:
        return f"{shard}:{rest}"

    async def close(self) -> None: ...

    async def ask(self, command: str, *arguments: Any, **more: Any) -> Any:
        await asyncio.sleep(0.001)
        if self.away:
            raise StoreError("away")
        return await getattr(self, command)(*arguments, **more)

    @property
    def wall(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    async def time(self) -> tuple[int, int]:
        return int(self.wall), int(self.wall % 1 * 1e6)

    async def xadd(self, _: str, entry: dict[str, Any], **__: Any) -> None:
        self._number += 1
        id = f"{int(self.wall * 1000)}-{self._number}".encode()
        self.entries.append((id, {name.encode(): str(value).encode() for name, value in entry.items()}))

    async def xtrim(self, *_: Any, **__: Any) -> None: ...
    async def expire(self, *_: Any) -> None: ...
    async def xrange(self, _: str, *, min: str, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return self._behind(min.removeprefix("("))[:count]

    async def xread(self, streams: dict[str, str], *, count: int, block: int) -> list[Any]:
        (last,) = streams.values()
        for _ in range(block // 10):
            if self.away:
                raise StoreError("away")
            if found := self._behind(last):
                return [("key", found[:count])]
            await asyncio.sleep(0.01)
        return []

    def _behind(self, last: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return [entry for entry in self.entries if _order(entry[0]) > _order(last.encode())]


def _order(id: bytes) -> tuple[int, ...]:
    return tuple(map(int, id.split(b"-")))


class Node:
    """One proxy. `reach`: how it reaches the stream."""

    def __init__(self, name: str, reach: Stream) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.engine = Engine(Limits(LimitTable({})), murmur3)
        self.events = FleetEvents(self.engine, self.clock)
        store = cast(RedisStore, reach)
        self.task = asyncio.create_task(FleetEventStream(self.events, store, store, name, self.clock).run())

    def left(self) -> float:
        return self.engine.mutes.left(QUOTA, ALICE, self.clock())


class Cut(Stream):
    """One proxy's way to a stream, which may be cut."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    async def ask(self, command: str, *arguments: Any, **more: Any) -> Any:
        if self.away:
            raise StoreError("cut off")
        found = asyncio.ensure_future(self._stream.ask(command, *arguments, **more))
        while not found.done():
            if self.away:
                found.cancel()
                raise StoreError("cut off")
            await asyncio.sleep(0.005)
        return found.result()


def test_a_mute_that_is_read_after_an_outage_is_as_old_as_it_is() -> None:
    async def work() -> None:
        stream = Stream()
        teller, hearer_way = Node("a", stream), Cut(stream)
        hearer = Node("b", hearer_way)
        await asyncio.sleep(1)
        hearer_way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(15)
        hearer_way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(4, abs=0.1)
        assert teller.left() == pytest.approx(4, abs=0.1)

    run_simulated(work())


def test_a_mute_that_is_over_when_it_is_read_starts_none() -> None:
    async def work() -> None:
        stream = Stream()
        teller, hearer_way = Node("a", stream), Cut(stream)
        hearer = Node("b", hearer_way)
        await asyncio.sleep(1)
        hearer_way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(25)
        hearer_way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == 0
        assert hearer.events.heard == 1

    run_simulated(work())


def test_a_mute_that_waited_to_be_told_is_as_old_as_it_is() -> None:
    async def work() -> None:
        stream = Stream()
        way = Cut(stream)
        teller, hearer = Node("a", way), Node("b", stream)
        await asyncio.sleep(1)
        way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(12)
        teller.engine.mutes.start(QUOTA, Entity("bob", None), teller.clock() + 20)
        await asyncio.sleep(3)
        way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(4, abs=0.1)
        assert hearer.engine.mutes.left(QUOTA, Entity("bob", None), hearer.clock()) == pytest.approx(16, abs=0.1)

    run_simulated(work())


def test_what_is_told_while_all_is_well_is_new_whatever_the_store_takes_the_time_to_be() -> None:
    """Its clock is another one, and is set meanwhile: what it gets wrong it gets wrong for a minute."""

    async def work() -> None:
        stream = Stream(ahead=-500.0 + 1e6)
        teller, hearer = Node("a", stream), Node("b", stream)
        await asyncio.sleep(1)
        for step in (0.0, -3600.0, 7200.0):
            stream.ahead += step
            await asyncio.sleep(70)
            user = Entity(f"user {step}", None)
            teller.engine.mutes.start(QUOTA, user, teller.clock() + 20)
            await asyncio.sleep(1)
            if step >= 0:  # a real store's ids never go back: those of such an hour are all alike
                assert hearer.engine.mutes.left(QUOTA, user, hearer.clock()) == pytest.approx(19, abs=0.1)

    run_simulated(work())


@pytest.mark.parametrize(
    "fields",
    [
        {b"b": b"x", b"e": b"[" * 100_000},
        {b"b": b"x", b"e": b"{"},
        {b"b": b"x", b"e": b"[[1]]", b"w": b"soon"},
        {b"e": json.dumps([["mute", QUOTA, "\ud800", None, None, 5.0]]).encode(), b"w": b"-9"},
        {b"b": b"\xff"},
    ],
)
def test_what_cannot_be_read_stops_nothing(fields: dict[bytes, bytes]) -> None:
    async def work() -> None:
        stream = Stream()
        hearer, teller = Node("b", stream), Node("a", stream)
        await asyncio.sleep(1)
        stream.entries.append((f"{int(stream.wall * 1000)}-0".encode(), fields))
        await asyncio.sleep(1)
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(19, abs=0.1)
        assert not hearer.task.done()

    run_simulated(work())


def test_what_was_put_back_goes_first_and_keeps_its_time() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        events = FleetEvents(Engine(Limits(LimitTable({})), murmur3), loop.time)
        events.tell(["first"])
        await asyncio.sleep(5)
        events.tell(["second"])
        taken = events.take(200)
        assert [came for _, came in taken] == [(0.0, ["first"]), (5.0, ["second"])]
        events.put_back(taken)
        assert (len(events), events.told) == (2, 0)
        assert [[came for _, came in events.take(1)] for _ in range(3)] == [[(0.0, ["first"])], [(5.0, ["second"])], []]

    run_simulated(work())
