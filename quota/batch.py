"""What a Produce request brings to one partition, and the error codes of the Kafka protocol with which a batch is refused."""

from __future__ import annotations

from typing import Final, NamedTuple

NOT_ENOUGH_REPLICAS: Final = 19
"""retried by every client"""
POLICY_VIOLATION: Final = 44
"""retried by none"""
STORAGE_ERROR: Final = 56
"""KAFKA_STORAGE_ERROR: retried, with fresh metadata"""


class Batch(NamedTuple):
    """What one partition gets. `topic` is its name, or its id where the proxy does not know the name of that: `known` is False."""

    topic: str
    known: bool
    topic_id: str | None
    """where the client names it so: what was refused while the name was not known is found by it"""
    partition: int
    size: int
    """bytes"""
    producer_id: int
    epoch: int
    sequence: int

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the topic and its id, as far as the two are known and differ."""
        return (self.topic,) if self.topic_id in (None, self.topic) else (self.topic, self.topic_id or "")


class Refused(NamedTuple):
    """Why a batch is refused."""

    code: int
    message: str
