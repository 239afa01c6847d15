"""The quotas topic of a process, made from settings. In: settings, how brokers are reached. Out: who follows it, or None where
quotas stand in the settings file only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.observe.operations import Log
from proxy.upstream.connector import Upstream
from proxy.upstream.quota_store import Written

if TYPE_CHECKING:
    from proxy.upstream.quota_topic import QuotaTopic


def make_quota_topic(
    settings: Settings,
    servers: Callable[[], Iterable[HostPort]],
    upstream: Upstream,
    log: Log,
    altered: Callable[[Sequence[Written]], None],
    told: Callable[[], None] = lambda: None,
) -> QuotaTopic | None:
    """`altered` is given what is written from now on; `told` is called when it can be used, and when it cannot any more."""
    if settings.quotas.dynamic is None:
        return None
    from proxy.upstream.quota_topic import QuotaTopic  # aiokafka takes time and memory: only where it is needed

    return QuotaTopic(settings.quotas.dynamic.topic, servers, upstream, log, altered, told)
