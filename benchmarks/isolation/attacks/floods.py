"""Floods of requests, pipelined or not, whose answers are read or not. In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Final

from benchmarks.isolation import apis
from benchmarks.isolation.attack import (
    FLOOD,
    KIB,
    MIB,
    PIPELINED,
    UNREAD,
    Share,
    attack,
    lower_alice,
    produce,
)
from benchmarks.isolation.attacker import Attacker
from benchmarks.isolation.tenants import BOB, BURST, RATE, TOLD_WITHIN, fetch_of
from benchmarks.isolation.wire import PATIENCE
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch, request_frame


@attack(FLOOD, threads=2)
def unknown_versions(a: Attacker) -> None:
    """mallory pipelines ApiVersions requests of a version that does not exist."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*apis.API_VERSIONS, 1, "x").replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1))


@attack(FLOOD, threads=4, shows=("bytes",))
def unknown_versions_unread(a: Attacker) -> None:
    """mallory pipelines ApiVersions requests of a version that does not exist, and reads no answer."""
    frame = request_frame(*apis.API_VERSIONS, 1, "x").replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1)
    with a.connected() as connection:
        a.pour(connection.sock, frame * 100, 8 * MIB)


@attack(FLOOD, threads=2)
def refused_writes(a: Attacker) -> None:
    """mallory pipelines writes that the proxy refuses."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*apis.PRODUCE, 1, "x", **produce(["mallory-full"], record_batch(b"x"))), 20)


@attack(FLOOD, threads=4, shows=("bytes",))
def refused_writes_unread(a: Attacker) -> None:
    """mallory pipelines writes that the proxy refuses, and reads no answer."""
    frame = request_frame(*apis.PRODUCE, 1, "x", **produce(["mallory-full"], record_batch(b"x")))
    with a.connected() as connection:
        a.pour(connection.sock, frame * 20, 8 * MIB)


@attack(FLOOD, threads=2)
def refused_creations(a: Attacker) -> None:
    """mallory asks for 300 partitions, more than her burst, again and again."""

    def topics(i: int) -> dict[str, Any]:
        new = {"num_partitions": 60, "replication_factor": 1}
        return {"topics": [{"name": f"{a.target.user}-{i}-{j}", **new} for j in range(5)], "timeout": ms(1000)}

    a.ask_again(apis.CREATE_TOPICS, topics)


@attack(FLOOD)
def refused_alterations(a: Attacker) -> None:
    """mallory pipelines AlterClientQuotas, which she is not authorized to do."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*apis.ALTER_QUOTAS, 1, "x", **lower_alice()), 20)


@attack(FLOOD, threads=2)
def describe_quotas(a: Attacker) -> None:
    """mallory describes all quotas again and again."""
    a.ask_again(apis.DESCRIBE_QUOTAS, lambda _: {"components": [], "strict": False})


@attack(UNREAD, threads=8, shows=("bytes",))
def unread_records(a: Attacker) -> None:
    """mallory fetches her own records and never reads them."""
    frame = request_frame(*apis.FETCH, 1, "x", **fetch_of("mallory-own"))
    with a.connected() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        a.ask(connection, apis.PRODUCE, **produce(["mallory-own"], record_batch(b"x" * 500_000)))
        a.pour(connection.sock, frame * 20, 200 * KIB)


@attack(UNREAD, threads=8, shows=("bytes",))
def unread_metadata(a: Attacker) -> None:
    """mallory pipelines Metadata and never reads an answer."""
    frame = request_frame(*apis.METADATA, 1, "x", topics=None)
    with a.connected() as connection:
        a.pour(connection.sock, frame * 50, 2 * MIB)


@attack(PIPELINED, threads=5)
def pipelined_versions(a: Attacker) -> None:
    """5 connections of mallory pipeline ApiVersions, and she reads the answers."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*apis.API_VERSIONS, 1, "x"))


@attack(PIPELINED, threads=5)
def pipelined_versions_stranger(a: Attacker) -> None:
    """5 connections without a login pipeline ApiVersions and read the answers."""
    for sock in a.sockets(1):
        a.pipeline(sock, request_frame(*apis.API_VERSIONS, 1, "x"))


@attack(PIPELINED, threads=5)
def pipelined_metadata_stranger(a: Attacker) -> None:
    """5 connections without a login pipeline Metadata."""
    for sock in a.sockets(1):
        a.pipeline(sock, request_frame(*apis.METADATA, 1, "x", topics=[]), 100)


@attack(PIPELINED, threads=5)
def pipelined_metadata(a: Attacker) -> None:
    """5 connections of mallory pipeline Metadata."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*apis.METADATA, 1, "x", topics=[]), 100)


GROWN: Final = 40
"""Number of partitions that a topic is given by a request pipelined behind a long Fetch."""


@attack(PIPELINED, shows=("gained",), seconds=4, gains=Share("partitions that are added or deleted", BURST + GROWN, 2 * RATE))
def long_poll_in_front(a: Attacker) -> None:
    """Behind a Fetch that takes longer than the timeout of the proxy's own requests, partitions are added and topics deleted."""
    names = [f"{a.target.user}-{i}" for i in range(6)]
    wait = int(3000 * TOLD_WITHIN)
    with a.connected() as connection:
        new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        a.ask(connection, apis.CREATE_TOPICS, topics=new, timeout=ms(1000))
        a.tally.gained += len(names)
    sizes = dict.fromkeys(names, 1)
    while a.going() and sizes:
        for what, wanted in ((apis.CREATE_PARTITIONS, GROWN), (apis.DELETE_TOPICS, 0)):
            connections = []
            for name in sizes:
                connections.append(a.connect())
                connections[-1].sock.settimeout(PATIENCE)
                connections[-1].send(apis.FETCH, **fetch_of("mallory-full", min_bytes=MIB, max_wait=ms(wait)))
                connections[-1].send(what, topics=[{"name": name, "count": wanted}], timeout=ms(1000))
                a.tally.requests += 2
            for name, connection in zip(list(sizes), connections, strict=True):
                with connection:
                    connection.frame()
                    answer = connection.receive(what)
                if not (answer.results if what == apis.CREATE_PARTITIONS else answer.responses)[0].error_code:
                    a.tally.gained += abs(wanted - sizes[name])
                    sizes[name] = wanted
            sizes = {name: size for name, size in sizes.items() if size}


@attack(
    PIPELINED,
    shows=("muted",),
    seconds=4,
    gains=Share("requests behind a Fetch that were answered before half of its throttle time was over", 3, 0),
)
def ends_mutes(a: Attacker) -> None:
    """bob reads more than his rate. Behind each Fetch he pipelines a login and a request, so that the end of the login could end
    the mute."""
    fetch = fetch_of("bob-read")
    with a.connected(user=BOB) as connection:
        connection.sock.settimeout(PATIENCE)
        a.ask(connection, apis.HANDSHAKE, mechanism="SCRAM-SHA-256")
        pipelined = [
            request_frame(*apis.FETCH, 1, "x", **fetch),
            request_frame(*apis.AUTHENTICATE, 2, "x", auth_bytes=b"n,,n=bob,r=x"),
            request_frame(*apis.METADATA, 3, "x", topics=[]),
        ]
        while a.going():
            began = time.monotonic()  # before the mute begins, however late this process is told of the first answer
            connection.sock.sendall(b"".join(pipelined))
            a.tally.requests += len(pipelined)
            (throttle_ms,) = struct.unpack_from(">i", connection.frame(), 4)
            for _ in pipelined[1:]:
                connection.frame()
            a.tally.gained += time.monotonic() - began < throttle_ms / 2000
            a.tally.muted += throttle_ms > 0
