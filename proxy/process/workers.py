"""The workers of a supervisor: they are started, started again when they end, told other settings, asked, and stopped.

In: settings, questions. Out: answers of all of them as one; `StartError` when one cannot start. A worker that is started again gets
the settings that all started with, and those in force: a file that has become wrong keeps no worker from starting. When the
supervisor ends, however that comes, its workers end. The store by which workers share quotas is in its memory, or in a
topic that it follows for all of them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson
from prometheus_client.core import Metric

from proxy.backoff import Backoff
from proxy.clients.handover import ABSENT, Board
from proxy.clients.listeners import listen_at
from proxy.clients.shared_counts import SharedCounts
from proxy.config.models import Settings
from proxy.config.workers import settings_of_worker
from proxy.fleet.channel import Answers, Channel, ChannelError
from proxy.fleet.channel_store import store_answers
from proxy.fleet.log_follower import LogFollower
from proxy.fleet.log_store import LogStore
from proxy.fleet.memory_store import Memory, MemoryStore
from proxy.fleet.store import Store
from proxy.observe.as_json import as_json
from proxy.observe.live import EMPTY, merged_one
from proxy.observe.live import merged as merged_live
from proxy.observe.merging import Counters, Rows, merged, merged_throttles
from proxy.observe.metrics import worker_metrics
from proxy.observe.operations import Log
from proxy.process.start_error import StartError, no_address
from proxy.process.worker import Inheritance, packed

FIRST_RESTART, SLOWEST_RESTART = 0.1, 10.0
FIRST_STARTS: Final = 3
"""Times that a worker is started that ends before all serve for the first time."""
STEADY: Final = 60.0
"""Seconds after which a worker that ends is one that worked: it is started again without a delay."""
ANSWERS_WITHIN: Final = 1.0
"""Seconds that workers have to answer what the admin listener is asked."""
AFTER_DRAIN: Final = 10.0
"""Seconds after `limits.drain_timeout` until a worker that stops is killed."""


class WorkerProcess:
    """One worker, and those that take its place. `current`: the settings in force."""

    def __init__(self, number: int, workers: Workers) -> None:
        self.number, self._workers = number, workers
        self.starts = 0
        self.started: dict[str, Any] | None = None
        """what it says about its start; None while it is not serving"""
        self.channel: Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def keep(self) -> None:
        """Start it, and again whenever it has ended, until the supervisor stops."""
        workers, loop = self._workers, asyncio.get_running_loop()
        backoff = Backoff(FIRST_RESTART, SLOWEST_RESTART)
        while not workers.stopping.is_set():
            began = loop.time()
            code = await self._run()
            workers.board.write(self.number, ABSENT)
            workers.counts.clear(self.number)
            if workers.stopping.is_set():
                return
            workers.log.error("worker ended", worker=self.number, exit_code=code, detail="it is started again")
            if self.starts >= FIRST_STARTS and not workers.serving.is_set():
                await workers.cannot_start(f"a worker ends before it serves, with exit code {code}; what it says stands above")
            if loop.time() - began > STEADY:
                backoff.reset()
            await backoff.wait()

    async def _run(self) -> int:
        """One process from its start to its end; its exit code."""
        workers = self._workers
        self.starts += 1
        own, theirs = socket.socketpair()
        with theirs:
            inherited = workers.inheritance(self.number, theirs.fileno())
            self._process = _start(inherited)
        answers: Answers = {
            "settings": self._settings,
            "started": self._has_started,
            "cannot_start": workers.cannot_start,
            **workers.answers,
            **store_answers(workers.open_store(f"{self.number}-{self.starts}")),
        }
        self.channel = Channel(own, answers)
        await self.channel.run()
        self.started = None
        return await asyncio.to_thread(self._process.wait)

    async def _settings(self) -> str:
        workers = self._workers
        return packed(*(workers.part(settings, self.number) for settings in (workers.started_with, workers.current)))

    async def _has_started(self, told: dict[str, Any]) -> None:
        self.started = told
        self._workers.look()

    def signal(self, number: int) -> bool:
        """True if there is a process to be told."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.send_signal(number)
        return True


