"""The sequence fence: what keeps a refused batch of an idempotent producer from being lost.

Brokers that have no state of a producer take whatever sequence comes first (KAFKA-15591). If batch s is refused and a later
one of the same producer and partition goes on, s can never be written: silent loss. So from the refusal of s on, everything
behind s is refused as well, until s itself is admitted, the producer comes with another epoch, or nothing was heard of it for
longer than any client retries (KIP-98 for producer ids, epochs and sequences).

In: batches as they are refused or admitted, with the time in monotonic seconds. Out: whether a batch is behind the fence."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

LIFE: Final = 900.0
"""seconds since the last refusal; delivery.timeout.ms is 2 minutes, message.timeout.ms 5, by default"""
MOST: Final = 100_000
"""partitions of producers that are fenced at once, some 30 MiB"""
MOST_ADMITTED: Final = 10_000
_WRAP: Final = 1 << 31
_HALF: Final = 1 << 30

Part = tuple[str, int]
"""(topic, partition)"""


class Fenced(NamedTuple):
    """A refused batch that has to come again first."""

    epoch: int
    sequence: int
    code: int
    """the error it was refused with"""
    quota: str
    until: float


class Fence:
    """The fences of all producers; `most` entries are kept, each for `life` seconds since its last refusal."""

    def __init__(self, most: int = MOST, life: float = LIFE) -> None:
        self.by_id: dict[int, int] = {}
        """producer id to its number of fences; for a look that costs nothing"""
        self.overflows = 0
        """batches that could not be refused, as there was no room to remember them"""
        self.tell: Callable[..., None] | None = None
        """who else wants to know what was refused, and what of that was admitted"""
        self._fenced: dict[tuple[int, Part], Fenced] = {}  # in the order in which they expire
        self._told: dict[tuple[int, Part], float] = {}
        self._admitted: dict[tuple[int, Part], tuple[int, int]] = {}
        """what was admitted last of those that were fenced"""
        self._most, self._life = most, life

    def __len__(self) -> int:
        return len(self._fenced)

    def blocks(self, producer_id: int, epoch: int, sequence: int, part: Part, now: float) -> Fenced | None:
        """What this batch has to wait for; None when it may be judged. A batch before the refused one is none of the fence's
        business: it is a repetition."""
        fenced = self._fenced.get((producer_id, part))
        if fenced is None:
            return None
        if epoch > fenced.epoch or now >= fenced.until:
            self._drop(producer_id, part)
            return None
        if epoch < fenced.epoch or not 0 < (sequence - fenced.sequence) % _WRAP < _HALF:
            return None
        self._keep(producer_id, part, fenced._replace(until=now + self._life))
        self._tell_refused("still", producer_id, part, fenced, now)
        return fenced

    def room(self, producer_id: int, part: Part, now: float) -> bool:
        """Can a batch of this producer be refused? A refusal that is not remembered may lose data, so it is none."""
        if producer_id < 0 or len(self._fenced) < self._most or (producer_id, part) in self._fenced:
            return True
        self.sweep(now)
        if len(self._fenced) < self._most:
            return True
        self.overflows += 1
        return False

    def refused(self, producer_id: int, epoch: int, sequence: int, part: Part, code: int, quota: str, now: float) -> None:
        """A batch that `blocks` let pass was refused by a quota, with this error code."""
        if producer_id >= 0:
            before, fenced = self._fenced.get((producer_id, part)), Fenced(epoch, sequence, code, quota, now + self._life)
            self._keep(producer_id, part, fenced)
            if before is None or (before.epoch, before.sequence) != (epoch, sequence):
                self._told.pop((producer_id, part), None)
            self._tell_refused("refused", producer_id, part, fenced, now)

    def admitted(self, producer_id: int, epoch: int, sequence: int, part: Part) -> None:
        """A batch goes on. If it is the one that was refused, those behind it may follow."""
        fenced = self._fenced.get((producer_id, part))
        if fenced is not None and (epoch, sequence) == (fenced.epoch, fenced.sequence):
            self._drop(producer_id, part)
            if self.tell is not None:
                self._note_admitted(producer_id, epoch, sequence, part)
                self.tell("admitted", producer_id, epoch, sequence, *part)

    def learn_refused(
        self, producer_id: int, epoch: int, sequence: int, part: Part, code: int, quota: str, at: float, *, still: bool = False
    ) -> None:
        """Another proxy refused a batch then, or, with `still`, those behind it, as it has not heard that it was admitted. The
        earliest one that was refused has to come first."""
        if still and self._admitted.get((producer_id, part)) == (epoch, sequence):
            return
        known = self._fenced.get((producer_id, part))
        if producer_id < 0 or (known is None and len(self._fenced) >= self._most):
            return
        if known is not None:
            if epoch < known.epoch:
                return
            if epoch == known.epoch and 0 <= (sequence - known.sequence) % _WRAP < _HALF:
                sequence = known.sequence
        self._keep(producer_id, part, Fenced(epoch, sequence, code, quota, at + self._life))
        self._told[producer_id, part] = at

    def learn_admitted(self, producer_id: int, epoch: int, sequence: int, part: Part) -> None:
        """Another proxy has let the batch go on that was refused."""
        self._note_admitted(producer_id, epoch, sequence, part)
        fenced = self._fenced.get((producer_id, part))
        if fenced is not None and (epoch, sequence) == (fenced.epoch, fenced.sequence):
            self._drop(producer_id, part)

    def _note_admitted(self, producer_id: int, epoch: int, sequence: int, part: Part) -> None:
        self._admitted.pop((producer_id, part), None)
        self._admitted[producer_id, part] = epoch, sequence
        if len(self._admitted) > MOST_ADMITTED:
            del self._admitted[next(iter(self._admitted))]

    def sweep(self, now: float) -> None:
        """Forget producers that nothing was heard of."""
        while self._fenced:
            (producer_id, part), fenced = next(iter(self._fenced.items()))
            if now < fenced.until:
                return
            self._drop(producer_id, part)

    def _tell_refused(self, how: str, producer_id: int, part: Part, fenced: Fenced, now: float) -> None:
        if self.tell is not None and now >= self._told.get((producer_id, part), -inf) + self._life / 3:
            self._told[producer_id, part] = now
            self.tell(how, producer_id, fenced.epoch, fenced.sequence, *part, fenced.code, fenced.quota)

    def _keep(self, producer_id: int, part: Part, fenced: Fenced) -> None:
        if self._fenced.pop((producer_id, part), None) is None:
            self.by_id[producer_id] = self.by_id.get(producer_id, 0) + 1
        self._fenced[producer_id, part] = fenced

    def _drop(self, producer_id: int, part: Part) -> None:
        del self._fenced[producer_id, part]
        self._told.pop((producer_id, part), None)
        self.by_id[producer_id] -= 1
        if not self.by_id[producer_id]:
            del self.by_id[producer_id]
