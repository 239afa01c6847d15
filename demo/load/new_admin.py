"""Room demo, load, new_admin: CreateTopics with a client that knows error 89 (kafka-python 3, version 7).

In: topics. Out: error codes. Leaves to others: which topics. The client mutes itself for the throttle time it is told, as
Java's does; the storm tries again all that time.
"""

import time
from collections.abc import Sequence

from kafka import KafkaAdminClient
from kafka.errors import NodeNotReadyError

from demo.load.storm import Create

_TIMEOUT_MS = 120_000
_AGAIN = 0.05  # seconds


def connect(bootstrap: str, client_id: str) -> Create:
    """A function that creates topics."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id=client_id, request_timeout_ms=_TIMEOUT_MS)

    def create(names: Sequence[str], partitions: int) -> list[int]:
        topics = {name: {"num_partitions": partitions, "replication_factor": 1} for name in names}
        while True:
            try:
                answer = admin.create_topics(topics, timeout_ms=_TIMEOUT_MS, raise_errors=False)
            except NodeNotReadyError:  # it mutes itself
                time.sleep(_AGAIN)
            else:
                return [topic["error_code"] for topic in answer["topics"]]

    return create
