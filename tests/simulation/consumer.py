"""A consumer without a group: it reads partitions from their beginning, and goes on where it was. In: partitions. Out: Fetch
requests; what it got has to be what stands in the logs, in their order, in the history.

It has one request at each leader at a time, and asks at once again unless it was told to wait."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any, Final

from tests.simulation import messages as m
from tests.simulation.brokers import NONE, NOT_LEADER, UNKNOWN_TOPIC, Cluster, Partition
from tests.simulation.clients import Connection, History
from tests.simulation.network import Network
from tests.simulation.routed import Part, Routed

VERSION: Final = 11
LONG_POLL: Final = 0.5
"""Seconds that a broker waits for records at most (fetch.max.wait.ms)."""
MOST: Final = 4
"""Partitions of which an answer may have all that is wanted (fetch.max.bytes)."""
HEADERS: Final = 1000
"""Bytes of an answer beside records, about."""
BACKOFF, PATIENCE = 0.1, 45.0


class ReadPart(Part):
    """A partition as a consumer sees it. `at`: the offset that it reads next."""

    def __init__(self, topic: str, index: int) -> None:
        super().__init__(topic, index)
        self.at = 0


class Consumer(Routed[ReadPart]):
    """One consumer. `largest`: bytes of records that it wants of a partition at most (max.partition.fetch.bytes); of one batch it
    gets all."""

    def __init__(
        self, network: Network, cluster: Cluster, history: History, chance: Random, number: int, user: str,
        parts: list[tuple[str, int]], bootstrap: tuple[str, int], largest: int,
    ) -> None:  # fmt: skip
        reads = [ReadPart(*it) for it in parts]
        super().__init__(network, history, chance, f"consumer-{number}", user, reads, bootstrap, BACKOFF, PATIENCE)
        self._cluster, self._largest = cluster, largest
        self._wait_until: dict[int, float] = {}
        self.read = 0

    @property
    def left(self) -> int:
        """Partitions that it has not read to their ends."""
        return sum(part.at < self._log(part).end for part in self.parts)

    @property
    def largest_answer(self) -> int:
        """Bytes of an answer at most: of each partition what is wanted, or one batch."""
        largest = [max((entry.batch.size for entry in self._log(part).log), default=0) for part in self.parts]
        return sum(max(self._largest, size) for size in largest) + HEADERS

    def _log(self, part: ReadPart) -> Partition:
        return self._cluster.topics[part.topic].partitions[part.index]

    def _dropped(self, broker: int, connection: Connection) -> None: ...

    def _send(self) -> None:
        if self.closed:
            return
        now = self._loop.time()
        for leader, parts in self._by_leader(self.parts).items():
            connection = self._connection(leader)
            if connection is None or connection.over or connection.full or connection.asked:
                continue
            if now < self._wait_until.get(leader, 0.0):
                continue  # it looks again every second
            self._fetch(connection, leader, parts)

    def _fetch(self, connection: Connection, leader: int, parts: list[ReadPart]) -> None:
        topics: dict[str, list[Any]] = {}
        for part in parts:
            asked = m.part(
                m.FETCH, VERSION, "FetchPartition", partition=part.index, current_leader_epoch=-1, fetch_offset=part.at,
                log_start_offset=-1, partition_max_bytes=self._largest,
            )  # fmt: skip
            topics.setdefault(part.topic, []).append(asked)

        def answered(body: Any, throttle: float) -> None:
            self._wait_until[leader] = self._loop.time() + throttle
            for topic in body.responses:
                for one in topic.partitions:
                    self._got(str(topic.topic), one)
            self._send()

        connection.ask(
            m.FETCH, VERSION, answered, replica_id=-1, max_wait=timedelta(seconds=LONG_POLL), min_bytes=1,
            max_bytes=MOST * self._largest, isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=(), rack_id="",
            topics=tuple(m.part(m.FETCH, VERSION, "FetchTopic", topic=name, partitions=tuple(it)) for name, it in topics.items()),
        )  # fmt: skip

    def _got(self, topic: str, one: Any) -> None:
        """What came of a partition has to go on where the last answer ended, and be the same as in the log."""
        part = next((it for it in self.parts if it.topic == topic and it.index == int(one.partition_index)), None)
        code = int(one.error_code)
        if part is None or code not in (NONE, NOT_LEADER, UNKNOWN_TOPIC):
            self.history.fail(f"{self.client_id} got {topic}-{one.partition_index} with error {code}")
            return
        if code:
            part.leader, self._metadata_at = -1, -100.0
            return
        data = bytes(one.records or b"")
        while data:
            batch, offset, size = m.read_first_batch(data)
            data = data[size:]
            if offset != part.at or batch != self._log(part).at(offset):
                self.history.fail(f"{self.client_id} read {batch} at {offset} of {topic}-{part.index}, where {part.at} is next")
                return
            part.at += len(batch.numbers)
            self.read += len(batch.numbers)
