"""Admin HTTP: /metrics, /healthz, /readyz. In: the registry and whether the proxy is ready. Out: an aiohttp server, on
loopback unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from proxy.config.units import HostPort

Ready = Callable[[], str | None]
"""None when clients can be served, else the reason why not."""


async def start_admin(listen: HostPort, registry: CollectorRegistry, ready: Ready) -> tuple[web.AppRunner, int]:
    """Serve until `cleanup()` of the runner; OSError when the address cannot be had. The port is the one it got."""

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = ready()
        return web.Response(text="ok\n") if reason is None else web.Response(text=f"{reason}\n", status=503)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listen.host, listen.port)
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, int(runner.addresses[0][1])
