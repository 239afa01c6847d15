"""A stream between two processes of one machine on which both ask and both answer.

In: a connected socket, and a function for each question that may be asked here. Out: answers; `ChannelError` when the other side is
gone or cannot answer. A message is four bytes of length and JSON: `[number, question, arguments]`, or `[number, answer, error]`,
with the number of the question below zero."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

HEAD: Final = struct.Struct("!I")
MOST_BYTES: Final = 64 * 2**20
"""Of one message: the other process keeps it as a whole."""
Answers = Mapping[str, Callable[..., Awaitable[Any]]]


class ChannelError(Exception):
    """There is no answer; the message says why."""


class Channel:
    """One end. `answers`: by question."""

    def __init__(self, sock: socket.socket, answers: Answers) -> None:
        self._sock, self._answers = sock, answers
        self._writer: asyncio.StreamWriter | None = None
        self._open = asyncio.Event()
        """set once the writer is there, or will not come any more"""
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._number = 0

    async def run(self) -> None:
        """Until the other side is gone."""
        try:
            reader, self._writer = await asyncio.open_connection(sock=self._sock)
            self._open.set()
            while True:
                (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
                self._take(orjson.loads(await reader.readexactly(size)))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._end()

    async def ask(self, question: str, *arguments: Any) -> Any:
        """The answer of the other side, which may take until `run` has begun."""
        await self._open.wait()
        if self._writer is None:
            raise ChannelError("the other process has ended")
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send([number, question, arguments])
            return await answer
        finally:
            self._asked.pop(number, None)

    def _send(self, message: list[Any]) -> None:
        if self._writer is not None:
            data = orjson.dumps(message, default=list)
            if len(data) > MOST_BYTES:
                raise ChannelError(f"a message of {len(data):,} bytes is more than the {MOST_BYTES:,} that may be sent")
            self._writer.write(HEAD.pack(len(data)) + data)

    def _take(self, message: list[Any]) -> None:
        number, first, second = message
        if number > 0:
            task = asyncio.create_task(self._answer(number, first, second), name=f"answer to {first}")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        asked = self._asked.get(-number)
        if asked is None or asked.done():
            return
        if second is None:
            asked.set_result(first)
        else:
            asked.set_exception(ChannelError(second))

    async def _answer(self, number: int, question: str, arguments: list[Any]) -> None:
        try:
            self._send([-number, await self._answers[question](*arguments), None])
        except BaseException as e:  # the other side waits for an answer, whatever it is
            self._send([-number, None, f"{type(e).__name__}: {e}"])
            if not isinstance(e, Exception):
                raise

    def _end(self) -> None:
        self._open.set()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for task in self._answering:
            task.cancel()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ChannelError("the other process has ended"))
