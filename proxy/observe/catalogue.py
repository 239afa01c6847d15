"""docs/metrics.md. In: the collector, of a proxy to which nothing has happened. Out: Markdown with every figure, its type, its
labels and its meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import structlog
from prometheus_client.core import Metric

from proxy.config.limits import limits_of, windows_of
from proxy.config.models import Quotas, Settings
from proxy.config.storage import Storage
from proxy.hashing import murmur3
from proxy.observe.lines import Author
from proxy.observe.metrics import Gauges, LedgerStands, ProxyCollector, worker_metrics
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.tally import Tally
from quota.engine import Engine

_HEAD: Final = """# Metrics

Made from the collector in `proxy/observe/metrics.py` by `make docs`; a test fails when this page is out of date. What to make of
them is in [operations.md](operations.md); a dashboard for Grafana and rules for Prometheus are in `deploy/monitoring/`.

`/metrics` of the admin listener has these besides `process_*` and `python_info`. Users, client ids and topics are labels of the
figures of their own quotas only, of at most `metrics.max_entities` each; what the others use together stands under `<other>`.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def families() -> Iterator[Metric]:
    """All figures, as a new proxy has them that has a storage quota and workers: others have no figures of these."""
    settings = Settings(quotas=Quotas(storage=Storage(min_available_ratio=0.1)))
    engine = Engine(limits_of(settings), murmur3, windows_of(settings))
    tally = Tally()
    usage = UsageLog(tally, Author("", ""), None, 1, lambda: 0.0, lambda: 0.0)
    observer = Observer(structlog.get_logger(), usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    nothing: dict[str, Any] = {gauge.name: lambda: 0 for gauge in fields(Gauges)}
    nothing["certificate_ends"] = nothing["muted_connections"] = dict
    gauges = Gauges(**nothing | {"ledger": lambda: LedgerStands._make([0] * len(LedgerStands._fields))})
    yield from ProxyCollector(engine, tally, usage, observer, gauges, lambda: 0.0).collect()
    yield from worker_metrics(0, 0, 0)


def names() -> dict[str, list[str]]:
    """Name as it is scraped, to the names of its labels."""
    found: dict[str, list[str]] = {}
    for family in families():
        name, labels = _scraped(family), list(getattr(family, "_labelnames", ()))
        if family.type == "histogram":
            found |= {f"{name}_bucket": [*labels, "le"], f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


def catalogue() -> str:
    """The page."""
    rows = sorted((_scraped(family), family) for family in families())
    return _HEAD + "".join(
        f"| `{name}` | {family.type} | {', '.join(f'`{label}`' for label in getattr(family, '_labelnames', ()))} |"
        f" {family.documentation} |\n"
        for name, family in rows
    )


def _scraped(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


if __name__ == "__main__":
    sys.stdout.write(catalogue())
