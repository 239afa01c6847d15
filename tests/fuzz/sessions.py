"""Valid traffic of every API that the proxy touches, broken by chance, fed to sessions.

The invariant is one sentence: any input gives forwarded bytes, or one report and a close, and never an exception.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from proxy.session.port import Peer
from proxy.session.session import Session, State
from quota.kinds.controller_mutations import MutationLimit
from tests.messages import batch, produce, request, response, versions_of
from tests.support import ANYBODY, HANDLERS, Port, World, endpoint

KEYS = sorted(HANDLERS)
_EXTREMES = [
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff",
    b"\0",
    b"\xff",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x01\x7f\0",
]


class Broken(AssertionError):
    """The invariant does not hold; the message says for which seed."""


def understood(key: int) -> list[int]:
    low, high = HANDLERS[key].versions
    return [version for version in versions_of(key) if low <= version <= high]


def mutate(frame: bytes, chance: Random, keep: int) -> bytes:
    """Some bytes changed, put in, taken out or repeated, behind the first `keep`; the size field is right again, mostly."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(keep, len(data) + 1) if len(data) > keep else len(data)
        match chance.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(data):
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                extreme = chance.choice(_EXTREMES)
                data[at : at + (len(extreme) if chance.random() < 0.7 else 0)] = extreme
            case 3:
                del data[at : at + chance.randrange(1, 30)]
            case 4:
                data[at:at] = chance.randbytes(chance.randrange(1, 20))
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 60)]
    if chance.random() < 0.97:
        data[:4] = max(len(data) - 4, 0).to_bytes(4, "big")
    return bytes(data)


def valid_request(key: int, chance: Random) -> bytes:
    version = chance.choice(understood(key))
    if key == 0:
        if chance.random() < 0.5:
            return produce(version, 1, batch(size=chance.randrange(61, 200)), acks=chance.choice((0, 1, -1)))
        return request(0, version, 1, chance=chance, acks=chance.choice((0, 1, -1)))
    return request(key, version, 1, chance=chance)


def valid_response(frame: bytes, key: int, chance: Random) -> bytes:
    return response(key, int.from_bytes(frame[6:8], "big"), 1, chance=chance)


def cut(data: bytes, chance: Random) -> list[bytes]:
    if chance.random() < 0.5 or len(data) < 2:
        return [data]
    places = sorted({0, len(data), *(chance.randrange(1, len(data)) for _ in range(chance.randrange(1, 6)))})
    return [data[a:b] for a, b in itertools.pairwise(places)]


class Victim:
    """A session that is checked after every step. Its world lasts as long as it does."""

    def __init__(self) -> None:
        self.world = World(limits={ANYBODY: MutationLimit(5, 500)}, max_frame=1 << 16, max_held_response=200)
        self.port = Port()
        self.session = Session(self.world.services, HANDLERS, self.port, Peer("10.0.0.1:1", endpoint))
        self.now = 0.0

    def client(self, data: bytes) -> None:
        self.session.client_bytes(data, self.now)
        if self.session.state is State.CONNECTING:
            self.session.broker_connected(self.now)
        self._settle()

    def broker(self, data: bytes) -> None:
        self.session.broker_bytes(data, self.now)
        self._settle()

    def _settle(self) -> None:
        while self.session.state in (State.MUTED, State.HELD):
            assert self.port.wake is not None, "waits for a timer that is not set"
            assert self.now <= self.port.wake <= self.now + 30, f"asleep from {self.now} to {self.port.wake}"
            self.now = self.port.wake
            self.session.wake(self.now)
        closed = self.session.state is State.CLOSED
        reports = len(self.world.watcher.client_failures) + len(self.world.watcher.broker_failures)
        assert reports == self.port.closes == int(closed), f"{reports} reports, {self.port.closes} closes, {self.session.state}"

    @property
    def forwarded(self) -> int:
        return sum(len(piece) for piece in (*self.port.broker, *self.port.client))


def one(key: int, seed: int) -> str:
    """One broken dialogue about one API; what became of it."""
    chance = Random(seed << 8 | key)
    victim = Victim()
    asked = valid_request(key, chance)
    breaks_request = chance.random() < 0.5
    sent = mutate(asked, chance, keep=8) if breaks_request else asked
    if chance.random() < 0.2:
        sent = asked + sent
    if key == 36:
        victim.client(request(17, 1, 0, mechanism=chance.choice(("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"))))
        victim.broker(response(17, 1, 0))
    try:
        for piece in cut(sent, chance):
            victim.client(piece)
        if victim.session.in_flight:
            answer = valid_response(asked, key, chance)
            for piece in cut(answer if breaks_request else mutate(answer, chance, keep=8), chance):
                victim.broker(piece)
    except Exception as e:
        raise Broken(
            f"API {key}, seed {seed}, {'request' if breaks_request else 'response'} broken: {type(e).__name__}: {e}"
        ) from e
    return "closed" if victim.port.closes else "forwarded" if victim.forwarded else "waits"


def dialogues(frames: int, seed: int) -> Iterator[tuple[int, int]]:
    """(API key, seed) of so many, spread over all APIs."""
    for i in range(frames):
        yield KEYS[i % len(KEYS)], seed * 1_000_000_007 + i // len(KEYS)
