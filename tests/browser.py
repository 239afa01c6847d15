"""A real browser, asked by its own protocol. In: the address of a page. Out: a way to evaluate JavaScript in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_LIMIT = 120

Evaluate = Callable[[str], Coroutine[Any, Any, Any]]


def until(condition: str) -> str:
    """An expression that has a value once this condition is true."""
    return f"new Promise(done => {{ const look = () => ({condition}) ? done() : setTimeout(look, 20); look(); }})"


@contextlib.asynccontextmanager
async def browsed(address: str, folder: Path, ready: str, size: str = "1366,900") -> AsyncIterator[Evaluate]:
    """The page in a browser whose files are in `folder`, once `ready` is true in it, and a way to ask it."""
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

                async def evaluate(expression: str) -> Any:
                    parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
                    told = None
                    while told is None:  # again where the page was only just loaded
                        await devtools.send_str(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": parameters}))
                        told = json.loads((await devtools.receive()).data).get("result")
                    assert "exceptionDetails" not in told, told
                    return told["result"].get("value")

                await evaluate(until(ready))
                yield evaluate
    finally:
        browser.kill()
        await browser.wait()
