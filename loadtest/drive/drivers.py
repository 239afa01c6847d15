"""Starts drivers. In: nothing. Out: processes, and files to tell them something and to hear them; or `DriversEnded`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO


class DriversEnded(RuntimeError):
    """The process that forks drivers has ended. Its last words are on standard error."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A driver. It ends soon when its `orders` are closed; its `answers` end with it."""

    pid: int
    orders: IO[str]
    answers: IO[str]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Drivers:
    """The process that forks drivers. Only `drivers` makes one."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests

    def fork(self) -> Forked:
        """A new one. Raises DriversEnded."""
        (read_orders, orders), (answers, write_answers) = os.pipe(), os.pipe()
        made = os.fdopen(orders, "w"), os.fdopen(answers)
        try:
            socket.send_fds(self._requests, [b"1"], [read_orders, write_answers])
            pid = self._requests.recv(20)
        except OSError:
            pid = b""
        finally:
            os.close(read_orders)
            os.close(write_answers)
        if not pid:
            raise DriversEnded("the process that forks drivers has ended")
        return Forked(int(pid), *made)


@contextmanager
def drivers() -> Iterator[Drivers]:
    """For the time of the block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen([sys.executable, "-m", "loadtest.drive"], stdin=theirs.fileno())
        try:
            yield Drivers(ours)
        finally:
            ours.close()
            process.wait()
