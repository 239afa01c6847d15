"""What a running proxy tells the console of itself, its brokers and its connections. In: a proxy. Out: a `State`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from configfile.load import Key
from proxy.apis.api_versions import software_of
from proxy.config.models import Settings
from proxy.fleet.members import Member
from proxy.observe.limit_sources import LimitSources
from proxy.observe.live import SeenConnection, State
from proxy.observe.metrics import Gauges, build_labels
from quota.entity import Entity
from quota.overrides import count

if TYPE_CHECKING:
    from proxy.process.proxy import Proxy


def sources_of(proxy: Proxy) -> LimitSources:
    """Where limits of this proxy are set."""

    known: tuple[Settings | None, dict[Entity, int]] = None, {}

    def positions() -> dict[Entity, int]:
        """Found once for the settings in force: it is asked for with each limit of each client."""
        nonlocal known
        settings = proxy.dynamic_quotas.settings
        if known[0] is not settings:
            entities = settings.quotas.entities
            known = settings, {Entity(it.user, it.client_id): i for i, it in reversed(list(enumerate(entities)))}
        return known[1]

    def place(key: Key) -> str | None:
        return proxy.dynamic_quotas.settings.place(key)

    return LimitSources(positions, lambda: proxy.dynamic_quotas.table, lambda: proxy.dynamic_quotas.dynamic, place)


def state_of(proxy: Proxy, gauges: Gauges) -> State:
    """Of this proxy."""

    def connections() -> Iterator[SeenConnection]:
        for it in list(proxy.shared.connections):
            client = it.session.client
            state = it.session.state.name.lower()
            yield SeenConnection(client, state, it.muted, it.age, it.broker, it.node_id, software_of(client))

    def brokers() -> list[dict[str, Any]]:
        return [{"id": it.node_id, "address": f"{it.host}:{it.port}"} for it in proxy.brokers.known()]

    return State(
        proxy.limit_sources,
        connections,
        brokers,
        lambda: [] if proxy.fleet is None else proxy.fleet.processes(),
        lambda: _about(proxy, gauges),
    )


def member_of(proxy: Proxy) -> Member:
    """What this process tells the others of itself."""
    topic = proxy.quota_topic
    return Member(
        proxy.settings.proxy_id,
        proxy.worker_number,
        build_labels()["version"],
        round(proxy.uptime, 1),
        len(proxy.shared.connections),
        None if topic is None else topic.why_not is None,
        count(proxy.dynamic_quotas.dynamic),
    )


def _about(proxy: Proxy, gauges: Gauges) -> dict[str, Any]:
    ledger = gauges.ledger()
    return {
        "proxy": proxy.settings.proxy_id,
        "uptime_seconds": round(proxy.uptime),
        "upstream_up": gauges.upstream_up(),
        "connections": gauges.client_connections(),
        "settings_current": gauges.settings_current(),
        "enforces_alone": gauges.enforces_alone(),
        "ledger": None if ledger is None else {"up": ledger.up, "age_seconds": round(ledger.age, 1), "proxies": ledger.proxies},
        "quota_topic": {"up": bool(gauges.dynamic_quotas_up()), "limits": gauges.dynamic_quotas()}
        if gauges.dynamic_quotas_configured()
        else None,
        "usage_log": {"dropped_lines": proxy.logs.usage.dropped} if proxy.logs.usage.on else None,
        "storage_factor": round(proxy.engine.storage.lowest, 4) if proxy.engine.storage.limits is not None else None,
        "storage_fallback": None if proxy.engine.storage.gap is None else proxy.engine.storage.gap.detail,
    }
