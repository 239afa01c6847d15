"""Valid traffic of every API that the proxy touches, broken by chance, fed to sessions.

In: an API key and a seed, which say all there is to a dialogue. Out: what became of it, and how many broken frames it had.
The invariant is one sentence: any input gives forwarded bytes, or one report and a close, never an exception, and at its
end a session holds nothing any more. Beside it another principal goes on in the same world, and gets what she has to get, byte
by byte and at once (`bystander`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from proxy.cluster.topics import Topics
from proxy.session.dynamic_quotas import Alteration, NoDynamicQuotas, Refusal
from proxy.session.port import Peer
from proxy.session.requester import Requester
from proxy.session.session import Session, State
from proxy.session.tally import Row
from quota.decision import Action
from quota.entity import DEFAULT, Entity
from quota.kinds.controller_mutations import MutationLimit
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.topic_policy import PARTITIONS, Rule, TopicPolicy, TopicPolicyOptions
from quota.limit_table import LimitTable
from quota.overrides import Change
from tests.fuzz import bystander
from tests.fuzz.corpus import AUTHENTICATE, HANDSHAKE, PAIRS, TOKENS, Pair, corpus, logins
from tests.fuzz.mutations import mutate
from tests.support import ANYBODY, HANDLERS, Port, World, changed, endpoint

KEYS = sorted(HANDLERS)
PER_CORPUS = 20_000
"""Seeds that share a corpus."""
ROUNDS = 3
"""Requests of a dialogue at most, if it lasts that long."""
SLOW = 0.03
"""The part of frames that come byte by byte, with silence in between that may be longer than the limits allow."""
LIMITS = {ANYBODY: MutationLimit(5, 500), bystander.ENTITY: bystander.MUTATIONS}
PRODUCER_IDS: dict[Entity, float] = {ANYBODY: 1, bystander.ENTITY: bystander.PRODUCER_IDS}
AMPLE = 1 << 30
"""Bytes of memory in all; with less, there may be none for the bystander."""


class Broken(AssertionError):
    """The invariant does not hold; the message says for which seed."""


class Outcome(NamedTuple):
    """`end`: what became of the connection. `frames`: how many broken frames it saw. `transcript`: all that came out of it."""

    end: str
    frames: int
    transcript: tuple[object, ...] = ()


def cut(data: bytes, chance: Random) -> list[bytes]:
    """The same bytes in one read or several."""
    if chance.random() < 0.5 or len(data) < 2:
        return [data]
    inner = (1 + int(chance.random() * (len(data) - 1)) for _ in range(1 + int(chance.random() * 5)))
    return [data[a:b] for a, b in itertools.pairwise(sorted({0, len(data), *inner}))]


POLICY = TopicPolicyOptions(TopicPolicy({PARTITIONS: Rule(most=3), "retention.ms": Rule(most=1000)}))
FEW_TOPICS = {"topic_count": LimitTable({ANYBODY: 2}), "partition_count": LimitTable({ANYBODY: 50})}
"""What refuses topics with 44, in half of the worlds."""


class DynamicQuotas(NoDynamicQuotas):
    """Anybody may alter anything; it is done a moment later."""

    def __init__(self) -> None:
        self.table = {Entity("alice", None): {"producer_ids_rate": 5.0}, Entity(None, DEFAULT): {"controller_mutations_rate": 1.0}}
        self.under_way: list[Alteration] = []

    def may_alter(self, user: str) -> bool:  # noqa: ARG002
        return True

    def closed(self) -> Refusal | None:
        return None

    def alter(self, changes: Sequence[Change], by: Requester) -> Alteration:  # noqa: ARG002
        self.under_way.append(Alteration())
        return self.under_way[-1]


class Victim:
    """A session that is checked after every step. Its world lasts as long as it does."""

    def __init__(self, memory_total: int = AMPLE, first: int = 0, max_in_flight: int = 4, **limits: Any) -> None:
        """`first`: which exchange the bystander begins with; by it, new producer ids above the limit are slowed down or refused.
        `limits`: of rates, as of `World`."""
        mode = IdMode.REJECT if first % 3 == 0 else IdMode.THROTTLE
        self.world = World(
            LIMITS,
            PRODUCER_IDS,
            mode,
            max_frame=1 << 16,
            max_held_response=200,
            max_in_flight=max_in_flight,
            memory_total=memory_total,
            dynamic_quotas=DynamicQuotas(),
            **limits,
        )
        if first % 2:
            self.world.engine.change(changed(self.world.engine.limits, POLICY, **FEW_TOPICS))
        self.port = Port()
        self.session = Session(self.world.services, HANDLERS, self.port, Peer("10.0.0.1:1", endpoint))
        self.now = 0.0
        self._bystander = bystander.Bystander(self.world, first) if memory_total >= AMPLE else None
        self._rows: list[Row] = []

    def bystander(self) -> None:
        """The other principal has a turn."""
        if self._bystander is not None:
            self._bystander.turn(self.now)

    def client(self, data: bytes) -> None:
        self.session.client_bytes(data, self.now)
        if self.session.state is State.CONNECTING:
            self.session.broker_connected(self.now)
        self._settle()

    def broker(self, data: bytes) -> None:
        self.session.broker_bytes(data, self.now)
        self._settle()

    def drip(self, data: bytes, chance: Random) -> None:
        """Byte by byte, up to 200 of them, then the rest; with pauses, after each of which the limits are looked at."""
        for at in range(min(len(data), 200)):
            if self.port.closes:
                return
            self.client(data[at : at + 1])
            if chance.random() < 0.05:
                self.now += chance.random() * 60
                self.session.check(self.now)
                self._settle()
        if len(data) > 200 and not self.port.closes:
            self.client(data[200:])

    def leave(self, politely: bool) -> None:
        """The client goes, then the broker; nothing of the connection may be left, and the bystander can come again."""
        if self._bystander is not None:
            self._bystander.leave(self.now)
        if politely:
            self.session.client_ended()
        self.session.client_lost()
        self._wait()
        self.session.broker_lost(None)
        world = self.world
        learnt = Topics()
        for frame, version in world.cluster.metadata:
            learnt.learn(frame, version)
            while learnt.work():
                pass
        assert self.session.state is State.CLOSED
        assert self.port.closes == 1, f"{self.port.closes} closes"
        assert world.services.budget.held == world.services.budget.waiting == 0, "memory is still charged"
        self._rows = world.rows()
        assert not len(world.tally), "sums are still held"
        if self._bystander is not None:
            self._bystander = bystander.Bystander(world, bystander.PRODUCES)
            self.bystander()
            self.bystander()

    def _wait(self) -> None:
        while self.session.state in (State.MUTED, State.HELD):
            assert self.port.wake is not None, "waits for a timer that is not set"
            assert self.now <= self.port.wake <= self.now + 30, f"asleep from {self.now} to {self.port.wake}"
            self.now = self.port.wake
            self.session.wake(self.now)

    def _settle(self) -> None:
        self._wait()
        dynamic_quotas = self.world.dynamic_quotas
        assert isinstance(dynamic_quotas, DynamicQuotas)
        while dynamic_quotas.under_way:
            dynamic_quotas.under_way.pop().finish(self.now)
            self._wait()
        state, watcher = self.session.state, self.world.watcher
        reports = len(watcher.client_failures) + len(watcher.broker_failures) + sum(closed for _, closed in watcher.limits)
        if not reports and self.port.closes and watcher.decisions:
            # A refusal cannot be told where there are no acknowledgements: the connection is closed, as brokers do.
            reports += watcher.decisions[-1][0].action is Action.REFUSE
        assert reports == self.port.closes == int(state is State.CLOSED), f"{reports} reports, {self.port.closes} closes, {state}"
        assert state is not State.OPEN or self.port.reading, "open, and never read again"

    def transcript(self) -> tuple[object, ...]:
        """What came out: bytes, decisions, reports, sums; and the time, which goes on while a throttle is waited for."""
        watcher = self.world.watcher
        reports = watcher.client_failures, watcher.broker_failures, watcher.limits, watcher.would, watcher.silent
        broker, client = b"".join(self.port.broker), b"".join(self.port.client)
        return broker, client, watcher.decisions, reports, self._rows, self.now

    @property
    def forwarded(self) -> int:
        return sum(len(piece) for piece in (*self.port.broker, *self.port.client))


def one(key: int, seed: int) -> Outcome:
    """One broken dialogue about one API."""
    chance = Random(seed << 8 | key)
    rnd = chance.random
    pairs = corpus(key, seed // PER_CORPUS)
    victim = Victim(500 if rnd() < 0.05 else AMPLE, seed)
    frames = 0
    what = "login"
    try:
        if key == AUTHENTICATE:
            hand, answer = chance.choice(logins())
            victim.client(hand)
            victim.broker(answer)
        for _ in range(ROUNDS):
            victim.bystander()
            pair = pairs[int(rnd() * PAIRS)]
            if key == HANDSHAKE and victim.session.client.tokens and rnd() < 0.7:
                pair = Pair(_token(chance), [], _token(chance), [])
            breaks_request = rnd() < 0.5
            what = "request" if breaks_request else "response"
            frames += _break_request(victim, pair, chance) if breaks_request else _break_response(victim, pair, chance)
            if victim.session.client.tokens:
                victim.broker(_token(chance))
            if victim.port.closes:
                break
        end = "closed" if victim.port.closes else "forwarded" if victim.forwarded else "waits"
        what = "end"
        victim.leave(politely=rnd() < 0.5)
    except Exception as e:
        raise Broken(f"API {key}, seed {seed}, {what}: {type(e).__name__}: {e}") from e
    return Outcome(end, frames, victim.transcript())


def _break_request(victim: Victim, pair: Pair, chance: Random) -> int:
    """A broken request, and good answers to what of it goes on; the number of broken frames."""
    sent = mutate(pair.request, pair.request_places, chance, 4 if chance.random() < 0.05 else 8)
    _ask(victim, pair.request + sent if chance.random() < 0.2 else sent, chance)
    victim.bystander()
    for _ in range(victim.session.in_flight):
        for piece in cut(pair.response, chance):
            victim.broker(piece)
    return 1


def _break_response(victim: Victim, pair: Pair, chance: Random) -> int:
    """A good request, or two, and broken answers; the number of broken frames."""
    _ask(victim, pair.request * (2 if chance.random() < 0.2 else 1), chance)
    asked = victim.session.in_flight
    victim.bystander()
    for _ in range(asked):
        for piece in cut(mutate(pair.response, pair.response_places, chance, 8), chance):
            victim.broker(piece)
    return asked


def _ask(victim: Victim, data: bytes, chance: Random) -> None:
    if chance.random() < SLOW:
        victim.drip(data, chance)
    else:
        for piece in cut(data, chance):
            victim.client(piece)


def _token(chance: Random) -> bytes:
    """A SASL token without a header."""
    token = chance.choice(TOKENS)
    return len(token).to_bytes(4, "big") + token
