"""The file in which producer ids outlive the proxy.

In: the quota, the file's name, two clocks. Out: a file that is whole: it is written beside its place, then put there. What
cannot be used is logged once, and the proxy goes on without it. What is saved is put together on the event loop, some users at a
time; checksum and disk are left to a thread.

One proxy at a time writes it, by a lock on a file beside it that ends with the process. Another one reads the file, says who
has it, and takes it over once it is free: so a proxy can take the place of one that still drains."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from proxy.observe.operations import Log
from quota.kinds.producer_ids import MAGIC, MAX_STATE, ProducerIds
from quota.state import BadState, Writer

SAVE_EVERY: Final = 60.0
"""Seconds between two saves: what a crash loses."""
AT_ONCE: Final = 100
"""Users that are put together before others have their turn."""


class ProducerIdSnapshot:
    """`path` None: nothing is kept. `clock` gives monotonic seconds, `wall` those since the epoch. `writes`: False where another
    process of this proxy writes the file."""

    def __init__(
        self,
        path: Path | None,
        ids: ProducerIds,
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: Log,
        *,
        writes: bool = True,
    ) -> None:
        self._writes = writes
        self._path, self._ids, self._clock, self._wall, self._log = path, ids, clock, wall, log
        self._failing = False
        self._turn = Lock()
        self._taken = self._written = 0  # saves that began, and the latest that is in its place
        self._lock: int | None = None  # the locked file, open while this proxy is the one that writes

    def load(self) -> None:
        """Remember what was saved. OSError when the file's folder is not there."""
        if self._path is None:
            return
        os.stat(self._path.parent)
        try:
            if self._writes:
                self._claim(self._path)
        except OSError as e:
            self._failed(e)
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_STATE + 1)
            users = self._ids.load(data, self._clock(), self._wall())
        except FileNotFoundError:
            return
        except (OSError, BadState) as e:
            self._log.warning("producer ids forgotten", file=str(self._path), reason=_reason(e))
        else:
            self._log.info("producer ids remembered", file=str(self._path), users=users)

    async def run(self) -> None:
        """Until cancelled: save now and then."""
        while True:
            await asyncio.sleep(SAVE_EVERY)
            await self.save()

    async def save(self) -> None:
        """Save what is known now."""
        if self._path is None or not self._writes:
            return
        out = Writer()
        for done, _ in enumerate(self._ids.save(out, self._clock(), self._wall())):
            if done % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._taken += 1
        try:
            await asyncio.to_thread(self._write, self._path, out, self._taken)
        except OSError as e:
            self._failed(e)
        else:
            self._failing = False

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._log.error("producer ids cannot be saved", file=str(self._path), reason=_reason(error))
        self._failing = True

    def _write(self, path: Path, out: Writer, number: int) -> None:
        data = out.sealed(MAGIC)
        with self._turn:
            if number < self._written:  # a later one was quicker
                return
            self._claim(path)
            beside = path.with_name(path.name + ".new")
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # it names users
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            self._written = number

    def _claim(self, path: Path) -> None:
        """Be the one that writes, until the process ends; OSError when that is another."""
        if self._lock is not None:
            return
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode(errors="replace").strip()
            os.close(lock)
            raise OSError(
                f"the proxy with process id {holder or '?'} keeps its own there; each needs a file of its own,"
                " such as `{proxy_id}` in `quotas.producer_ids.state_file` gives it"
            ) from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        with contextlib.suppress(OSError):  # a full disk: the file then does not name its owner
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Leave the file to others."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _reason(error: OSError | BadState) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
