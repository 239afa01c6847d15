"""Requests of the hot path that come many at once, most of them alike, and the answers to them. One in some dialogues is broken.

In: an API key and a seed, which say all there is to a dialogue. Out: what became of it, how many frames it had, and all that came
out. This is what sessions look at together (`proxy.wire.runs`); the invariant is that of `sessions`."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import NamedTuple

from proxy.session.session import State
from tests.apis.produce_frames import records, write, written
from tests.fuzz.corpus import FETCH, PAIRS, PRODUCE, corpus
from tests.fuzz.mutations import mutate
from tests.fuzz.sessions import AMPLE, PER_CORPUS, Broken, Outcome, Victim, cut
from tests.support import ANYBODY

SHARE_FETCH = 78
KEYS = (PRODUCE, FETCH, SHARE_FETCH)
"""APIs that compiled modules read."""
ROUNDS = 2
MOST = 12
"""Alike requests, one behind the other."""
KEPT = 12
"""Bytes of a frame that stay as they are: size, API and version or, of an answer, its correlation id."""
PARTS = (("a", 0), ("b", 3), ("longer", 0))
TURNS = 50
"""Answers and the requests that were waiting for them, until which a round is over."""


class Exchange(NamedTuple):
    """A request and its answer, whatever their correlation ids; None where there is no answer."""

    request: bytes
    answer: bytes | None


def one(key: int, seed: int) -> Outcome:
    """One dialogue about one API."""
    chance = Random(seed << 8 | key)
    rnd = chance.random
    rate = (1e9, 300.0)[rnd() < 0.3]
    rates = {name: {ANYBODY: rate} for name in ("produce", "consume", "requests")} if rnd() < 0.8 else {}
    victim = Victim(AMPLE, seed, (4, 1000)[rnd() < 0.7], **rates)
    kinds, frames = _kinds(key, seed, chance), 0
    try:
        for _ in range(ROUNDS):
            frames += _round(victim, kinds, frames, chance)
            if victim.port.closes:
                break
            victim.now += rnd() * 3
        end = "closed" if victim.port.closes else "forwarded" if victim.forwarded else "waits"
        victim.leave(politely=rnd() < 0.5)
    except Exception as e:
        raise Broken(f"API {key}, pipelined, seed {seed}: {type(e).__name__}: {e}") from e
    return Outcome(end, frames, victim.transcript())


def _round(victim: Victim, kinds: list[Exchange], number: int, chance: Random) -> int:
    """Requests, then answers until all are answered; the number of frames. `number`: the first correlation id."""
    requests, answers = list[bytes](), list[bytes]()
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(kinds)
        for _ in range(chance.randrange(1, MOST)):
            correlation_id = (number + len(requests)).to_bytes(4, "big")
            requests.append(kind.request[:8] + correlation_id + kind.request[12:])
            if kind.answer is not None:
                answers.append(kind.answer[:4] + correlation_id + kind.answer[8:])
    sent = len(requests) + len(answers)
    for frames, share in ((requests, 0.3), (answers, 0.3)):
        if frames and chance.random() < share:
            at = chance.randrange(len(frames))
            frames[at] = mutate(frames[at], [], chance, KEPT if frames is requests else 8)
    for piece in cut(b"".join(requests), chance):
        victim.client(piece)
    for _ in range(TURNS):
        count = min(victim.session.in_flight, len(answers))
        if not count or victim.session.state is State.CLOSED:
            break
        for piece in cut(b"".join(answers[:count]), chance):
            victim.broker(piece)
        del answers[:count]
    return sent


def _kinds(key: int, seed: int, chance: Random) -> list[Exchange]:
    """What a dialogue asks."""
    count = chance.choice((1, 1, 2, 3))
    if key == PRODUCE and chance.random() < 0.9:
        version, producer_id = chance.choice((3, 8, 9, 12, 13)), chance.choice((-1, -1, 7))
        acks = chance.choice((-1, 1, 1, 1, 0))
        return [
            _produce(version, chance.randrange(len(PARTS)), chance.choice((61, 100, 300)), producer_id, acks) for _ in range(count)
        ]
    pairs = corpus(key, seed // PER_CORPUS)
    chosen = [pairs[chance.randrange(PAIRS)] for _ in range(count)]
    return [Exchange(pair.request, pair.response) for pair in chosen]


@lru_cache(maxsize=1000)
def _produce(version: int, part: int, size: int, producer_id: int, acks: int) -> Exchange:
    request = write({PARTS[part]: records(size, producer_id)}, version=version, acks=acks)
    return Exchange(request, written([PARTS[part]], version=version) if acks else None)
