"""Whether settings show that there are other proxies, each of which would enforce the whole quota by itself. In: settings. Out: why
that is so, and what would be right."""

from __future__ import annotations

from proxy.config.models import Settings

_REMEDY = "set `ledger.kind` to `kafka` or `redis` to have one quota for all of them"


def beside(proxy: str) -> str:
    """Why a proxy enforces alone that has heard of another one."""
    return f"proxy {proxy} stands before the same cluster, and each of them enforces the whole quota by itself; {_REMEDY}"


def enforces_alone(settings: Settings) -> str | None:
    """None where this proxy shares quotas, or nothing shows that there are others."""
    if settings.ledger.kind != "local":
        return None
    sharing = [settings.key_of(name) for name, listener in settings.listeners.items() if listener.reuse_port]
    if sharing:
        return (
            f"`{sharing[0]}.reuse_port` shares ports with other proxies, and each of them enforces the whole quota by itself;"
            f" {_REMEDY}, or `workers` in place of several proxies"
        )
    if settings.ledger.replicas > 1:
        return f"each of {settings.ledger.replicas} proxies (`ledger.replicas`) enforces the whole quota by itself; {_REMEDY}"
    return None
