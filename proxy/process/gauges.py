"""Figures that only the running process knows, for its metrics. In: a proxy and its parts. Out: functions that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.observe.metrics import Gauges
from quota.overrides import count

if TYPE_CHECKING:
    from proxy.process.proxy import Proxy


def gauges_of(proxy: Proxy) -> Gauges:
    """Read when metrics are asked for."""
    services, connections = proxy.shared.services, proxy.shared.connections
    return Gauges(
        client_connections=lambda: len(connections),
        brokers=lambda: len(proxy.brokers),
        brokers_without_port=lambda: len({node_id for it in proxy.listeners for node_id in it.route.refused}),
        upstream_up=lambda: proxy.follower.up,
        muted_connections=lambda: (connection.muted for connection in list(connections)),
        memory_held=lambda: services.budget.held,
        memory_waiting=lambda: services.budget.waiting,
        max_entities=lambda: proxy.max_entities,
        settings_current=lambda: proxy.reloader.current,
        settings_applied=lambda: proxy.reloader.applied,
        settings_refused=lambda: proxy.reloader.refused,
        certificate_ends=lambda: proxy.certificate_ends,
        enforces_alone=lambda: proxy.alone.reason is not None,
        dynamic_quotas=lambda: count(proxy.dynamic_quotas.dynamic),
        dynamic_quotas_up=lambda: float(proxy.quota_topic is not None and proxy.quota_topic.why_not is None),
        dynamic_quotas_configured=lambda: float(proxy.quota_topic is not None),
        quota_changes=lambda: proxy.dynamic_quotas.changes,
        quota_records_skipped=lambda: proxy.dynamic_quotas.skipped,
        ledger=lambda: None if proxy.fleet is None else proxy.fleet.stands(),
        shares_quotas=proxy.shares_quotas,
        ledger_records_skipped=lambda: None if proxy.ledger_topic is None else proxy.ledger_topic.skipped,
        usage_log_topic_up=lambda: float(proxy.logs.topic is not None and proxy.logs.topic.up),
        usage_log_topic_configured=lambda: float(proxy.logs.topic is not None),
        usage_log_topic_waiting=lambda: 0 if proxy.logs.topic is None else proxy.logs.topic.waiting,
    )
