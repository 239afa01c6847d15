"""The plan of the demo: the storms, the quotas, the proxy's settings file.

In: the limits of this machine. Out: constants, values for the parameters of `scenario.yaml`, which says who does what."""

import resource
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

SCENARIO = Path(__file__).with_name("scenario.yaml")
ALONE, UNLIMITED, LIMITED = "alone", "no-quota", "quota"
"""The measured phases of the scenario."""
TITLES = {
    ALONE: "1 the ordinary clients alone",
    UNLIMITED: "2 a topic storm, no quota",
    LIMITED: "3 the same storm, with a quota",
}
ORDERS, NEW_TOPICS = "orders", "teams"
"""The ordinary tenants that are measured."""

MUTATIONS_RATE = 5
"""Partitions per second."""
MUTATIONS_BURST = 500
"""Partitions."""

_PER_SECOND = 100  # partitions of one storm client per second of a phase: what a small machine's broker digests in about that time
_MIN, _MAX = 750, 1500  # of one storm client: more than the burst, and less than what troubles a heap of 512 MB

SETTINGS_HEADER = "# Written by `make demo`, which replaces it, and all beside it, when it runs again."


@dataclass(frozen=True)
class Storm:
    """A tenant that creates topics as fast as it is answered. `partitions` per topic, `topics` per request, as in the scenario."""

    kind: Literal["new", "old"]
    client_id: str
    topics: int
    partitions: int

    @property
    def unlimited(self) -> str:
        """The client id of the same storm without a quota."""
        return f"{self.client_id}-unlimited"


STORMS = (Storm("new", "storm-new", topics=7, partitions=80), Storm("old", "storm-old", topics=7, partitions=8))
"""The new client speaks CreateTopics version 7, so it can be refused; the old one version 4, so it can only be slowed down."""


def parameters(seconds: int, replicas: int) -> dict[str, str]:
    """Of the scenario, for phases of this length."""
    values: dict[str, object] = {"seconds": f"{seconds}s", "half": f"{seconds / 2}s", "replicas": replicas}
    for storm in STORMS:
        requests = ceil(storm_partitions(seconds) / (storm.topics * storm.partitions))
        values[f"{storm.kind}_topics"] = requests * storm.topics
    return {name: str(value) for name, value in values.items()}


def storm_partitions(seconds: float) -> int:
    """How many partitions one storm client creates at most in a phase of that length. A broker holds a file open for each."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(max(round(seconds * _PER_SECOND), _MIN), _MAX)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, files // 4)


def allowance(seconds: float) -> float:
    """Partitions that the quota allows one client in this time: the burst, and the rate times the seconds."""
    return MUTATIONS_BURST + MUTATIONS_RATE * seconds


def settings_yaml() -> str:
    """The proxy's settings file."""
    limits = f"controller_mutations_rate: {MUTATIONS_RATE}, controller_mutations_burst: {MUTATIONS_BURST}"
    entities = "".join(f"    - {{client_id: {storm.client_id}, {limits}}}\n" for storm in STORMS)
    return f"""\
{SETTINGS_HEADER}
listen: {{bootstrap: "127.0.0.1:0"}}  # any free port; the line "started" of proxy.log says which
admin: {{listen: "127.0.0.1:0"}}
logs: {{usage: {{interval: 1s}}}}
quotas:
  entities:
{entities}"""
