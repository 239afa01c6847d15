"""A network in simulated time, and an event loop on it. In: chance, connections, faults. Out: bytes, late, in pieces, or cut off.

The code under test does what it always does: `create_connection`, listening sockets, transports. Bytes of a connection keep their
order. Each read may end at any byte. A writer whose peer does not read is told so, as by TCP's window: `pause_writing`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final

from tests.fleet.simulated import SimulatedLoop

WINDOW: Final = 1 << 16
"""Bytes that are on their way, or wait in the receiver's kernel, before the sender's transport keeps them."""
READ: Final = 1 << 16
"""Bytes of one read at most."""


class Node:
    """A machine: its connections and tasks end with it when it is killed."""

    def __init__(self, name: str) -> None:
        self.name, self.alive = name, True
        self.transports: dict[int, SimulatedTransport] = {}
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.slow = 0.0
        """seconds that everything to and from it takes longer"""


NOBODY: Final = Node("nobody")
NODE: ContextVar[Node] = ContextVar("NODE", default=NOBODY)
"""Whose code runs."""


def on(node: Node) -> Context:
    """A context in which the code of this node runs."""
    context = copy_context()
    context.run(NODE.set, node)
    return context


class NetworkLoop(SimulatedLoop):
    """The simulated event loop of all nodes. What goes to a thread is done at once; errors that nobody awaits go to `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.network: Network
        self.errors: list[str] = []
        self._numbers = 0
        super().set_exception_handler(self._unhandled)
        self.set_task_factory(self._task)

    def set_exception_handler(self, handler: Any) -> None:
        """All nodes share the loop, so none of them has its own."""

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if NODE.get().alive:
            self.errors.append(f"{context.get('message')}: {error!r} {_where(error)}")

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context, **named)
        node = NODE.get() if context is None else context.get(NODE, NOBODY)
        self._numbers += 1
        number = self._numbers
        node.tasks[number] = task
        task.add_done_callback(lambda _: node.tasks.pop(number, None))
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ARG002
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(factory, host, port)

    async def connect_accepted_socket(self, factory: Any, sock: Any, **_: Any) -> Any:  # type: ignore[override]
        transport: SimulatedTransport = sock.transport
        await asyncio.sleep(0)
        if transport.lost:
            raise ConnectionResetError
        transport.attach(factory())
        return transport, transport.get_protocol()

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        if isinstance(fd, ListeningSocket):
            fd.ready = callback, args, copy_context()
            if fd.waiting:
                self.call_soon(fd.tell)
        else:
            super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        if isinstance(fd, ListeningSocket):
            fd.ready = None
            return True
        return bool(super().remove_reader(fd))


def _where(error: BaseException | None) -> str:
    trace = error.__traceback__ if error is not None else None
    places = []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(places)


class Network:
    """All connections. `base`: seconds that bytes are under way at least."""

    def __init__(self, loop: NetworkLoop, chance: Random, base: float = 0.0005) -> None:
        self.loop, self.chance, self.base = loop, chance, base
        loop.network = self
        self._listeners: dict[tuple[str, int], list[ListeningSocket]] = {}
        self.connections: dict[int, SimulatedTransport] = {}
        """the side that connected, of each connection that is not over"""
        self._numbers = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def delay(self, one: Node, other: Node) -> float:
        """Seconds that something takes from one node to the other."""
        return self.base * (1 + self.chance.random()) + (one.slow + other.slow) * self.chance.random()

    def listen(self, host: str, port: int, node: Node) -> ListeningSocket:
        sock = ListeningSocket(self, host, port, node)
        self._listeners.setdefault((host, port), []).append(sock)
        return sock

    def stop_listening(self, sock: ListeningSocket) -> None:
        here = self._listeners.get((sock.host, sock.port), [])
        if sock in here:
            here.remove(sock)

    def serve(self, host: str, port: int, node: Node, factory: Callable[[], asyncio.Protocol]) -> ListeningSocket:
        """Whoever connects gets a protocol at once."""
        sock = self.listen(host, port, node)

        def accept() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    conn, _ = sock.accept()
                    conn.transport.attach(factory())

        sock.ready = accept, (), on(node)
        return sock

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        node = NODE.get()
        here = [sock for sock in self._listeners.get((host, port), ()) if sock.node.alive]
        sock = self.chance.choice(here) if here else None
        await asyncio.sleep(2 * self.delay(node, sock.node if sock else node))
        if sock is None or not sock.node.alive or sock.closed:
            raise ConnectionRefusedError(111, "Connection refused")
        mine = SimulatedTransport(self, node, copy_context(), (f"{node.name}", 40000 + self.number() % 20000), (host, port))
        there = SimulatedTransport(self, sock.node, on(sock.node), (host, port), mine.here)
        mine.peer, there.peer = there, mine
        self.connections[mine.number] = mine
        mine.attach(factory())
        sock.waiting.append(AcceptedSocket(there))
        self.loop.call_soon(sock.tell)
        return mine, mine.get_protocol()

    def kill(self, node: Node) -> None:
        """The process is gone at once: nothing of it runs any more, its peers are reset."""
        node.alive = False
        for transport in list(node.transports.values()):
            transport.vanish()
        for sock in [sock for here in self._listeners.values() for sock in here if sock.node is node]:
            self.stop_listening(sock)
        for task in list(node.tasks.values()):
            task.cancel()


class ListeningSocket:
    """A bound socket, as far as `proxy.clients.listeners` needs one."""

    def __init__(self, network: Network, host: str, port: int, node: Node) -> None:
        self.network, self.host, self.port, self.node = network, host, port, node
        self.waiting: deque[AcceptedSocket] = deque()
        self.ready: tuple[Callable[..., None], tuple[Any, ...], Context] | None = None
        self.closed = False

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def tell(self) -> None:
        if self.ready is not None and self.waiting and self.node.alive:
            callback, args, context = self.ready
            context.run(callback, *args)
            if self.waiting:
                self.network.loop.call_soon(self.tell)

    def accept(self) -> tuple[AcceptedSocket, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        conn = self.waiting.popleft()
        return conn, conn.transport.there

    def close(self) -> None:
        self.closed = True
        self.network.stop_listening(self)
        for conn in self.waiting:
            conn.close()


class AcceptedSocket:
    """A connection that has no transport of the event loop yet."""

    def __init__(self, transport: SimulatedTransport) -> None:
        self.transport = transport

    def setblocking(self, _: bool) -> None: ...

    def getpeername(self) -> tuple[str, int]:
        return self.transport.there

    def close(self) -> None:
        self.transport.abort()


_END: Final = b""


class SimulatedTransport(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, network: Network, node: Node, context: Context, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__()
        self._network, self.node, self._context = network, node, context
        self.here, self.there, self.number = here, there, network.number()
        self.peer: SimulatedTransport
        self._protocol: Any = None
        self._unsent: deque[bytes] = deque()
        self._unsent_size = self._under_way = 0
        self._wire: deque[tuple[float, bytes]] = deque()
        self._arrives = 0.0
        self._timer = False
        self._inbox: deque[bytes] = deque()
        self._ended = self._ending = self._broken = False
        self._paused, self._closing, self._full = False, False, False
        self._turn = False
        self._high, self._low = 1 << 16, 1 << 14
        self.lost = False
        """nothing comes or goes any more"""
        node.transports[self.number] = self

    # ------------------------------------------------------------------ what protocols see

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._call(protocol.connection_made, self)
        self._deliver_soon()

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.there, "sockname": self.here}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if self._broken:
                self._network.loop.call_soon(self._lose, ConnectionResetError(104, "Connection reset by peer"))
            else:
                self._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 1 << 16 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._tell_room()

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ending = True
        self._send()

    def write(self, data: Any) -> None:
        if self.lost or self._closing or not len(data):
            return
        if self._broken:
            self._network.loop.call_soon(self._lose, ConnectionResetError(32, "Broken pipe"))
            return
        self._unsent.append(data)
        self._unsent_size += len(data)
        self._send()
        self._tell_room()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        if self._closing or self.lost:
            return
        self._closing = self._ending = True
        self._send()
        if not self._unsent:
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self.lost:
            self._closing = self._ending = True
            self._unsent.clear()
            self._unsent_size = 0
            self._send()
            self._network.loop.call_soon(self._lose, None)

    def _call(self, what: Callable[..., Any], *args: Any) -> Any:
        """As code of this node, which may be the one that runs."""
        return what(*args) if NODE.get() is self.node else self._context.run(what, *args)

    # ------------------------------------------------------------------ faults

    def cut(self, chance: Random) -> None:
        """The connection breaks, with any number of the bytes that are under way delivered. One side may notice late."""
        late = chance.choice((None, None, self, self.peer))
        for side in (self, self.peer):
            side._cut_wire(chance)
            side._network.loop.call_later(chance.uniform(0.5, 10.0) if side is late else chance.uniform(0, 0.01), side._reset)

    def vanish(self) -> None:
        """Its process was killed."""
        self.lost = True
        self._cut_wire(self._network.chance)
        self._network.loop.call_later(self._network.delay(self.node, self.peer.node), self.peer._reset)
        self._forget()

    def _cut_wire(self, chance: Random) -> None:
        """Any number of what is under way arrives, and nothing else."""
        self._unsent.clear()
        self._unsent_size = 0
        self._ending = False
        left, kept = chance.randint(0, sum(len(data) for _, data in self._wire)), deque[tuple[float, bytes]]()
        for when, data in self._wire:
            if left:
                kept.append((when, bytes(data[:left])))
                left -= len(kept[-1][1])
        self._wire = kept
        self._muffled = True

    _muffled = False
    """what is written from now on is lost"""

    # ------------------------------------------------------------------ what is under way

    def _send(self) -> None:
        """Put on the wire what the window has room for."""
        network = self._network
        while self._unsent and (self._under_way < WINDOW or self._muffled):
            data = bytes(self._unsent.popleft())
            self._unsent_size -= len(data)
            if self._muffled:
                continue
            self._under_way += len(data)
            self._put(data)
        if self._ending and not self._unsent and not self._muffled:
            self._ending = False
            self._put(_END)
        if self._closing and not self._unsent and not self.lost:
            network.loop.call_soon(self._lose, None)

    def _put(self, data: bytes) -> None:
        network = self._network
        self._arrives = max(self._arrives, network.loop.time() + network.delay(self.node, self.peer.node))
        self._wire.append((self._arrives, data))
        if not self._timer:
            self._timer = True
            network.loop.call_at(self._arrives, self._arrive)

    def _arrive(self) -> None:
        """What is due is at the peer."""
        loop, peer = self._network.loop, self.peer
        self._timer = False
        now = loop.time() + 1e-9
        while self._wire and self._wire[0][0] <= now:
            data = self._wire.popleft()[1]
            if peer.lost:
                if data and not self.lost:
                    loop.call_later(self._network.delay(self.node, peer.node), self._reset)
            elif data:
                peer._inbox.append(data)
            else:
                peer._ended = True
        if self._wire:
            self._timer = True
            loop.call_at(self._wire[0][0], self._arrive)
        if not peer.lost:
            peer._deliver()

    def _deliver_soon(self) -> None:
        if not self._turn and (self._inbox or self._ended):
            self._turn = True
            self._network.loop.call_soon(self._deliver_now)

    def _deliver_now(self) -> None:
        self._turn = False
        self._deliver()

    def _deliver(self) -> None:
        """One read of what is here."""
        if self._paused or self._closing or self.lost or self._protocol is None:
            return
        if self._inbox:
            data = self._inbox[0] if len(self._inbox) == 1 else b"".join(self._inbox)
            self._inbox.clear()
            chance = self._network.chance
            most = chance.randint(1, len(data)) if chance.random() < 0.1 else READ
            if most < len(data):
                self._inbox.append(data[most:])
                data = data[:most]
            self._call(self._protocol.data_received, data)
            self.peer._taken(len(data))
            self._deliver_soon()
        elif self._ended:
            self._ended = False
            if not self._call(self._protocol.eof_received):
                self.close()

    def _taken(self, size: int) -> None:
        self._under_way -= size
        if not self.lost and self._unsent:
            self._send()
            self._tell_room()

    def _tell_room(self) -> None:
        if self._protocol is None or self.lost:
            return
        if not self._full and self._unsent_size > self._high:
            self._full = True
            self._call(self._protocol.pause_writing)
        elif self._full and self._unsent_size <= self._low:
            self._full = False
            if not self._closing:
                self._call(self._protocol.resume_writing)

    # ------------------------------------------------------------------ the end

    def _reset(self) -> None:
        """A reset came; who does not read notices when it reads or writes again."""
        if self.lost:
            return
        self._inbox.clear()
        if self._paused and not self._closing:
            self._broken = True
        else:
            self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        if self._inbox and not self.peer.lost:
            self._network.loop.call_later(self._network.delay(self.node, self.peer.node), self.peer._reset)
        self._forget()
        if self._protocol is not None:
            self._call(self._protocol.connection_lost, error)

    def _forget(self) -> None:
        self.node.transports.pop(self.number, None)
        for side in (self, self.peer):
            if side.lost and side.peer.lost:
                self._network.connections.pop(side.number, None)
                self._network.connections.pop(side.peer.number, None)
        self._inbox.clear()
        self._unsent.clear()
        self._unsent_size = 0
