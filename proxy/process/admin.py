"""The admin listener of a proxy or of a supervisor. In: settings, where figures come from. Out: the listener; `StartError`."""

from __future__ import annotations

from aiohttp import web

from proxy.clients.admin import AdminSource, start_admin
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.observe.operations import Log
from proxy.process.start_error import StartError, reason_of


async def open_admin(settings: Settings, source: AdminSource, log: Log) -> web.AppRunner:
    """Serve until `cleanup`."""
    listen = settings.admin.listen
    try:
        return await start_admin(listen, source, log)
    except OSError as e:
        raise StartError(f"cannot listen at {listen}: {reason_of(e)}; set `admin.listen` or --admin to a free address") from None


def admin_address(settings: Settings, admin: web.AppRunner) -> str:
    """Where it listens."""
    return str(HostPort(settings.admin.listen.host, int(admin.addresses[0][1])))
