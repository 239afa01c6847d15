"""Judges the whole history of a run. In: logs of the brokers, what clients saw. Out: what is wrong, into the history.

- No acknowledged record is lost. None of an idempotent producer's session, and none of a producer that sends nothing again, stands
  twice in a log, and all stand in the order in which they were made.
- What the brokers took of a user, of a tenant, and for a topic, and what they created and deleted for a user, is at no time more
  than rate and burst allow, for any window (`docs/byte-quotas.md`, `docs/controller-mutations.md`), with what is documented for
  proxies that do not hear of each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.simulation import admins

if TYPE_CHECKING:
    from tests.simulation.world import World

BURST: Final = 12.0
"""Seconds of a rate that one window may have at once: E may be nearly 11 + 1 samples long (`quota/windows/rate.py`)."""
LATE: Final = 0.25
"""Seconds for which proxies may not have heard of each other, and bytes may be under way, without any fault."""


UNHEARD: Final = 400_000
"""Bytes that may pass while proxies do not hear of each other, beside seconds of the rate."""


@dataclass(frozen=True)
class Bound:
    """What somebody may have. `had`: (time, amount), in order; `rates`: (since when, the rate); `burst` in seconds of it;
    `under_way`: the amounts of one request of each connection; `unheard`: what may pass while proxies do not hear of each other."""

    owner: str
    had: list[tuple[float, int]]
    rates: list[tuple[float, float]]
    under_way: float
    burst: float = BURST
    unheard: float = UNHEARD
    unit: str = "bytes"


def check(world: World) -> None:
    _logs(world)
    _rates(world)


def _logs(world: World) -> None:
    history = world.history
    found: set[int] = set()
    kinds = {producer.number: producer.kind for producer in world.producers}
    handed = {producer.number: producer.handed for producer in world.producers}
    for topic in world.cluster.all_topics():
        for index, partition in enumerate(topic.partitions):
            last: dict[tuple[int, int], int] = {}
            of_session: dict[tuple[int, int], set[int]] = {}
            newest: dict[int, int] = {}
            for entry in partition.log:
                for number in entry.batch.numbers:
                    found.add(number)
                    connection = handed[number >> 32].get(number, 0)
                    session = number >> 32, connection or entry.batch.producer_id
                    before, seen = last.get(session, -1), of_session.setdefault(session, set())
                    # a request of a connection that is over may come late
                    simple = not kinds[number >> 32].idempotent and not connection
                    world.late += connection > 0 and number < newest.get(number >> 32, -1)
                    newest[number >> 32] = max(number, newest.get(number >> 32, -1))
                    if number in seen or (number < before and not simple):
                        what = "twice" if number in seen else "out of order"
                        client = f"{kinds[number >> 32].name}-{number >> 32}"
                        history.fail(f"{topic.name}-{index}: record {number & 0xFFFFFFFF} of {client} is there {what}")
                    seen.add(number)
                    last[session] = max(number, before)
    lost = [number for number in history.acknowledged if number not in found]
    if lost:
        first = lost[0]
        history.fail(f"{len(lost)} acknowledged records are in no log, as {first & 0xFFFFFFFF} of producer {first >> 32}")


def _rates(world: World) -> None:
    """What was had under a rate, for each rate."""
    written: list[tuple[float, int, str, str]] = []
    for topic in world.cluster.all_topics():
        for partition in topic.partitions:
            written += [(entry.at, entry.batch.size, entry.user, topic.name) for entry in partition.log]
    written.sort()
    for owner, rates in world.rate_history.items():
        users = world.members.get(owner, (owner,))
        requests = sum(it.largest * len(it.parts) for it in world.producers if it.user in users)
        _judge(world, Bound(owner, [(at, size) for at, size, user, _ in written if user in users], rates, requests))
    limited = world.limited_topic
    requests = sum(it.largest * sum(part.topic == limited for part in it.parts) for it in world.producers)
    _judge(world, Bound(limited, [(at, size) for at, size, _, topic in written if topic == limited], world.topic_rates, requests))
    had = [(at, size) for at, size, user in world.cluster.fetched if user == "dora"]
    requests = sum(len(world.cluster.brokers) * it.largest_answer for it in world.consumers if it.user == "dora")
    _judge(world, Bound("dora", had, world.read_rates, requests, unheard=UNHEARD + 2 * requests, unit="bytes read"))
    mutations, largest = world.mutations, admins.AT_ONCE * admins.MOST
    if mutations is not None:
        had = [(at, amount) for at, user, amount in world.cluster.mutations if user == mutations.user]
        requests = largest * sum(it.user == mutations.user for it in world.admins)
        burst = mutations.burst / mutations.in_the_long_run
        _judge(world, Bound(mutations.user, had, world.mutation_rates, requests, burst, 2 * requests, "partitions"))


def _judge(world: World, bound: Bound) -> None:
    """The most that any window has above rate x time, as the highest level of a bucket that leaks. What is excused is taken out of
    it when its cause begins; while the cause lasts the bucket may be that much emptier than empty, for windows that begin then."""
    rates = bound.rates
    level, since, rate, at = 0.0, 0.0, rates[0][1], 1
    excuses = deque(it for it in world.leniency if it.owner in (None, bound.owner))
    lasting: list[tuple[float, float]] = []
    for now, size in bound.had:
        while at < len(rates) and rates[at][0] <= now:
            level, since, rate = max(level - rate * (rates[at][0] - since), 0.0), rates[at][0], rates[at][1]
            at += 1
        level, since = max(level - rate * (now - since), -sum(amount for _, amount in lasting)), now
        while excuses and excuses[0].at <= now:
            excuse = excuses.popleft()
            lasting.append((excuse.until, excuse.seconds * rate + excuse.unheard * bound.unheard))
            level -= lasting[-1][1]
        lasting = [it for it in lasting if it[0] >= now]
        level = max(level, -sum(amount for _, amount in lasting)) + size
        over = level - rate * (bound.burst + LATE * (2 * len(world.proxies) - 1)) - bound.under_way
        world.closest[bound.unit] = max(world.closest[bound.unit], level / (level - over))
        if over > 0:
            what = f"{level:.0f} {bound.unit} more than {rate:g}/s in a window"
            world.history.fail(f"{bound.owner} got {what}: {over:.0f} more than its burst")
            return
