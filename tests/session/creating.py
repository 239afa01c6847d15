"""CreateTopics requests and answers, and a heartbeat to see whether a session looks at anything."""

import datetime
from random import Random

from kio.index import load_request_schema, load_response_schema

from quota.kinds.controller_mutations import MutationLimit
from tests.messages import make, part_of, request, response

FIVE = MutationLimit(5, 500)
"""The quota of the example in seed s1: a burst of 560 is 12 s too much."""


def create(version: int, number: int, *topics: tuple[str, int], validate_only: bool = False, client_id: str = "app") -> bytes:
    """A CreateTopics request of (name, partitions)."""
    topic = part_of(load_request_schema(19, version), "topics")
    made = tuple(topic(name=name, num_partitions=n, replication_factor=1, assignments=(), configs=()) for name, n in topics)
    return request(19, version, number, client_id=client_id, topics=made, validate_only=validate_only)


def created(version: int, number: int, *names: str, throttle_ms: int = 0, error: int = 0) -> bytes:
    """The broker's answer."""
    topic = part_of(load_response_schema(19, version), "topics")
    made = tuple(make(topic, Random(1), name=name, error_code=error, error_message=None) for name in names)
    return response(19, version, number, topics=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


HEARTBEAT = request(12, 4, 77)
BEAT = response(12, 4, 77)
