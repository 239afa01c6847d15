"""How many workers there are, and which part of the limits each of them has.

In: settings; the processors that the process may use, limits of its control group included. Out: a number; the settings of one
worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

from proxy.config.models import Settings
from proxy.config.units import MAX_WORKERS

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
PROCESSORS: Final = "KAFKA_QUOTA_PROXY_PROCESSORS"
"""Variable with the processors that the proxy is to use, such as those that a pod requests."""


def worker_count(settings: Settings) -> int:
    """`workers`; with `auto` the processors that there are, as far as each worker has memory for the largest request."""
    if settings.workers != "auto":
        return settings.workers
    if not settings.has_fixed_ports:
        return 1
    limits = settings.limits
    return max(min(processors(), limits.memory_total // limits.max_frame, MAX_WORKERS), 1)


def processors(own: Path = OWN, root: Path = CGROUPS) -> int:
    """Processors that this process may use: those it is bound to, no more than its control groups allow, and no more than
    `PROCESSORS` of the environment says."""
    bound, asked = len(os.sched_getaffinity(0)), os.environ.get(PROCESSORS, "")
    wanted = [int(asked)] if asked.isdecimal() else []
    return max(min([bound, *wanted, *(ceil(quota) for quota in _quotas(own, root))]), 1)


def _quotas(own: Path, root: Path) -> Iterator[float]:
    """The processors that the control group of this process, and those around it, allow. A line of `own` is
    `number:controllers:path`, without controllers for cgroup v2."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers if controllers else root
        group = top / path.lstrip("/")
        for each in (group, *group.parents):
            if each.is_relative_to(top) and (quota := _quota(each)) is not None:
                yield quota


def _quota(group: Path) -> float | None:
    """Microseconds of processor time in each period; `max` or -1 for no limit."""
    for files in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((group / file).read_text() for file in files).split()
            return int(quota) / int(period) if int(quota) > 0 else None
        except (OSError, ValueError):
            continue
    return None


def settings_of_worker(settings: Settings, worker: int, count: int) -> Settings:
    """Of `max_connections` each has an equal part, and connections go to the worker that has the fewest. The other limits are the
    same for all: what is counted for them is counted at all workers. Listeners share their ports."""
    limits = settings.limits
    connections = limits.max_connections // count + (worker < limits.max_connections % count)
    parts = limits.model_copy(update={"max_connections": max(connections, 1)})
    shared = {name: listener.model_copy(update={"reuse_port": True}) for name, listener in settings.listeners.items()}
    main = shared.pop("main")
    return settings.model_copy(update={"limits": parts, "listen": main, "more_listeners": shared})
