"""Two weeks of logs before the live minutes, generated: so the report of a demo has something to forecast from. In: when the live
minutes began. Out: a file beside the proxy's logs.

The tenants are those of the demo. The volumes are of a cluster that there is not: their folders begin with `/generated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.logs.lines import Times, Writer
from benchmarks.logs.plan import DAY, GIB, Plan, Tenant, Volume
from demo import plan

PROXY = "generated-history"
DAYS = 14
NOTE = (
    f"The two weeks before the demo are generated (proxy {PROXY}, volumes under /generated). Its last minutes are what the tenants"
    " of the demo really did."
)
_INTERVAL = 3600  # seconds
_SEED = 7
_SHARES = {plan.ARCHIVE: 0.7, "orders": 0.2, plan.CLICKS: 0.1}
"""What each topic has of the growth of a volume."""


def write(folder: Path, until: float) -> None:
    """Log lines of the two weeks before `until`, in seconds since the epoch."""
    start = int(until) // _INTERVAL * _INTERVAL - DAYS * DAY
    writer = _History(_plan(), Times(start, _INTERVAL, _INTERVAL), PROXY, f"{_SEED:016x}", 1.0, _SEED)
    lines = (line for number in range(DAYS * DAY // _INTERVAL) for line in writer.interval(number))
    text = "".join(f"{line}\n" for line in lines)
    (folder / f"usage-{PROXY}-{_SEED:016x}-000001.jsonl").write_text(text, encoding="utf-8")


def _plan() -> Plan:
    tenants = (
        Tenant(f"User:{plan.ARCHIVE}", ("archive-app",), (plan.ARCHIVE,), 1.2e6, 0.1, 0.03),
        Tenant("User:shop", ("orders-app",), ("orders",), 4e5, 2.0, 0.01),
        Tenant(f"User:{plan.CLICKS}", ("clicks-app",), (plan.CLICKS,), 2e5, 1.0, 0.02),
    )
    volumes = tuple(
        Volume(broker, f"/generated/data-{broker}", 8192 * GIB, start * GIB, per_day * GIB, 819 * GIB, 1638 * GIB, 0.6, 0.1)
        for broker, start, per_day in ((1, 4700, 95), (2, 4200, 60))
    )
    return Plan(tenants, volumes)


class _History(Writer):
    """Traffic and volumes; nobody was held back."""

    def _others(self, number: int, at: int) -> Iterator[str]:
        for volume in self._plan.volumes:
            yield self._volume(volume, number * self._times.interval / DAY, at)

    def _topic_bytes(self, used: int) -> dict[str, int]:
        return {topic: round(used * share) for topic, share in _SHARES.items()}
