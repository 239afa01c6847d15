"""How many connections each address and each user has at the workers of one proxy, and how many bytes of requests and answers they
hold for each user, in memory that all of them share, so that `limits.max_connections_per_address`, `_per_principal`, users' shares
of `max_connections`, and `memory_total` hold for all workers together at any time: what one worker lets in, the next one knows at
once.

In: the counts of this worker. Out: the sum of what other workers count. Each worker has a table of its own, which nobody else
writes, so nothing is locked. A name has its place by a keyed hash (clients cannot choose names that meet), in a set of `WAYS`
slots. A table is at most a quarter full; where all slots of a set are taken all the same, the name counts for this worker alone."""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from hashlib import blake2b
from typing import Final

WAYS: Final = 8
"""Names that one set has room for."""
LEAST_SETS: Final = 64
_SLOT: Final = 2
"""Numbers of a slot: the hash of a name, and its count."""
_KEY: Final = 2
"""Numbers that the key of the hash takes. What each worker holds in all comes behind it, then the tables."""
_FREE: Final = 0
_REMEMBERED: Final = 1024
"""Hashes of names that were used last."""


class SharedCounts:
    """The counts behind `fd`, as worker `worker` of `workers` sees them. The size of the file says how large tables are."""

    def __init__(self, fd: int, workers: int, worker: int) -> None:
        size = os.fstat(fd).st_size
        self._numbers = memoryview(mmap.mmap(fd, size)).cast("q")
        self._key = bytes(self._numbers[:_KEY])
        self.workers, self._worker = workers, worker
        self._table = (size // 8 - _KEY) // workers - 1
        self._tables = _KEY + workers
        self._sets = self._table // (WAYS * _SLOT)
        self._digest = lru_cache(_REMEMBERED)(self._digest_of)

    @classmethod
    def make(cls, workers: int, connections: int) -> tuple[SharedCounts, int]:
        """Empty counts, and their file descriptor. `connections`: the most that all workers together may have."""
        fd = os.memfd_create("counts")
        sets = max(connections // workers, LEAST_SETS)
        os.truncate(fd, 8 * (_KEY + workers * (1 + sets * WAYS * _SLOT)))
        os.pwrite(fd, os.urandom(8 * _KEY), 0)
        return cls(fd, workers, 0), fd

    def tell(self, kind: str, name: str, count: int) -> None:
        """Write the present count of this worker."""
        numbers, digest = self._numbers, self._digest(kind, name)
        start = self._start(self._worker, digest)
        slots = numbers[start : start + WAYS * _SLOT].tolist()
        digests, counts = slots[::_SLOT], slots[1::_SLOT]
        if digest in digests:
            numbers[start + digests.index(digest) * _SLOT + 1] = count
        elif count and _FREE in counts:
            slot = start + counts.index(_FREE) * _SLOT
            numbers[slot] = digest
            numbers[slot + 1] = count

    def elsewhere(self, kind: str, name: str) -> int:
        """What all other workers count."""
        digest, found = self._digest(kind, name), 0
        for worker in range(self.workers):
            if worker != self._worker:
                start = self._start(worker, digest)
                slots = self._numbers[start : start + WAYS * _SLOT].tolist()
                digests = slots[::_SLOT]
                if digest in digests:
                    found += slots[digests.index(digest) * _SLOT + 1]
        return found

    def tell_held(self, held: int) -> None:
        """Write the bytes that this worker holds now."""
        self._numbers[_KEY + self._worker] = held

    def held_elsewhere(self) -> int:
        """What all other workers hold."""
        held = self._numbers[_KEY : self._tables].tolist()
        return sum(held) - held[self._worker]

    def clear(self, worker: int) -> None:
        """This worker has ended, and with it its connections."""
        self._numbers[_KEY + worker] = 0
        start = self._tables + worker * self._table
        self._numbers[start : start + self._table] = memoryview(bytes(8 * self._table)).cast("q")

    def _digest_of(self, kind: str, name: str) -> int:
        data = f"{kind} {name}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(data, digest_size=8, key=self._key).digest(), "big", signed=True)

    def _start(self, worker: int, digest: int) -> int:
        """Where the set of a name begins in the table of a worker."""
        return self._tables + worker * self._table + digest % self._sets * WAYS * _SLOT
