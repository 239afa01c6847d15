"""What connections that pipeline small requests do to a client that comes anew for each request, directly and through the proxy.

In: how many. Out: how long the client waits, and how many requests were sent meanwhile."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.isolation.attacker import AttackProcess, Target
from benchmarks.isolation.wire import Connection
from benchmarks.local_proxy import proxy_with
from localkafka import LocalCluster

ENDLESS: Final = 1 << 40
BETWEEN: Final = 0.02
"""Seconds between two connections of the client."""
SETTLING: Final = 1.0
"""Seconds that the attack has before the client is measured."""
METADATA: Final = (3, 1)
SORTS: Final = {"ApiVersions v0": "pipelined-versions-stranger", "Metadata v8": "pipelined-metadata-stranger"}
"""What is pipelined, and the attack that does it."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one client, in seconds: each answer, from the beginning of its connection."""

    way: str
    sort: str
    connections: int
    took: list[float]
    sent: float
    """requests of the attack a second"""

    def quantile(self, share: float) -> float:
        return statistics.quantiles(self.took, n=100, method="inclusive")[round(share * 100) - 1]


def measure(folder: Path, counts: tuple[int, ...], seconds: float) -> list[Waits]:
    """Measure with each sort of requests from `number` connections, and without any; directly and through the proxy in turn."""
    found = []
    with LocalCluster(1) as kafka, proxy_with({}, kafka.brokers[0].address, folder) as proxy, AttackProcess() as attackers:
        ways = {"direct": kafka.brokers[0].address, "proxy": proxy.bootstrap}
        for way, address in ways.items():
            found.append(Waits(way, "nobody", 0, _client(address, seconds), 0.0))
        for sort, attack in SORTS.items():
            for count in counts:
                for way, address in ways.items():
                    attackers.begin(attack, Target(address, address, address, None, "", 0, ENDLESS), count)
                    began = time.monotonic()
                    time.sleep(SETTLING)
                    took = _client(address, seconds)
                    tally = attackers.end()
                    found.append(Waits(way, sort, count, took, tally.requests / (time.monotonic() - began)))
    return found


def _client(address: str, seconds: float) -> list[float]:
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(took) < 2:
        began = time.monotonic()
        try:
            with Connection(address, "comes-anew") as connection:
                connection.ask(METADATA, topics=[])
        except OSError:
            pass  # it took as long as it took
        took.append(time.monotonic() - began)
        time.sleep(BETWEEN)
    return took
