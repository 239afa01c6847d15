"""Admin HTTP: /metrics, /healthz, /readyz, /throttles, /tenants, /live, /client and the console for people. In: a source of
figures. Out: an aiohttp server, on loopback unless told otherwise. Nothing can be changed by it."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy import observe
from proxy.clients.admin_logins import CHALLENGE, Logins
from proxy.config.units import HostPort
from proxy.observe.as_json import as_json
from proxy.observe.operations import Log
from proxy.pieces import in_pieces
from quota.steps import Steps

PAGE: Final = Path(observe.__file__).with_name("console.html")
FOR_ALL: Final = ("/healthz", "/readyz")
"""Paths that need no login: what asks them cannot have one, and they tell nothing of clients."""
LIVE_FOR: Final = 2.0
"""Seconds for which all viewers of the console get the same answer, so that it does not matter how many there are."""
AT_ONCE: Final = 1 << 15
"""Bytes that are compressed in one step: some 50 us."""
SAMPLES: Final = 20
"""Of metrics, that are written in one step: some 100 us."""
GZIP: Final = 16 + zlib.MAX_WBITS
NOT_KEPT: Final = {"Cache-Control": "no-store"}
ONLY_ITSELF: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
    "X-Content-Type-Options": "nosniff",
}
"""The page loads nothing from elsewhere, and its own script only."""


class AdminSource(Protocol):
    """A proxy, or all its workers."""

    async def metrics(self) -> Iterable[Metric | None]:
        """What /metrics tells, each metric collected when its turn comes; None where others may go on before the next."""

    async def not_ready(self) -> str | None:
        """None when clients can be served, else the reason why not."""

    async def warnings(self) -> list[str]:
        """What is wrong though clients can be served."""

    async def throttles(self) -> dict[str, Any]:
        """Who is throttled, as `ThrottleStatus.seen` tells it."""

    async def tenants(self) -> dict[str, Any]:
        """What tenants own and use, as `observe.tenants.seen` tells it."""

    async def live(self) -> list[bytes]:
        """What the console shows, as `live.Live.part` tells it: pieces of one JSON text."""

    async def client(self, user: str, client_id: str | None) -> dict[str, Any]:
        """One client in detail, or a user with None for the client id, as `live.Live.one` tells it."""


class LiveAnswers:
    """`/live` as JSON in pieces, and compressed. It is made when somebody asks, and once for all who ask within `LIVE_FOR`."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source
        self._turn = asyncio.Lock()
        self._until = 0.0
        self._made: tuple[list[bytes], bytes] = [], b""

    async def get(self) -> tuple[list[bytes], bytes]:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            if clock() >= self._until:
                told = await self._source.live()
                self._made = told, await in_pieces(compressed(told))
                self._until = clock() + LIVE_FOR
        return self._made


def compressed(pieces: Iterable[bytes]) -> Steps[bytes]:
    """The pieces of one text as gzip."""
    gzip = zlib.compressobj(1, zlib.DEFLATED, GZIP)
    made = []
    for piece in pieces:
        for start in range(0, len(piece), AT_ONCE):
            made.append(gzip.compress(piece[start : start + AT_ONCE]))
            yield
    return b"".join([*made, gzip.flush()])


def exposition(collected: Iterable[Metric | None], accept: str) -> Steps[tuple[bytes, str]]:
    """Metrics as the text that Prometheus reads, and its content type, by the header `Accept`. A step is of `SAMPLES` at most."""
    encode, content_type = choose_encoder(accept)
    end = encode(_Collected(()))  # OpenMetrics marks the end
    made = []
    for metric in collected:
        if metric is None:
            yield
            continue
        part = copy(metric)
        for start in range(0, max(len(metric.samples), 1), SAMPLES):
            part.samples = metric.samples[start : start + SAMPLES]
            text = encode(_Collected((part,)))
            made.append((_without_head(text) if start else text).removesuffix(end))
            yield
    return b"".join([*made, end]), content_type


class _Collected(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _without_head(text: bytes) -> bytes:
    """The lines of samples of one metric, without those that say what it is."""
    while text.startswith(b"#"):
        _, _, text = text.partition(b"\n")
    return text


async def start_admin(
    listen: HostPort, source: AdminSource, log: Log, tls: ssl.SSLContext | None = None, logins: Logins | None = None
) -> web.AppRunner:
    """Serve until `cleanup()` of the runner; OSError when the address cannot be had. `logins`: who may read, None for all."""
    answers, one_at_a_time = LiveAnswers(source), asyncio.Lock()

    async def metrics(request: web.Request) -> web.Response:
        text, content_type = await in_pieces(exposition(await source.metrics(), request.headers.get("Accept", "")))
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = await source.not_ready()
        if reason is not None:
            return web.Response(text=f"{reason}\n", status=503)
        return web.Response(text="".join(f"{line}\n" for line in ("ok", *await source.warnings())))

    async def throttles(_: web.Request) -> web.Response:
        return web.Response(body=as_json(await source.throttles()), content_type="application/json", headers=NOT_KEPT)

    async def tenants(_: web.Request) -> web.Response:
        async with one_at_a_time:
            told = await source.tenants()
        return web.Response(body=as_json(told), content_type="application/json", headers=NOT_KEPT)

    async def live(request: web.Request) -> web.Response:
        plain, compressed = await answers.get()
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers = {**NOT_KEPT, "Content-Encoding": "gzip"}
            return web.Response(body=compressed, content_type="application/json", headers=headers)
        return web.Response(body=b"".join(plain), content_type="application/json", headers=NOT_KEPT)

    async def client(request: web.Request) -> web.Response:
        async with one_at_a_time:
            told = await source.client(request.query.get("user", ""), request.query.get("client_id"))
        return web.Response(body=as_json(told), content_type="application/json", headers=NOT_KEPT)

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

    @web.middleware
    async def with_login(request: web.Request, handler: Handler) -> web.StreamResponse:
        if logins is None or request.path in FOR_ALL or logins.allow(request.headers.get("Authorization")):
            return await handler(request)
        return web.Response(text="a login is needed\n", status=401, headers={**NOT_KEPT, "WWW-Authenticate": CHALLENGE})

    app = web.Application(middlewares=[with_errors, with_login])
    paths = {
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        "/throttles": throttles,
        "/tenants": tenants,
        "/live": live,
        "/client": client,
        "/": page,
    }
    app.add_routes([web.get(path, answer) for path, answer in paths.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listen.host, listen.port, ssl_context=tls)
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
