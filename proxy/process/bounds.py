"""Limits of the settings become those of a running proxy. In: settings. Out: changed parts of it."""

from __future__ import annotations

from math import inf

from proxy.config.models import Settings
from proxy.session.port import Services


def set_bounds(services: Services, settings: Settings) -> None:
    """Let these limits hold."""
    limits = settings.limits
    bounds, budget, census = services.bounds, services.budget, services.census
    bounds.max_frame, bounds.max_held_response = limits.max_frame, limits.memory_per_connection
    bounds.max_in_flight = limits.max_in_flight
    bounds.first_request_timeout, bounds.request_timeout = limits.first_request_timeout, limits.request_timeout
    bounds.idle_timeout, bounds.ask_timeout = limits.idle_timeout, settings.quotas.ask_timeout
    bounds.max_connection_age = inf if limits.max_connection_age is None else limits.max_connection_age
    budget.total = limits.memory_total
    census.capacity, census.per_address = limits.max_connections, limits.max_connections_per_address
    census.per_principal = limits.max_connections_per_principal
