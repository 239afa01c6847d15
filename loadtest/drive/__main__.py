"""Forks drivers. It imports once what each of them needs, which is most of what a process takes to start.

In: on standard input a socket; each message on it has the ends of two pipes, of which `drivers.py` has the others. Out: the id of a
driver that reads from the one and writes to the other. It ends when the socket is closed and its drivers have ended."""

from __future__ import annotations

import gc
import os
import signal
import socket
from contextlib import suppress
from typing import Final

from loadtest.drive.process import drive

LONGEST_END: Final = 30
"""Seconds that drivers are waited for at the end."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles Ctrl-C, for drivers as well
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a driver's end is seen at its pipe: nobody waits for one of them
    gc.freeze()  # else each driver would copy this memory when it looks for garbage
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            _, pipes, _, _ = socket.recv_fds(requests, 1, 2)
            if not pipes:
                signal.alarm(LONGEST_END)  # which ends this process: a driver that hangs keeps nobody waiting for ever
                with suppress(ChildProcessError):
                    os.wait()  # for all of them, as this process ignores SIGCHLD
                return
            if (pid := os.fork()) == 0:
                break
            for pipe in pipes:
                os.close(pipe)
            requests.send(str(pid).encode())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # or the one that forks would seem to be there still
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orders, answers = pipes
    with suppress(BrokenPipeError), open(orders) as read, open(answers, "w") as write:
        drive(read, write)


if __name__ == "__main__":
    main()
