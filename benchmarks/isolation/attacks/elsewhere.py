"""At another listener, at another proxy of the fleet. In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

import struct
from typing import Any

from benchmarks.isolation import apis
from benchmarks.isolation.attack import FLEET, LISTENER, attack, forge_many, guesses
from benchmarks.isolation.attacker import SOURCE, Attacker
from loadtest.entities import milliseconds as ms


@attack(LISTENER, threads=2)
def other_listener(a: Attacker) -> None:
    """Ids of alice's producers are forged at another listener."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i), at=a.target.other)


@attack(LISTENER)
def no_proxy_header(a: Attacker) -> None:
    """750 connections to the listener of a load balancer send no whole PROXY header."""
    a.keep([SOURCE] * 750, b"\r\n\r\n\0\r\nQUIT\n", at=a.target.balanced)


@attack(LISTENER)
def claimed_address(a: Attacker) -> None:
    """100 connections there claim to come from alice's address."""
    head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((127, 0, 0, 1, 127, 0, 0, 1)) + struct.pack(">HH", 1234, 9092)
    for sock in a.sockets(100, at=a.target.balanced):
        sock.sendall(head)
        a.tally.requests += 1
    a.hold()


@attack(FLEET, threads=2, fleet=True)
def other_proxy(a: Attacker) -> None:
    """Ids of alice's producers are forged at another proxy of the fleet."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i), at=a.target.fleet)


@attack(FLEET, fleet=True, seconds=4)
def many_ids_fleet(a: Attacker) -> None:
    """More than 100,000 refusals of made-up producers at another proxy, which are told to the fleet."""
    assert a.target.fleet is not None
    forge_many(a, a.target.fleet)


@attack(FLEET, threads=2, fleet=True)
def mutes_fleet(a: Attacker) -> None:
    """Topics are created at another proxy with alice's client id, with a login and without."""

    def topics(i: int) -> dict[str, Any]:
        return {"topics": [{"name": f"{a.target.user}-{i}", "num_partitions": 60, "replication_factor": 1}], "timeout": ms(1000)}

    a.ask_again(apis.CREATE_TOPICS, topics, at=a.target.fleet, client_id="alice-app", logged_in=a.number == 0)
