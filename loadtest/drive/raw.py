"""Connections, topics and producer ids by the protocol. In: a `Job`. Out: what became of each operation.

Each process has one event loop. Operations begin when they are due, even if earlier ones hang, up to `MAX_IN_FLIGHT` at a time."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from loadtest.drive import admins
from loadtest.drive.admins import Admin
from loadtest.drive.job import Job
from loadtest.drive.librdkafka import one_record
from loadtest.drive.pace import Pace
from loadtest.drive.tally import LATE, Tally
from loadtest.endpoint import leaders
from loadtest.entities import error_name
from loadtest.login import LoginFailed
from loadtest.scenario import AskController, Asking, AskMetadata, Connect, CreateTopics, ProducerIds
from loadtest.wire import (
    API_VERSIONS,
    METADATA,
    QUOTA_EXCEEDED,
    Answered,
    Connection,
    tls_context,
)

MAX_IN_FLIGHT: Final = 2000
"""Operations at a time. Each may have a connection of its own."""
LIBRARY: Final = "kio (raw protocol)"
Work = Callable[[int, float, float], Awaitable[None]]


class Raw:
    """One process of an operation."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._context: ssl.SSLContext | None = None if job.access.tls is None else tls_context(job.access.tls)
        self._works: dict[type, Work] = {
            Connect: self._connect,
            CreateTopics: self._create,
            ProducerIds: self._new_producer,
            AskController: self._ask,
            AskMetadata: self._ask_metadata,
        }
        self._pool: list[Connection | Admin | None] = [None] * job.clients
        self._locks = [asyncio.Lock() for _ in self._pool]
        self._wrong: BaseException | None = None
        self._threads = ThreadPoolExecutor(job.clients)
        self._places: list[tuple[str, list[int]]] = []

    async def connect(self) -> None:
        """Raises OSError, LoginFailed, EndpointError."""
        load = self.job.load
        if isinstance(load, CreateTopics) and load.client != "protocol":
            self._pool = [await admins.connect(load.client, self.job, self._threads) for _ in self._pool]
        else:
            (await self._open()).close()
        if self.job.topic:
            self._places = await asyncio.to_thread(leaders, self.job.bootstrap, self.job.access, self.job.topic)

    async def run(self, pace: Pace, tally: Tally) -> None:
        """Run from the beginning of the phase to its end, and end what is in flight then."""
        self.tally, self.pace = tally, pace
        await asyncio.sleep(max(pace.start - time.monotonic(), 0))
        load, tasks = self.job.load, set[asyncio.Task[None]]()
        assert isinstance(load, Asking)
        work = self._works[type(load)]
        allowed = self.job.clients if load.closed or pace.rate is None else MAX_IN_FLIGHT
        for n in itertools.count():
            blocked = len(tasks) >= allowed
            if blocked:
                await asyncio.wait(tasks, timeout=max(pace.end - time.monotonic(), 0), return_when=asyncio.FIRST_COMPLETED)
            due = time.monotonic() if pace.rate is None else pace.due(n)
            if load.closed:
                due = max(due, time.monotonic())
            if due >= pace.end or n == pace.max_count:
                break
            await asyncio.sleep(max(due - time.monotonic(), 0))
            now = time.monotonic()
            if now >= pace.end + LATE:
                break
            tally.begun(due, now, pace.weight, lag=not blocked)
            task = asyncio.create_task(self._one(work, n, due, now))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(self._ended)
            if self._wrong is not None:
                raise self._wrong
        await self._finish(tasks, pace)
        if self._wrong is not None:
            raise self._wrong
        for connection in self._pool:
            if connection is not None:
                connection.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An error that is no answer of the cluster is the driver's own, and ends it."""
        if not task.cancelled() and self._wrong is None:
            self._wrong = task.exception()

    async def _finish(self, tasks: set[asyncio.Task[None]], pace: Pace) -> None:
        """Wait for operations in flight, until `grace` is over."""
        if tasks:
            await asyncio.wait(tasks, timeout=max(pace.end + self.job.grace - time.monotonic(), 0))
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _one(self, work: Work, n: int, due: float, sent: float) -> None:
        try:
            await work(n, due, sent)
        except (OSError, EOFError, LoginFailed) as error:
            self.tally.failed(_name(error), due, time.monotonic(), self.pace.weight)
        except asyncio.CancelledError:
            if not self.job.load.limited:
                self.tally.failed("NOT_ANSWERED", due, time.monotonic(), self.pace.weight)
            raise

    async def _open(self, address: str | None = None) -> Connection:
        where = address or self.job.bootstrap.split(",")[0]
        return await Connection.open(where, self.job.client_id, self.job.access, self._context)

    async def _pooled(self, n: int, ask: Callable[[Any], Awaitable[Answered]]) -> Answered:
        """Ask on the next connection of the pool, as soon as it is free."""
        place = n % len(self._pool)
        async with self._locks[place]:
            connection = self._pool[place]
            if connection is None:
                connection = self._pool[place] = await self._open()
            try:
                answered = await ask(connection)
            except BaseException:
                self._pool[place] = None
                connection.close()
                raise
        self.tally.throttled(answered.throttle, time.monotonic())
        return answered

    async def _connect(self, _n: int, due: float, sent: float) -> None:
        connection = await self._open()
        try:
            await connection.ask(API_VERSIONS)
            await connection.ask(METADATA, topics=())
        finally:
            connection.close()
        self.tally.done(due, sent, time.monotonic())

    async def _ask(self, n: int, due: float, sent: float) -> None:
        name = f"{self.job.prefix}-asked"
        answered = await self._pooled(n, lambda connection: connection.create({name: 1}, -1, validate_only=True))
        self._settle(answered.codes[name], due, sent)

    def _settle(self, error: int | str, due: float, sent: float, count: int = 1) -> None:
        """Count one operation. `error` is a code or a name; 0 or an empty text for success."""
        now = time.monotonic()
        if error:
            self.tally.failed(error if isinstance(error, str) else error_name(error), due, now, count)
        else:
            self.tally.done(due, sent, now, count=count)

    async def _create(self, n: int, due: float, sent: float) -> None:
        """One request, and further requests for what was refused."""
        load = self.job.load
        assert isinstance(load, CreateTopics)
        first = n * load.topics
        left = {f"{self.job.prefix}-{i}": load.partitions for i in range(first, min(first + load.topics, self.job.at_most))}
        while left:
            some = dict(left)
            answered = await self._pooled(n, lambda connection, some=some: connection.create(some, load.replicas))  # type: ignore[misc]
            left = {name: size for name, size in left.items() if answered.codes[name] == QUOTA_EXCEEDED and load.retry}
            made = [name for name in some if not answered.codes[name]]
            for name, code in answered.codes.items():
                if name not in left:
                    self._settle(code, due, sent, load.partitions)
            if made and load.delete:
                await self._delete(n, made, due, sent)
            if left:
                self.tally.refused(len(left))
                await asyncio.sleep(answered.throttle)
                if time.monotonic() >= self.pace.end:
                    return

    async def _delete(self, n: int, names: list[str], due: float, sent: float) -> None:
        load = self.job.load
        assert isinstance(load, CreateTopics)
        while names:
            answered = await self._pooled(n, lambda connection, names=names: connection.delete(names))  # type: ignore[misc]
            refused = [name for name in names if answered.codes[name] == QUOTA_EXCEEDED]
            for name in names:
                if name not in refused:
                    self._settle(answered.codes[name], due, sent, load.partitions)
            names = refused
            if names:
                self.tally.refused(len(names))
                await asyncio.sleep(answered.throttle)

    async def _ask_metadata(self, n: int, due: float, sent: float) -> None:
        await self._pooled(n, Connection.metadata)
        self.tally.done(due, sent, time.monotonic())

    async def _new_producer(self, n: int, due: float, sent: float) -> None:
        load = self.job.load
        assert isinstance(load, ProducerIds)
        if load.client == "librdkafka":
            name = await asyncio.get_running_loop().run_in_executor(self._threads, one_record, self.job)
            self._settle(name, due, sent)
            return
        address, partitions = self._places[n % len(self._places)]
        connection = await self._open(address)
        try:
            code, throttle = await connection.write(await connection.new_id(), self.job.topic, partitions)
        finally:
            connection.close()
        self.tally.throttled(throttle, time.monotonic())
        self._settle(code, due, sent)


def pace(job: Job, base: Pace) -> Pace:
    """When requests are due. Where a request has many topics and partitions, the rate is of partitions."""
    load = job.load
    if not isinstance(load, CreateTopics):
        return base
    weight = load.topics * load.partitions * (2 if load.delete else 1)
    rate = None if base.rate is None else base.rate / weight
    return replace(base, rate=rate, weight=weight, max_count=-(-job.at_most // load.topics))


def _name(error: Exception) -> str:
    """As results count it."""
    return {"IncompleteReadError": "CONNECTION_CLOSED", "ConnectionResetError": "CONNECTION_CLOSED"}.get(
        type(error).__name__, type(error).__name__
    )
