"""Floods of connections, requests that never end, sizes that lie. In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

import itertools
import random
import socket
import struct

from benchmarks.isolation import apis
from benchmarks.isolation.attack import (
    ALICES,
    BETWEEN_LOGINS,
    CONNECTIONS,
    KIB,
    LIES,
    MIB,
    UNFINISHED,
    attack,
    produce,
)
from benchmarks.isolation.attacker import SOURCE, Attacker
from benchmarks.isolation.tenants import STORMY_ADDRESS
from benchmarks.isolation.wire import WrongCorrelationId, dial
from loadtest.entities import record_batch, request_frame
from loadtest.login import LoginFailed


@attack(CONNECTIONS, shows=("connections",))
def idle_connections(a: Attacker) -> None:
    """250 connections from one address send nothing, and are opened again when they are closed."""
    a.keep([SOURCE] * 250)


@attack(CONNECTIONS, shows=("connections",))
def many_addresses(a: Attacker) -> None:
    """350 connections, 10 from each address, send nothing, and are opened again when they are closed."""
    a.keep([f"127.0.1.{1 + i % 35}" for i in range(350)])


@attack(CONNECTIONS)
def half_open(a: Attacker) -> None:
    """150 connections send half a header."""
    a.keep([SOURCE] * 150, b"\0\0\0\x40\0\x12")


@attack(CONNECTIONS, threads=2)
def come_and_go(a: Attacker) -> None:
    """Connections send one request each and are closed."""
    frame = request_frame(*apis.API_VERSIONS, 1, "x")
    while a.going():
        for sock in a.sockets(1):
            with sock:
                sock.sendall(frame)
                a.tally.requests += 1
        a.wait(0.001)


@attack(CONNECTIONS, threads=2, shows=("connections",))
def connection_storm(a: Attacker) -> None:
    """Up to 2000 connections a second come from an address that may open 20."""
    while a.going():
        try:
            with dial(a.target.main, STORMY_ADDRESS):
                a.tally.connections += 1
        except OSError:
            a.tally.closed += 1
        a.wait(0.001)


@attack(CONNECTIONS)
def many_logins(a: Attacker) -> None:
    """mallory logs in on as many connections as she can open."""
    while a.going() and a.tally.connections < 150:
        try:
            a.connect()
            a.tally.requests += 1
        except (OSError, LoginFailed, WrongCorrelationId):
            a.tally.closed += 1
            a.wait(BETWEEN_LOGINS)
    a.hold()


@attack(UNFINISHED)
def byte_by_byte(a: Attacker) -> None:
    """50 connections send a request byte by byte."""
    frame = request_frame(*apis.PRODUCE, 1, "x", **produce(["mallory-own"], record_batch(b"x" * 10_000)))
    socks = a.sockets(50)
    for at in range(len(frame) - 1):
        if not a.going():
            return
        for sock in socks:
            sock.sendall(frame[at : at + 1])
        a.tally.requests += 1
        a.wait(0.002)


@attack(UNFINISHED, threads=2)
def half_requests(a: Attacker) -> None:
    """24 connections announce requests of 7 MiB and send 3 MiB of them."""
    head = struct.pack(">i", 7 * MIB) + request_frame(*apis.PRODUCE, 1, "x", **produce(["mallory-own"], record_batch(b"x")))[4:]
    kept: list[socket.socket] = []
    while a.going() and len(kept) < 12:
        try:
            kept.append(a.connect(logged_in=a.number == 0).sock)
        except (OSError, LoginFailed, WrongCorrelationId):
            a.tally.closed += 1
            a.wait(BETWEEN_LOGINS)
    for sock in kept:
        sock.setblocking(False)
    rest = dict.fromkeys(kept, 3 * MIB)
    for sock in kept:
        sock.send(head)
        a.tally.requests += 1
    while a.going():
        for sock in [s for s, left in rest.items() if left > 0]:
            try:
                done = sock.send(bytes(64 * KIB))
                rest[sock] -= done
                a.tally.bytes += done
            except BlockingIOError:
                continue
            except OSError:
                rest[sock] = 0
                a.tally.closed += 1
        a.wait(0.01)


@attack(LIES)
def announced_100_mib(a: Attacker) -> None:
    """Connections announce requests of 100 MiB and send 1 kB of them."""
    while a.going():
        for sock in a.sockets(20):
            with sock:
                sock.sendall(struct.pack(">ihhi", 100 * MIB, 0, 7, 1) + bytes(1000))
                a.tally.requests += 1
                a.read_until_closed(sock)


@attack(LIES, threads=2)
def lying_lengths(a: Attacker) -> None:
    """Requests have arrays that claim 2^31 elements."""
    chance = random.Random(a.number)
    sound = [
        request_frame(*apis.PRODUCE, 1, "x", **produce(ALICES, record_batch(b"x"))),
        request_frame(3, 12, 1, "x", topics=[{"name": "alice-data", "topic_id": None}]),
        request_frame(*apis.CREATE_TOPICS, 1, "x", topics=[{"name": "mallory-x", "num_partitions": 1, "replication_factor": 1}]),
    ]
    while a.going():
        with a.connected(logged_in=a.number == 0) as connection:
            frame = bytearray(chance.choice(sound))
            at = chance.randrange(12, len(frame) - 5)
            wrong = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0"))
            frame[at : at + len(wrong)] = wrong
            frame[:4] = struct.pack(">i", len(frame) - 4)
            connection.sock.sendall(frame)
            a.tally.requests += 1
            a.read_until_closed(connection.sock)


@attack(LIES, threads=2)
def garbage(a: Attacker) -> None:
    """A stranger sends bytes that are not a request."""
    chance = random.Random(a.number)
    sorts = [
        b"\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(4),
        chance.randbytes(250),
    ]
    for data in itertools.cycle(sorts):
        if not a.going():
            return
        for sock in a.sockets(1):
            with sock:
                sock.sendall(data)
                a.tally.requests += 1
                a.read_until_closed(sock)
