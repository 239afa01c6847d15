"""A stream between two processes of one machine on which both ask and both answer.

In: a connected socket, and a function for each question that may be asked here. Out: answers; `ChannelError` when the other side is
gone or cannot answer. A message is four bytes of length and JSON: `[number, question, arguments]`, or `[number, answer, error]`,
with the number of the question below zero. An answer that is bytes, such as a frame of a broker, goes as it is, behind the number
of its question; the first bit of the length tells."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

HEAD: Final = struct.Struct("!I")
BYTES: Final = 1 << 31
"""Set in the length of a message whose answer is bytes."""
NUMBER: Final = struct.Struct("!q")
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
                (head,) = HEAD.unpack(await reader.readexactly(HEAD.size))
                message = await reader.readexactly(head & ~BYTES)
                if head & BYTES:
                    self._answered(NUMBER.unpack_from(message)[0], message[NUMBER.size :], None)
                else:
                    self._take(*orjson.loads(message))
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
        self._write(orjson.dumps(message, default=list))

    def _write(self, data: bytes, number: int = 0) -> None:
        """JSON; or, behind the number of the question, an answer that is bytes."""
        if self._writer is None:
            return
        if len(data) > MOST_BYTES:
            raise ChannelError(f"a message of {len(data):,} bytes is more than the {MOST_BYTES:,} that may be sent")
        head = HEAD.pack((len(data) + NUMBER.size) | BYTES) + NUMBER.pack(number) if number else HEAD.pack(len(data))
        self._writer.writelines((head, data))

    def _take(self, number: int, first: Any, second: Any) -> None:
        if number < 0:
            self._answered(-number, first, second)
            return
        task = asyncio.create_task(self._answer(number, first, second), name=f"answer to {first}")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _answered(self, number: int, answer: Any, error: str | None) -> None:
        asked = self._asked.get(number)
        if asked is None or asked.done():
            return
        if error is None:
            asked.set_result(answer)
        else:
            asked.set_exception(ChannelError(error))

    async def _answer(self, number: int, question: str, arguments: list[Any]) -> None:
        try:
            answer = await self._answers[question](*arguments)
            if isinstance(answer, bytes):
                self._write(answer, number)
            else:
                self._send([-number, answer, None])
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
