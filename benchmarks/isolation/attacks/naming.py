"""Attacks with names: topics that brokers create automatically, and names that are not text. In: an attacker. Out: what it sent and
got, in its tally."""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import Any, Final

from benchmarks.isolation import apis
from benchmarks.isolation.attack import (
    MADE_UP,
    Share,
    attack,
    produce,
)
from benchmarks.isolation.attacker import Attacker
from benchmarks.isolation.tenants import BOB, BURST, PASSWORD, RATE
from benchmarks.isolation.wire import PATIENCE, Connection
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch, request_frame

INTERNAL: Final = 20
"""Partitions of an internal topic."""
HELD: Final = 1.0
"""Seconds after which a member whose heartbeat is held joins another group."""
EXPECTED: Final = 5.2
"""Seconds after which a topic that was named and does not exist is not expected any more."""
HERE: Final = "%%%"
BROKEN: Final = (b"\xed\xa0\x80", b"\xff\xfe\xfd", b"\xe2\x28\xa1")
"""What replaces `HERE`: half a surrogate pair, bytes that are not UTF-8, an incomplete character."""


@attack(MADE_UP, threads=3, shows=("gained",), seconds=3, gains=Share("partitions of internal topics", BURST + INTERNAL, 2 * RATE))
def streams_groups(a: Attacker) -> None:
    """Members of mallory's Streams groups cause brokers to create internal topics."""
    names: list[str] = []
    while a.going():
        with a.connected() as connection:
            connection.sock.settimeout(HELD)
            while a.going():
                name = f"{a.target.user}-{a.number}-{len(names)}"
                names.append(f"{name}-repartition")
                # The coordinator creates what is missing when the group's next heartbeat comes.
                for _ in range(2):
                    a.ask(connection, apis.STREAMS_HEARTBEAT, **_joins(name, names[-1]))
                a.tally.gained = _partitions(a, connection, names)


@attack(MADE_UP, shows=("gained",), seconds=6, gains=Share("partitions of topics that are created by naming", BURST + 5, RATE))
def named_again(a: Attacker) -> None:
    """mallory causes topics to be created by naming them, bob deletes them, and she names them again later."""
    names = [f"{a.target.user}-{i}" for i in range(BURST)]
    with a.connected() as mallory, a.connected(user=BOB) as bob:
        for each in (mallory, bob):
            each.sock.settimeout(PATIENCE)
        began = time.monotonic()
        a.ask(mallory, apis.METADATA, **_named(names, create=True))
        while a.going() and a.tally.gained < len(names):
            a.tally.gained = _partitions(a, mallory, names)
        gone = a.ask(bob, apis.DELETE_TOPICS, topics=[{"name": name} for name in names], timeout=ms(5000)).responses
        gone = [topic.name for topic in gone if not topic.error_code]
        a.wait(began + EXPECTED - time.monotonic())
        first = a.tally.gained
        while a.going() and _partitions(a, mallory, gone):  # brokers delete later than they answer
            a.wait(0.1)
        a.ask(mallory, apis.METADATA, **_named(gone, create=True))
        while a.going():
            a.wait(0.1)
            a.tally.gained = first + _partitions(a, mallory, gone)


@attack(MADE_UP, threads=3, shows=("requests", "answers", "errors"), seconds=2)
def broken_names(a: Attacker) -> None:
    """Names of client ids, topics, transactional ids, groups, mechanisms and users are not valid Unicode."""
    (_broken_requests, _broken_logins, _half_a_character)[a.number](a)


def _broken_requests(a: Attacker) -> None:
    """Requests of mallory."""
    name = f"mallory-{HERE}"
    frames = itertools.cycle([request_frame(*what, 1, name, **values) for what, values in _sorts(name)])
    while a.going():
        with a.connected() as connection:
            for frame in frames:
                for broken in BROKEN:
                    if not a.going():
                        return
                    _send(a, connection, frame, broken)


def _broken_logins(a: Attacker) -> None:
    """Logins that fail."""
    logins = (("SCRAM-SHA-256", f"n,,n={HERE},r=fyko+d2lbbFgONRv9qkxdawL"), ("PLAIN", f"\0{HERE}\0x"), (f"PLAIN{HERE}", ""))
    for mechanism, token in itertools.cycle(logins):
        for broken in BROKEN:
            if not a.going():
                return
            with a.connected(logged_in=False) as connection:
                _send(a, connection, request_frame(*apis.HANDSHAKE, 1, HERE, mechanism=mechanism), broken)
                _send(a, connection, request_frame(*apis.AUTHENTICATE, 2, HERE, auth_bytes=token.encode()), broken)


