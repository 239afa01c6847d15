"""A fleet of proxies that share quotas, in simulated time. It runs the code of `quota`, opens no sockets and never waits.

In: a `Plan`. Out: an `Outcome`: how much was accepted compared with the quota, how large the overshoot was, what the store did.

A simulated proxy consists of its byte rates and its ledger. A busy user has connections that send as soon as they are allowed to,
on some proxies more than on others. The user is muted as `session` does it: a request over the limit is accepted, then the
connection is muted for the throttle time, and requests on the user's other connections to this proxy are held. Quiet users stay
below their limits; they only make work for syncs. A sync takes a round trip. A lost batch is noticed after a timeout. The store
may be unreachable or restart empty."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

from benchmarks.fleet_simulation.store import Store
from quota.engine import MAX_HOLD
from quota.entity import DEFAULT, Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Answer, Away, Batch, Ledger, Shard
from quota.limit_table import LimitTable, ResolvedLimit

MAX_THROTTLE: Final = 30.0
URGENT: Final = 0.02
"""Seconds between two batches of owners near their limits, as in `proxy.fleet.ledger`."""
SIZE: Final = 100
"""What one request is charged. The limit is this times `Plan.requests`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Times in seconds. `requests` per second are the quota of each of `busy` users, who have `connections` each and send
    `demand` times the quota while they are not muted, and more after a mute, as a connection goes on as soon as it ends. Of
    `quiet` users each is at `spread` proxies on average, and sends `quiet_rate` requests per second there."""

    proxies: int
    seconds: float = 80.0
    warm: float = 20.0
    """from here on the rate is compared with the quota: the first burst is over"""
    interval: float = 0.1
    round_trip: float = 0.002
    busy: int = 1
    connections: int = 64
    requests: float = 500.0
    demand: float = 3.0
    quiet: int = 0
    spread: float = 2.0
    quiet_rate: float = 1.0
    skew: float = 1.0
    """the n-th proxy of a user has 1 / n ^ skew of its connections; 0 for even shares"""
    moves: float = 0.0
    """how often in a second a busy connection goes to another proxy"""
    loss: float = 0.0
    """the part of batches, and of answers, that is lost"""
    timeout: float = 0.25
    away: tuple[float, float] = (inf, inf)
    """from when to when the store cannot be reached"""
    flush: float = inf
    """when it restarts empty"""
    when_away: Away = Away.SHARE
    stale_after: float = 1.0
    shared: bool = True
    """False: each proxy counts for itself"""
    shards: int = 1
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """Of busy users: `rate` is what was accepted per second after `warm`, as a part of the quota; `excess` the most that was ever
    accepted beyond the quota x time since the start, in seconds of the quota, the burst that everybody may have once included. Of
    the store, per second after `warm`."""

    rate: float = 0.0
    excess: float = 0.0
    pieces: list[float] = field(default_factory=list)
    """`rate` of each second of the plan"""
    batches: float = 0.0
    items: float = 0.0
    sent: float = 0.0
    """bytes to the store and back, without what TCP adds"""
    got: float = 0.0


class User:
    """A busy user."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.owner = name, Entity(name, None)
        self.rate = plan.requests * SIZE
        self.accepted = 0
        self.excess = 0.0

    def accept(self, now: float) -> None:
        self.accepted += SIZE
        self.excess = max(self.excess, self.accepted - self.rate * now)


class Node:
    """A proxy."""

    def __init__(self, number: int, plan: Plan, limits: LimitTable[RateLimit]) -> None:
        self.name = f"proxy-{number}"
        self.rates = Rates("producer_byte_rate", "producer byte rate", "bytes", limits)
        if plan.shared:
            self.rates.publish()
        self.ledger = Ledger(
            [self.rates] if plan.shared else [],
            0.0,
            shards=plan.shards,
            stale_after=plan.stale_after,
            grace=2 * plan.interval,
            when_away=plan.when_away,
            proxies=plan.proxies,
        )
        self.mutes: dict[Entity, float] = {}
        self.waiting: set[int] = set()
        """shards whose answers are outstanding"""
        self.quiet: list[Entity] = []

    def send(self, user: User, found: ResolvedLimit[RateLimit], now: float) -> float:
        """A request arrives. Returns until when its connection is held or muted; `now` if it can send the next request."""
        until = self.mutes.get(user.owner, 0.0)
        if until > now:
            return min(until, now + MAX_HOLD)
        user.accept(now)
        if self.rates.meter(user.owner, now).take(SIZE, now):
            return now
        decision = self.rates.charge(found, (SIZE,), now).decision
        if decision is None:
            return now
        until = self.mutes[user.owner] = now + min(decision.throttle, MAX_THROTTLE)
        return until


