"""The admin listener of a proxy or of a supervisor. In: settings, where figures come from. Out: the listener; `StartError`."""

from __future__ import annotations

from aiohttp import web

from proxy.clients.admin import AdminSource, start_admin
from proxy.clients.admin_logins import Logins, LoginsError
from proxy.config.models import Settings
from proxy.config.units import HostPort
from proxy.observe.operations import Log
from proxy.process.start_error import StartError, reason_of
from proxy.tls import TlsError, server_context


async def open_admin(settings: Settings, source: AdminSource, log: Log) -> web.AppRunner:
    """Serve until `cleanup`."""
    listen, tls, auth = settings.admin.listen, settings.admin.tls, settings.admin.auth
    try:
        context = None if tls is None else server_context(tls, "admin.tls")
        logins = None if auth is None else Logins(auth.token_file, auth.users_file)
    except TlsError as e:
        raise StartError(str(e)) from None
    except LoginsError as e:
        raise StartError(f"`admin.auth`: {e}") from None
    try:
        return await start_admin(listen, source, log, context, logins)
    except OSError as e:
        raise StartError(f"cannot listen at {listen}: {reason_of(e)}; set `admin.listen` or --admin to a free address") from None


def admin_address(settings: Settings, admin: web.AppRunner) -> str:
    """Where it listens."""
    return str(HostPort(settings.admin.listen.host, int(admin.addresses[0][1])))
