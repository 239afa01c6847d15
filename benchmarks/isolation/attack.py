"""What an attack is, and what its requests are made of."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.isolation import apis
from benchmarks.isolation.attacker import Attacker
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch

ALICES: Final = ["alice-data", "alice-ids", "alice-metered", "alice-share", "alice-paced", "alice-stored"]
"""Topics that alice writes to."""
KIB, MIB = 1 << 10, 1 << 20
NEAR: Final = (*range(-1, -10, -1), *range(5), *range(-10, -40, -1))
"""Where ids of alice's producers are, from one that was given out just now; the likeliest first."""
NEW_IDS: Final = 6
"""One more than the new producer ids that a user other than alice may use within an hour."""
BETWEEN_LOGINS: Final = 0.1
"""Seconds between two logins, after one did not succeed."""

NO_LOGIN, WRONG_LOGIN, NO_RIGHTS, FORGED, MADE_UP = "no login", "wrong login", "no rights", "forged ids", "made-up names"
FLOOD, CONNECTIONS, UNREAD, UNFINISHED = "floods of requests", "floods of connections", "never reading", "never finishing"
PIPELINED, LIES, LISTENER, FLEET = "pipelining", "lying about sizes", "another listener", "another proxy"


@dataclass(frozen=True, slots=True)
class Share:
    """What a quota allows: `at_once`, and `rate` more each second. `what`: of what, in words."""

    what: str
    at_once: float
    rate: float


@dataclass(frozen=True, slots=True)
class Attack:
    """`way`: the sort of misuse. `does`: one sentence. `run` is called in each of `threads` threads. `shows`: figures of the
    tally that are above 0 when the attack was one. `fleet`: it needs another proxy of the fleet. `seconds`: how long a test of it
    takes. `gains`: where the attack is for more than a quota allows, what it may get at most; `gained` of the tally says what it
    got."""

    name: str
    way: str
    does: str
    run: Callable[[Attacker], None]
    threads: int
    shows: Sequence[str]
    fleet: bool
    seconds: float
    gains: Share | None


def attack(
    way: str,
    threads: int = 1,
    shows: Sequence[str] = ("requests",),
    *,
    fleet: bool = False,
    seconds: float = 1.2,
    gains: Share | None = None,
) -> Callable[[Callable[[Attacker], None]], Attack]:
    """Makes an attack of a function; its name and its docstring become those of the attack."""

    def made(run: Callable[[Attacker], None]) -> Attack:
        assert run.__doc__ is not None
        does = " ".join(run.__doc__.split())
        return Attack(run.__name__.replace("_", "-"), way, does, run, threads, shows, fleet, seconds, gains)

    return made


def batches(topics: Sequence[str], records: bytes, partitions: int = 1) -> list[dict[str, Any]]:
    """`topic_data` of a Produce request: the same records for each."""
    return [{"name": t, "partition_data": [{"index": i, "records": records} for i in range(partitions)]} for t in topics]


def produce(topics: Sequence[str], records: bytes, partitions: int = 1) -> dict[str, Any]:
    """The fields of a Produce request."""
    return {"acks": -1, "timeout": ms(1000), "topic_data": batches(topics, records, partitions)}


def forged(id: int, *, epoch: int = 0, sequence: int = 0, size: int = 20) -> bytes:
    """A batch that says it comes from this producer."""
    return record_batch(b"f" * size, producer_id=id, epoch=epoch, sequence=sequence)


def near(a: Attacker, number: int) -> int:
    """A guess at the id of one of alice's producers."""
    guess: int = a.target.near_id + NEAR[number % len(NEAR)]
    return max(guess, 0)


def guesses(a: Attacker, number: int, topics: Sequence[str] = ALICES, *, epoch: int = 0, sequence: int = 0) -> dict[str, Any]:
    """The fields of a Produce request under the ids of eight of alice's producers, to all of her topics. The first few requests are
    of ids that are far away, and use up how many new ids somebody may bring."""
    ids = [(1 << 39) + number] if number < NEW_IDS else [near(a, (number - NEW_IDS) * 8 + i) for i in range(8)]
    data = [each for id in ids for each in batches(topics, forged(id, epoch=epoch, sequence=sequence))]
    return {"acks": -1, "timeout": ms(1000), "topic_data": data}


def wide(client_id: str, topic: str, partitions: int, records: bytes) -> bytes:
    """A Produce request v7 with the same records for each partition of one topic. Encoded here, as that is fast."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    each = struct.pack(">i", len(records)) + records
    body = b"".join(struct.pack(">i", i) + each for i in range(partitions))
    head = struct.pack(">hhi", *apis.PRODUCE, 1) + text(client_id) + struct.pack(">hhii", -1, -1, 1000, 1) + text(topic)
    frame = head + struct.pack(">i", partitions) + body
    return struct.pack(">i", len(frame)) + frame


def lower_alice() -> dict[str, Any]:
    """The fields of an AlterClientQuotas request that takes all from alice."""
    keys = ("controller_mutations_rate", "producer_ids_rate", "cluster_producer_byte_rate", "cluster_request_rate")
    ops = [{"key": key, "value": 0.001, "remove": False} for key in keys]
    return {"entries": [{"entity": [{"entity_type": "user", "entity_name": "alice"}], "ops": ops}], "validate_only": False}


def forge_many(a: Attacker, address: str) -> None:
    """Requests of 10,000 partitions under made-up ids, once smaller requests have used up her quota of new ids."""
    for id in itertools.count(1 << 40, 1000):
        if not a.going():
            return
        with a.connected(at=address) as connection:
            connection.sock.settimeout(10)
            for more in range(1000):
                if not a.going():
                    return
                frame = wide("mallory-app", "mallory-own", 1 if more < NEW_IDS else 10_000, forged(id + more, size=1))
                connection.sock.sendall(frame)
                a.tally.requests += 1
                a.tally.bytes += len(frame)
                connection.frame()
                a.tally.answers += 1
