"""A separate process, started by guard.py, that cleans up when its parent has ended.

In: the guard's folder and the parent's id as arguments, and a pipe on standard input that ends with the parent, however it ends.
Out: every process named in the folder's `pids` is killed and the folder is removed. Leaves to others: orderly stops.

A pipe, not PR_SET_PDEATHSIG: that signal fires when the thread that forked ends, so a cluster started from a worker thread
would lose its brokers with that thread, and it needs Linux.
"""

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

REAP_LIMIT = 10.0  # seconds that a killed JVM may take to vanish before its folder is removed all the same


def wait_for_parent(parent: int) -> None:
    """Return when the pipe says so or the parent is another one: a fork of the parent may hold the pipe open after its death."""
    while os.getppid() == parent:
        if select.select([0], [], [], 1.0)[0]:
            return


def kill_all(pids: Path) -> list[int]:
    """Kill the process group of every registered process; the names of the files are their ids."""
    # After the rename no process can register any more: a child that comes too late fails, and does not start.
    closed = pids.rename(pids.with_name("pids.closed"))
    groups = [int(entry.name) for entry in closed.iterdir()]
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return groups


def wait_gone(pids: list[int]) -> None:
    """Wait until the processes have ended, at most REAP_LIMIT seconds: a dying JVM still writes files."""
    deadline = time.monotonic() + REAP_LIMIT
    for pid in pids:
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not, and may stay one: not every first process of a container waits for orphans.

    Where there is no /proc the answer is no: then the folder may be removed a moment too early.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    """Watch, then clean up."""
    folder = Path(sys.argv[1])
    wait_for_parent(int(sys.argv[2]))
    wait_gone(kill_all(folder / "pids"))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