class Workers:
    """All workers of one supervisor. `log` says what happens to them. `answers`: what else workers may ask; `ledger_topic`: where
    the ledger is in one."""

    def __init__(
        self, settings: Settings, count: int, log: Log, answers: Answers | None = None, ledger_topic: LogFollower | None = None
    ) -> None:
        self.answers = answers or {}
        self.started_with = self.current = settings
        self.count, self.log = count, log
        self._memory, self._ledger_topic = Memory(), ledger_topic
        self._boot = secrets.token_hex(8)
        self.board, self._board_fd = Board.make(count)
        self.counts, self._counts_fd = SharedCounts.make(count, settings.limits.max_connections)
        self.stopping = asyncio.Event()
        self.serving = asyncio.Event()
        """set once all serve for the first time, or one cannot start"""
        self.failure: str | None = None
        """why a worker cannot start"""
        self._inboxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        self.processes = [WorkerProcess(number, self) for number in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._counters, self._merging = Counters(), asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()

    async def start(self) -> dict[str, Any]:
        """Start all; what they say about it. `StartError` when one cannot."""
        if not hasattr(socket, "SO_REUSEPORT"):
            raise StartError("`workers` need SO_REUSEPORT, which this system does not have; set `workers` to 1")
        _look_at_ports(self.started_with)
        self._tasks = [asyncio.create_task(each.keep(), name=f"worker {each.number}") for each in self.processes]
        try:
            await self.serving.wait()
        except asyncio.CancelledError:  # told to stop
            await self.stop(asyncio.Event())
            raise
        if self.failure is not None:
            await self.stop(asyncio.Event())
            raise StartError(self.failure)
        return next(each.started for each in self.processes if each.started is not None)

    def look(self) -> None:
        """A worker has started."""
        if all(each.started is not None for each in self.processes):
            self.serving.set()

    async def cannot_start(self, reason: str) -> None:
        """Before all serve this ends the supervisor; afterwards the worker is started again."""
        if self.serving.is_set():
            self.log.error("worker cannot start", reason=reason)
        else:
            self.failure = reason
            self.serving.set()

    def open_store(self, boot: str) -> Store:
        """The store of the ledger, for one start of a worker."""
        if self._ledger_topic is None:
            return MemoryStore(self._memory, boot)
        return LogStore(self._ledger_topic, f"{self._boot}-{boot}", self.started_with.ledger.timeout)

    def part(self, settings: Settings, number: int) -> Settings:
        """The settings of one worker."""
        return settings_of_worker(settings, number, self.count)

    def inheritance(self, number: int, channel: int) -> Inheritance:
        senders = [sender.fileno() for sender, _ in self._inboxes]
        inbox = self._inboxes[number][1].fileno()
        return Inheritance(os.getpid(), number, channel, self._board_fd, self._counts_fd, senders, inbox)

    def use(self, settings: Settings) -> None:
        """These settings, which are right, hold from now on."""
        self.current = settings
        for each in self.processes:
            if each.channel is not None and each.started is not None:
                task = asyncio.create_task(self._tell(each, each.channel.ask("use", packed(self.part(settings, each.number)))))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def _tell(self, each: WorkerProcess, told: Awaitable[None]) -> None:
        try:
            await told
        except ChannelError as e:
            self.log.error("settings not applied", worker=each.number, reason=str(e))

    async def stop(self, hurry: asyncio.Event) -> None:
        """Let all drain. When there is a hurry they are told once more; who takes too long is killed."""
        self.stopping.set()
        for each, task in zip(self.processes, self._tasks, strict=True):
            if not each.signal(signal.SIGTERM):
                task.cancel()  # it waits to be started again
        ended = asyncio.gather(*self._tasks, return_exceptions=True)
        hurried = asyncio.create_task(self._hurry(hurry))
        try:
            async with asyncio.timeout(self.current.limits.drain_timeout + AFTER_DRAIN):
                await asyncio.shield(ended)
        except TimeoutError:
            self.log.error("workers killed", detail="they did not end within `limits.drain_timeout`")
            for each in self.processes:
                each.signal(signal.SIGKILL)
            await ended
        finally:
            hurried.cancel()

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        for each in self.processes:
            each.signal(signal.SIGTERM)

    # ------------------------------------------------------------------ what the admin listener tells

    async def metrics(self) -> list[Metric]:
        """Those of all workers that answer, as those of one proxy, and what others have counted."""
        answers = {number: (self.processes[number].starts, rows) for number, rows in await self._ask("metrics")}
        restarts = sum(each.starts - 1 for each in self.processes)
        async with self._merging:  # in a thread: that of many workers takes long, and they wait for their shared quotas meanwhile
            found = await asyncio.to_thread(self._merged, answers)
        return [*found, *worker_metrics(self.count, len(answers), restarts)]

    def _merged(self, answers: Mapping[int, tuple[int, Rows]]) -> list[Metric]:
        return merged(self._counters.complete(answers), self.current.metrics.max_entities)

    async def not_ready(self) -> str | None:
        """All have to serve at first. A worker that ends later and is started again leaves the others ready."""
        answers = await self._ask("not_ready")
        if len(answers) < (1 if self.serving.is_set() else self.count):
            return f"{len(answers)} of {self.count} workers answer"
        return next((f"worker {number}: {reason}" for number, reason in answers if reason is not None), None)

    async def warnings(self) -> list[str]:
        """Those of all workers, each once."""
        return list(dict.fromkeys(warning for _, told in await self._ask("warnings") for warning in told))

    async def throttles(self) -> dict[str, Any]:
        told = [answer for _, answer in await self._ask("throttles")]
        return merged_throttles(told) if told else {"proxy": self.current.proxy_id}

    async def tenants(self) -> dict[str, Any]:
        """One worker knows: all of them share what is used, and follow the same topics."""
        told = [answer for _, answer in await self._ask("tenants") if answer]
        return told[0] if told else {"proxy": self.current.proxy_id, "tenants": [], "of_nobody": {"topics": 0, "partitions": 0}}

    async def live(self, about: Mapping[str, Any]) -> list[bytes]:
        """`about`: what the supervisor knows of the proxy. In a thread, as `metrics`."""
        parts = [part for _, part in await self._ask("live") if part is not None]
        workers = {"count": self.count, "up": len(parts)}
        return [await asyncio.to_thread(_live_text, parts, {**about, "workers": workers})]

    async def client(self, user: str, client_id: str | None) -> dict[str, Any]:
        parts = [part for _, part in await self._ask("client", user, client_id) if part is not None]
        return merged_one(parts) if parts else {}

    async def _ask(self, question: str, *arguments: str | None) -> list[tuple[int, Any]]:
        """What each worker answers that does in time."""
        asked = {each.number: each.channel.ask(question, *arguments) for each in self.processes if each.channel and each.started}
        return [it for it in await asyncio.gather(*(_in_time(number, ask) for number, ask in asked.items())) if it is not None]


def _live_text(parts: Sequence[bytes], about: Mapping[str, Any]) -> bytes:
    told = merged_live([orjson.loads(part) for part in parts]) if parts else EMPTY
    return as_json({**told, "about": {**told["about"], **about}})


async def _in_time(number: int, ask: Coroutine[Any, Any, Any]) -> tuple[int, Any] | None:
    with suppress(ChannelError, TimeoutError):
        async with asyncio.timeout(ANSWERS_WITHIN):
            return number, await ask
    return None


def _start(inherited: Inheritance) -> subprocess.Popen[bytes]:
    """A process that imports what this one does. It tells systemd nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", "-m", "proxy.process", inherited.as_argument()]
    return subprocess.Popen(command, env=environment, pass_fds=inherited.descriptors(), stdin=subprocess.DEVNULL)


def _look_at_ports(settings: Settings) -> None:
    """`StartError` when somebody else listens where clients bootstrap. Workers share ports, so they would not notice."""
    for listener_name, listener in settings.listeners.items():
        if listener.reuse_port:
            continue
        try:
            for sock in listen_at(listener.bootstrap.host, listener.bootstrap.port, reuse_port=False):
                sock.close()
        except OSError as e:
            raise StartError(no_address(settings, listener_name, e)) from None
