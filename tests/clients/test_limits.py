"""The limits over real sockets: who is over them is closed or waits, is named in the log, and costs the broker nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from proxy.clients.connection import BrokerConnection, ClientConnection
from proxy.clients.listeners import ArrivedClient
from proxy.session.session import Session
from proxy.transport import TcpTransport
from tests.certs import Authority
from tests.clients.proxied import Broker, Here, Visit, answer, frame, proxied, until
from tests.fleet.meeting import run

MIB = 1 << 20
SHORT = {"first_request_timeout": "300ms"}
ANNOUNCED = (100 << 20).to_bytes(4, "big") + frame(100)[4:18]


def test_a_connection_that_was_not_let_in_makes_room_for_one_that_comes() -> None:
    async def scene() -> None:
        async with proxied(limits={"max_connections": 4}) as here:
            mine = await here.client("127.0.0.2")
            await mine.ask(frame(50))
            silent = [await here.client() for _ in range(3)]
            await until(lambda: here.proxy.shared.services.census.count == 4)
            newcomer = await here.client("127.0.0.3")
            assert await newcomer.ask(frame(50))
            assert await silent[0].end() == b""
            assert here.log.find("limit reached", limit="limits.max_connections", client=silent[0].address, action="closed")
            assert await mine.ask(frame(50)), "who is in stays"
            for client in (mine, newcomer, *silent):
                client.close()
            await here.alone()

    run(scene())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
def test_who_makes_room_for_another_that_came_at_the_same_time_is_closed(limit: str) -> None:
    """Those that the proxy accepts in one turn push each other out before anything else is done with them. One that is neither
    answered nor closed waits for as long as its client has patience."""

    async def scene() -> None:
        async with proxied(limits={limit: 2}) as here, AsyncExitStack() as stack:
            came = [stack.enter_context(socket.create_connection((here.host, here.port))) for _ in range(8)]
            for each in came:
                each.sendall(frame(50))
                each.setblocking(False)
            first = [asyncio.get_running_loop().sock_recv(each, 1) for each in came]
            said = await asyncio.wait_for(asyncio.gather(*first, return_exceptions=True), 30)
            closed = [it for it in said if it == b"" or isinstance(it, ConnectionResetError)]
            assert len(closed) == 6
            assert here.proxy.shared.services.census.count == len(here.broker.visits) == 2

    run(scene())


def test_a_tls_client_that_does_not_shake_hands_makes_room(tls: tuple[Authority, dict[str, object]]) -> None:
    async def scene() -> None:
        async with proxied(listen=tls[1], limits={"max_connections": 1}) as here:
            silent = await here.client()
            await until(lambda: here.proxy.shared.services.census.count == 1)
            context = ssl.create_default_context(cafile=str(tls[0].file))
            client = await here.client(ssl=context, server_hostname="127.0.0.1")
            assert await client.ask(frame(50))
            assert await silent.end() == b""
            client.close()
            await here.alone()

    run(scene())


def test_connections_in_total_and_of_an_address() -> None:
    async def scene() -> None:
        async with proxied(limits={"max_connections": 3, "max_connections_per_address": 2}) as here:
            one, two = await here.client(), await here.client()
            for client in (one, two):
                await client.ask(frame(50))
            same = await here.client()
            assert await same.end() == b""
            assert here.log.find("limit reached", limit="limits.max_connections_per_address", client=same.address, action="closed")
            three = await here.client("127.0.0.2")
            await three.ask(frame(50))
            other = await here.client("127.0.0.3")
            assert await other.end() == b""
            assert here.log.find("limit reached", limit="limits.max_connections", client=other.address, action="closed")
            assert len(here.broker.visits) == 3
            one.close()
            await until(lambda: here.proxy.shared.services.census.count == 2)
            await (await here.client()).ask(frame(50))
            assert (here.hits("max_connections"), here.hits("max_connections_per_address")) == (1, 1)

    run(scene())


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (b"", "first_request_timeout"),
        (ANNOUNCED, "first_request_timeout"),
        (frame(50) + ANNOUNCED, "request_timeout"),
        (frame(50) + ANNOUNCED + bytes(300_000), "request_timeout"),
    ],
    ids=["nothing", "100 MiB announced", "announced after a request", "some of it sent"],
)
def test_half_requests_are_closed_in_time_and_the_broker_sees_nothing_of_them(said: bytes, limit: str) -> None:
    async def scene() -> None:
        async with proxied(limits={limit: "300ms"}) as here:
            clients = [await here.client() for _ in range(20)]
            for client in clients:
                client.writer.write(said)
            for client in clients:
                await client.end()
            assert here.hits(limit) == 20
            (line,) = here.log.find("limit reached", action="closed")
            assert line["client"] in {client.address for client in clients}
            whole = frame(50) if said.startswith(frame(50)) else b""
            assert {bytes(visit.got) for visit in here.broker.visits} <= {whole, b""}
            for client in clients:
                client.close()
            await here.alone()

    run(scene())


def test_a_look_at_a_connection_that_has_just_left_does_nothing() -> None:
    """Guard and drain go through lists of connections, with pauses in which some of them end."""

    async def scene() -> None:
        async with proxied() as here:
            client = await here.client()
            await client.ask(frame(50))
            (left,) = here.proxy.shared.connections
            client.close()
            await here.alone()
            left.session.check(1e9)
            left.session.drain()
            left.set_water(1 << 16)
            assert not left.muted

    run(scene())


def test_who_says_nothing_for_long_is_closed() -> None:
    async def scene() -> None:
        async with proxied() as here:
            client = await here.client()
            await client.ask(frame(50))
            here.bounds.idle_timeout = 0.2
            assert await client.end() == b""
            assert here.log.find("limit reached", limit="limits.idle_timeout", client=client.address, client_id="app")
            await here.alone()

    run(scene())


def test_of_a_client_that_goes_without_reading_what_it_sent_goes_on_and_nothing_stays() -> None:
    """More than may be under way at once: the rest goes on when the broker has answered, for nobody."""
    count = 16
    broker = Broker()

    def large(visit: Visit, request: bytes) -> None:
        visit.transport.write(answer(4 * MIB, int.from_bytes(request[8:12], "big")))

    broker.does = large

    async def scene() -> None:
        async with proxied(broker, limits={"memory_per_connection": "1MiB", "max_in_flight": 4}) as here:
            client = await here.client()
            client.writer.write(b"".join(frame(50, i + 1) for i in range(count)))
            await until(lambda: here.hits("memory_per_connection") and here.hits("max_in_flight"))
            client.writer.transport.abort()
            await here.alone()
            await until(lambda: broker.visit.requests == count)

    run(scene())


def test_a_client_that_does_not_read_is_not_read_for_and_harms_nobody() -> None:
    """64 MiB of answers: what waits in the proxy and its kernel is bounded, others go on, and all of it arrives once it is read."""
    size, count = 4 * MIB, 16
    broker = Broker()

    def large(visit: Visit, request: bytes) -> None:
        number = int.from_bytes(request[8:12], "big")
        visit.transport.write(answer(20 if number > count else size, number))

    broker.does = large

    async def scene() -> None:
        async with proxied(broker, limits={"memory_per_connection": "1MiB"}) as here:
            client = await here.client()
            client.writer.write(b"".join(frame(50, i + 1) for i in range(count)))
            await until(lambda: here.hits("memory_per_connection"))
            other = await here.client()
            for _ in range(100):
                await other.ask(frame(50, 99))
                assert here.queued < 2 * MIB
                # What the kernel has taken since counts as held until the transport tells of it.
                assert MIB // 4 < here.unsent <= here.held < 2 * MIB
            (line,) = here.log.find("limit reached", limit="limits.memory_per_connection")
            assert (line["client"], line["action"]) == (client.address, "waits")
            for i in range(count):
                got = await client.reader.readexactly(size)
                assert got[4:8] == (i + 1).to_bytes(4, "big")
            client.close()
            other.close()
            await here.alone()

    run(scene())


def test_a_broker_that_does_not_read_stops_its_client_only() -> None:
    """The same the other way round; and the client is not blamed for being slow."""
    stuck = Broker()
    request = frame(MIB)

    async def scene() -> None:
        async with proxied(stuck, limits={"request_timeout": "300ms", "memory_per_connection": "1MiB"}) as here:
            client = await here.client()
            await client.ask(frame(50))
            visit = stuck.visit
            visit.transport.pause_reading()
            stuck.does = lambda *_: None

            async def send() -> None:
                for _ in range(32):
                    client.writer.write(request)
                    await client.writer.drain()

            sending = asyncio.create_task(send())
            await until(lambda: here.hits("memory_per_connection"))
            other = await here.client()
            for _ in range(10):
                other.writer.write(frame(50, 2))
                await until(lambda: len(stuck.visits) == 2 and stuck.visits[1].requests)
                assert here.unsent < 4 * MIB
            other.close()
            assert here.hits("request_timeout") == 0
            here.bounds.request_timeout = 120.0  # a machine that is busy from here on is no matter of this test
            visit.transport.resume_reading()
            await sending
            await until(lambda: visit.requests == 33)
            assert visit.got == frame(50) + request * 32
            client.close()
            for each in stuck.visits:  # else answers might still come for what was sent
                each.transport.abort()
            await here.alone()

    run(scene())


def test_the_memory_of_all_bounds_what_many_may_send_at_once() -> None:
    """Of requests of 1 MiB each, all but the last byte: what is held is the total, one more request, and a read of each."""
    count, size = 24, MIB

    async def scene() -> None:
        limits = {"memory_total": "4MiB", "max_frame": "2MiB", "request_timeout": "20s"}
        async with proxied(limits=limits) as here:
            clients = [await here.client() for _ in range(count)]
            for client in clients:
                await client.ask(frame(50))
                client.writer.write(frame(size)[:-1])
            await until(lambda: here.proxy.shared.services.budget.waiting > 10)
            assert here.held < 4 * MIB + size + count * 300_000
            assert here.log.find("limit reached", limit="limits.memory_total", action="waits")
            for client in clients:
                client.writer.write(frame(size)[-1:])
            for client in clients:
                await client.reader.readexactly(20)
            assert here.held == 0
            came = [bytes(visit.got) for visit in here.broker.visits]  # the proxy itself may just have come, too
            assert came.count(frame(50) + frame(size)) == count
            for client in clients:
                client.close()
            await here.alone()

    run(scene())


def test_many_connections_share_the_memory_for_what_they_do_not_read() -> None:
    async def scene() -> None:
        async with proxied(limits={"memory_total": "32MiB", "max_frame": "1MiB"}) as here:
            assert here.proxy.shared.high_water == MIB
            first = await here.client()
            await first.ask(frame(50))
            clients = [await here.client() for _ in range(60)]
            await until(lambda: len(here.proxy.shared.connections) == 61)
            assert here.proxy.shared.high_water == 128 * 1024
            (connection,) = [each for each in here.proxy.shared.connections if each._broker is not None]
            await until(lambda: connection.transport.get_write_buffer_limits() == (32 * 1024, 128 * 1024))
            for client in [first, *clients]:
                client.close()
            await here.alone()

    run(scene())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "PROXY"),
        (frame(50), "PROXY"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04\1\2\3\4", ""),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff" + bytes(70_000), ""),
    ],
    ids=["HTTP", "Kafka", "too short for its addresses", "64 KiB of it"],
)
def test_what_is_no_proxy_protocol_is_closed_with_a_line(said: bytes, reason: str) -> None:
    async def scene() -> None:
        async with proxied(listen={"proxy_protocol": True}) as here:
            client = await here.client()
            client.writer.write(said)
            await client.end()
            (line,) = here.log.find("client connection closed", client=client.address)
            assert reason in line["reason"]
            assert not here.broker.visits
            await here.alone()

    run(scene())


def test_half_a_proxy_protocol_header_is_not_waited_for() -> None:
    async def scene() -> None:
        async with proxied(listen={"proxy_protocol": True}, limits=SHORT) as here:
            clients = [await here.client() for _ in range(3)]
            clients[1].writer.write(b"\r\n\r\n\0")
            clients[2].writer.write(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(11))
            for client in clients:
                assert await client.end() == b""
            assert here.hits("first_request_timeout") == 3
            await here.alone()

    run(scene())


def header(last: int) -> bytes:
    """A load balancer says that 10.0.0.`last` is there."""
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([10, 0, 0, last, 10, 0, 0, 9]) + struct.pack(">HH", 4000 + last, 9092)


def test_connections_count_before_they_say_where_they_are_from() -> None:
    async def scene() -> None:
        async with proxied(listen={"proxy_protocol": True}, limits={"max_connections": 3}) as here:
            silent = [await here.client() for _ in range(3)]
            await until(lambda: here.proxy.shared.services.census.count == 3)
            late = await here.client()
            assert await silent[0].end() == b"", "the oldest makes room"
            assert here.log.find("limit reached", limit="limits.max_connections", client=silent[0].address, action="closed")
            for client in (*silent, late):
                client.close()
            await until(lambda: here.proxy.shared.services.census.count == 0)
            client = await here.client()
            assert await client.ask(header(1) + frame(50))
            assert here.proxy.shared.services.census.count == 1

    run(scene())


def test_who_keeps_the_header_back_takes_no_place_of_those_who_send_it() -> None:
    async def scene() -> None:
        async with proxied(listen={"proxy_protocol": True}, limits={"max_connections": 100}) as here:
            silent = [await here.client() for _ in range(100)]
            await until(lambda: here.proxy.shared.services.census.count == 100)
            well = [await here.client() for _ in range(40)]
            for last, client in enumerate(well):
                assert await client.ask(header(last) + frame(50))
            for client in silent[:40]:
                assert await client.end() == b"", "the first that came"
            assert here.hits("max_connections") == 40
            assert await silent[-1].ask(header(99) + frame(50)), "late, and welcome"

    run(scene())


def test_the_address_that_the_proxy_protocol_names_is_the_one_that_is_counted() -> None:
    async def scene() -> None:
        async with proxied(listen={"proxy_protocol": True}, limits={"max_connections_per_address": 1}) as here:
            clients = [await here.client() for _ in range(3)]
            for client, last in zip(clients, (1, 2, 1), strict=True):
                client.writer.write(header(last) + frame(50))
                await until(lambda: here.hits("max_connections_per_address") or here.broker.visits)
            assert await clients[2].end() == b""
            assert here.log.find("limit reached", limit="limits.max_connections_per_address", client="10.0.0.1:4001")
            for client in clients[:2]:
                assert await client.reader.readexactly(20)

    run(scene())


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, dict[str, object]]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    own = authority.server("proxy", "127.0.0.1")
    return authority, {"tls": {"cert_file": str(own.cert), "key_file": str(own.key)}}


@pytest.mark.parametrize(
    "said", [frame(50), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\0" + bytes(16384)], ids=["Kafka", "HTTP", "a broken hello"]
)
def test_what_is_no_tls_is_closed_with_a_line(tls: tuple[Authority, dict[str, object]], said: bytes) -> None:
    async def scene() -> None:
        async with proxied(listen=tls[1]) as here:
            client = await here.client()
            client.writer.write(said)
            await client.end()
            (line,) = here.log.find("client connection closed", client=client.address)
            assert line["reason"].startswith("no TLS connection: ")
            await here.alone()

    run(scene())


def test_a_tls_client_that_says_nothing_or_goes_takes_no_place(tls: tuple[Authority, dict[str, object]]) -> None:
    async def scene() -> None:
        async with proxied(listen=tls[1], limits=SHORT) as here:
            silent, gone = await here.client(), await here.client()
            gone.close()
            assert await silent.end() == b""
            await here.alone()

    run(scene())


def test_a_slow_request_is_closed_behind_tls_too(tls: tuple[Authority, dict[str, object]]) -> None:
    async def scene() -> None:
        async with proxied(listen=tls[1], limits={"request_timeout": "300ms"}) as here:
            client = await here.client(ssl=ssl.create_default_context(cafile=str(tls[0].file)), server_hostname="127.0.0.1")
            assert await client.ask(frame(50))
            client.writer.write(ANNOUNCED)
            assert await client.end() == b""
            assert here.hits("request_timeout") == 1
            assert bytes(here.broker.visits[0].got) == frame(50)

    run(scene())


@pytest.mark.parametrize("count", [300])
def test_idle_connections_cost_little_and_others_go_on(count: int) -> None:
    """`python -m benchmarks.idle` has the figures for thousands."""

    async def scene(here: Here) -> None:
        clients = [await here.client() for _ in range(count)]
        for client in clients:
            await client.ask(frame(50))
        assert len(here.proxy.shared.connections) == len(here.broker.visits) == count
        assert here.held == here.unsent == 0
        one_more = await here.client()
        assert await one_more.ask(frame(50))
        for client in clients:
            client.close()
        await until(lambda: len(here.proxy.shared.connections) == 1)
        assert here.proxy.shared.services.census.count == 1
        one_more.close()
        await here.alone()

    async def with_proxy() -> None:
        async with proxied() as here:
            await scene(here)

    run(with_proxy())


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("closes", ["client", "broker"])
def test_nothing_stays_of_a_connection_to_which_nothing_is_left_to_write(monkeypatch: pytest.MonkeyPatch, closes: str) -> None:
    """Else clients that come and go fill the memory, whatever the limit of connections. No timer keeps it, and it does not wait
    for the garbage collector."""
    monkeypatch.setattr("proxy.clients.connection.LINGER", 3600.0)

    def ours() -> list[object]:
        """Those of clients: the proxy itself asks the broker now and then, too."""
        found = [each for each in gc.get_objects() if isinstance(each, ClientConnection | BrokerConnection | TcpTransport)]
        return [each for each in found if not isinstance(getattr(each, "_protocol", None), asyncio.StreamReaderProtocol)]

    async def scene() -> None:
        async with proxied() as here:
            before = len(ours())
            client = await here.client()
            await client.ask(frame(50))
            assert len(ours()) == before + 4
            if closes == "broker":
                here.broker.visits[-1].transport.close()
                await client.end()
            client.close()
            await here.alone()
            await until(lambda: len(ours()) == before)

    run(scene())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", ["evicted", "in a hurry"])
def test_connections_that_come_and_go_leave_nothing_to_collect(way: str) -> None:
    """A storm of them would make the garbage collector hold up everybody."""
    settings: dict[str, dict[str, object]] = {"limits": {"max_connections": 1}, "listen": {"proxy_protocol": True}}

    async def scene() -> None:
        async with proxied(**settings if way == "evicted" else {}) as here:
            gc.collect()
            for _ in range(20):
                client = await here.client()
                if way == "in a hurry":
                    client.writer.write(frame(50))
                    client.writer.transport.abort()
            await until(lambda: here.hits("max_connections") == 19 or len(here.broker.visits) == 20)
            if way == "evicted":
                client.close()
                await until(lambda: not here.proxy.shared.services.census.count)
            await here.alone()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            gc.set_debug(0)
            ours = [each for each in gc.garbage if isinstance(each, ArrivedClient | ClientConnection | BrokerConnection | Session)]
            gc.garbage.clear()
            assert not ours

    run(scene())


def test_connections_of_an_address_above_its_rate_are_closed_before_tls_and_cost_others_nothing(
    tls: tuple[Authority, dict[str, object]],
) -> None:
    async def scene() -> None:
        async with proxied(listen=tls[1], quotas={"connections": {"per_address": 1}}) as here:
            context = ssl.create_default_context(cafile=str(tls[0].file))
            mine = await here.client("127.0.0.2", ssl=context, server_hostname="127.0.0.1")
            assert await mine.ask(frame(50))
            storm = [await here.client() for _ in range(40)]
            await until(lambda: here.proxy.shared.services.census.count == 12)
            assert await mine.ask(frame(50))
            refused = storm[11:]
            assert [await client.end() for client in refused] == [b""] * 29
            assert here.log.find("over quota", quota="address_connection_rate", entity="address 127.0.0.1", action="refuse")
            assert here.proxy.shared.services.census.count == 12
            other = await here.client("127.0.0.3", ssl=context, server_hostname="127.0.0.1")
            assert await other.ask(frame(50))
            for client in (mine, other, *storm):
                client.close()
            await here.alone()

    run(scene())


def test_the_rate_is_that_of_the_address_which_the_proxy_protocol_names() -> None:
    async def scene() -> None:
        listen = {"proxy_protocol": True}
        async with proxied(listen=listen, quotas={"connections": {"networks": {"10.0.0.0/8": 1}}}) as here:

            def named(host: str) -> bytes:
                addresses = socket.inet_aton(host) + socket.inet_aton("10.9.9.9") + struct.pack(">HH", 4000, 9092)
                return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(addresses).to_bytes(2, "big") + addresses

            for _ in range(11):
                client = await here.client()
                assert await client.ask(named("10.0.0.1") + frame(50))
            late = await here.client()
            late.writer.write(named("10.0.0.1") + frame(50))
            assert await late.end() == b""
            other = await here.client()
            assert await other.ask(named("10.0.0.2") + frame(50))
            assert here.log.find("over quota", entity="address 10.0.0.1")

    run(scene())


def test_an_old_connection_ends_in_peace() -> None:
    async def scene() -> None:
        async with proxied() as here:
            client = await here.client()
            assert await client.ask(frame(50))
            here.bounds.max_connection_age = 1.0
            assert await client.end() == b""
            assert here.log.find("limit reached", limit="limits.max_connection_age", level="info")
            client.close()
            await here.alone()

    run(scene())
