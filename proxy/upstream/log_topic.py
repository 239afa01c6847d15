"""The topic that the usage log is sent to. In: lines, from the thread that makes them. Out: one record a line on a topic of the
upstream cluster, with the proxy's id as key; how many lines wait, and how many were lost.

Lines wait in a queue with a bound until the brokers have them. A batch whose fate is not known is sent again: its lines are told
apart by (proxy, boot, seq), so a reader counts none twice. Nothing here holds up a client: when brokers take nothing, the queue
fills, and what does not fit is lost, counted, and told by a `gap` line. Records go to the brokers directly, so that no quota of
the proxy is about them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.partitioner import DefaultPartitioner

from proxy.backoff import Backoff, retry
from proxy.config.units import HostPort
from proxy.observe.operations import Log
from proxy.observe.writer import Losses
from proxy.upstream.connector import TopicError, Upstream
from proxy.upstream.internal_topic import (
    FIRST_RETRY,
    PATIENCE,
    POLICY,
    SLOWEST_RETRY,
    InternalTopic,
    error_text,
    started,
    why,
)

BATCH: Final = 250_000
"""Bytes of a batch: made in a thread, and sent in far less than a millisecond."""
AT_ONCE: Final = 2000
"""Lines that are looked at for a batch."""
LINGER: Final = 0.1
"""Seconds that the first line waits for others."""
FINISH: Final = 10.0
"""Seconds that a proxy which stops gives to what waits."""
RETENTION: Final = {POLICY: "delete", "retention.ms": str(14 * 86_400_000)}
"""Of a topic that the proxy makes: lines stay two weeks."""


class LogTopic:
    """A place of a `LogWriter`, with space for `max_lines` lines. Made on the event loop. `write` is called by the thread, all else
    by the loop."""

    def __init__(
        self, name: str, key: str, max_lines: int, servers: Callable[[], Iterable[HostPort]], upstream: Upstream, log: Log
    ) -> None:
        self.name, self._key, self._max_lines, self._log = f"topic {name}", key.encode(), max_lines, log
        self.losses = Losses()
        self.up = False
        """Did the brokers take the last batch?"""
        self._topic, self._own = name, InternalTopic(name, servers, upstream)
        self._lines: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._some, self._moved = asyncio.Event(), asyncio.Event()
        self._ending = False
        self._at_once = AT_ONCE
        self._last_status = ""

    @property
    def waiting(self) -> int:
        """Lines that the brokers do not have yet."""
        return len(self._lines)

    @property
    def ready(self) -> bool:
        """True once half of its space is free. A gap line is written only then, when the loss is over."""
        return len(self._lines) * 2 <= self._max_lines

    def write(self, lines: list[bytes]) -> None:
        """Take these; OSError when there is no space for all of them."""
        with self._lock:
            if len(self._lines) + len(lines) > self._max_lines:
                raise OSError(errno.ENOBUFS, f"{self._max_lines} lines wait for the brokers already, which is the limit")
            self._lines += lines
        with contextlib.suppress(RuntimeError):  # the proxy has ended
            self._loop.call_soon_threadsafe(self._some.set)

    def close(self) -> None: ...

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(FIRST_RETRY, SLOWEST_RETRY)

        def failed(error: Exception) -> None:
            if self.up:
                backoff.reset()
            self._fails(why(error))

        await retry(self._send_on, backoff, failed)  # after any error of the library: clients are still served

    async def finish(self) -> None:
        """Nothing more comes: see that the brokers have what waits. To be called before `run` is cancelled."""
        self._ending = True
        try:
            async with asyncio.timeout(FINISH):
                while self._lines:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            if self._lines:
                self._log.error("usage log not sent", topic=self._topic, lines=len(self._lines), detail="the proxy stops")

    # ------------------------------------------------------------------ sending

    async def _send_on(self) -> None:
        """See that the topic is right, and send until something fails."""
        partition, servers = await self._prepare()
        access = {"bootstrap_servers": servers, **self._own.access()}
        async with started(AIOKafkaProducer(acks="all", max_batch_size=BATCH, **access)) as producer:
            self._works()
            while True:
                await self._some.wait()
                if not self._ending:
                    await asyncio.sleep(LINGER)
                while self._lines:
                    await self._send_some(producer, partition)
                self._some.clear()
                if self._lines:  # they came just now
                    self._some.set()

    async def _send_some(self, producer: AIOKafkaProducer, partition: int) -> None:
        batch, count = await asyncio.to_thread(self._fill, producer.create_batch())
        try:
            async with asyncio.timeout(PATIENCE):
                await (await producer.send_batch(batch, self._topic, partition=partition))
        except TimeoutError:
            raise TopicError(f"the brokers did not take lines within {PATIENCE:g} s") from None
        except (MessageSizeTooLargeError, RecordListTooLargeError) as e:
            self._at_once = max(count // 2, 1)
            if count > 1:
                return
            self.losses.add(1)
            self._log.error("usage log not sent", topic=self._topic, lines=1, detail=error_text(e))
        except KafkaError as e:
            raise TopicError(f"the brokers did not take lines: {error_text(e)}") from None
        else:
            self._at_once = min(self._at_once * 2, AT_ONCE)
        with self._lock:
            for _ in range(count):
                self._lines.popleft()
        self._moved.set()

    def _fill(self, batch: Any) -> tuple[Any, int]:
        """A batch with the first of the lines, and how many. In a thread."""
        with self._lock:
            lines = list(islice(self._lines, self._at_once))
        count = 0
        for line in lines:
            if batch.append(key=self._key, value=line, timestamp=None) is None:
                break
            count += 1
        return batch, count

    async def _prepare(self) -> tuple[int, list[str]]:
        """Create the topic if there is none, and check that it keeps lines. Returns the partition of this proxy, and the servers to
        start with."""

        def created(replicas: int, settings: dict[str, str]) -> None:
            self._log.info("usage log topic created", topic=self._topic, replicas=replicas, settings=settings)

        topic, _, servers = await self._own.ensure(RETENTION, created)
        async with started(AIOKafkaAdminClient(bootstrap_servers=servers, **self._own.access())) as admin:
            policy = await self._own.policy(admin) or ""
        if "compact" in policy:
            raise TopicError(
                f"its {POLICY} is {policy}: all lines of a proxy have the same key, and all but the last would go; set it to delete"
            )
        partitions = list(range(1 if topic is None else topic.partitions))
        return DefaultPartitioner()(self._key, partitions, partitions), servers

    # ------------------------------------------------------------------ saying so

    def _works(self) -> None:
        self.up = True
        if self._last_status != "up":
            self._last_status = "up"
            self._log.info("usage log topic is up", topic=self._topic)

    def _fails(self, reason: str) -> None:
        self.up = False
        if self._last_status != reason:
            self._last_status = reason
            detail = f"clients are still served; up to {self._max_lines} lines wait; the proxy tries again"
            self._log.error("usage log topic is away", topic=self._topic, reason=reason, detail=detail)
