"""Rates of topics by themselves: bytes per second that may be produced to a topic, and read from it, whatever the total is.

Each is a `Rates` whose windows belong to topics instead of users, so that all who write to a topic, or read from it, share its
rate. In: the rates that operators set by topic. Out: whose window is charged. It leaves to others: the arithmetic (`rates`), who is
slowed down or refused (`quota/produce.py`, `proxy/apis/streams.py`). Thresholds that hold only while the total is exceeded are
another quota: `bytes_in`.

Memory: a window for each topic that operators have named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from quota.catalogue import TOPIC_RATES
from quota.entity import Entity
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable

TOPIC_IN, TOPIC_OUT = TOPIC_RATES


class Above(Enum):
    """What happens to a batch for a topic that is above its rate."""

    THROTTLE = "throttle"
    """taken, and the client throttled"""
    TRANSIENT = "transient"
    """refused with an error that every client retries"""
    FAIL = "fail"
    """refused with one that none does"""


@dataclass(frozen=True, slots=True)
class TopicRateOptions:
    """What happens to what is produced above the rate of its topic."""

    above: Above = Above.THROTTLE


class TopicTable(LimitTable[RateLimit]):
    """The rate of each topic that has one. No client has a limit here."""

    def __init__(self, topics: Mapping[str, RateLimit]) -> None:
        super().__init__({})
        self._topics = dict(topics)

    def __bool__(self) -> bool:
        return bool(self._topics)

    def of(self, owner: Entity) -> RateLimit | None:
        return self._topics.get(owner.topic or "")
