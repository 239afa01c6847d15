"""Pictures for the documentation (`make docs-screenshots`): the console while a demo runs, and the report of it, in the browser of
the tests.

In: nothing; the demo runs for it, some minutes. Out: PNG files of few colours in docs/img."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from PIL import Image

from demo.plan import ARCHIVE, THRESHOLD, TITLES
from tests.browser import Page, browsed, until

IMAGES = Path(__file__).parents[2] / "docs" / "img"
WIDE, PHONE = (1366, 900), (390, 844)
TALL = (1366, 1500)
# The disk stays at its limit for longer than in a demo: rates are those of ten whole seconds.
DEMO = "from demo import plan; plan.DISK_SECONDS = 45; from demo.cli import demo; demo()"
BUSY = f"""typeof told === "object" && told && told.volumes.some(v => v.factor < 1)
 && told.clients.some(c => c.user === "{ARCHIVE}" && c.bytes_in > 1e5 && c.connections)
 && told.decisions.some(d => d.principal === "User:{ARCHIVE}")"""
"""That the one that fills the disk is held back at this moment."""


def main() -> None:
    """Run the demo, and look at it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo-out"
        demo = subprocess.Popen([sys.executable, "-c", DEMO, "--keep", "--out", str(out)], stdout=subprocess.PIPE, text=True)
        try:
            assert demo.stdout is not None
            read_until(demo.stdout, TITLES[THRESHOLD])
            (address,) = re.findall(r'"admin":"([^"]+)"', (out / "proxy.log").read_text(encoding="utf-8"))
            asyncio.run(shoot_console(f"http://{address}/", Path(folder) / "console"))
            read_until(demo.stdout, "still running")
            asyncio.run(shoot_report((out / "report" / "report.html").as_uri(), Path(folder) / "report"))
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait()


def read_until(printed: IO[str], text: str) -> None:
    """Show what is printed, up to a line with this text."""
    for line in printed:
        print(line, end="", flush=True)
        if text in line:
            return
    raise SystemExit("the demo ended early")


async def shoot_console(address: str, profile: Path) -> None:
    """While the disk is at its limit: all of it, and the client that fills it."""
    async with browsed(address, profile, BUSY) as page:
        await shoot(page, "console", WIDE)
        await shoot(page, "console-dark", WIDE, dark=True)
        await shoot(page, "console-phone", PHONE)
        await page("document.getElementById('s-clients').hidden = true")
        await shoot(page, "console-decisions", (1366, 1200))
        await page("document.getElementById('s-clients').hidden = false")
        await page(f"detail('{ARCHIVE}', '{ARCHIVE}-app')")
        await shoot(page, "console-client-phone", PHONE)
        await shoot(page, "console-client", WIDE)


async def shoot_report(address: str, profile: Path) -> None:
    async with browsed(address, profile) as page:
        await shoot(page, "report", TALL)
        await shoot(page, "report-dark", TALL, dark=True)
        await shoot(page, "report-phone", PHONE)


async def shoot(page: Page, name: str, size: tuple[int, int], *, dark: bool = False) -> None:
    """What is seen of a page, in 128 colours."""
    await page.look(*size, dark=dark)
    await page(until("true"))
    path = IMAGES / f"{name}.png"
    Image.open(io.BytesIO(await page.picture())).convert("RGB").quantize(128).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
