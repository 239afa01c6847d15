"""Whether this proxy enforces quotas by itself beside others, and why. In: settings, the ledger topic, changes of quotas that other
proxies wrote. Out: a reason with what would be right, for the log (once), metrics and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from proxy.cluster.quota_records import author
from proxy.config.alone import beside, enforces_alone
from proxy.config.models import Settings
from proxy.fleet.log_follower import LogFollower
from proxy.observe.operations import Log
from proxy.upstream.quota_store import Written

SEEN_FOR: Final = 3600.0
"""Seconds after which another proxy counts as gone."""


class Alone:
    """`clock`: monotonic seconds."""

    def __init__(self, settings: Settings, log: Log, clock: Callable[[], float]) -> None:
        self._settings, self._log, self._clock = settings, log, clock
        self._always = enforces_alone(settings)
        self._seen: tuple[str, float] | None = None
        self.ledger_topic: LogFollower | None = None

    @property
    def reason(self) -> str | None:
        """None where quotas are shared, or nothing shows that there are others."""
        if self._always is not None:
            return self._always
        if self._seen is not None and self._clock() < self._seen[1] + SEEN_FOR:
            return beside(self._seen[0])
        return None if self.ledger_topic is None else self.ledger_topic.denied

    def tell(self) -> None:
        """At the start."""
        if self._always is not None:
            self._log.warning("quotas are not shared", reason=self._always)

    def altered(self, records: Sequence[Written]) -> None:
        """Somebody changed quotas just now, maybe at another proxy, which then stands before the same cluster."""
        if self._settings.ledger.kind != "local":
            return
        for record in records:
            proxy = author(record.headers).get("proxy")
            if isinstance(proxy, str) and proxy != self._settings.proxy_id:
                before, self._seen = self.reason, (proxy, self._clock())
                if before is None:
                    self._log.warning("quotas are not shared", reason=beside(proxy))
