"""Two processes of one machine that ask each other: who asked gets an answer, whatever became of it at the other side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.fleet.channel import MOST_BYTES, Channel, ChannelError


async def no_json() -> object:
    return object()


async def too_much() -> str:
    return "x" * MOST_BYTES


async def fails() -> None:
    raise OSError("a broken disk")


async def given_up() -> None:
    """What it waits for was given up by somebody else."""
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def fine() -> str:
    return "fine"


@pytest.mark.parametrize(
    ("answer", "told"),
    [(no_json, "not JSON serializable"), (too_much, "more than"), (fails, "a broken disk"), (given_up, "Cancelled")],
)
def test_what_cannot_be_answered_is_told_and_the_next_question_is_answered(answer: Callable[[], Awaitable[Any]], told: str) -> None:
    async def ask() -> None:
        here, there = socket.socketpair()
        asker, answerer = Channel(here, {}), Channel(there, {"it": answer, "fine": fine})
        async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
            tasks.create_task(answerer.run())
            running = tasks.create_task(asker.run())
            with pytest.raises(ChannelError, match=told):
                await asker.ask("it")
            assert await asker.ask("fine") == "fine"
            running.cancel()

    asyncio.run(ask())