class Fleet:
    """One run of the simulation."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.random = plan, random.Random(plan.seed)
        limit = RateLimit(plan.requests * SIZE)
        self.limits = LimitTable({Entity(DEFAULT, None): limit})
        self.nodes = [Node(number, plan, self.limits) for number in range(plan.proxies)]
        self.stores = [Store() for _ in range(plan.shards)]
        self.users = [User(f"busy-{number}", plan) for number in range(plan.busy)]
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self.sent = self.got = 0

    def run(self) -> Outcome:
        plan, outcome = self.plan, Outcome()
        for user in self.users:
            self._connect(user)
        self._place_quiet_users()
        if plan.shared:
            for node in self.nodes:
                first = self.random.random() * plan.interval
                self.at(first % min(plan.interval, URGENT), self._tick_of(node, first))
        if plan.flush < inf:
            for store in self.stores:
                self.at(plan.flush, lambda _, store=store: store.flush())  # type: ignore[misc]
        before: Counter[str] = Counter()
        quota = sum(user.rate for user in self.users) or 1.0
        seen = 0.0
        for second in range(int(plan.seconds)):
            if second == plan.warm:
                before = self._figures()
            self._until(second + 1.0)
            now = sum(user.accepted for user in self.users)
            outcome.pieces.append((now - seen) / quota)
            seen = now
        measured = plan.seconds - plan.warm
        found = {name: (figure - before[name]) / measured for name, figure in self._figures().items()}
        outcome.rate = found["accepted"] / quota
        outcome.batches, outcome.items, outcome.sent, outcome.got = (found[name] for name in ("batches", "items", "sent", "got"))
        if self.users:
            outcome.excess = max(user.excess / user.rate for user in self.users)
        return outcome

    def at(self, when: float, what: Callable[[float], None]) -> None:
        heappush(self._events, (when, next(self._numbers), what))

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] < end:
            when, _, what = heappop(self._events)
            what(when)

    def _figures(self) -> Counter[str]:
        stores = self.stores
        return Counter(
            accepted=sum(user.accepted for user in self.users),
            batches=sum(store.batches for store in stores),
            items=sum(store.items for store in stores),
            sent=self.sent,
            got=self.got,
        )

    def _connect(self, user: User) -> None:
        """Open the user's connections, on proxies in random order."""
        plan = self.plan
        order = self.random.sample(self.nodes, len(self.nodes))
        weights = [1 / (place + 1) ** plan.skew for place in range(len(order))]
        found = self.limits.find(user.name, "")
        assert found is not None
        for node in self.random.choices(order, weights, k=plan.connections):
            self._send_from(user, found, node)

    def _send_from(self, user: User, found: ResolvedLimit[RateLimit], node: Node) -> None:
        """Let one connection send from now on, at its own pace while it is not muted."""
        plan, at = self.plan, node
        pace = plan.connections / (plan.demand * plan.requests)

        def step(now: float) -> None:
            nonlocal at
            if plan.moves and self.random.random() < plan.moves * pace:
                at = self.random.choice(self.nodes)
            free = at.send(user, found, now)
            self.at(max(free, now + self.random.uniform(0.5, 1.5) * pace) if free <= now else free, step)

        self.at(self.random.random() * pace, step)

    def _place_quiet_users(self) -> None:
        """Choose the proxies of each quiet user. `_tick_of` charges those users that sent something since the last sync."""
        plan = self.plan
        for number in range(plan.quiet):
            owner = Entity(f"tenant-{number:06}", None)
            places = min(1 + int(self.random.expovariate(1 / max(plan.spread - 1, 1e-9))), plan.proxies) if plan.spread > 1 else 1
            for node in self.random.sample(self.nodes, places):
                node.quiet.append(owner)

    def _tick_of(self, node: Node, all_due: float) -> Callable[[float], None]:
        """The ticks of a proxy: the first batch of all owners is due at `all_due`."""
        plan = self.plan
        step = min(plan.interval, URGENT)

        def tick(now: float) -> None:
            nonlocal all_due
            self.at(now + step, tick)
            if now < all_due - step / 2:
                node.ledger.collect(now)
                for shard in node.ledger.shards:
                    if shard.urgent:
                        self._sync(node, shard, now, urgent=True)
                return
            all_due = now + plan.interval
            if node.quiet:
                part = min(plan.quiet_rate * plan.interval, 1.0)
                for owner in self.random.sample(node.quiet, round(part * len(node.quiet))):
                    node.rates.meter(owner, now).take(SIZE, now)
            node.ledger.collect(now)
            for shard in node.ledger.shards:
                self._sync(node, shard, now)

        return tick

    def _sync(self, node: Node, shard: Shard, now: float, *, urgent: bool = False) -> None:
        """Send a batch of a shard to the store and its answer back, unless one of them is lost."""
        if shard.number in node.waiting:
            return
        node.waiting.add(shard.number)
        plan, batch = self.plan, node.ledger.batch(shard, now, urgent=urgent)
        half = plan.round_trip / 2

        def lost(when: float) -> bool:
            first, last = plan.away
            return first <= when < last or (plan.loss > 0 and self.random.random() < plan.loss)

        def arrive(when: float) -> None:
            if lost(when):
                self.at(now + plan.timeout, give_up)
                return
            answer = self.stores[batch.shard].apply(node.name, batch, when)
            sent, got = wire_size(batch, answer)
            self.sent, self.got = self.sent + sent, self.got + got
            if lost(when):
                self.at(now + plan.timeout, give_up)
            else:
                self.at(when + half, lambda back: heard(answer, back))

        def give_up(_: float) -> None:
            node.waiting.discard(batch.shard)

        def heard(answer: Answer, when: float) -> None:
            node.waiting.discard(batch.shard)
            node.ledger.answered(batch, answer, when)
            if shard.batch is not None or (shard.changed and not urgent):
                self._sync(node, shard, when, urgent=urgent)

        self.at(now + half, arrive)


