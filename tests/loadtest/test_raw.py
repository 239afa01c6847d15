"""How many operations are under way at a time, by the kind of loop. No Kafka: what an operation does is replaced."""

from __future__ import annotations

import asyncio
import time

import pytest

from configfile.access import Access
from loadtest.drive.job import Job
from loadtest.drive.pace import Pace
from loadtest.drive.raw import Raw
from loadtest.drive.tally import Tally
from loadtest.scenario import AskMetadata, CreateTopics


def job(load: AskMetadata, clients: int) -> Job:
    return Job(
        run_id="r",
        name="n",
        load=load,
        rate=1000.0,
        clients=clients,
        bootstrap="127.0.0.1:1",
        client_id="c",
        access=Access(),
        settings={},
        topic="",
        partitions=0,
        first_producer=0,
        prefix="p",
        warm_up=0.0,
        duration=60.0,
        grace=60.0,
    )


async def most_at_a_time(load: AskMetadata, clients: int, count: int) -> int:
    """Operations that wait until `count` of them have begun, or, in a closed loop, nobody can begin any more."""
    raw, under_way, most = Raw(job(load, clients)), 0, 0

    async def work(_n: int, _due: float, _sent: float) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(50):
            await asyncio.sleep(0)
        under_way -= 1

    raw._works[AskMetadata] = work
    start = time.monotonic() - 10  # all of them are due
    pace = Pace(1000.0, start, start, start + 60, max_count=count)
    await raw.run(pace, Tally(pace, by_end=False))
    return most


@pytest.mark.parametrize(("closed", "most"), [(False, 40), (True, 3)])
def test_a_closed_loop_has_one_operation_of_each_client_under_way(closed: bool, most: int) -> None:
    load = AskMetadata(tenant="t", rate=1000.0, operation="ask_metadata", closed=closed)
    assert asyncio.run(most_at_a_time(load, 3, 40)) == most


def test_a_real_client_cannot_delete_its_topics() -> None:
    with pytest.raises(ValueError, match="`delete` needs `client: protocol`"):
        CreateTopics(tenant="t", rate=1.0, operation="create_topics", client="librdkafka", delete=True)
