"""Listening sockets: closing one resets nobody, and two proxies may share a port if both say so."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from localkafka.ports import HeldPort
from proxy.clients.connection import Shared
from proxy.clients.listeners import ClientListener
from proxy.clients.turns import Turns
from proxy.cluster.brokers import Brokers
from proxy.config.listeners import Listener
from proxy.config.units import HostPort
from proxy.observe.operations import operations_log
from proxy.session.session import State
from tests.apis.topic_frames import HEARTBEAT
from tests.clients.proxied import until
from tests.fleet.meeting import run
from tests.support import HANDLERS, World


def listener(world: Callable[..., World], **listen: Any) -> ClientListener:
    async def nowhere(*_: object) -> object:
        return await asyncio.Future()

    shared = Shared(world().services, HANDLERS, nowhere, Turns(asyncio.get_running_loop()))
    settings = Listener.model_validate({"bootstrap": "127.0.0.1:0", **listen})
    brokers = Brokers([HostPort("127.0.0.1", 1)], lambda _: None, lambda: 0.0)
    return ClientListener("main", settings, frozenset(), shared, brokers, lambda: None, operations_log("error"))


def knock(port: int, says: bytes = b"") -> socket.socket:
    """A connection that the kernel has made; nobody has accepted it yet."""
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.sendall(says)
    sock.setblocking(False)
    return sock


def test_who_waits_at_a_door_that_closes_is_let_in(world: Callable[..., World]) -> None:
    async def close() -> None:
        d = listener(world)
        d.open()
        early = [knock(d.port) for _ in range(300)]
        d.close()
        assert d.welcoming == 300
        with pytest.raises(ConnectionRefusedError):
            knock(d.port)
        await until(lambda: not d.welcoming)
        assert len(d.shared.connections) == 300
        for sock in early:
            sock.close()

    run(close())


def test_who_is_evicted_in_the_moment_it_comes_in_leaves_nothing_behind(world: Callable[..., World]) -> None:
    """Its welcome is cancelled while its socket is handed over. The event loop then closes the transport without a word to its
    protocol, and says of it that it is open; whoever then sets how much may wait for it gets an error."""

    async def flood() -> None:
        d = listener(world)
        d.shared.services.census.capacity = 1
        d.open()
        comers = []
        for _ in range(50):
            comers.append(knock(d.port))
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await until(lambda: not d.welcoming and len(d.shared.connections) == 1)
            for sock in comers[:-1]:
                assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
        for sock in comers:
            sock.close()
        async with asyncio.timeout(60):
            await until(lambda: not d.shared.connections)

    run(flood())


def test_who_is_evicted_while_its_broker_is_being_connected_is_gone(world: Callable[..., World]) -> None:
    """Else those who send something would be more than may come, as nobody counts them any more."""

    async def crowd() -> None:
        d = listener(world)
        d.shared.services.census.capacity = 1
        d.bootstrap_addresses = lambda: [HostPort("127.0.0.1", 1)]
        d.open()
        comers = [knock(d.port, HEARTBEAT)]
        async with asyncio.timeout(60):
            await until(lambda: [each.session.state for each in d.shared.connections] == [State.CONNECTING])
            comers.append(knock(d.port, HEARTBEAT))
            assert await asyncio.get_running_loop().sock_recv(comers[0], 1) == b""
        assert len(d.shared.connections) == 1
        for sock in comers:
            sock.close()

    run(crowd())


def test_who_comes_in_while_the_proxy_stops_is_sent_off_in_peace(world: Callable[..., World]) -> None:
    async def close() -> None:
        d = listener(world)
        d.open()
        early = knock(d.port, b"hello")
        d.shared.draining = True
        d.close()
        async with asyncio.timeout(60):
            assert await asyncio.get_running_loop().sock_recv(early, 1) == b"", "a reset would be an error"
        early.close()
        await until(lambda: not d.shared.connections)

    run(close())


def test_a_client_comes_to_a_broker_or_to_the_bootstrap_address(world: Callable[..., World]) -> None:
    """As which the session takes it: what it says about the broker that it expects is compared with this (KIP-1242)."""

    async def come() -> None:
        d = listener(world)
        d.open()
        d.route.cover([5])
        (_, port), (_, bootstrap) = d.route.endpoint(5, ""), d.route.endpoint(None, "")
        for at, broker in ((port, 5), (bootstrap, None)):
            with knock(at):
                await until(lambda: len(d.shared.connections) == 1)
                (connection,) = d.shared.connections
                assert connection.session.client.broker == broker
            await until(lambda: not d.shared.connections)
        d.close()

    run(come())


def test_a_door_that_is_closed_opens_no_port_for_a_broker(world: Callable[..., World]) -> None:
    async def close() -> None:
        d = listener(world, broker_ports="0")
        d.open()
        d.route.cover([1])
        assert d.route.covers([1])
        d.close()
        d.route.cover([1, 2])
        assert d.route.covers([1])

    run(close())


class Refusing:
    """A listening socket from which nothing can be accepted, as with a firewall's rule or after a fault of the network."""

    def __init__(self, error: int) -> None:
        self._real, self._error = socket.create_server(("127.0.0.1", 0)), error
        self.asked = 0

    def fileno(self) -> int:
        return self._real.fileno()

    def accept(self) -> object:
        self.asked += 1
        raise OSError(self._error, "no")

    def close(self) -> None:
        self._real.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EPERM, errno.EPROTO, errno.EINVAL])
def test_a_socket_that_gives_no_connection_is_asked_again_after_a_pause(world: Callable[..., World], error: int) -> None:
    async def accept() -> None:
        d = listener(world)
        sock = Refusing(error)
        d._sockets[None] = [sock]  # type: ignore[list-item]
        assert not d._accept(sock, None)  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert sock.asked == 1
        d.close()

    run(accept())


def test_two_proxies_share_a_port_if_both_say_so(world: Callable[..., World]) -> None:
    async def share() -> None:
        at = held.address
        first, second, third = (listener(world, bootstrap=at, reuse_port=reuse) for reuse in (True, True, False))
        first.open()
        second.open()
        with pytest.raises(OSError, match="in use"):
            third.open()
        first.close()
        with socket.create_connection(("127.0.0.1", second.port), 60):
            pass
        second.close()

    with HeldPort() as held:
        run(share())


@pytest.mark.parametrize("listen", [{"bootstrap": "127.0.0.1:0"}, {"bootstrap": "127.0.0.1:9192", "broker_ports": "0"}])
def test_only_fixed_ports_can_be_shared(listen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`reuse_port` needs fixed ports"):
        Listener.model_validate({**listen, "reuse_port": True})