def run(plan: Plan) -> Outcome:
    return Fleet(plan).run()


def overshoot(plan: Plan, outcome: Outcome) -> float:
    """The most that the fleet accepted beyond what one proxy would have accepted, in seconds of the quota. One proxy's excess is
    that of its first burst, and stays the same."""
    alone = replace(plan, proxies=1, seconds=15.0, warm=10.0, loss=0.0, away=(inf, inf), flush=inf)
    return outcome.excess - run(alone).excess


def bound(plan: Plan) -> float:
    """The largest overshoot that is allowed after the first burst. What a proxy knows about another is at most two intervals and
    two round trips old; during that time each proxy accepts what the quota allows. In addition, every connection has one request in
    flight."""
    return 2 * (plan.interval + plan.round_trip) * (plan.proxies - 1) + plan.connections / plan.requests


BOOT: Final = "0" * 16
NAMESPACE: Final = "kafka-quota-proxy"


def wire_size(batch: Batch, answer: Answer) -> tuple[int, int]:
    """Bytes of a batch and of its answer in the protocol of Redis, as `proxy.fleet.redis_store` sends them."""
    prefix = f"{{{NAMESPACE}/1/{batch.shard}}}:"
    words: list[object] = ["EVALSHA", "0" * 40, len(batch.items) + 3, f"{prefix}g", f"{prefix}p/{BOOT}", f"{prefix}n"]
    words += [BOOT, batch.generation, batch.number, 600, "", 604800, BOOT]
    sent = sum(map(_bulk, words))
    for item in batch.items:
        level = "?" if item.fresh else "" if item.level is None else item.level
        sent += sum(map(_bulk, (f"{prefix}k/{item.entry.key}", item.delta, int(item.keep * 1000), level)))
    got = 50 + sum(len(str(total)) + 1 for total in answer.totals) + 30 * len(answer.levels)
    return sent, got


def _bulk(word: object) -> int:
    size = len(str(word))
    return size + len(str(size)) + 5
