"""The ledger topic of a process, made from settings. In: settings, how brokers are reached. Out: who follows it, or None where the
ledger is not in a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.fleet.log_follower import LogFollower
from proxy.observe.operations import Log
from proxy.upstream.connector import Upstream
from quota.fence import LIFE

FRESH: Final = 1 / 3
"""The part of `ledger.stale_after` for which the copy of the ledger is taken for current."""


def make_follower(
    settings: Settings, servers: Callable[[], Iterable[HostPort]], upstream: Upstream, log: Log
) -> LogFollower | None:
    ledger = settings.ledger
    if ledger.kind != "kafka":
        return None
    from proxy.upstream.ledger_topic import LedgerTopic  # aiokafka takes time and memory: only where it is needed

    life = max(LIFE, settings.quotas.producer_ids.window_size)
    return LogFollower(LedgerTopic(ledger.topic, life, servers, upstream, log), log, ledger.stale_after * FRESH)
