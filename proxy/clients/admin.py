"""Admin HTTP: /metrics, /healthz, /readyz, /throttles and a page for people. In: a source of figures. Out: an aiohttp server, on
loopback unless told otherwise. Nothing can be changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol, cast

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy import observe
from proxy.config.units import HostPort
from proxy.observe.as_json import as_json
from proxy.observe.operations import Log

PAGE: Final = Path(observe.__file__).with_name("page.html")
NOT_KEPT: Final = {"Cache-Control": "no-store"}
ONLY_ITSELF: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
    "X-Content-Type-Options": "nosniff",
}
"""The page loads nothing from elsewhere, and its own script only."""


class AdminSource(Protocol):
    """A proxy, or all its workers."""

    async def metrics(self) -> Collector:
        """What /metrics tells, collected when it is asked for."""

    async def not_ready(self) -> str | None:
        """None when clients can be served, else the reason why not."""

    async def throttles(self) -> dict[str, Any]:
        """Who is throttled, as `ThrottleStatus.seen` tells it."""


async def start_admin(listen: HostPort, source: AdminSource, log: Log) -> web.AppRunner:
    """Serve until `cleanup()` of the runner; OSError when the address cannot be had."""

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        collected = cast(CollectorRegistry, await source.metrics())  # all that an encoder asks of one is `collect`
        return web.Response(body=encode(collected), headers={"Content-Type": content_type})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = await source.not_ready()
        return web.Response(text="ok\n") if reason is None else web.Response(text=f"{reason}\n", status=503)

    async def throttles(_: web.Request) -> web.Response:
        return web.Response(body=as_json(await source.throttles()), content_type="application/json", headers=NOT_KEPT)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text(encoding="utf-8"), content_type="text/html", headers={**NOT_KEPT, **ONLY_ITSELF})

    @web.middleware
    async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        """What fails is said here, and the next request is answered."""
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as e:
            log.error("internal error", task=f"admin {request.path}", exc_info=e)
            return web.Response(text="internal error\n", status=500)

    app = web.Application(middlewares=[with_errors])
    paths = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz, "/throttles": throttles, "/": page}
    app.add_routes([web.get(path, answer) for path, answer in paths.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listen.host, listen.port)
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
