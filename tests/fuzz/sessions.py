"""Valid traffic of every API that the proxy touches, broken by chance, fed to sessions.

In: an API key and a seed, which say all there is to a dialogue. Out: what became of it, and how many broken frames it had.
The invariant is one sentence: any input gives forwarded bytes, or one report and a close, never an exception, and at its
end a session holds nothing any more.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from random import Random
from typing import NamedTuple

from proxy.session.port import Peer
from proxy.session.session import Session, State
from quota.kinds.controller_mutations import MutationLimit
from tests.messages import batch, produce, request, response, versions_of
from tests.support import ANYBODY, HANDLERS, Port, World, endpoint

KEYS = sorted(HANDLERS)
PAIRS = 400
"""Requests with their responses that are made at once: making them takes longer than breaking them."""
PER_CORPUS = 20_000
"""Seeds that share them."""
ROUNDS = 3
"""Requests of a dialogue at most, if it lasts that long."""
SASL = 36
LIMITS = {ANYBODY: MutationLimit(5, 500)}

_EXTREMES = [
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x08",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff",
    b"\0",
    b"\xff",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x01\x7f\0",
    b"\x02\x63\x00\x63\x00",
    b"\xc3\x28",
    b"\xed\xa0\x80",
]


class Broken(AssertionError):
    """The invariant does not hold; the message says for which seed."""


class Outcome(NamedTuple):
    """`end`: what became of the connection. `frames`: how many broken frames it saw."""

    end: str
    frames: int


def understood(key: int) -> list[int]:
    low, high = HANDLERS[key].versions
    return [version for version in versions_of(key) if low <= version <= high]


def mutate(frame: bytes, chance: Random, keep: int) -> bytes:
    """Some bytes changed, put in, taken out or repeated, behind the first `keep`; the size field is right again, mostly."""
    data = bytearray(frame)
    rnd = chance.random
    for _ in range((1, 1, 1, 2, 5)[int(rnd() * 5)]):
        size = len(data)
        at = keep + int(rnd() * (size + 1 - keep)) if size > keep else size
        match int(rnd() * 6):
            case 0 if at < size:
                data[at] ^= 1 << int(rnd() * 8)
            case 1 if at < size:
                data[at] = (0, 1, 0x7F, 0x80, 0xFF)[int(rnd() * 5)]
            case 2:
                extreme = _EXTREMES[int(rnd() * len(_EXTREMES))]
                data[at : at + (len(extreme) if rnd() < 0.7 else 0)] = extreme
            case 3:
                del data[at : at + 1 + int(rnd() * 29)]
            case 4:
                data[at:at] = chance.randbytes(1 + int(rnd() * 19))
            case _:
                data[at:at] = data[at : at + 1 + int(rnd() * 59)]
    if rnd() < 0.97:
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
    given = {"error_code": 0} if key in (17, SASL) and chance.random() < 0.7 else {}
    return response(key, int.from_bytes(frame[6:8], "big"), 1, chance=chance, **given)


@lru_cache(maxsize=2)
def corpus(key: int, number: int) -> list[tuple[bytes, bytes]]:
    """Requests and responses of one API."""
    chance = Random(number << 8 | key)
    asked = [valid_request(key, chance) for _ in range(PAIRS)]
    return [(frame, valid_response(frame, key, chance)) for frame in asked]


@lru_cache
def logins() -> list[tuple[bytes, bytes]]:
    """Handshakes that come before a login."""
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")
    return [(request(17, 1, 0, mechanism=mechanism), response(17, 1, 0, error_code=0)) for mechanism in mechanisms]


def cut(data: bytes, chance: Random) -> list[bytes]:
    if chance.random() < 0.5 or len(data) < 2:
        return [data]
    inner = (1 + int(chance.random() * (len(data) - 1)) for _ in range(1 + int(chance.random() * 5)))
    return [data[a:b] for a, b in itertools.pairwise(sorted({0, len(data), *inner}))]


class Victim:
    """A session that is checked after every step. Its world lasts as long as it does."""

    def __init__(self, memory_total: int = 1 << 30) -> None:
        self.world = World(LIMITS, max_frame=1 << 16, max_held_response=200, max_in_flight=4, memory_total=memory_total)
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

    def leave(self, politely: bool) -> None:
        """The client goes, then the broker; nothing of the connection may be left."""
        if politely:
            self.session.client_ended()
        self.session.client_lost()
        self._wait()
        self.session.broker_lost(None)
        world = self.world
        assert self.session.state is State.CLOSED
        assert self.port.closes == 1, f"{self.port.closes} closes"
        assert world.services.budget.held == world.services.budget.waiting == 0, "memory is still charged"
        world.tally.close_interval()
        assert not len(world.tally), "sums are still held"

    def _wait(self) -> None:
        while self.session.state in (State.MUTED, State.HELD):
            assert self.port.wake is not None, "waits for a timer that is not set"
            assert self.now <= self.port.wake <= self.now + 30, f"asleep from {self.now} to {self.port.wake}"
            self.now = self.port.wake
            self.session.wake(self.now)

    def _settle(self) -> None:
        self._wait()
        state, watcher = self.session.state, self.world.watcher
        reports = len(watcher.client_failures) + len(watcher.broker_failures)
        assert reports == self.port.closes == int(state is State.CLOSED), f"{reports} reports, {self.port.closes} closes, {state}"
        assert state is not State.OPEN or self.port.reading, "open, and never read again"

    @property
    def forwarded(self) -> int:
        return sum(len(piece) for piece in (*self.port.broker, *self.port.client))


def one(key: int, seed: int) -> Outcome:
    """One broken dialogue about one API."""
    chance = Random(seed << 8 | key)
    rnd = chance.random
    pairs = corpus(key, seed // PER_CORPUS)
    victim = Victim(500 if rnd() < 0.05 else 1 << 30)
    session = victim.session
    frames = 0
    what = "login"
    try:
        if key == SASL:
            hand, answer = chance.choice(logins())
            victim.client(hand)
            victim.broker(answer)
        for _ in range(ROUNDS):
            asked, answer = pairs[int(rnd() * PAIRS)]
            breaks_request = rnd() < 0.5
            what = "request" if breaks_request else "response"
            frames += breaks_request
            sent = mutate(asked, chance, 4 if rnd() < 0.05 else 8) if breaks_request else asked
            if rnd() < 0.2:
                sent = asked + sent
            for piece in cut(sent, chance):
                victim.client(piece)
            for _ in range(session.in_flight):
                for piece in cut(answer if breaks_request else mutate(answer, chance, 8), chance):
                    victim.broker(piece)
                frames += not breaks_request
            if victim.port.closes:
                break
        end = "closed" if victim.port.closes else "forwarded" if victim.forwarded else "waits"
        what = "end"
        victim.leave(politely=rnd() < 0.5)
    except Exception as e:
        raise Broken(f"API {key}, seed {seed}, {what}: {type(e).__name__}: {e}") from e
    return Outcome(end, frames)
