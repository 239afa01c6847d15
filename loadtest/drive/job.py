"""What a driver process is told, and what it reports. In: JSON. Out: models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from configfile.access import Access
from loadtest.results.histogram import Histogram
from loadtest.results.model import Series, Throttle
from loadtest.scenario import AnyLoad

READY, TICK, REPORT, ERROR = "ready", "tick", "report", "error"
"""Each line of output is a JSON object with one of these as its only key."""


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Job(Model):
    """One operation of one tenant, or a process's share in it."""

    run_id: str
    name: str
    load: AnyLoad
    rate: float | None
    """Operations per second of this process; None: as fast as possible."""
    clients: int
    bootstrap: str
    client_id: str
    access: Access
    settings: dict[str, str | int | float | bool]
    topic: str
    """Its name at the cluster; empty for none."""
    partitions: int
    first_producer: int
    """Producers of this process are this one and those that follow."""
    prefix: str
    """Prefix of the names of topics and groups that the operation creates."""
    warm_up: float
    duration: float
    grace: float
    """Seconds for operations that are in flight at the end."""
    at_most: int = 0
    """Topics that this process may create."""


class Start(Model):
    """When the phase begins, warm-up included."""

    at: float
    """On the monotonic clock of the machine, which all its processes share."""


class Tick(Model):
    """Sums since the beginning."""

    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    bytes: int = 0
    latency_max_us: int = 0
    """Of the last second."""


class Acknowledged(Model):
    """Sequences of one producer in one partition, as (first, last + 1)."""

    producer: int
    partition: int
    runs: list[tuple[int, int]]


class Report(Model):
    """What a process counted. The warm-up counts only in `series` and in what is verified."""

    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: dict[str, int] = {}
    bytes: int = 0
    latency: Histogram = Field(default_factory=Histogram)
    service: Histogram = Field(default_factory=Histogram)
    lag: Histogram = Field(default_factory=Histogram)
    throttle: Throttle = Field(default_factory=Throttle)
    series: Series = Field(default_factory=Series)
    acknowledged_records: list[Acknowledged] = []
    library: str = ""
    """Client library and its version."""
