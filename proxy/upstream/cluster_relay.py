"""What several workers ask of the cluster, asked once for all of them, by their supervisor.

In: questions of workers, by a channel. Out: a `ClusterClient` for each worker. Workers look at the same moments
(`moments.py`). A question waits for `JOIN` seconds, so that others who ask the same get the same answer. So no answer is older than
its question, unless the question says how old it may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from proxy.config.units import HostPort
from proxy.fleet.channel import Answers, Channel, ChannelError
from proxy.upstream.cluster_client import ClusterClient, DirectClient, Frame
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire.metadata import Broker

JOIN: Final = 0.05
"""Seconds for which a question waits for others."""
AGE: Final = 0.5
"""Seconds for which answers are kept: a worker that is late gets what others asked for, and who asks once a second a new answer."""
_VERSION: Final = 2
"""Bytes of the version that stands before a frame."""
_Row = tuple[int, str, int]
"""A broker in JSON."""


class _Asked(NamedTuple):
    at: float
    answer: asyncio.Task[Any]


class ClusterRelay:
    """The supervisor's part. `bootstrap`: servers to ask as long as no brokers are known."""

    def __init__(self, upstream: Upstream, bootstrap: list[HostPort]) -> None:
        self._client: ClusterClient = DirectClient(self.addresses, upstream)
        self._bootstrap = bootstrap
        self._known: list[HostPort] = []
        self._asked: dict[bytes, _Asked] = {}
        self._questions: dict[str, Callable[..., Awaitable[Any]]] = {
            "brokers": self._brokers,
            "topics": self._topics,
            "default_partitions": self._default_partitions,
            "active_brokers": self._active_brokers,
            "log_dirs": self._log_dirs,
        }

    def addresses(self) -> list[HostPort]:
        """The live brokers, then the bootstrap servers."""
        return list(dict.fromkeys([*self._known, *self._bootstrap]))

    def answers(self) -> Answers:
        return {"cluster": self.ask}

    async def ask(self, question: str, age: float, *arguments: Any) -> Any:
        """The answer to a question that was asked `age` seconds ago at most; with `failed` where it is a `BrokerError`."""
        loop, key = asyncio.get_running_loop(), orjson.dumps([question, arguments], option=orjson.OPT_SORT_KEYS)
        asked = self._asked.get(key)
        if asked is None or asked.at < loop.time() - age:
            work = self._later(self._questions[question], arguments)
            asked = self._asked[key] = _Asked(loop.time() + JOIN, loop.create_task(work, name=f"{question} for workers"))
            asked.answer.add_done_callback(lambda _: loop.call_later(AGE, self._forget, key, asked))
        return await asyncio.shield(asked.answer)

    async def _later(self, question: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> Any:
        await asyncio.sleep(JOIN)
        try:
            return await question(*arguments)
        except BrokerError as e:
            return {"failed": str(e), "refused": e.refused, "too_old": e.too_old}

    def _forget(self, key: bytes, asked: _Asked) -> None:
        if self._asked.get(key) is asked:
            del self._asked[key]

    async def _brokers(self) -> list[Broker]:
        found = await self._client.brokers()
        self._known = [HostPort(broker.host, broker.port) for broker in found if broker.host]
        return found

    async def _topics(self, broker: _Row) -> bytes:
        return _told(await self._client.topics(Broker(*broker)))

    async def _default_partitions(self, broker: _Row) -> int | None:
        return await self._client.default_partitions(Broker(*broker))

    async def _active_brokers(self, within: float) -> list[Broker]:
        return await self._client.active_brokers(within)

    async def _log_dirs(self, broker: _Row, topics: Mapping[str, int] | None, within: float) -> bytes:
        return _told(await self._client.log_dirs(Broker(*broker), topics, within))


class RelayedClient:
    """The worker's part: a `ClusterClient`. `age`: how many seconds before the question an answer may have been asked for, at most
    `AGE`."""

    def __init__(self, channel: Channel, age: float) -> None:
        self._channel, self._age = channel, age

    async def brokers(self) -> list[Broker]:
        return [Broker(*row) for row in await self._ask("brokers")]

    async def topics(self, broker: Broker) -> Frame:
        return _frame(await self._ask("topics", broker))

    async def default_partitions(self, broker: Broker) -> int | None:
        told: int | None = await self._ask("default_partitions", broker)
        return told

    async def active_brokers(self, within: float) -> list[Broker]:
        return [Broker(*row) for row in await self._ask("active_brokers", within)]

    async def log_dirs(self, broker: Broker, topics: Mapping[str, int] | None, within: float) -> Frame:
        return _frame(await self._ask("log_dirs", broker, topics, within))

    async def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            answer = await self._channel.ask("cluster", question, self._age, *arguments)
        except ChannelError as e:
            raise BrokerError(f"the supervisor does not tell: {e}") from None
        if isinstance(answer, dict):
            raise BrokerError(answer["failed"], refused=answer["refused"], too_old=answer["too_old"])
        return answer


def _told(answer: Frame) -> bytes:
    frame, version = answer
    return version.to_bytes(_VERSION, "big") + frame


def _frame(told: bytes) -> Frame:
    return told[_VERSION:], int.from_bytes(told[:_VERSION], "big")
