"""The real proxy (`proxy.process.proxy.Proxy`) on the simulated network: it can be killed, stopped and started again.

Replaced are only the ends of the world: sockets, clocks, chance, the store of the ledger, the admin listener, and the operations
log, whose internal errors count as failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from random import Random
from typing import Any, Final, TypeVar
from unittest import mock

from proxy.clients.turns import Turns
from proxy.config.models import Settings
from proxy.fleet.store import Reply, StoreError
from proxy.pieces import PIECE, in_pieces
from proxy.process.proxy import Proxy
from proxy.session.session import State
from quota.ledger import Update
from quota.steps import Steps
from tests.fleet.memory_store import Memory, MemoryStore
from tests.simulation.network import NODE, AcceptedSocket, Network, NetworkLoop, Node, on

T = TypeVar("T")

HOST: Final = "lb"
BOOTSTRAP: Final = 9092


class Clock:
    """The wall clock and the monotonic one, in the place of the module `time`. The wall clock can jump."""

    def __init__(self, loop: NetworkLoop) -> None:
        self._loop, self.ahead = loop, 1_700_000_000.0

    def time(self) -> float:
        return self._loop.time() + self.ahead

    def monotonic(self) -> float:
        return self._loop.time()


class OperationsLog:
    """Keeps what is said, and calls `failed` with internal errors."""

    def __init__(self, node: Node, failed: Callable[[str], None]) -> None:
        self._node, self._failed = node, failed
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, what: str, **more: Any) -> None: ...

    def info(self, what: str, **more: Any) -> None:
        self.lines.append(("info", what, more))

    def warning(self, what: str, **more: Any) -> None:
        self.lines.append(("warning", what, more))

    def error(self, what: str, **more: Any) -> None:
        self.lines.append(("error", what, more))
        if what == "internal error" and self._node.alive:
            self._failed(f"{self._node.name}: {what} {more}")

    critical = error


class LossyStore(MemoryStore):
    """The client of one proxy: answers take their time, and may be lost though the batch was done."""

    def __init__(self, memory: Memory, boot: str, chance: Random, patience: float) -> None:
        super().__init__(memory, boot)
        self._chance, self._patience, self._node = chance, patience, NODE.get()
        self.lossy = 0.0

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        reply = await super().send(update, count_for)
        if self._chance.random() < self.lossy:
            await asyncio.sleep(self._patience)
            raise StoreError("its answer was lost")
        return reply

    async def _reach(self) -> None:
        if not self._node.alive:
            await asyncio.Event().wait()
        await asyncio.sleep(0.0005 + 0.001 * self._chance.random())
        if self.away or self._way.away:
            await asyncio.sleep(min(self._patience, 0.25))
            raise StoreError("away")


class LedgerStore:
    """What all proxies share. It can be away, lose everything, or go back to what it had before."""

    def __init__(self, chance: Random) -> None:
        self.memory, self._chance = Memory(), chance
        self.clients: list[LossyStore] = []
        self._kept: Any = None
        self._generations = 0

    def open(self, boot: str) -> Callable[[float], LossyStore]:
        def client(patience: float) -> LossyStore:
            made = LossyStore(self.memory, boot, Random(self._chance.random()), patience)
            self.clients.append(made)
            return made

        return client

    def lose(self) -> None:
        """It restarts empty."""
        from proxy.fleet.shared_state import SharedState

        self._generations += 1
        self.memory._state = SharedState(f"generation {self._generations}")
        self.memory._entries.clear()

    def keep(self) -> None:
        self._kept = deepcopy(self.memory._state)

    def roll_back(self) -> None:
        """A replica takes over that had not got all."""
        if self._kept is not None:
            self.memory._state = self._kept
            self.keep()


class NoAdmin:
    async def cleanup(self) -> None: ...


class SimulatedProxy:
    """One proxy, and those that take its place after it was killed or stopped."""

    def __init__(self, number: int, network: Network, settings: Callable[[int], Settings], failed: Callable[[str], None]) -> None:
        self.number, self.network, self._settings, self._failed = number, network, settings, failed
        self.proxy: Proxy | None = None
        self.node = Node("")
        self.starts = 0
        self._stopping: asyncio.Event | None = None

    @property
    def alive(self) -> bool:
        return self.proxy is not None and self.node.alive and self._stopping is None

    def start(self) -> None:
        self.starts += 1
        self.node = Node(f"proxy-{self.number}.{self.starts}")
        self._stopping = None
        context = on(self.node)
        context.run(self.network.loop.create_task, self._run(self.node))

    async def _run(self, node: Node) -> None:
        log: Any = OperationsLog(node, self._failed)
        proxy = Proxy(self._settings(self.number), lambda: self._settings(self.number), None, log)
        self.proxy, self.log = proxy, log
        try:
            await proxy.start()
        except Exception as e:
            if node.alive:
                self._failed(f"{node.name} does not start: {e!r}")

    def kill(self) -> None:
        self.network.kill(self.node)

    def stop(self, then: Callable[[], None]) -> None:
        """SIGTERM; `then` when it has ended."""
        assert self.proxy is not None
        proxy, node, hurry = self.proxy, self.node, asyncio.Event()
        self._stopping = hurry

        async def stop() -> None:
            await proxy.stop(hurry)
            self.network.loop.call_later(0.1, end)

        def end() -> None:
            if node.alive:
                self.network.kill(node)
                then()

        on(node).run(self.network.loop.create_task, stop())

    def reload(self) -> None:
        if self.alive and self.proxy is not None:
            on(self.node).run(self.network.loop.create_task, self.proxy.reloader.now("simulated"))

    @property
    def quiet(self) -> bool:
        """True if no client is connected."""
        return self.proxy is not None and not self.proxy.shared.connections

    def memory_wrong(self) -> str | None:
        """What is charged to the budget has to be what sessions and transports hold."""
        assert self.proxy is not None
        shared = self.proxy.shared
        held = 0
        for connection in shared.connections:
            session = connection.session
            held += session._charged + connection._unsent + connection._broker_unsent
            in_it = session._cutter.gathered + session._cutter.unread + session._answers.held
            in_it += 0 if session._current is None else session._current.request.size
            if session.state is not State.CLOSED and session._charged > in_it + (1 << 17):
                return f"a session is charged {session._charged} bytes and holds {in_it}"
        budget = shared.services.budget.held
        return None if budget == held else f"{budget} bytes are charged, connections have {held}"

    def left_over(self) -> list[str]:
        """What is in tables though nothing is connected and all that is remembered has had its time."""
        assert self.proxy is not None
        proxy, now = self.proxy, self.network.loop.time()
        engine, services = proxy.engine, proxy.shared.services
        for i in range(40):
            engine.sweep(now + 8000 + i)
        found = {
            "connections": len(proxy.shared.connections),
            "memory": services.budget.held,
            "waiting for memory": services.budget.waiting,
            "counted connections": services.census.count,
            "users of connections": len(services.census.by_user()),
            "expected topics": len(services.expected),
            "turns": proxy.shared.turns.waiting,
            "fences": len(engine.fence),
            "ids of fences": len(engine.fence.by_id),
            "overflows": len(engine.fence.overflowing),
            "mutes": len(engine.mutes.active(now + 8000)),
            "sums in use": sum(it.references for it in proxy.logs.tally._sums.values()),
            "welcomes": sum(it.welcoming for it in proxy.listeners),
            "windows of controller mutations": len(engine.controller_mutations),
            **{f"windows of {kind}": len(rates) for kind, rates in engine.rates.items()},
            **{f"windows of {kind} of tenants": len(rates) for kind, rates in engine.tenant_rates.items()},
        }
        return [f"{count} {what}" for what, count in found.items() if count]


class Accepted:
    """The transport of a connection that a simulated listener took."""

    def __init__(self, _loop: asyncio.AbstractEventLoop, sock: AcceptedSocket, protocol: Any) -> None:
        self._transport, self._protocol = sock.transport, protocol

    def start(self) -> None:
        if self._transport.lost:
            raise ConnectionResetError
        self._transport.attach(self._protocol)


class CountedTurns(Turns):
    """A turn is over after a number of looks instead of a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticks = 0.0

        def clock() -> float:
            self._ticks += 0.0002
            return self._ticks

        super().__init__(loop, clock)


