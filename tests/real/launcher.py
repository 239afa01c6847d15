"""Starts `kafka-quota-proxy` without importing its modules again each time: one process for each pytest worker imports them once,
and forks.

In: the arguments of the command. Out: a process that tests use as they use `subprocess.Popen`. What runs is the same code, in a
process of its own with its own sockets, environment and exit code. From start to end that takes 0.04 s of CPU, where the imports
alone take 0.9 s."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import IO, NoReturn

_MAX_REQUEST = 1 << 20
_CLOSED = b""


class ForkedProcess:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, arguments: list[str]) -> None:
        out, err, status = os.pipe(), os.pipe(), os.pipe()
        request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        try:
            _launcher().send(request, [out[1], err[1], status[1]])
        finally:
            for pipe in (out, err, status):
                os.close(pipe[1])
        self.stdout: IO[str] | None = os.fdopen(out[0])
        self.stderr: IO[str] | None = os.fdopen(err[0])
        self.returncode: int | None = None
        self._status = os.fdopen(status[0], "rb")
        self._ended = threading.Event()
        first = self._status.readline()
        if not first:
            raise RuntimeError("the process that forks proxies has ended")
        self.pid = int(first)
        threading.Thread(target=self._wait, daemon=True).start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("kafka-quota-proxy", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self) -> None:
        """The process that waited for the proxy says its exit code. Without one, the proxy's end cannot be known: it failed."""
        with self._status:
            self.returncode = int(self._status.readline() or 1)
        self._ended.set()


def run_command(arguments: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """What `kafka-quota-proxy` with these arguments says, and its exit code."""
    process = ForkedProcess(arguments)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr, ThreadPoolExecutor(2) as readers:
        out, err = readers.submit(process.stdout.read), readers.submit(process.stderr.read)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, out.result(), err.result())


class Launcher:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_REQUEST)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", __name__], stdin=theirs)

    def send(self, request: object, pipes: list[int]) -> None:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], pipes)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _launcher() -> Launcher:
    launcher = Launcher()
    atexit.register(launcher.close)
    return launcher


def serve_requests() -> list[str]:
    """Fork a process for each request. Returns in that process, with the arguments that it has to run with."""
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            data, pipes, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 3)
            if data == _CLOSED:
                sys.exit()
            _forget_the_ended()
            if os.fork() == 0:
                break
            for pipe in pipes:
                os.close(pipe)
    out, err, status = pipes
    _fork_and_wait(status, (out, err))
    request = json.loads(data)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for pipe, number in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(pipe, number)
        os.close(pipe)
    return list(request["arguments"])


def _forget_the_ended() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork_and_wait(status: int, theirs: tuple[int, ...]) -> None:
    """Fork once more. The parent, which never returns, writes the child's process id, and its exit code once it has ended."""
    child = os.fork()
    if child == 0:
        os.close(status)
        return
    for number in (0, *theirs):
        os.close(number)
    os.write(status, b"%d\n" % child)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, b"%d\n" % ended)
    os._exit(0)


def _end(code: object) -> NoReturn:
    """End as Python does, with its complaints of what was never awaited or closed, but do not take apart what was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # as in proxy/__main__.py

    import loadtest.commands  # noqa: F401
    import proxy.process.serve  # noqa: F401  what every start needs
    from proxy.cli import main

    # What was imported is memory of all that fork; who looks for garbage in it, or takes it apart at the end, copies its pages.
    gc.collect()
    gc.freeze()
    try:
        main(serve_requests(), prog_name="kafka-quota-proxy")
    except SystemExit as end:
        _end(end.code)
