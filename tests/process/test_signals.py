"""Signals that come while a proxy starts, at a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.real.proxies import wait_until

SIGHUP_BIT = 1 << (signal.SIGHUP - 1)


def has_signal(pid: int, row: str) -> bool:
    rows = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(rows[row], 16) & SIGHUP_BIT)


def test_sighup_before_the_proxy_serves_does_not_end_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that does not answer: the proxy waits for it
        at = ["--upstream", f"127.0.0.1:{silent.getsockname()[1]}", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with subprocess.Popen([sys.executable, "-m", "proxy", "serve", *at], stderr=subprocess.PIPE) as proxy:
            try:
                wait_until(lambda: has_signal(proxy.pid, "SigBlk"), "SIGHUP to be blocked")
                os.kill(proxy.pid, signal.SIGHUP)
                silent.settimeout(90)
                silent.accept()[0].close()  # it has come so far
                assert has_signal(proxy.pid, "SigCgt")
                # For a moment all are blocked, while one is handled or a thread starts.
                wait_until(lambda: not has_signal(proxy.pid, "SigBlk"), "SIGHUP not to be blocked")
                os.kill(proxy.pid, signal.SIGHUP)
                os.kill(proxy.pid, signal.SIGTERM)
                proxy.communicate(timeout=90)
            finally:
                proxy.kill()  # it does nothing to one that has ended
        assert proxy.returncode == 0