def _half_a_character(a: Attacker) -> None:
    """Requests of a user whose name ends with half of a surrogate pair: JSON can hold that, and brokers accept it."""
    batch = record_batch(b"x" * 100)
    while a.going():
        with a.connected(logged_in=False) as connection:
            connection.sock.settimeout(PATIENCE)
            a.ask(connection, apis.HANDSHAKE, mechanism="OAUTHBEARER")
            answer = a.ask(connection, apis.AUTHENTICATE, auth_bytes=_bearer("mallory-\ud800"))
            assert (answer.error_code, answer.auth_bytes) == (0, b""), f"the broker does not let it in: {answer}"
            for i in itertools.count():
                if not a.going():
                    return
                a.ask(connection, apis.PRODUCE, **produce(["mallory-own"], batch))
                new = {"name": f"{a.target.user}-{i}", "num_partitions": BURST, "replication_factor": 1}
                a.ask(connection, apis.CREATE_TOPICS, topics=[new], timeout=ms(1000))


def _sorts(name: str) -> list[tuple[tuple[int, int], dict[str, Any]]]:
    """Requests with this name in them."""
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    new = {"name": name, "num_partitions": 2 * BURST, "replication_factor": 1}
    no_producer = {"transaction_timeout": ms(1000), "producer_id": -1, "producer_epoch": -1}
    return [
        (apis.METADATA, _named([name], create=True)),
        (apis.PRODUCE, produce([name, "mallory-own", "mallory-full"], record_batch(b"x"))),
        (apis.INIT_PRODUCER_ID, {"transactional_id": name, **no_producer}),
        (apis.FIND_COORDINATOR, {"key": name, "key_type": 0}),
        (apis.CREATE_TOPICS, {"topics": [new], "timeout": ms(1000)}),
        (apis.CREATE_PARTITIONS, {"topics": [{"name": name, "count": 90, "assignments": None}], "timeout": ms(1000)}),
        (apis.DELETE_TOPICS, {"topics": [{"name": name}], "timeout": ms(1000)}),
        (
            apis.OFFSET_COMMIT,
            {"group_id": name, "generation_id_or_member_epoch": -1, "topics": [{"name": name, "partitions": [partition]}]},
        ),
        (apis.DELETE_GROUPS, {"groups_names": [name]}),
        (apis.STREAMS_HEARTBEAT, _joins(name, name)),
    ]


def _send(a: Attacker, connection: Connection, frame: bytes, broken: bytes) -> None:
    """Send a request with these bytes instead of `HERE`, and read its answer."""
    connection.sock.sendall(frame.replace(HERE.encode(), broken))
    a.tally.requests += 1
    connection.frame()
    a.tally.answers += 1


def _bearer(user: str) -> bytes:
    """An unsigned token of OAUTHBEARER (RFC 7515); the broker wants the password as its scope."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"sub": user, "scope": PASSWORD, "iat": time.time() - 10, "exp": time.time() + 3600}
    return f"n,,\1auth=Bearer {part({'alg': 'none'})}.{part(claims)}.\1\1".encode()


def _joins(group: str, topic: str) -> dict[str, Any]:
    """The fields of a heartbeat with which somebody joins this group, whose application wants this internal topic."""
    part = {
        "subtopology_id": "0",
        "source_topics": ["mallory-own"],
        "repartition_source_topics": [{"name": topic, "partitions": INTERNAL}],
    }
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "client_tags": [], "process_id": "p"}
    member = {"group_id": group, "member_id": group, "member_epoch": 0, "rebalance_timeout": ms(10_000)}
    return {**member, **tasks, "topology": {"epoch": 1, "subtopologies": [part]}}


def _named(names: list[str], *, create: bool) -> dict[str, Any]:
    """The fields of a Metadata request."""
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": create}


def _partitions(a: Attacker, connection: Connection, names: list[str]) -> int:
    """The number of partitions of those topics that exist."""
    return sum(len(topic.partitions) for topic in a.ask(connection, apis.METADATA, **_named(names, create=False)).topics)
