"""Pictures for the documentation (`make docs-screenshots`): the console and the report of a demo, in the browser of the tests.

In: nothing; the demo runs for it, some minutes. Out: PNG files of few colours in docs/img."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from PIL import Image

from demo.plan import THRESHOLD, TITLES
from tests.clients.test_console_page import BROWSER

IMAGES = Path(__file__).parents[2] / "docs" / "img"
WIDE, PHONE = (1366, 900), (390, 844)


def main() -> None:
    """Run the demo, and look at it while it is kept."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo-out"
        command = [sys.executable, "-m", "proxy", "demo", "--keep", "--out", str(out)]
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert demo.stdout is not None
            read_until(demo.stdout, TITLES[THRESHOLD])
            (address,) = re.findall(r'"admin":"([^"]+)"', (out / "proxy.log").read_text(encoding="utf-8"))
            shoot(f"http://{address}/", "console", WIDE)
            shoot(f"http://{address}/", "console-dark", WIDE, dark=True)
            shoot(f"http://{address}/", "console-phone", PHONE)
            read_until(demo.stdout, "still running")
            shoot(f"file://{out}/report/report.html", "report", (1366, 1500))
            shoot(f"file://{out}/report/report.html", "report-dark", (1366, 1500), dark=True)
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


def shoot(address: str, name: str, size: tuple[int, int], *, dark: bool = False) -> None:
    """A picture of a page, in 128 colours."""
    assert BROWSER is not None, "there is no Chromium on this machine"
    path = IMAGES / f"{name}.png"
    how = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=6000"]
    how += [
        f"--window-size={size[0]},{size[1]}",
        f"--screenshot={path}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    ]
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([BROWSER, *how, f"--user-data-dir={profile}", address], check=True, stderr=subprocess.DEVNULL, timeout=120)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
