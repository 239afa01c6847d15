"""Room demo, plan: what is shown. Who sends what, which quota holds for whom, the proxy's settings file.

In: nothing but the limits of this machine. Out: constants and values. Leaves to others: doing it.
"""

import resource
from dataclasses import dataclass
from typing import Literal

ORDERS = "orders"
ORDERS_PARTITIONS = 3
PRODUCER = "orders-app"
READER = "orders-reader"
NEWCOMER = "newcomer"
RECORDS_PER_SECOND = 200
RECORD_BYTES = 1024
NEW_TOPICS_PER_SECOND = 1
WARM_UP = 8
"""Seconds before the first phase, which no figure counts: a young JVM compiles."""

MUTATIONS_RATE = 5
"""Partitions per second: R of seed s1's example."""
MUTATIONS_BURST = 500
"""Partitions: B of seed s1's example."""

STORM_PREFIX = "storm-"
_UNLIMITED = "-unlimited"
_PER_SECOND = 100  # partitions of one storm client per second of a phase: what a small machine's broker digests in about that time
_LEAST, _MOST = 750, 1500  # of one storm client: more than the burst, and less than what troubles a heap of 512 MB

SETTINGS_HEADER = "# Written by `make demo`, which replaces it, and all beside it, when it runs again."


@dataclass(frozen=True)
class Storm:
    """A client that creates topics as fast as it is answered. `partitions` per topic, `topics` per request."""

    kind: Literal["new", "old"]
    client_id: str
    topics: int
    partitions: int

    @property
    def unlimited(self) -> "Storm":
        """The same with a client id that has no quota."""
        return Storm(self.kind, self.client_id + _UNLIMITED, self.topics, self.partitions)


NEW = Storm("new", "storm-new", topics=7, partitions=80)
"""Speaks CreateTopics version 7, so it can be refused. 7 topics of 80 partitions are seed s1's example."""
OLD = Storm("old", "storm-old", topics=7, partitions=8)
"""Speaks CreateTopics version 4, so it can only be slowed down."""


@dataclass(frozen=True)
class Phase:
    """One part of the play; the storms run beside the ordinary clients."""

    number: int
    title: str
    storms: tuple[Storm, ...] = ()


ALONE = Phase(1, "the ordinary clients alone")
UNLIMITED = Phase(2, "a topic storm, no quota", (NEW.unlimited, OLD.unlimited))
LIMITED = Phase(3, "the same storm, with a quota", (NEW, OLD))


def storm_partitions(seconds: float) -> int:
    """How many partitions one storm client creates at most in a phase of that length. A broker holds a file open for each."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(max(round(seconds * _PER_SECOND), _LEAST), _MOST)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, files // 4)


def allowance(seconds: float) -> float:
    """Partitions that the quota means one client to have after that time: the burst, and the rate for as long."""
    return MUTATIONS_BURST + MUTATIONS_RATE * seconds


def settings_yaml() -> str:
    """The proxy's settings file."""
    limits = f"controller_mutations_rate: {MUTATIONS_RATE}, controller_mutations_burst: {MUTATIONS_BURST}"
    entities = "".join(f"    - {{client_id: {storm.client_id}, {limits}}}\n" for storm in (NEW, OLD))
    return f"""\
{SETTINGS_HEADER}
listen: {{bootstrap: "127.0.0.1:0"}}  # any free port; the line "started" of proxy.log says which
admin: {{listen: "127.0.0.1:0"}}
logs: {{usage: {{interval: 1s}}}}
quotas:
  entities:
{entities}"""
