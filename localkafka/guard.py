"""Starts child processes so that none of them outlives this process, however it ends.

In: command lines. Out: running processes in sessions of their own (Ctrl-C in the terminal reaches us first, not them), and a
temporary folder that is removed with them. Leaves to others: what the processes are; the cleaning up after a SIGKILL (_watch.py).
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

# The child registers itself before it becomes the program, so it never runs unregistered.
_REGISTER_THEN_RUN = 'echo > "$0/$$" || exit 1; exec "$@"'
_CLOSE_LIMIT = 60.0  # seconds that the removal of the folder is waited for


class Guard:
    """Owns child processes and a temporary folder. Threads may share one, but for the closing."""

    def __init__(self) -> None:
        """Make the folder and start the watcher (about 20 ms, 10 MB)."""
        self.folder = Path(tempfile.mkdtemp(prefix="localkafka-"))
        self._pids = self.folder / "pids"
        self._pids.mkdir()
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("_watch.py")), str(self.folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Nothing more to do: the watcher already runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def popen(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a process that is killed when this guard closes or this Python process ends; forget() it once it was waited for."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", _REGISTER_THEN_RUN, str(self._pids), *command],
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._running[process.pid] = process
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Remove a process that has ended and was waited for from the list, as its id may now belong to another process."""
        self._running.pop(process.pid, None)
        (self._pids / str(process.pid)).unlink(missing_ok=True)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        input: str = "",
        merge: bool = False,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a process to its end, at most `timeout` seconds. `merge` puts stderr into stdout, in order.

        Errors: subprocess.TimeoutExpired, with what was printed until then; the process and its children are then killed.
        """
        stderr = subprocess.STDOUT if merge else subprocess.PIPE
        process = self.popen(command, env=env, cwd=cwd, stdin=subprocess.PIPE, stderr=stderr)
        try:
            out, err = process.communicate(input.encode(), timeout=timeout)
        except BaseException as error:
            _kill(process)
            out, err = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise subprocess.TimeoutExpired(command, timeout, _text(out), _text(err)) from None
            raise
        finally:
            self.forget(process)
        return subprocess.CompletedProcess(list(command), process.returncode, _text(out), _text(err))

    def close(self) -> None:
        """Kill what still runs, remove the folder, and end the watcher. Closing twice is allowed."""
        pipe = self._watcher.stdin
        if pipe is None or pipe.closed:
            return
        for process in list(self._running.values()):
            _kill(process)
            process.wait()
        try:
            pipe.write(b"q")  # written, not only closed: a fork of this process may hold another end of the pipe
            pipe.close()
        except BrokenPipeError:
            pass  # somebody ended the watcher
        try:
            self._watcher.wait(_CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            return  # thousands of partitions on a busy disk: the watcher goes on removing them
        shutil.rmtree(self.folder, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its children, unless it was waited for: then its id may belong to another process."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")
