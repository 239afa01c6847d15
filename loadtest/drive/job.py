"""What a driver process is told, and what it reports. In: JSON. Out: models."""

from __future__ import annotations

from pydantic import Field

from configfile.access import Access
from loadtest.results.counts import Counts, Model
from loadtest.results.histogram import Histogram
from loadtest.scenario import AnyLoad

READY, TICK, REPORT, ERROR = "ready", "tick", "report", "error"
"""Each of its messages is a JSON object with one of these as its only key."""


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


class Acknowledged(Model):  # or aborted, or read
    """Sequences of one producer in one partition, as (first, last + 1)."""

    producer: int
    partition: int
    runs: list[tuple[int, int]]


class Report(Counts):
    """What a process counted. The warm-up counts only in `series` and in what is verified."""

    lag: Histogram = Field(default_factory=Histogram)
    acknowledged_records: list[Acknowledged] = Field(default_factory=list)
    aborted_records: list[Acknowledged] = Field(default_factory=list)
    """Those whose transaction was aborted."""
    read_records: list[Acknowledged] = Field(default_factory=list)
    """Those that a verified reader was given."""
    read_again: int = 0
    """Deliveries to it after the first of a record."""
    library: str = ""
    """Client library and its version."""
