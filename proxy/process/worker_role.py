"""What a proxy has to know that is one of several workers of a supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.clients.handover import Handover
from proxy.clients.shared_counts import SharedCounts
from proxy.config.ledger import Ledger
from proxy.fleet.channel import Channel
from proxy.fleet.channel_store import ChannelStore
from proxy.fleet.store import Store

SYNC_INTERVAL: Final = 0.01
"""Seconds between two times that workers exchange what they charged."""
PATIENCE: Final = 1.0
"""Seconds without an answer of the supervisor after which the other workers are estimated."""


@dataclass(frozen=True)
class WorkerRole:
    """This process is worker `number`, from 0 on, of `count`."""

    number: int
    count: int
    channel: Channel
    """to the supervisor"""
    handover: Handover
    counts: SharedCounts
    """connections of addresses and users at all workers"""

    @property
    def saves(self) -> bool:
        """True for the worker that writes the files of which the proxy has one. The others know the same."""
        return self.number == 0

    def ledger(self, settings: Ledger) -> Ledger:
        """Settings of the ledger that the supervisor keeps, in its memory or in a topic."""
        if settings.kind == "kafka":
            return settings
        return Ledger().model_copy(
            update={"sync_interval": SYNC_INTERVAL, "timeout": PATIENCE, "stale_after": PATIENCE, "replicas": self.count}
        )

    def open_store(self, patience: float) -> Store:
        return ChannelStore(self.channel, patience)
