"""Judges the whole history of a run. In: logs of the brokers, what clients saw. Out: what is wrong, into the history.

- No acknowledged record is lost. None of an idempotent producer's session, and none of a producer that sends nothing again, stands
  twice in a log, and all stand in the order in which they were made.
- What the brokers took of a user is at no time more than its rate and burst allow, for any window (`docs/byte-quotas.md`), with
  what is documented for proxies that do not hear of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.world import World

BURST: Final = 12.0
"""Seconds of a rate that one window may have at once: E may be nearly 11 + 1 samples long (`quota/windows/rate.py`)."""
LATE: Final = 0.25
"""Seconds for which proxies may not have heard of each other, and bytes may be under way, without any fault."""


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
                    if connection < newest.get(number >> 32, 0):
                        world.late += 1
                    newest[number >> 32] = max(connection, newest.get(number >> 32, 0))
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
    """What was written under a rate, for each rate."""
    written: dict[str, list[tuple[float, int]]] = {user: [] for user in world.rates}
    topics: list[tuple[float, int]] = []
    for topic in world.cluster.all_topics():
        for partition in topic.partitions:
            for entry in partition.log:
                written.setdefault(entry.user, []).append((entry.at, entry.batch.size))
                if topic.name == world.limited_topic:
                    topics.append((entry.at, entry.batch.size))
    for user, rates in world.rate_history.items():
        sizes = [producer.largest * len(producer.parts) for producer in world.producers if producer.user == user]
        _rate(world, user, sorted(written[user]), rates, sum(sizes))
    sizes = [it.largest * sum(part.topic == world.limited_topic for part in it.parts) for it in world.producers]
    _rate(world, world.limited_topic, sorted(topics), world.topic_rates, sum(sizes))


def _rate(world: World, owner: str, written: list[tuple[float, int]], rates: list[tuple[float, float]], under_way: float) -> None:
    """The most that any window has above rate x time, as the highest level of a bucket that leaks. `rates`: (since when, rate);
    `under_way`: bytes of one request of each connection that it holds for."""
    level, since, rate, at = 0.0, 0.0, rates[0][1], 1
    lenient = iter([*world.leniency, (float("inf"), 0.0, 0.0)])
    pardon = next(lenient)
    for now, size in written:
        while at < len(rates) and rates[at][0] <= now:
            level, since, rate = max(level - rate * (rates[at][0] - since), 0.0), rates[at][0], rates[at][1]
            at += 1
        level, since = max(level - rate * (now - since), 0.0), now
        while pardon[0] <= now:
            level = max(level - pardon[1] * rate - pardon[2], 0.0)
            pardon = next(lenient)
        level += size
        over = level - rate * (BURST + LATE * (2 * len(world.proxies) - 1)) - under_way
        world.closest = max(world.closest, level / (level - over))
        if over > 0:
            world.history.fail(f"{owner} got {level:.0f} bytes more than {rate:g} B/s in a window: {over:.0f} more than its burst")
            return
