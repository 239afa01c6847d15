"""One worker: a proxy without an admin listener of its own, which does what its supervisor says. The supervisor starts it, as
`python -m proxy.process` with an `Inheritance`.

In: settings, from the supervisor; signals. Out: the exit code; figures for the supervisor, when it asks."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import os
import pickle
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

import uvloop

from proxy.clients.handover import Board, Handover
from proxy.clients.shared_counts import SharedCounts
from proxy.config.models import Settings
from proxy.fleet.channel import Channel
from proxy.observe.merging import Rows, rows_of
from proxy.observe.operations import operations_log
from proxy.pieces import in_pieces
from proxy.process.proxy import Proxy
from proxy.process.start_error import StartError
from proxy.process.starting import has_started
from proxy.process.tuning import prepare_process, tune_gc
from proxy.process.worker_role import WorkerRole
from proxy.tls import TlsError

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class Inheritance:
    """What a worker gets from its supervisor: its number, and file descriptors."""

    supervisor: int
    """process id"""
    number: int
    channel: int
    board: int
    counts: int
    inboxes: list[int]
    """where to send connections for each worker"""
    inbox: int
    """where this one takes them from"""

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    def descriptors(self) -> list[int]:
        return [self.channel, self.board, self.counts, self.inbox, *self.inboxes]


def packed(*settings: Settings) -> str:
    """Settings as a worker gets them: with secrets, which go to nobody else."""
    return base64.b64encode(pickle.dumps(settings)).decode()


def unpacked(text: str) -> tuple[Settings, ...]:
    found: tuple[Settings, ...] = pickle.loads(base64.b64decode(text))  # noqa: S301  (it comes from the parent process)
    return found


ANSWERS: Final = ("metrics", "not_ready", "warnings", "throttles", "tenants", "live", "client", "use")
"""What the supervisor asks and tells."""


class Worker:
    """The worker of this process."""

    def __init__(self, inherited: Inheritance) -> None:
        self._inherited = inherited
        self._proxy: Proxy | None = None
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        answers = {name: getattr(self, name) for name in ANSWERS}
        self._channel = Channel(socket.socket(fileno=inherited.channel), answers)

    async def run(self) -> int:
        """Until SIGTERM, or until the supervisor is gone. The exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        connected = loop.create_task(self._channel.run())
        started_with, current = unpacked(await self._channel.ask("settings"))
        try:
            proxy = self._proxy = self._make(started_with)
            if not await has_started(proxy.start(), self._stopping):
                return 0
            if current != started_with:
                proxy.use(current)
        except (StartError, TlsError) as e:
            await self._channel.ask("cannot_start", str(e))
            return 1
        tune_gc()
        await self._channel.ask("started", proxy.started())
        waits = [loop.create_task(event.wait()) for event in (self._stopping, proxy.failed)]
        await asyncio.wait([connected, *waits], return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            return 1
        await proxy.stop(self._hurry)
        return 1 if proxy.failed.is_set() else 0

    def _make(self, settings: Settings) -> Proxy:
        inherited = self._inherited
        inboxes = [socket.socket(fileno=fd) for fd in inherited.inboxes]
        board = Board(inherited.board, len(inboxes))
        handover = Handover(inherited.number, board, inboxes, socket.socket(fileno=inherited.inbox))
        counts = SharedCounts(inherited.counts, len(inboxes), inherited.number)
        role = WorkerRole(inherited.number, len(inboxes), self._channel, handover, counts)
        log = operations_log(settings.logs.level, settings.logs.format, proxy=settings.proxy_id, worker=inherited.number)
        return Proxy(settings, lambda: settings, None, log, role)

    def _stop(self) -> None:
        (self._hurry if self._stopping.is_set() else self._stopping).set()

    async def metrics(self) -> Rows:
        return [] if self._proxy is None else await in_pieces(rows_of(await self._proxy.metrics()))

    async def not_ready(self) -> str | None:
        return "starting" if self._proxy is None else await self._proxy.not_ready()

    async def warnings(self) -> list[str]:
        return [] if self._proxy is None else await self._proxy.warnings()

    async def throttles(self) -> dict[str, Any]:
        return {} if self._proxy is None else await self._proxy.throttles()

    async def tenants(self) -> dict[str, Any]:
        return {} if self._proxy is None else await self._proxy.tenants()

    async def live(self) -> bytes | None:
        return None if self._proxy is None else b"".join(await self._proxy.live())

    async def client(self, user: str, client_id: str | None) -> dict[str, Any] | None:
        return None if self._proxy is None else await self._proxy.client(user, client_id)

    async def use(self, settings: str) -> None:
        """Other settings, which the supervisor has checked."""
        if self._proxy is not None:
            self._proxy.use(*unpacked(settings))


def end_with(supervisor: int) -> None:
    """Have the kernel end this process when the one that started it ends, however that comes."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it ended before
        sys.exit(1)


async def _run(inherited: Inheritance) -> int:
    return await Worker(inherited).run()


def main() -> int:
    """Run the worker that the arguments describe."""
    inherited = Inheritance(**json.loads(sys.argv[1]))
    end_with(inherited.supervisor)
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all processes: the supervisor says what they mean
        signal.signal(number, signal.SIG_IGN)
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(inherited))
