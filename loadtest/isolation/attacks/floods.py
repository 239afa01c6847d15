"""Floods of requests, pipelined or not, whose answers are read or not. In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

import itertools
import socket
from typing import Any

from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch, request_frame
from loadtest.isolation.attack import (
    ALTER_QUOTAS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_QUOTAS,
    FETCH,
    FLOOD,
    HANDSHAKE,
    KIB,
    METADATA,
    MIB,
    PIPELINED,
    PRODUCE,
    UNREAD,
    attack,
    lower_alice,
    produce,
)
from loadtest.isolation.attacker import Attacker
from loadtest.isolation.tenants import fetch_of


@attack(FLOOD, threads=2)
def unknown_versions(a: Attacker) -> None:
    """mallory pipelines ApiVersions in a version that is not there."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*API_VERSIONS, 1, "x").replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1))


@attack(FLOOD, threads=4, shows=("bytes",))
def unknown_versions_unread(a: Attacker) -> None:
    """mallory pipelines ApiVersions in a version that is not there, and reads no answer."""
    frame = request_frame(*API_VERSIONS, 1, "x").replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1)
    with a.connected() as connection:
        a.pour(connection.sock, frame * 100, 8 * MIB)


@attack(FLOOD, threads=2)
def refused_writes(a: Attacker) -> None:
    """mallory pipelines writes that the proxy refuses."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*PRODUCE, 1, "x", **produce(["mallory-full"], record_batch(b"x"))), 20)


@attack(FLOOD, threads=4, shows=("bytes",))
def refused_writes_unread(a: Attacker) -> None:
    """mallory pipelines writes that the proxy refuses, and reads no answer."""
    frame = request_frame(*PRODUCE, 1, "x", **produce(["mallory-full"], record_batch(b"x")))
    with a.connected() as connection:
        a.pour(connection.sock, frame * 20, 8 * MIB)


@attack(FLOOD, threads=2)
def refused_creations(a: Attacker) -> None:
    """mallory asks for 300 partitions again and again, which is more than her burst."""

    def topics(i: int) -> dict[str, Any]:
        new = {"num_partitions": 60, "replication_factor": 1}
        return {"topics": [{"name": f"{a.target.user}-{i}-{j}", **new} for j in range(5)], "timeout": ms(1000)}

    a.ask_again(CREATE_TOPICS, topics)


@attack(FLOOD)
def refused_alterations(a: Attacker) -> None:
    """mallory pipelines AlterClientQuotas, which she may not."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*ALTER_QUOTAS, 1, "x", **lower_alice()), 20)


@attack(FLOOD, threads=2)
def describe_quotas(a: Attacker) -> None:
    """mallory asks for all quotas again and again."""
    a.ask_again(DESCRIBE_QUOTAS, lambda _: {"components": [], "strict": False})


@attack(UNREAD, threads=8, shows=("bytes",))
def unread_records(a: Attacker) -> None:
    """mallory fetches her own records and never reads them."""
    frame = request_frame(*FETCH, 1, "x", **fetch_of("mallory-own"))
    with a.connected() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        a.ask(connection, PRODUCE, **produce(["mallory-own"], record_batch(b"x" * 500_000)))
        a.pour(connection.sock, frame * 20, 200 * KIB)


@attack(UNREAD, threads=8, shows=("bytes",))
def unread_metadata(a: Attacker) -> None:
    """mallory pipelines Metadata and never reads an answer."""
    frame = request_frame(*METADATA, 1, "x", topics=None)
    with a.connected() as connection:
        a.pour(connection.sock, frame * 50, 2 * MIB)


@attack(PIPELINED, threads=5)
def pipelined_versions(a: Attacker) -> None:
    """5 connections of mallory pipeline ApiVersions and read the answers."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*API_VERSIONS, 1, "x"))


@attack(PIPELINED, threads=5)
def pipelined_versions_stranger(a: Attacker) -> None:
    """5 connections without a login do the same."""
    for sock in a.sockets(1):
        a.pipeline(sock, request_frame(*API_VERSIONS, 1, "x"))


@attack(PIPELINED, threads=5)
def pipelined_metadata_stranger(a: Attacker) -> None:
    """5 connections without a login pipeline Metadata."""
    for sock in a.sockets(1):
        a.pipeline(sock, request_frame(*METADATA, 1, "x", topics=[]), 100)


@attack(PIPELINED, threads=5)
def pipelined_metadata(a: Attacker) -> None:
    """5 connections of mallory pipeline Metadata."""
    with a.connected() as connection:
        a.pipeline(connection.sock, request_frame(*METADATA, 1, "x", topics=[]), 100)


@attack(PIPELINED, threads=2)
def long_poll_in_front(a: Attacker) -> None:
    """Behind a long Fetch, partitions are added and topics deleted."""
    name = f"{a.target.user}-grown"
    with a.connected() as connection:
        a.ask(connection, CREATE_TOPICS, topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}], timeout=ms(1000))
    for count in itertools.count(10, 10):
        if not a.going():
            return
        with a.connected() as connection:
            poll = request_frame(*FETCH, 1, "x", **fetch_of("mallory-full", min_bytes=MIB, max_wait=ms(5000)))
            grow = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout": ms(1000)}
            more = [
                request_frame(*CREATE_PARTITIONS, 2, "x", **grow),
                request_frame(*DELETE_TOPICS, 3, "x", topics=[{"name": name}]),
            ]
            connection.sock.sendall(poll + b"".join(more))
            a.tally.requests += 3
            a.wait(0.2)


@attack(PIPELINED, threads=2)
def ends_mutes(a: Attacker) -> None:
    """Writes, fetches and logins are pipelined so that one ends the wait of another."""
    login = request_frame(*HANDSHAKE, 1, "x", mechanism="SCRAM-SHA-256")
    write = request_frame(*PRODUCE, 1, "x", **produce(["mallory-own"], record_batch(b"x" * 200_000)))
    read = request_frame(*FETCH, 1, "x", **fetch_of("mallory-own"))
    while a.going():
        with a.connected() as connection:
            a.pipeline(connection.sock, write + read + login + write, 1)
