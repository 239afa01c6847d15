"""Spreads connections evenly over the workers of one machine. The kernel chooses a worker by a hash of addresses and ports: of 8
connections the busiest of 4 workers then gets almost twice its share. So a worker that accepts a connection hands it over to the
worker that has the fewest.

In: accepted sockets, and how many connections each worker has, which stands in memory that all share. Out: sockets for the
listeners of another worker, through the socket from which it takes them. What is sent to a worker that has just died waits there
for the one that takes its place."""

from __future__ import annotations

import array
import asyncio
import json
import mmap
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from zlib import crc32

ABSENT: Final = -1
"""Connections of a worker that takes none from others."""
_ROW: Final = 3
"""Numbers for each worker: its connections, and checksums of its listeners and of the brokers that these have ports for."""
_MOST: Final = 1024
"""Bytes of a message."""
Take = Callable[[socket.socket, str, int | None], None]
"""(connection, listener, broker whose port it came to): takes a connection that another worker has accepted."""


class Board:
    """How many connections each worker has, in the memory behind `fd`. Workers write their own row, and a guess of what they add
    to those of others; what is lost when two write at once is right again as soon as the owner of the row writes."""

    def __init__(self, fd: int, workers: int) -> None:
        self._numbers = memoryview(mmap.mmap(fd, workers * _ROW * 8)).cast("q")
        self.workers = workers

    @classmethod
    def make(cls, workers: int) -> tuple[Board, int]:
        """One on which nobody stands yet, and its file descriptor."""
        fd = os.memfd_create("workers")
        os.truncate(fd, workers * _ROW * 8)
        board = cls(fd, workers)
        for worker in range(workers):
            board.write(worker, ABSENT)
        return board, fd

    def connections(self, worker: int) -> int:
        return self._numbers[worker * _ROW]

    def write(self, worker: int, connections: int) -> None:
        self._numbers[worker * _ROW] = connections

    def ports(self, worker: int, *, of_brokers: bool) -> int:
        """A checksum of the worker's listeners, or of those with the brokers that they have ports for."""
        return self._numbers[worker * _ROW + 1 + of_brokers]

    def write_ports(self, worker: int, ports: dict[str, list[int]]) -> None:
        """These are the worker's listeners, and their brokers."""
        for place, known in enumerate((sorted(ports), sorted(ports.items())), 1):
            self._numbers[worker * _ROW + place] = crc32(json.dumps(known).encode())


class Handover:
    """The part of one worker. `inboxes`: where to send what is for each worker; `own`: where this one takes it from."""

    def __init__(self, worker: int, board: Board, inboxes: Sequence[socket.socket], own: socket.socket) -> None:
        self._worker, self._board, self._inboxes, self._own = worker, board, inboxes, own
        self._ports: dict[str, list[int]] = {}
        own.setblocking(False)
        self.given = self.taken = 0
        """connections, since the start"""

    def begin(self, take: Take) -> None:
        """Take connections from others from now on."""
        asyncio.get_running_loop().add_reader(self._own, self._receive, take)
        self._board.write(self._worker, 0)

    def stop(self) -> None:
        """Take and give no more."""
        asyncio.get_running_loop().remove_reader(self._own)
        self._board.write(self._worker, ABSENT)

    def count(self, connections: int) -> None:
        """This worker has so many connections now."""
        if self._board.connections(self._worker) != ABSENT:
            self._board.write(self._worker, connections)

    def listening(self, listener: str, brokers: Sequence[int]) -> None:
        """A listener has ports for these brokers. Only workers with the same ports hand over to each other what came to a broker's
        port, as others do not know the broker; and only those with the same listeners anything."""
        self._ports[listener] = sorted(brokers)
        self._board.write_ports(self._worker, self._ports)

    def give(self, conn: socket.socket, listener: str, node_id: int | None) -> bool:
        """Give an accepted connection to the worker that has the fewest; False if that is this one, or it cannot take it."""
        board, own = self._board, self._board.connections(self._worker)
        least = min(self._others(of_brokers=node_id is not None), key=board.connections, default=self._worker)
        if own == ABSENT or board.connections(least) >= own:
            return False
        message = json.dumps([listener, node_id]).encode()
        descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [conn.fileno()]))]
        expected = board.connections(least)
        board.write(least, expected + 1)  # before it is sent: as soon as it is taken, the other one writes what is right
        try:
            self._inboxes[least].sendmsg([message], descriptors, socket.MSG_DONTWAIT)
        except OSError:  # its inbox is full
            board.write(least, expected)
            return False
        conn.close()
        self.given += 1
        return True

    def _others(self, *, of_brokers: bool) -> list[int]:
        """Workers that take connections and have the same ports."""
        board = self._board
        own = board.ports(self._worker, of_brokers=of_brokers)
        return [
            it for it in range(board.workers) if board.connections(it) != ABSENT and board.ports(it, of_brokers=of_brokers) == own
        ]

    def _receive(self, take: Take) -> None:
        """Take what is there."""
        with suppress(BlockingIOError, InterruptedError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(self._own, _MOST, 1)
                if not descriptors:
                    return
                listener, node_id = json.loads(message)
                self.taken += 1
                take(socket.socket(fileno=descriptors[0]), listener, node_id)
