"""Producers in pure Python, kafka-python and aiokafka, behind the methods of confluent-kafka's that the driver uses. In: a `Job`,
settings of librdkafka. Out: a producer that tells of records when it is polled.

These clients give a record up by themselves; `on_delivery` then hears the name of the error."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, cast

from confluent_kafka import Producer

from configfile.access import Access
from loadtest.drive.job import Job

QUEUE: Final = 10_000
"""Records that may wait; for more, `produce` raises BufferError, as librdkafka does."""
CONNECT: Final = 30.0
DELIVERY_MS: Final = 300_000
"""How long kafka-python tries to write a record."""
Told = Callable[[Any, Any], None]


class ClientError:
    """What `on_delivery` hears of an error."""

    def __init__(self, error: BaseException) -> None:
        self._name = type(error).__name__

    def name(self) -> str:
        return self._name

    def code(self) -> int:
        """No code of librdkafka's."""
        return 0


def producer_of(client: str, job: Job, settings: dict[str, Any]) -> Producer:
    """`settings` are librdkafka's. Raises ImportError when the library is not installed, OSError when it cannot connect."""
    if client == "librdkafka":
        return Producer(settings)
    made = {"kafka-python": KafkaPython, "aiokafka": AioKafka}[client](job, settings)
    return cast("Producer", made)


class _Told:
    """Records that are under way, and those that `poll` has to tell of."""

    def __init__(self) -> None:
        self._done: deque[tuple[Told, ClientError | None]] = deque()
        self._changed = threading.Condition()
        self._left = 0

    def poll(self, seconds: float = 0) -> int:
        """Tell of what is done; wait for at most so long if nothing is."""
        with self._changed:
            if not self._done and seconds > 0:
                self._changed.wait(seconds)
            found = list(self._done)
            self._done.clear()
            self._left -= len(found)
        for told, error in found:
            told(error, None)
        return len(found)

    def flush(self, seconds: float) -> int:
        """How many are left."""
        deadline = time.monotonic() + seconds
        while self._left and time.monotonic() < deadline:
            self.poll(0.1)
        return self._left

    def _begin(self) -> None:
        """Raises BufferError."""
        with self._changed:
            if self._left >= QUEUE:
                raise BufferError
            self._left += 1

    def _end(self, told: Told, error: BaseException | None) -> None:
        with self._changed:
            self._done.append((told, None if error is None else ClientError(error)))
            self._changed.notify()


class KafkaPython(_Told):
    """kafka-python: a thread of its own sends."""

    def __init__(self, job: Job, settings: dict[str, Any]) -> None:
        super().__init__()
        from kafka import KafkaProducer

        access = _access(job.access)
        if job.access.tls is not None:
            access["ssl_check_hostname"] = job.access.tls.verify_hostname
        self._producer = KafkaProducer(
            bootstrap_servers=job.bootstrap.split(","),
            client_id=job.client_id,
            acks=settings["acks"],
            enable_idempotence=settings["enable.idempotence"],
            linger_ms=round(settings["linger.ms"]),
            delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=round(CONNECT * 1000),
            **access,
        )

    def list_topics(self, topic: str, timeout: float) -> None:  # noqa: ARG002 - it has a time of its own
        self._producer.partitions_for(topic)

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Told) -> None:
        """Raises BufferError."""
        self._begin()
        sent = self._producer.send(topic, value, partition=partition)
        sent.add_both(lambda _: self._end(on_delivery, sent.exception))

    def purge(self) -> None:
        """Give up what is left."""
        self._producer.close(timeout=1)


class AioKafka(_Told):
    """aiokafka: an event loop in a thread sends, in the order of a queue."""

    def __init__(self, job: Job, settings: dict[str, Any]) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._queue: asyncio.Queue[tuple[str, bytes, int, Told]] = asyncio.Queue()
        self._run(self._start(job, settings)).result(CONNECT)
        self._sending = self._run(self._send())

    def list_topics(self, topic: str, timeout: float) -> None:
        self._run(self._producer.partitions_for(topic)).result(timeout)

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Told) -> None:
        """Raises BufferError."""
        self._begin()
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (topic, value, partition, on_delivery))

    def purge(self) -> None:
        """Send no more."""
        self._sending.cancel()

    async def _start(self, job: Job, settings: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaProducer

        access = _access(job.access)
        tls = {"ssl_context": _context(job.access)} if job.access.tls else {}
        self._producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            client_id=job.client_id,
            acks=settings["acks"],
            enable_idempotence=settings["enable.idempotence"],
            linger_ms=round(settings["linger.ms"]),
            **{name: value for name, value in access.items() if not name.startswith("ssl_")},
            **tls,
        )
        await self._producer.start()

    async def _send(self) -> None:
        while True:
            topic, value, partition, told = await self._queue.get()
            try:
                sent = await self._producer.send(topic, value, partition=partition)
            except Exception as e:
                self._end(told, e)
                await asyncio.sleep(0.01)
            else:
                sent.add_done_callback(lambda done, told=told: self._end(told, done.exception()))

    def _run(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def _access(access: Access) -> dict[str, Any]:
    """Settings of both libraries to connect and log in."""
    tls, login = access.tls, access.login
    found: dict[str, Any] = {"security_protocol": f"{'SASL_' if login else ''}{'SSL' if tls else 'PLAINTEXT'}"}
    if login is not None:
        names = {"sasl_mechanism": login.mechanism, "sasl_plain_username": login.username, "sasl_plain_password": login.password}
        found |= names
    if tls is not None:
        files = {"ssl_cafile": tls.ca_file, "ssl_certfile": tls.cert_file, "ssl_keyfile": tls.key_file}
        found |= {name: file for name, file in files.items() if file is not None}
    return found


def _context(access: Access) -> ssl.SSLContext:
    tls = access.tls
    assert tls is not None
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.verify_hostname
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
