"""The page in a real browser, with a thousand tenants: it sorts, filters, folds, hints, and is no wider than its window."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reports.summary.model import Budget, Level, Party, Report, TenantRow, Tenants
from tests.browser import BROWSER, browsed
from tests.reports.logs import NOON
from tests.reports.test_render import NEEDS_MATPLOTLIB, page, report_of

pytestmark = [pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine"), NEEDS_MATPLOTLIB]
TABLE = "document.querySelector('#principals table')"
VISIBLE = f"[...{TABLE}.tBodies[0].rows].filter(row => !row.hidden)"
NAMES = f"{VISIBLE}.slice(0, 3).map(row => row.cells[0].textContent)"
EVIL = "<img src=x onerror=document.title='pwned'>"


def thousand() -> Report:
    """Produced bytes grow with the number, in units of which the text alone does not sort; throttles the other way round."""
    report = report_of("alice")
    names = [f"User:tenant-{number:03d}" for number in range(999)]
    parties = [Party(name, None, 1000 * 3 ** (number % 20) + number, 0, 5, 0, 999 - number) for number, name in enumerate(names)]
    parties.append(Party(EVIL, None, 1, 0, 5, 0, 10**9))
    return replace(report, traffic=replace(report.traffic, principals=tuple(parties), principal_count=1000))


def budgets() -> Report:
    """A thousand tenants, forty of which have a limit that they reach one a week."""
    report = report_of("alice")
    names = [EVIL, *(f"tenant-{number:03d}" for number in range(1, 1000))]
    rows = tuple(TenantRow(name, NOON, 3, 9, 2**40 - number, 0.1, number) for number, name in enumerate(names))
    ends = [(name, NOON + timedelta(days=7 * number)) for number, name in enumerate(names[:40], 1)]
    held = tuple(
        Budget(name, NOON, 5, 9, (Level("hard", 9, end, end, end),), days=9, model="line", per_day=1.0) for name, end in ends
    )
    tenants = Tenants(rows, 1000, told=True, budgets=held, budget_count=500)
    return replace(report, capacity=replace(report.capacity, tenants=tenants))


def head(name: str) -> str:
    return f"[...{TABLE}.tHead.rows[0].cells].find(cell => cell.textContent === '{name}').querySelector('button').click()"


def test_a_thousand_tenants_are_sorted_filtered_and_folded(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(thousand()), encoding="utf-8")

    async def look() -> None:
        async with browsed((tmp_path / "report.html").as_uri(), tmp_path / "profile") as ask:
            assert await ask("document.title") == "Kafka quota proxy: capacity report"
            assert not await ask("document.querySelector('#principals details').open"), "details are folded"
            await ask("document.querySelector('nav a[href=\"#principals\"]').click()")
            await ask("new Promise(done => setTimeout(done, 100))")
            assert await ask("document.querySelector('#principals details').open"), "a link to a section opens it"
            assert await ask(f"{VISIBLE}.length") == 20
            plot = "document.querySelector('#principals svg').getBoundingClientRect()"
            under = f"(box => document.elementFromPoint(box.x + box.width * 0.9, box.y + box.height / 2))({plot})"
            await ask("document.querySelector('#principals svg').scrollIntoView({block: 'center'})")
            assert "alice: " in await ask(f"{under}.textContent"), "a pointer on a plot is told the values of that time"
            await ask(head("Produced"))
            most = await ask(f"{VISIBLE}.slice(0, 30).map(row => row.cells[0].textContent)")
            assert all(int(name[-3:]) % 20 == 19 for name in most), "1.1 TiB is more than 900 KiB"
            await ask(head("Throttle time"))
            assert (await ask(NAMES))[0] == EVIL, "a name is a text"
            await ask(
                "(f => { f.value = 'TENANT-99'; f.dispatchEvent(new Event('input')); })"
                "(document.querySelector('#principals input'))"
            )
            assert await ask(f"{VISIBLE}.length") == 9
            await ask("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.querySelector('#principals input'))")
            await ask("[...document.querySelectorAll('#principals .bar button')].find(b => b.textContent === 'Show all').click()")
            assert await ask(f"{VISIBLE}.length") == 1000
            for width in (390, 1366):
                await ask(f"document.body.style.width = '{width}px'")
                assert await ask("document.body.scrollWidth") <= width
            await ask("document.body.style.width = '390px'; dispatchEvent(new Event('resize'))")
            assert await ask("document.querySelector('#principals .scroll').classList.contains('more')")

    asyncio.run(look())


def test_budgets_of_tenants_are_sorted_by_the_days_left(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(budgets()), encoding="utf-8")
    table = "document.querySelector('#tenants table')"
    visible = f"[...{table}.tBodies[0].rows].filter(row => !row.hidden && !row.classList.contains('note'))"

    async def look() -> None:
        async with browsed((tmp_path / "report.html").as_uri(), tmp_path / "profile") as ask:
            assert await ask("document.querySelector('#tenants details').open"), "a budget that ends is to be acted on"
            assert await ask(f"{visible}.length") == 20
            assert await ask(f"{visible}.slice(0, 3).map(row => row.cells[1].textContent)") == ["7", "14", "21"]
            assert await ask(f"{visible}[0].cells[0].textContent") == EVIL, "a name is a text"
            await ask(f"[...{table}.tHead.rows[0].cells][1].querySelector('button').click()")
            assert await ask(f"{visible}[0].cells[1].textContent") == "280"
            assert "The 40 of 500 tenants" in await ask("document.querySelector('#tenants').textContent")
            assert await ask("document.querySelectorAll('#tenants table')[1].tBodies[0].rows.length") == 1000
            for width in (390, 1366):
                await ask(f"document.body.style.width = '{width}px'")
                assert await ask("document.body.scrollWidth") <= width

    asyncio.run(look())
