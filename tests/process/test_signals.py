"""Signals that come while a proxy starts, at a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIGHUP_BIT = 1 << (signal.SIGHUP - 1)


def has_signal(pid: int, row: str) -> bool:
    rows = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(rows[row], 16) & SIGHUP_BIT)


def until(true: Callable[[], bool], limit: float = 90.0) -> None:
    ends = time.monotonic() + limit
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


def test_sighup_before_the_proxy_serves_does_not_end_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that does not answer: the proxy waits for it
        at = ["--upstream", f"127.0.0.1:{silent.getsockname()[1]}", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with subprocess.Popen([sys.executable, "-m", "proxy", "serve", *at], stderr=subprocess.PIPE) as proxy:
            try:
                until(lambda: has_signal(proxy.pid, "SigBlk"))
                os.kill(proxy.pid, signal.SIGHUP)
                silent.settimeout(90)
                silent.accept()[0].close()  # it has come so far
                assert has_signal(proxy.pid, "SigCgt")
                until(lambda: not has_signal(proxy.pid, "SigBlk"))  # for a moment all are, while one is handled or a thread starts
                os.kill(proxy.pid, signal.SIGHUP)
                os.kill(proxy.pid, signal.SIGTERM)
                proxy.communicate(timeout=90)
            finally:
                proxy.kill()  # it does nothing to one that has ended
        assert proxy.returncode == 0
