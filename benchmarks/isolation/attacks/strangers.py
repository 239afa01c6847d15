"""Attacks without a login, or with a wrong one. In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

import itertools
from typing import Any

from benchmarks.isolation import apis
from benchmarks.isolation.attack import (
    ALICES,
    MIB,
    NEW_IDS,
    NO_LOGIN,
    WRONG_LOGIN,
    attack,
    guesses,
    lower_alice,
)
from benchmarks.isolation.attacker import Attacker
from benchmarks.isolation.tenants import ALICE, fetch_of
from benchmarks.isolation.wire import Connection, Login
from loadtest.entities import milliseconds as ms
from loadtest.entities import request_frame
from loadtest.login import LoginFailed


@attack(NO_LOGIN)
def stranger_produces(a: Attacker) -> None:
    """A stranger writes to alice's topics under her producers' ids."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i), logged_in=False, client_id="alice-app")


@attack(NO_LOGIN)
def stranger_mutates(a: Attacker) -> None:
    """A stranger creates topics of 1000 partitions with alice's client id."""

    def topics(i: int) -> dict[str, Any]:
        new = [{"name": f"alice-made-{i}-{j}", "num_partitions": 1000, "replication_factor": 1} for j in range(5)]
        return {"topics": new, "timeout": ms(1000)}

    a.ask_again(apis.CREATE_TOPICS, topics, logged_in=False, client_id="alice-app")


@attack(NO_LOGIN)
def stranger_asks(a: Attacker) -> None:
    """A stranger sends a request of every API that the proxy reads."""
    no_producer = {"transactional_id": None, "transaction_timeout": ms(1000), "producer_id": -1, "producer_epoch": -1}
    sorts: list[tuple[tuple[int, int], dict[str, Any]]] = [
        (apis.METADATA, {"topics": [{"name": f"alice-new-{i}"} for i in range(500)], "allow_auto_topic_creation": True}),
        (apis.FETCH, fetch_of("alice-read")),
        (apis.INIT_PRODUCER_ID, no_producer),
        (apis.DELETE_TOPICS, {"topics": [{"name": name} for name in ALICES], "timeout": ms(1000)}),
        (apis.CREATE_PARTITIONS, {"topics": [{"name": "alice-data", "count": 1000, "assignments": None}], "timeout": ms(1000)}),
        (apis.DESCRIBE_QUOTAS, {"components": [], "strict": False}),
        (apis.ALTER_QUOTAS, lower_alice()),
        (apis.FIND_COORDINATOR, {"key": "alice", "key_type": 0}),
    ]
    for what, values in itertools.cycle(sorts):
        if not a.going():
            return
        with a.connected(logged_in=False, client_id="alice-app") as connection:
            a.ask(connection, what, **values)


@attack(NO_LOGIN, threads=4, shows=("bytes",))
def stranger_reads_nothing(a: Attacker) -> None:
    """Strangers send ApiVersions requests of a version that does not exist, and never read an answer."""
    for sock in a.sockets(4):
        a.pour(sock, request_frame(*apis.API_VERSIONS, 1, "x").replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1) * 100, 8 * MIB)


@attack(WRONG_LOGIN, threads=2, shows=("errors",))
def wrong_password(a: Attacker) -> None:
    """A stranger guesses alice's password again and again."""
    while a.going():
        a.tally.requests += 1
        try:
            Connection(a.target.main, "alice-app", Login(ALICE, "guess", "PLAIN" if a.number else "SCRAM-SHA-256")).close()
        except LoginFailed:
            a.tally.errors += 1
        except OSError:
            a.tally.closed += 1


@attack(WRONG_LOGIN)
def wrong_password_and_more(a: Attacker) -> None:
    """A stranger pipelines a wrong login as alice, and writes under her producers' ids behind it."""
    hand = request_frame(*apis.HANDSHAKE, 1, "alice-app", mechanism="PLAIN")
    token = request_frame(*apis.AUTHENTICATE, 2, "alice-app", auth_bytes=b"\0alice\0guess")
    writes = [request_frame(*apis.PRODUCE, 3 + j, "alice-app", **guesses(a, j)) for j in range(NEW_IDS + 4)]
    while a.going():
        for sock in a.sockets(1):
            with sock:
                sock.sendall(hand + token + b"".join(writes))
                a.tally.requests += 2 + len(writes)
                a.read_until_closed(sock)


@attack(WRONG_LOGIN)
def half_login(a: Attacker) -> None:
    """100 connections send the first half of a login as alice, and a write behind it."""
    hand = request_frame(*apis.HANDSHAKE, 1, "alice-app", mechanism="SCRAM-SHA-256")
    token = request_frame(*apis.AUTHENTICATE, 2, "alice-app", auth_bytes=b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL")
    writes = [request_frame(*apis.PRODUCE, 3 + i, "alice-app", **guesses(a, i)) for i in range(NEW_IDS + 4)]
    for number, sock in enumerate(a.sockets(100)):
        sock.sendall(hand + token + writes[number % len(writes)])
        a.tally.requests += 3
    a.hold()


@attack(WRONG_LOGIN)
def unknown_mechanisms(a: Attacker) -> None:
    """A stranger asks for one unknown mechanism after the other."""
    a.ask_again(apis.HANDSHAKE, lambda i: {"mechanism": f"NONE-{i}"}, logged_in=False)
