"""The console in a real browser, with a thousand clients: it shows, sorts, filters, opens one client, and takes names as text."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from proxy.clients.admin import start_admin
from proxy.config.units import HostPort
from proxy.observe.operations import operations_log
from tests.browser import BROWSER, Evaluate, browsed, until

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
EVIL = "<img src=x onerror=document.title='pwned'>"


def client(number: int, **more: Any) -> dict[str, Any]:
    rates = {"bytes_in": 1000.0 * number, "bytes_out": 0.0, "requests": 1000.0 - number, "mutations": 0.0}
    used = {"quota": "producer_byte_rate", "unit": "bytes/s", "usage": 1.0925 * (1 << 20), "limit": 1 << 20, "observed": False}
    limit = {**used, "source": "quotas.entities[0]: user x"}
    return {
        "user": f"user-{number % 10}",
        "client_id": f"app-{number}",
        "connections": 1,
        **rates,
        "history": [[float(i) for i in range(60)], [0.0] * 60],
        "limits": [{**limit, "source": "quotas.entities[0]: user x"}],
        **more,
    }


class Source:
    """Of a proxy that does nothing."""

    asked: tuple[str, str] | None = None

    async def metrics(self) -> Any:
        return CollectorRegistry()

    async def not_ready(self) -> None:
        return None

    async def warnings(self) -> list[str]:
        return []

    async def tenants(self) -> dict[str, Any]:
        return {}

    async def throttles(self) -> dict[str, Any]:
        return {}

    async def live(self) -> dict[str, Any]:
        clients = [client(i) for i in range(998)]
        clients += [client(2000, client_id=EVIL), client(3000, user="日本語", client_id="🚀")]
        about = {"proxy": "edge-1", "version": "1", "uptime_seconds": 5, "upstream_up": True, "connections": 1000}
        return {
            "at": "2026-11-23T11:00:00.000Z",
            "point_seconds": 10,
            "about": about,
            "clients": clients,
            "clients_known": 5000,
            "decisions": [],
            "volumes": [],
            "brokers": [],
        }

    async def client(self, user: str, client_id: str) -> dict[str, Any]:
        self.asked = user, client_id
        connection = {"address": "10.0.0.1:5", "state": "open", "seconds": 61, "broker": "b"}
        return {"limits": client(1)["limits"], "connections": [connection], "topics": [], "decisions": []}


NAMES = "[...document.querySelectorAll('#clients tbody tr')].slice(0, 3).map(tr => tr.cells[1].textContent)"
ROWS = "document.querySelectorAll('#clients tbody tr').length"


@contextlib.asynccontextmanager
async def opened(source: Source, folder: Path, size: str = "1366,900") -> AsyncIterator[Evaluate]:
    """The page in a browser, and a way to ask it."""
    admin = await start_admin(HostPort("127.0.0.1", 0), source, operations_log("error"))
    try:
        async with browsed(f"http://127.0.0.1:{admin.addresses[0][1]}/", folder, ROWS, size) as page:
            yield page
    finally:
        await admin.cleanup()


def sort_by(key: str) -> str:
    return f"document.querySelector('#clients button[data-key={key}]').click()"


def test_a_thousand_clients_are_shown_sorted_filtered_and_opened(tmp_path: Path) -> None:
    source = Source()

    async def look() -> None:
        async with opened(source, tmp_path) as page:
            assert await page(ROWS) == 1000
            assert await page(NAMES) == ["🚀", EVIL, "app-997"], "most bytes first"
            assert await page("document.title") == "kafka-quota-proxy"
            assert "1.09 of 1.00 MiB/s" in await page("document.querySelector('#clients tbody').textContent")
            assert "1,000 of 1,000 shown, of 5,000 clients" in await page("document.getElementById('count').textContent")
            await page(sort_by("requests"))
            assert await page(NAMES) == ["app-0", "app-1", "app-2"]
            assert await page("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"
            await page("clients()")
            assert await page("document.activeElement.dataset.key") == "requests", "the keyboard goes on from there, drawn anew"
            await page(sort_by("requests"))
            assert (await page(NAMES))[0] == "🚀"
            await page("(f => { f.value = '日本'; f.dispatchEvent(new Event('input')); })(document.getElementById('filter'))")
            assert (await page(ROWS), await page(NAMES)) == (1, ["🚀"])
            await page("document.querySelector('#clients tbody button').click()")
            await page(until("document.getElementById('one-body').textContent.includes('10.0.0.1:5')"))
            assert source.asked == ("日本語", "🚀")
            assert "quotas.entities[0]: user x" in await page("document.getElementById('one-body').textContent")

    asyncio.run(look())


def test_users_are_summed_up(tmp_path: Path) -> None:
    async def look() -> None:
        async with opened(Source(), tmp_path) as page:
            await page("(g => { g.value = 'user'; g.dispatchEvent(new Event('input')); })(document.getElementById('group'))")
            assert await page(ROWS) == 11
            assert (await page(NAMES))[0] == "101 client ids", "user-0 has those that end in 0, and the one with the strange name"

    asyncio.run(look())


@pytest.mark.parametrize("width", [390, 1366])
def test_the_page_is_no_wider_than_its_window(tmp_path: Path, width: int) -> None:
    async def look() -> None:
        async with opened(Source(), tmp_path, f"{width},900") as page:
            inner = await page("innerWidth")
            assert await page("document.documentElement.scrollWidth") <= inner

    asyncio.run(look())
