"""A real cluster with logins and an authorizer whose log dirs are file systems of their own, small ones, where mounting is
permitted; else they stand on the disk that there is, and limits are relative to what it has left. In: sizes. Out: a cluster, and
what can be done to its disks."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from localkafka import LocalCluster
from tests.real.tenancy import SECURED, grant_rights

MIB = 1 << 20
SEGMENTS = {
    "log.segment.bytes": 4 * MIB,
    "log.segment.delete.delay.ms": 500,
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 500,
    "offsets.topic.num.partitions": 1,
}
"""so that what is deleted is soon gone"""


class Volumes:
    """The log dirs of a cluster, `size` bytes each. `mounted`: each is a file system of its own."""

    def __init__(self, dirs: Mapping[tuple[int, int], Path], size: int, mounted: bool) -> None:
        self.dirs, self.size, self.mounted = dirs, size, mounted
        self._shared = min(self.available(*place) for place in dirs)

    def available(self, broker: int, log_dir: int = 0) -> int:
        found = os.statvfs(self.dirs[broker, log_dir])
        return found.f_bavail * found.f_frsize

    def limit(self, left: int) -> int:
        """`min_available_bytes` that is reached when so much is left of `size`."""
        return left if self.mounted else self._shared - self.size + left

    def left(self) -> int:
        """What is left of the fullest, of `size`."""
        least = min(self.available(*place) for place in self.dirs)
        return least if self.mounted else least - (self._shared - self.size)

    def fill(self, broker: int, left: int, log_dir: int = 0) -> Path:
        """Something else takes space on a disk, until so much is left. The file may be deleted."""
        ballast = self.dirs[broker, log_dir] / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.available(broker, log_dir) - left)
        return ballast


class Gauge:
    """The least that was left of any volume, while it is looked at."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes, self._stop = volumes, threading.Event()
        self.least = volumes.left()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Gauge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.least = min(self.least, self._volumes.left())


def can_mount(folder: Path) -> bool:
    """May this process mount file systems?"""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() or not _mount(folder, MIB):
        return False
    _unmount(folder)
    return True


@contextmanager
def small_volumes(folder: Path, size: int, brokers: int, log_dirs: int = 1) -> Iterator[Volumes]:
    """The log dirs of a cluster with this `data_dir`, before it starts."""
    dirs = {(node, number): folder / f"node{node}" / f"data{number}" for node in range(brokers) for number in range(log_dirs)}
    mounted = can_mount(folder / "probe")
    with ExitStack() as stack:
        for path in dirs.values():
            path.mkdir(parents=True)
            if mounted:
                assert _mount(path, size)
                stack.callback(_unmount, path)
        yield Volumes(dirs, size, mounted)


@contextmanager
def small_cluster(
    folder: Path, size: int, *, brokers: int = 3, log_dirs: int = 1, **properties: Any
) -> Iterator[tuple[LocalCluster, Volumes]]:
    """Brokers whose log dirs have `size` bytes each."""
    with ExitStack() as stack:
        volumes = stack.enter_context(small_volumes(folder, size, brokers, log_dirs))
        more = {**SEGMENTS, **properties}
        cluster = LocalCluster(brokers, log_dirs=log_dirs, data_dir=folder, properties=more, **SECURED)
        stack.callback(_end, cluster)
        cluster.start()
        grant_rights(cluster)
        yield cluster, volumes


def _end(cluster: LocalCluster) -> None:
    """At once: nobody reads this data again."""
    for node in cluster.brokers:
        cluster.kill_broker(node.node_id)
    cluster.stop()


def _mount(path: Path, size: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "kafka-quota-proxy-test", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True)
