"""What workers ask of the cluster at the same moment is asked once, by their supervisor, and no answer is older than it may be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.fleet.channel import Channel
from proxy.upstream import cluster_relay
from proxy.upstream.cluster_client import DirectClient
from proxy.upstream.cluster_relay import AGE, ClusterRelay, RelayedClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.moments import passed
from proxy.wire.metadata import Broker
from tests.clients.proxied import until
from tests.fleet.meeting import run
from tests.upstream.describing import CLUSTER, LOG_DIRS, Describing, describing

WORKERS = 3
TIMEOUT = 30.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions that are asked at once come together, also on a machine that is busy."""
    monkeypatch.setattr(cluster_relay, "JOIN", 0.5)


@contextlib.asynccontextmanager
async def workers(broker: Describing, age: float = 0.0) -> AsyncIterator[list[RelayedClient]]:
    """Each with a channel to the supervisor."""
    relay, ends = ClusterRelay(Upstream(TIMEOUT), [broker.address]), []
    clients = []
    for _ in range(WORKERS):
        here, there = socket.socketpair()
        channel = Channel(there, {})
        ends += [Channel(here, relay.answers()), channel]
        clients.append(RelayedClient(channel, age))
    tasks = [asyncio.create_task(end.run()) for end in ends]
    try:
        yield clients
    finally:
        for task in tasks:
            task.cancel()


def asking(work: Callable[[Describing, list[RelayedClient]], Awaitable[Any]], age: float = 0.0) -> Any:
    async def all_of_it() -> Any:
        async with describing(1) as brokers, workers(brokers[0], age) as clients:
            return await work(brokers[0], clients)

    return run(all_of_it())


async def log_dirs(broker: Describing, client: RelayedClient, topics: dict[str, int] | None = None) -> tuple[bytes, int]:
    return await client.log_dirs(Broker(broker.node_id, *broker.address), topics, TIMEOUT)


def test_who_asks_the_same_gets_the_answer_of_the_broker_to_one_question() -> None:
    async def work(broker: Describing, clients: list[RelayedClient]) -> None:
        expected, version = await DirectClient(list, Upstream(TIMEOUT)).log_dirs(Broker(0, *broker.address), None, TIMEOUT)
        broker.asked.clear()
        told = await asyncio.gather(*(log_dirs(broker, each) for each in clients))
        assert {(frame[8:], asked) for frame, asked in told} == {(expected[8:], version)}
        named = await asyncio.gather(*(each.active_brokers(TIMEOUT) for each in clients))
        assert named == [[Broker(0, *broker.address)]] * WORKERS
        assert [broker.asked.count(key) for key in (LOG_DIRS, CLUSTER)] == [1, 1]

    asking(work)


def test_other_questions_are_asked_by_themselves() -> None:
    async def work(broker: Describing, clients: list[RelayedClient]) -> None:
        await asyncio.gather(
            *(log_dirs(broker, each, {"a": 1}) for each in clients), log_dirs(broker, clients[0], {"a": 1, "b": 2})
        )
        assert broker.asked.count(LOG_DIRS) == 2

    asking(work)


@pytest.mark.parametrize(("age", "looks"), [(0.0, 2), (60.0, 1)])
def test_an_answer_is_no_older_than_the_question_unless_it_may_be(age: float, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_relay, "JOIN", 0.0)
    monkeypatch.setattr(cluster_relay, "AGE", 60.0)

    async def work(broker: Describing, clients: list[RelayedClient]) -> None:
        async with asyncio.TaskGroup() as asked:
            asked.create_task(log_dirs(broker, clients[0]))
            await until(lambda: LOG_DIRS in broker.asked)
            broker.dirs[0]["usable"] = 7
            later = asked.create_task(log_dirs(broker, clients[1]))
        assert broker.asked.count(LOG_DIRS) == looks
        assert ((7).to_bytes(8, "big") in later.result()[0]) == (looks == 2)

    asking(work, age)


@pytest.mark.parametrize(
    ("spoil", "told", "refused", "too_old"),
    [
        (lambda broker: setattr(broker, "wants_login", True), "it wants authentication", True, False),
        (lambda broker: broker.versions.pop(CLUSTER), "does not speak DescribeCluster", False, True),
        (lambda broker: setattr(broker, "port", 1), "Connect", False, False),
    ],
)
def test_why_a_broker_cannot_be_asked_is_told_to_all(
    spoil: Callable[[Describing], object], told: str, refused: bool, too_old: bool
) -> None:
    async def work() -> None:
        async with describing(1) as brokers:
            spoil(brokers[0])
            async with workers(brokers[0]) as clients:
                failures = await asyncio.gather(*(each.active_brokers(TIMEOUT) for each in clients), return_exceptions=True)
                for failure in failures:
                    assert isinstance(failure, BrokerError)
                    assert told in str(failure)
                    assert (failure.refused, failure.too_old) == (refused, too_old)

    run(work())


def test_a_worker_without_its_supervisor_knows_that_nobody_answers() -> None:
    async def work() -> None:
        here, there = socket.socketpair()
        channel = Channel(there, {})
        here.close()
        await channel.run()
        with pytest.raises(BrokerError, match="the supervisor does not tell"):
            await RelayedClient(channel, AGE).brokers()

    run(work())


def test_workers_that_started_at_different_times_look_at_the_same_moments() -> None:
    """Each looks once a second whether its interval of 5 s has passed."""
    looks = []
    for start in (100.25, 103.9, 104.95):
        last, mine = start, []
        for second in range(int(start) + 1, 121):
            if passed(last, float(second), 5.0):
                last = float(second)
                mine.append(second)
        looks.append(mine)
    assert looks == [[105, 110, 115, 120]] * 3
