"""A store in another process of this machine (`store.Store`): the supervisor has it, in its memory or in a topic, and workers ask
it on a channel.

In: what a worker sends. Out: what the store answers; `StoreError` when the supervisor is gone or too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from proxy.fleet.channel import Answers, Channel, ChannelError
from proxy.fleet.store import Entry, Reply, Store, StoreError, position_at
from quota.ledger import Answer, Change, Level, Update


class ChannelStore:
    """The store at the other end of a channel. `patience`: seconds that it may take to answer."""

    def __init__(self, channel: Channel, patience: float) -> None:
        self._channel, self._patience = channel, patience

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        (generation, accepted, last, totals, levels), *more = await self._ask("send", update, count_for)
        return Reply(Answer(generation, accepted, last, totals, {i: Level(*level) for i, level in levels}), *more)

    async def append_event(self, fields: Mapping[str, str]) -> None:
        await self._ask("append_event", dict(fields))

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        return [Entry(*entry) for entry in await self._ask("read_events", after, limit, wait)]

    def position_at(self, time: float) -> str:
        return position_at(time)

    async def forget_events(self, before: float, keep: float) -> None:
        await self._ask("forget_events", before, keep)

    async def time(self) -> float:
        return float(await self._ask("time"))

    async def close(self) -> None:
        """The channel is that of the worker, and stays."""

    async def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            async with asyncio.timeout(self._patience):
                return await self._channel.ask(question, *arguments)
        except ChannelError as e:
            raise StoreError(str(e)) from None
        except TimeoutError:
            raise StoreError("the supervisor does not answer in time") from None


def store_answers(store: Store) -> Answers:
    """What the process with the store answers to the worker that this client of it is for."""

    async def send(update: list[Any], count_for: float) -> Any:
        shard, number, generation, changes = update
        answer, *more = await store.send(Update(shard, number, generation, [Change(*it) for it in changes]), count_for)
        told = [answer.generation, answer.accepted, answer.last, answer.totals, list(answer.levels.items())]
        return told, *more

    return {
        "send": send,
        "append_event": store.append_event,
        "read_events": store.read_events,
        "forget_events": store.forget_events,
        "time": store.time,
    }
