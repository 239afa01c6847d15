"""Real clients that create topics, behind the methods of `wire.Connection`. In: names of topics. Out: an error code for each.

Each call waits in a thread. A client that gets a throttle time waits by itself, or ignores it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from configfile.access import Access
from loadtest.drive.job import Job
from loadtest.endpoint import librdkafka_settings
from loadtest.wire import Answered

LIMIT: Final = 120.0
"""Seconds for a request."""
AGAIN: Final = 0.05
Create = Callable[[dict[str, int], int], dict[str, int]]
"""Creates topics with this number of partitions and of replicas. Returns an error code for each, 0 for none."""


class Admin:
    """One client."""

    def __init__(self, create: Create, threads: Executor) -> None:
        self._create, self._threads = create, threads

    async def create(self, topics: dict[str, int], replication: int) -> Answered:
        return Answered(await asyncio.get_running_loop().run_in_executor(self._threads, self._create, topics, replication), 0.0)

    def close(self) -> None:
        """The process ends soon."""


async def connect(kind: str, job: Job, threads: Executor) -> Admin:
    """Raises OSError."""
    of_kind = {"librdkafka": _librdkafka, "kafka-python": _kafka_python}[kind]
    return Admin(await asyncio.get_running_loop().run_in_executor(threads, of_kind, job), threads)


def _librdkafka(job: Job) -> Create:
    settings = librdkafka_settings(job.bootstrap, job.access)
    settings |= {"client.id": job.client_id, "socket.timeout.ms": round(LIMIT * 1000), "log_level": 0}
    admin = AdminClient(settings)

    def create(topics: dict[str, int], replication: int) -> dict[str, int]:
        new = [NewTopic(name, partitions, replication) for name, partitions in topics.items()]
        return {name: _code(answer) for name, answer in admin.create_topics(new, request_timeout=LIMIT).items()}

    return create


def _code(answer: Future[None]) -> int:
    try:
        answer.result()
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def _kafka_python(job: Job) -> Create:
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError, NodeNotReadyError
    except ImportError:
        raise ConnectionError("`client: kafka-python` needs the package kafka-python") from None
    limit = round(LIMIT * 1000)
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=job.bootstrap, client_id=job.client_id, request_timeout_ms=limit, **kafka_python_access(job.access)
        )
    except KafkaError as error:
        raise ConnectionError(str(error)) from None

    def create(topics: dict[str, int], replication: int) -> dict[str, int]:
        new = {name: {"num_partitions": n, "replication_factor": replication} for name, n in topics.items()}
        while True:
            try:
                answer = admin.create_topics(new, timeout_ms=limit, raise_errors=False)
            except NodeNotReadyError:  # it waits for the throttle time
                time.sleep(AGAIN)
            except KafkaError as error:
                raise ConnectionError(str(error)) from None
            else:
                return {topic["name"]: int(topic["error_code"]) for topic in answer["topics"]}

    return create


def kafka_python_access(access: Access) -> dict[str, object]:
    """Settings of kafka-python to connect and log in."""
    tls, login = access.tls, access.login
    found: dict[str, object] = {"security_protocol": f"{'SASL_' if login else ''}{'SSL' if tls else 'PLAINTEXT'}"}
    if login is not None:
        found |= {"sasl_mechanism": login.mechanism, "sasl_plain_username": login.username, "sasl_plain_password": login.password}
    if tls is not None:
        files = {"ssl_cafile": tls.ca_file, "ssl_certfile": tls.cert_file, "ssl_keyfile": tls.key_file}
        found |= {name: file for name, file in files.items() if file is not None}
        found["ssl_check_hostname"] = tls.verify_hostname
    return found
