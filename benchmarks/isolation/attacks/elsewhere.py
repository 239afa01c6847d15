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
    """mallory forges the ids of alice's producers at another listener."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i), at=a.target.other)


@attack(LISTENER)
def no_proxy_header(a: Attacker) -> None:
    """750 connections to the listener for a load balancer never send a complete PROXY header."""
    a.keep([SOURCE] * 750, b"\r\n\r\n\0\r\nQUIT\n", at=a.target.balanced)


@attack(LISTENER)
def claimed_address(a: Attacker) -> None:
    """100 connections to the listener for a load balancer claim to come from alice's address."""
    head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((127, 0, 0, 1, 127, 0, 0, 1)) + struct.pack(">HH", 1234, 9092)
    for sock in a.sockets(100, at=a.target.balanced):
        sock.sendall(head)
        a.tally.requests += 1
    a.hold()


@attack(FLEET, threads=2, fleet=True)
def other_proxy(a: Attacker) -> None:
    """mallory forges the ids of alice's producers at another proxy of the fleet."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i), at=a.target.fleet)


@attack(FLEET, fleet=True, seconds=4)
def many_ids_fleet(a: Attacker) -> None:
    """Another proxy refuses more than 100,000 made-up producers of mallory, and tells the fleet."""
    assert a.target.fleet is not None
    forge_many(a, a.target.fleet)


@attack(FLEET, threads=2, fleet=True)
def mutes_fleet(a: Attacker) -> None:
    """mallory and strangers create topics at another proxy with alice's client id."""

    def topics(i: int) -> dict[str, Any]:
        return {"topics": [{"name": f"{a.target.user}-{i}", "num_partitions": 60, "replication_factor": 1}], "timeout": ms(1000)}

    a.ask_again(apis.CREATE_TOPICS, topics, at=a.target.fleet, client_id="alice-app", logged_in=a.number == 0)
