"""Which addresses of the loopback network belong to a test. In: nothing. Out: addresses that no other test listens at."""

from __future__ import annotations

import os
import platform
from itertools import count

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Which worker of pytest-xdist this process is."""

_hosts = count(1)


def own_host() -> str:
    """Each time another loopback address, of which only Linux has more than one. The kernel gives out the ports of a server that is
    gone while its clients still look for it: at an address of its own a server has no such strangers."""
    if platform.system() != "Linux":
        return "127.0.0.1"
    place = next(_hosts)
    return f"127.{10 + WORKER}.{place // 256}.{place % 256}"
