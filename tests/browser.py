"""A real browser, asked by its own protocol. In: the address of a page. Out: a way to evaluate JavaScript in it, and pictures."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_LIMIT = 120


class Page:
    """One that is open. Called with JavaScript, it gives its value."""

    def __init__(self, devtools: aiohttp.ClientWebSocketResponse) -> None:
        self._devtools = devtools

    async def __call__(self, expression: str) -> Any:
        told = None
        while told is None:  # again where the page was only just loaded
            told = await self._do("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def look(self, width: int, height: int, *, dark: bool) -> None:
        """From now on in a window of this size, which may be smaller than a browser's own windows can be."""
        await self._do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._do("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """What is seen now, as PNG."""
        told = await self._do("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])

    async def _do(self, method: str, **parameters: Any) -> Any:
        await self._devtools.send_str(json.dumps({"id": 1, "method": method, "params": parameters}))
        return json.loads((await self._devtools.receive()).data).get("result")


def until(condition: str) -> str:
    """An expression that has a value once this condition is true."""
    return f"new Promise(done => {{ const look = () => ({condition}) ? done() : setTimeout(look, 20); look(); }})"


@contextlib.asynccontextmanager
async def browsed(address: str, folder: Path, ready: str = "true", size: str = "1366,900") -> AsyncIterator[Page]:
    """The page in a browser whose files are in `folder`, once it is loaded, its scripts have run, and `ready` is true in it, and a
    way to ask it."""
    assert BROWSER is not None
    how = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
        "--remote-debugging-port=0",
        f"--window-size={size}",
    ]
    browser = await asyncio.create_subprocess_exec(BROWSER, *how, address, stderr=asyncio.subprocess.PIPE)
    try:
        assert browser.stderr is not None
        async with asyncio.timeout(START_LIMIT), aiohttp.ClientSession() as session:
            while b"DevTools listening on" not in (line := await browser.stderr.readline()):
                assert line, "the browser ended"
            port = line.split(b"/devtools")[0].rpartition(b":")[2].decode()
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                page = next(it for it in await answer.json(content_type=None) if it["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as devtools:
                opened = Page(devtools)
                await opened(until(f"location.href !== 'about:blank' && document.readyState === 'complete' && ({ready})"))
                yield opened
    finally:
        browser.kill()
        await browser.wait()
