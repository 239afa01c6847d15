"""The console in a real browser, with a thousand clients: it shows, sorts, filters, opens one client, and takes names as text."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.clients.admin import start_admin
from proxy.config.units import HostPort
from proxy.observe.as_json import as_json
from proxy.observe.live import digits
from proxy.observe.operations import operations_log
from tests.browser import BROWSER, Page, browsed, until

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
EVIL = "<img src=x onerror=document.title='pwned'>"


def client(number: int, **more: Any) -> dict[str, Any]:
    rates = {"bytes_in": 1000.0 * number, "bytes_out": 0.0, "requests": 1000.0 - number, "mutations": 0.0}
    used = {"quota": "producer_byte_rate", "unit": "bytes/s", "usage": 1.0925 * (1 << 20), "limit": 1 << 20, "observed": False}
    limit = {**used, "source": "quotas.entities[0]: user x", "place": "settings.yaml:17"}
    return {
        "user": f"user-{number % 10}",
        "client_id": f"app-{number}",
        "connections": 1,
        **rates,
        "history": [digits(range(60)), digits([0.0] * 60)],
        "limits": [{**limit}],
        "tenant": None,
        "producer_ids": number % 10,
        **more,
    }


DECISION = {
    "quota": "tenant_producer_byte_rate",
    "mode": "enforce",
    "entity": {"user": None, "client_id": None, "topic": None, "tenant": "shop"},
    "seconds_ago": 5.0,
    "action": "throttle",
    "unit": "bytes/s",
    "usage": 2 << 20,
    "limit": 1 << 20,
    "throttled_requests": 3,
    "throttle_seconds": 4.0,
    "refused_items": 0,
    "topics": [],
    "source": "tenants",
    "message": "Tenant shop is over its limit.",
}
OF_USER_5 = {**DECISION, "entity": {"user": "user-5", "client_id": None, "topic": None}, "quota": "request_rate"}
LATER_AND_EARLIER = [
    {**OF_USER_5, "quota": "sequence_fence", "seconds_ago": 1.0},
    {**OF_USER_5, "seconds_ago": 2.0},
    {**OF_USER_5, "quota": "producer_ids", "seconds_ago": 90.0},
]
PROCESS = {
    "boot": "1",
    "proxy": "edge-1",
    "worker": None,
    "version": "1",
    "uptime": 300,
    "connections": 7,
    "quota_topic": True,
    "limits": 3,
    "seconds_ago": 0.0,
}


class Source:
    """Of a proxy that does nothing."""

    asked: tuple[str, str | None] | None = None

    async def metrics(self) -> Any:
        return []

    async def not_ready(self) -> None:
        return None

    async def warnings(self) -> list[str]:
        return []

    async def tenants(self) -> dict[str, Any]:
        return {"tenants": [{"tenant": "shop", "topics": 3, "partitions": 1200, "topic_prefixes": ["shop."]}]}

    async def throttles(self) -> dict[str, Any]:
        return {}

    async def live(self) -> list[bytes]:
        clients = [client(i) for i in range(998)]
        clients += [client(2000, client_id=EVIL), client(3000, user="日本語", client_id="🚀")]
        of_tenant = {**clients[0]["limits"][0], "quota": "tenant_producer_byte_rate", "source": "tenants"}
        for one in clients[:4]:
            one["tenant"] = "shop"
            one["limits"].append(of_tenant)
        about = {"proxy": "edge-1", "version": "1", "uptime_seconds": 5, "upstream_up": True, "connections": 1000}
        told = {
            "at": "2026-11-23T11:00:00.000Z",
            "point_seconds": 10,
            "producer_ids_seconds": 3600,
            "about": about,
            "clients": clients,
            "clients_known": 5000,
            "decisions": [DECISION, *LATER_AND_EARLIER],
            "volumes": [],
            "processes": [PROCESS, {**PROCESS, "boot": "2", "proxy": "edge-2", "quota_topic": False, "seconds_ago": 9.0}],
            "brokers": [{"id": 1, "address": "h:1", "connections": 5, "requests": 100, "p50_ms": 3.5, "p99_ms": 3.5}],
        }
        return [as_json(told)]

    async def client(self, user: str, client_id: str | None) -> dict[str, Any]:
        self.asked = user, client_id
        connection = {"address": "10.0.0.1:5", "software": "librdkafka 2.12.0", "state": "open", "seconds": 61, "broker": "b"}
        return {"limits": client(1)["limits"], "connections": [connection], "topics": [], "decisions": []}


NAMES = "[...document.querySelectorAll('#clients tbody tr')].slice(0, 3).map(tr => tr.cells[1].textContent)"
ROWS = "document.querySelectorAll('#clients tbody tr').length"


@contextlib.asynccontextmanager
async def opened(source: Source, folder: Path, size: str = "1366,900") -> AsyncIterator[Page]:
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
            lately = "[...document.querySelectorAll('#clients tbody tr')].find(tr => tr.cells[1].textContent === 'app-5').cells[3]"
            assert await page(f"{lately}.textContent") == "throttled by request_rate2 s ago", "the last one that is no consequence"
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
            assert "quotas.entities[0]: user x (settings.yaml:17)" in await page("document.getElementById('one-body').textContent")
            assert "librdkafka 2.12.0" in await page("document.getElementById('one-body').textContent")
            assert "100" in (told := await page("document.getElementById('brokers').textContent"))
            assert "3.50 ms" in told, "half of all answers came within this time"
            rows = "[...document.querySelectorAll('#processes tbody tr')].map(tr => [...tr.cells].map(td => td.textContent))"
            assert await page(rows) == [
                ["edge-1", "1", "5 min", "7", "up", "3", "now"],
                ["edge-2", "1", "5 min", "7", "away", "3", "9 s ago"],
            ]

    asyncio.run(look())


def test_users_are_summed_up(tmp_path: Path) -> None:
    async def look() -> None:
        source = Source()
        async with opened(source, tmp_path) as page:
            await page("(g => { g.value = 'user'; g.dispatchEvent(new Event('input')); })(document.getElementById('group'))")
            assert await page(ROWS) == 11
            assert (await page(NAMES))[0] == "101 client ids", "user-0 has those that end in 0, and the one with the strange name"
            cells = "[...document.querySelector('#clients tbody tr').cells].map(it => it.textContent)"
            assert (await page(cells))[9] == "0", "producer ids are counted for a user: they do not add up"
            await page("document.querySelector('#clients tbody button').click()")
            await page(until("document.getElementById('one-body').textContent.includes('10.0.0.1:5')"))
            assert source.asked == ("user-0", None), "all of its client ids"
            assert EVIL in await page("document.getElementById('one-body').textContent")

    asyncio.run(look())


def test_tenants_are_summed_up_and_opened(tmp_path: Path) -> None:
    async def look() -> None:
        async with opened(Source(), tmp_path) as page:
            await page("(g => { g.value = 'tenant'; g.dispatchEvent(new Event('input')); })(document.getElementById('group'))")
            assert await page(ROWS) == 2, "one tenant, and who has none"
            await page("(f => { f.value = 'shop'; f.dispatchEvent(new Event('input')); })(document.getElementById('filter'))")
            row = await page("document.querySelector('#clients tbody tr').textContent")
            assert "4 client ids" in row
            assert "throttled by tenant_producer_byte_rate" in row
            assert "producer_byte_rate1.09" not in row.replace("tenant_producer_byte_rate1.09", ""), (
                "limits of its users are theirs"
            )
            await page("document.querySelector('#clients tbody button').click()")
            await page(until("document.getElementById('one-body').textContent.includes('1,200 partitions')"))
            opened_text = await page("document.getElementById('one-body').textContent")
            assert "Tenant shop is over its limit." in opened_text
            assert "user-3, app-3" in opened_text
            await page("[...document.querySelectorAll('#one-body button')].find(b => b.textContent === 'user-3, app-3').click()")
            await page(until("document.getElementById('one-body').textContent.includes('10.0.0.1:5')"))

    asyncio.run(look())


def test_what_screen_readers_are_told_and_what_the_keyboard_reaches(tmp_path: Path) -> None:
    async def look() -> None:
        async with opened(Source(), tmp_path) as page:
            watch = (
                "window.said = 0; window.drawn = 0;"
                "for (const live of document.querySelectorAll('[role=status]')) new MutationObserver(() => said++)"
                ".observe(live, { childList: true, characterData: true, subtree: true });"
                "new MutationObserver(() => drawn++).observe(document.getElementById('clients'), { childList: true }); 1"
            )
            await page(watch)
            await page(until("drawn >= 2"))
            assert await page("said") == 0, "what has not changed is not read out every two seconds"
            names = await page(
                "[...document.querySelectorAll('button, input, select, [tabindex]')].filter(it => !it.closest('dialog'))"
                ".map(it => it.getAttribute('aria-label') || it.labels?.[0]?.textContent || it.textContent).map(it => it.trim())"
            )
            assert len(names) > 1000
            assert all(names), "whatever the keyboard reaches has a name"
            assert await page("[...document.querySelectorAll('th')].every(it => it.scope === 'col')")
            await page("document.querySelector('#clients tbody button').focus(); document.activeElement.click(); 1")
            assert await page("document.getElementById('one').contains(document.activeElement)"), "the focus goes into the dialog"
            await page("clients(); document.getElementById('one').close()")
            await page(until("document.activeElement.closest('#clients tbody') !== null"))  # and back to where it was

    asyncio.run(look())


def test_the_page_is_no_wider_than_its_window(tmp_path: Path) -> None:
    async def look() -> None:
        async with opened(Source(), tmp_path) as page:
            for width in (390, 1366):
                await page.look(width, 900, dark=False)
                await page(until(f"innerWidth === {width}"))
                assert await page("document.documentElement.scrollWidth") <= width
                await page("detail('u', 'x')")
                await page(until("document.getElementById('one-body').textContent.includes('10.0.0.1:5')"))
                hidden = (
                    "[...document.querySelectorAll('td')].filter(td => td.getClientRects().length"
                    " && td.getBoundingClientRect().right > innerWidth).map(td => td.textContent)"
                )
                assert await page(hidden) == [], "no figure has to be looked for by scrolling sideways"
                await page("document.getElementById('one').close()")

    asyncio.run(look())
