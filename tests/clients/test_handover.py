"""Workers hand connections over, so that each has as many as the others, however the kernel spreads them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest

from proxy.clients.handover import ABSENT, Board, Handover

WORKERS = 4


class Worker:
    """One that keeps what it gets."""

    def __init__(self, number: int, fd: int, inboxes: list[tuple[socket.socket, socket.socket]]) -> None:
        self.board = Board(fd, len(inboxes))
        self.handover = Handover(number, self.board, [sender for sender, _ in inboxes], inboxes[number][1])
        self.has: list[tuple[socket.socket, str, int | None]] = []
        self.listen("main", [1, 2, 3])
        self.handover.begin(self.take)

    def listen(self, name: str, brokers: list[int]) -> None:
        self.handover.listening(name, brokers)

    def take(self, conn: socket.socket, listener: str, node_id: int | None) -> None:
        self.has.append((conn, listener, node_id))
        self.handover.count(len(self.has))

    def accept(self, conn: socket.socket, listener: str = "main", node_id: int | None = None) -> None:
        if not self.handover.give(conn, listener, node_id):
            self.take(conn, listener, node_id)

    def lose(self, count: int) -> None:
        for conn, _, _ in self.has[:count]:
            conn.close()
        del self.has[:count]
        self.handover.count(len(self.has))


class Workers:
    def __init__(self) -> None:
        self._stack = ExitStack()
        _, fd = Board.make(WORKERS)
        self.inboxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(WORKERS)]
        for pair in self.inboxes:
            for sock in pair:
                self._stack.enter_context(sock)
        self.all = [Worker(number, fd, self.inboxes) for number in range(WORKERS)]
        self.clients: list[socket.socket] = []

    def connection(self) -> socket.socket:
        client, conn = socket.socketpair()
        self.clients.append(self._stack.enter_context(client))
        return conn

    @property
    def counts(self) -> list[int]:
        return [len(worker.has) for worker in self.all]

    async def settle(self) -> None:
        """Until all that was handed over has arrived."""
        while sum(worker.handover.given for worker in self.all) > sum(worker.handover.taken for worker in self.all):  # noqa: ASYNC110
            await asyncio.sleep(0)

    def close(self) -> None:
        for worker in self.all:
            worker.handover.stop()
            worker.lose(len(worker.has))
        self._stack.close()


def run(test: Callable[[Workers], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        made = Workers()
        try:
            await test(made)
        finally:
            made.close()

    asyncio.run(work())


@pytest.mark.parametrize("connections", [8, 30, 100])
def test_however_the_kernel_spreads_them_each_worker_has_its_share(connections: int) -> None:
    async def test(workers: Workers) -> None:
        choose = random.Random(connections)
        for _ in range(connections):
            workers.all[min(int(choose.expovariate(1.5)), WORKERS - 1)].accept(workers.connection())
            await workers.settle()
        assert max(workers.counts) - min(workers.counts) <= 1

    run(test)


def test_what_is_handed_over_is_the_connection_itself_for_the_same_listener_and_broker() -> None:
    async def test(workers: Workers) -> None:
        for _ in range(2):
            workers.all[0].accept(workers.connection(), "sni", 7)
            await workers.settle()
        other = next(worker for worker in workers.all[1:] if worker.has)
        ((conn, listener, node_id),) = other.has
        assert (listener, node_id) == ("sni", 7)
        workers.clients[1].send(b"hello")
        assert conn.recv(10) == b"hello"
        assert len(workers.all[0].has) == 1

    run(test)


def test_who_lost_connections_gets_the_next_ones() -> None:
    async def test(workers: Workers) -> None:
        for _ in range(12):
            workers.all[0].accept(workers.connection())
            await workers.settle()
        workers.all[2].lose(3)
        for _ in range(3):
            workers.all[0].accept(workers.connection())
            await workers.settle()
        assert workers.counts == [3, 3, 3, 3]

    run(test)


def test_a_worker_that_stops_or_knows_other_brokers_gets_none_for_a_broker() -> None:
    async def test(workers: Workers) -> None:
        workers.all[1].handover.stop()
        workers.all[2].listen("main", [1, 2])
        workers.all[3].listen("main", [1, 2])
        for _ in range(8):
            workers.all[0].accept(workers.connection(), node_id=1)
            await workers.settle()
        assert workers.counts == [8, 0, 0, 0]
        workers.all[3].listen("main", [1, 2, 3])
        for _ in range(8):
            workers.all[0].accept(workers.connection(), node_id=1)
            await workers.settle()
        assert workers.counts == [8, 0, 0, 8]
        assert workers.all[0].board.connections(1) == ABSENT

    run(test)


def test_one_that_knows_no_brokers_yet_gets_what_is_for_no_broker() -> None:
    """So that few connections are spread from the start."""

    async def test(workers: Workers) -> None:
        workers.all[2].listen("main", [])
        workers.all[3].listen("other", [1, 2, 3])
        for _ in range(9):
            workers.all[0].accept(workers.connection())
            await workers.settle()
        assert workers.counts == [3, 3, 3, 0]

    run(test)


def test_what_waits_for_a_worker_that_died_is_for_the_one_that_takes_its_place() -> None:
    async def test(workers: Workers) -> None:
        dead = workers.all[1]
        asyncio.get_running_loop().remove_reader(workers.inboxes[1][1])  # it hears nothing any more
        for _ in range(WORKERS):
            workers.all[0].accept(workers.connection())
        dead.handover.begin(dead.take)
        await workers.settle()
        assert workers.counts == [1, 1, 1, 1]

    run(test)


def test_one_whose_inbox_is_full_leaves_connections_where_they_are() -> None:
    async def test(workers: Workers) -> None:
        for number in range(1, WORKERS):
            asyncio.get_running_loop().remove_reader(workers.inboxes[number][1])
            workers.inboxes[number][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for _ in range(100):
            workers.all[0].accept(workers.connection())
        assert len(workers.all[0].has) > 50

    run(test)
