"""The plan of the demo: who logs in, the storms, the quotas, the proxy's settings file.

In: the limits of this machine. Out: constants, values for the parameters of `scenario.yaml`, which says who does what."""

import resource
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

SCENARIO = Path(__file__).with_name("scenario.yaml")
ALONE, UNLIMITED, LIMITED, THRESHOLD, FLOOD, DISK = "alone", "no-quota", "quota", "threshold", "flood", "disk"
"""The measured phases of the scenario."""
TITLES = {
    ALONE: "1 the ordinary clients alone",
    UNLIMITED: "2 a topic storm, no quota",
    LIMITED: "3 the same storm, with a quota",
    THRESHOLD: "4 a topic above its threshold",
    FLOOD: "5 a broker that is flooded",
    DISK: "6 a disk at its limit",
}
ORDERS, NEW_TOPICS = "orders", "teams"
"""The ordinary tenants that are measured."""
CLICKS, ARCHIVE = "clicks", "archive"
"""The tenant that writes more than its topic may take, and the one that fills the disk: their topics are called so, too."""

TENANTS = ("shop", "teams", "ci", CLICKS, ARCHIVE)
"""Their users."""
OPERATOR, PROXY_USER = "operator", "quota-proxy"
"""Who prepares topics, and has no limits; who the proxy is at the brokers."""
MECHANISM = "SCRAM-SHA-512"

MUTATIONS_RATE = 5
"""Partitions per second."""
MUTATIONS_BURST = 500
"""Partitions."""

TOTAL_THRESHOLD, CLICKS_THRESHOLD = 300_000, 200_000
"""Bytes per second: of all topics together, of `clicks`."""
SOFT_ROOM, HARD_ROOM = 8 << 20, 40 << 20
"""Bytes that may still be written to the disk until producers are slowed, and until nothing more is written."""
PROPOSED_RATE = 600_000
"""Bytes per second that the proposal lets the archive write; in the generated history it writes some 1 MB/s on average."""
THRESHOLD_SECONDS, FLOOD_SECONDS, DISK_SECONDS = 8, 15, 12
FAIR_AFTER, SETTLED = 4, 6
"""Seconds after which the demo switches the overload quota on, and that it is given then before its effect is shown."""
ROOM_AFTER = 0.6
"""The part of the phase after which the demo makes room on the disk."""

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


def parameters(seconds: int, replicas: int, password_file: Path) -> dict[str, str]:
    """Of the scenario, for phases of this length."""
    values: dict[str, object] = {
        "seconds": f"{seconds}s",
        "half": f"{seconds / 2}s",
        "replicas": replicas,
        "threshold_seconds": f"{THRESHOLD_SECONDS}s",
        "flood_seconds": f"{FLOOD_SECONDS}s",
        "disk_seconds": f"{DISK_SECONDS}s",
        "password_file": password_file,
    }
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


def settings_yaml(password_file: Path, more: str | None = None) -> str:
    """The proxy's settings file. `more`: quotas beside those of the storms, as text; by default the threshold of a topic."""
    limits = f"controller_mutations_rate: {MUTATIONS_RATE}, controller_mutations_burst: {MUTATIONS_BURST}"
    entities = "".join(f"    - {{user: ci, client_id: {storm.client_id}, {limits}}}\n" for storm in STORMS)
    return f"""\
{SETTINGS_HEADER}
upstream:
  sasl: {{mechanism: {MECHANISM}, username: {PROXY_USER}, password_file: {password_file}}}
listen: {{bootstrap: "127.0.0.1:0"}}  # any free port; the line "started" of proxy.log says which
admin: {{listen: "127.0.0.1:0"}}
logs: {{usage: {{interval: 1s}}}}
exempt: {{users: [{OPERATOR}], topics: [orders]}}  # orders go on when the disk is at its limit
quotas:
  entities:
{entities}{_THRESHOLDS if more is None else more}"""


_THRESHOLDS = f"""\
  topics:
    total_bytes_in_per_sec: {TOTAL_THRESHOLD}
    bytes_in_per_sec: {{{CLICKS}: {CLICKS_THRESHOLD}}}
    meter: window
"""


OVERLOAD = """\
  overload: {target_latency: 20ms}
"""
"""What is set while a broker is flooded. What it may take is short, as the flood of one machine is."""


def disk_limit(free: int) -> str:
    """Limits a little below what is left on the disk now, in bytes."""
    soft, hard = max(free - SOFT_ROOM, 0), max(free - HARD_ROOM, 0)
    return f"""\
  storage:
    soft: {{min_available_bytes: {soft}}}
    hard: {{min_available_bytes: {hard}}}
    check_interval: 200ms
    release_margin: 0
"""


def what_if_yaml() -> str:
    """Quotas that somebody might propose, for the report to play the logs against."""
    return f"""\
# What the report's "what if" looks at: the archive held to half of what it writes.
upstream: {{bootstrap_servers: ["127.0.0.1:9092"]}}
quotas:
  entities:
    - {{user: {ARCHIVE}, cluster_producer_byte_rate: {PROPOSED_RATE}}}
"""
