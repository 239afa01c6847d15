"""Room demo, load, old_admin: CreateTopics with a client that knows no error 89 (librdkafka, version 4).

In: topics. Out: error codes. Leaves to others: which topics. The client ignores the throttle time; that the proxy stops to read
from it is what slows it down.
"""

from collections.abc import Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.load.storm import Create

_TIMEOUT = 120  # seconds


def connect(bootstrap: str, client_id: str) -> Create:
    """A function that creates topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client_id, "socket.timeout.ms": _TIMEOUT * 1000})

    def create(names: Sequence[str], partitions: int) -> list[int]:
        topics = [NewTopic(name, partitions, 1) for name in names]
        return [_code(answer) for answer in admin.create_topics(topics, request_timeout=_TIMEOUT).values()]

    return create


def _code(answer: "Future[None]") -> int:
    try:
        answer.result()
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return 0