async def counted_pieces(steps: Steps[T]) -> T:
    """A piece is over after some steps instead of a time."""
    return await in_pieces(steps, count(0.0, PIECE / 4).__next__)


@contextlib.contextmanager
def replaced(network: Network, store: LedgerStore, clock: Clock, chance: Random) -> Iterator[None]:
    """The ends of the world are the simulated ones."""

    def listen_at(host: str, port: int, *, reuse_port: bool) -> list[Any]:  # noqa: ARG001
        return [network.listen(host, port, NODE.get())]

    async def open_admin(*_: object) -> NoAdmin:
        return NoAdmin()

    hidden: dict[str, Any] = {
        "proxy.clients.listeners.listen_at": listen_at,
        "proxy.clients.listeners.TcpTransport": Accepted,
        "proxy.upstream.connector.connect": network.connect,
        "proxy.clients.listeners.uniform": chance.uniform,
        "proxy.process.admin.open_admin": open_admin,
        "proxy.process.admin.admin_address": lambda *_: "",
        "proxy.process.proxy.Turns": CountedTurns,
        "proxy.process.proxy.in_pieces": counted_pieces,
        "proxy.process.logs.in_pieces": counted_pieces,
        "proxy.process.proxy.time": clock,
        "proxy.process.logs.time": clock,
        "secrets.token_hex": lambda size: chance.randbytes(size).hex(),
        "proxy.fleet.fleet.redis_store": lambda _settings, boot: store.open(boot),
        "proxy.clients.connection.ClientConnection.__hash__": lambda it: (
            id(it) if not hasattr(it, "transport") else it.transport.number
        ),
    }
    with contextlib.ExitStack() as stack:
        for name, value in hidden.items():
            stack.enter_context(mock.patch(name, value))
        yield
