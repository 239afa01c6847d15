"""Calls of aiokafka that do not return. The code that waits for them goes on after a time limit."""

from __future__ import annotations

import asyncio

import pytest

from proxy.upstream import internal_topic
from proxy.upstream.connector import TopicError
from proxy.upstream.internal_topic import started, within


class Stubborn:
    """A client whose `stop` suppresses the error that cancels it, as aiokafka's does, and goes on waiting."""

    def __init__(self) -> None:
        self.left_behind = asyncio.Event()

    async def start(self) -> None: ...

    async def stop(self) -> None:
        for _ in range(2):
            try:
                await self.left_behind.wait()
            except asyncio.CancelledError:
                continue


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic, "PATIENCE", 0.01)


def test_a_client_that_does_not_stop_is_left_behind() -> None:
    async def use() -> str:
        client = Stubborn()
        async with asyncio.timeout(60), started(client):
            pass
        client.left_behind.set()
        return "went on"

    assert asyncio.run(use()) == "went on"


def test_a_client_that_cancels_itself_while_it_stops_ends_nothing_else() -> None:
    class Impatient:
        async def start(self) -> None: ...

        async def stop(self) -> None:
            raise asyncio.CancelledError

    async def use() -> None:
        async with started(Impatient()):
            raise TopicError("asking where the topic ends took too long")

    with pytest.raises(TopicError, match="asking where"):
        asyncio.run(use())


def test_what_takes_too_long_is_named() -> None:
    async def ask() -> None:
        await within(asyncio.Event().wait(), "asking where the topic ends")

    with pytest.raises(TopicError, match=r"asking where the topic ends took more than 0\.01 s"):
        asyncio.run(ask())


def test_whoever_is_cancelled_cancels_the_call() -> None:
    async def run() -> list[str]:
        ended: list[str] = []

        async def call() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        task = asyncio.create_task(within(call(), "a call"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return ended

    assert asyncio.run(run()) == ["cancelled"]
