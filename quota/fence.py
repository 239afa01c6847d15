"""The sequence fence: what keeps a refused batch of an idempotent producer from being lost.

Brokers that have no state of a producer take whatever sequence comes first (KAFKA-15591). If batch s is refused and a later
one of the same producer and partition goes on, s can never be written: silent loss. So from the refusal of s on, everything
behind s is refused as well, until s itself is admitted, the producer comes with another epoch, nothing was heard of it for
longer than any client retries, or the same batch behind s came again for a minute and s did not: where proxies share a store that
lost what one of them told, s went on elsewhere (KIP-98 for producer ids, epochs and sequences).

A fence belongs to the user who sent the refused batch: producer ids are small numbers that anybody can claim. Each user has a
share of the fences (`fair_share`). A user whose share is full is in *overflow*: its batches are refused without being remembered,
and every batch of it with a sequence above 0 is refused too, as an earlier one may have been refused unseen. What is refused so is
remembered as `unsure` as soon as there is room. The overflow ends `life` after the last refusal that could not be remembered;
from then on an unsure fence is like any other. So such a user passes no quota and loses no record, and other users do not notice.

In: batches as they are refused or admitted, with the time in monotonic seconds. Out: whether a batch is behind the fence."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from quota.fair_share import FairShare

LIFE: Final = 900.0
"""seconds since the last refusal; delivery.timeout.ms is 2 minutes, message.timeout.ms 5, by default"""
MOST: Final = 100_000
"""partitions of producers that are fenced at once, of all users; some 40 MiB"""
MOST_ADMITTED: Final = 10_000
PATIENCE: Final = 60.0
"""seconds for which the same batch is refused as an earlier one has to come first, and that one does not come. Clients keep the
order of a partition when they try again, so it was written or given up: the word of another proxy that it went on was lost."""
SWEPT: Final = 2000
"""Fences that one sweep drops at most, so that it takes a few milliseconds."""
OVERFLOW_CODE: Final = 19
"""NOT_ENOUGH_REPLICAS, which every client retries: the error of batches that are refused as their user is in overflow."""
_WRAP: Final = 1 << 31
_HALF: Final = 1 << 30

Part = tuple[str, int]
"""(topic, partition)"""
Key = tuple[str, int, Part]
"""(user, producer id, partition)"""


class Fenced(NamedTuple):
    """A refused batch that has to come again first."""

    epoch: int
    sequence: int
    code: int
    """the error it was refused with"""
    quota: str
    until: float
    unsure: bool = False
    """It was refused in an overflow: earlier batches may have been refused that could not be remembered."""
    behind: int = -1
    """the first of the batches that had to wait for it since it came last, -1 for none; since when, and when it came last"""
    since: float = -inf
    seen: float = -inf


class Fence:
    """The fences of all producers; `most` entries are kept, each for `life` seconds since its last refusal."""

    def __init__(self, capacity: int = MOST, life: float = LIFE) -> None:
        self.by_id: dict[int, int] = {}
        """producer id to its number of fences, of all users; for a look that costs nothing: `concerns` knows more"""
        self.overflowing: dict[str, float] = {}
        """users in overflow, and until when"""
        self.overflows = 0
        """batches that were refused without being remembered, or as their user is in overflow"""
        self.tell: Callable[..., None] | None = None
        """who else wants to know: what happened, the user, and more (`quota.fleet_events`)"""
        self._fenced: dict[Key, Fenced] = {}  # in the order in which they expire
        self._by_producer: dict[tuple[str, int], int] = {}
        self._told: dict[Key, float] = {}  # of those that are fenced
        self._overflow_told: dict[str, float] = {}  # of those in overflow
        self._admitted: dict[str, dict[tuple[int, Part], tuple[int, int]]] = {}
        """by user, what was admitted last of those that were fenced"""
        self._shares, self._admitted_shares = FairShare(capacity), FairShare(MOST_ADMITTED)
        self._life = life

    def __len__(self) -> int:
        return len(self._fenced)

    def concerns(self, user: str, producer_id: int) -> bool:
        """Is there a fence that a batch of this producer may be behind?"""
        if producer_id in self.by_id and (user, producer_id) in self._by_producer:
            return True
        return producer_id >= 0 and user in self.overflowing

    def blocks(self, user: str, producer_id: int, epoch: int, sequence: int, part: Part, now: float) -> Fenced | None:
        """What this batch has to wait for; None when it may be judged. A batch before the refused one is none of the fence's
        business: it is a repetition. Nor is the first batch of all in an overflow, as no other can be lost for it."""
        key = user, producer_id, part
        fenced = self._fenced.get(key)
        if fenced is not None and (epoch > fenced.epoch or now >= fenced.until):
            self._drop(key)
            fenced = None
        if fenced is not None and fenced.behind >= 0 and not 0 < (sequence - fenced.sequence) % _WRAP < _HALF:
            fenced = self._fenced[key] = fenced._replace(behind=-1, since=-inf, seen=-inf)  # it came again
        if (fenced is None or fenced.unsure) and now < self.overflowing.get(user, -inf):
            late = fenced is not None and epoch < fenced.epoch
            return None if late or sequence == 0 else self._overflowed(key, fenced, epoch, sequence, now)
        if fenced is None or epoch < fenced.epoch or not 0 < (sequence - fenced.sequence) % _WRAP < _HALF:
            return None
        if sequence == fenced.behind:
            if now >= fenced.since + PATIENCE:
                self._gone_on(key, fenced)
                return None
            fenced = fenced._replace(seen=now)
        elif now >= fenced.seen + PATIENCE or (sequence - fenced.behind) % _WRAP >= _HALF:
            fenced = fenced._replace(behind=sequence, since=now, seen=now)
        self._keep(key, fenced._replace(until=now + self._life))
        self._tell_refused("still", key, fenced, now)
        return fenced

    def refused(
        self, user: str, producer_id: int, epoch: int, sequence: int, part: Part, code: int, quota: str, now: float
    ) -> None:
        """A batch that `blocks` let pass was refused by a quota, with this error code."""
        if producer_id < 0:
            return
        key = user, producer_id, part
        before, fenced = self._fenced.get(key), Fenced(epoch, sequence, code, quota, now + self._life)
        if before is None and not self._has_room(user, now):
            self.overflows += 1
            self._overflow(user, now)
            return
        self._keep(key, fenced)
        if before is None or (before.epoch, before.sequence) != (epoch, sequence):
            self._told.pop(key, None)
        self._tell_refused("refused", key, fenced, now)

    def admitted(self, user: str, producer_id: int, epoch: int, sequence: int, part: Part) -> None:
        """A batch goes on. If it is the one that was refused, those behind it may follow."""
        key = user, producer_id, part
        fenced = self._fenced.get(key)
        if fenced is not None and (epoch, sequence) == (fenced.epoch, fenced.sequence):
            self._gone_on(key, fenced)

    def learn_refused(
        self,
        user: str,
        producer_id: int,
        epoch: int,
        sequence: int,
        part: Part,
        code: int,
        quota: str,
        at: float,
        *,
        still: bool = False,
        unsure: bool = False,
    ) -> None:
        """Another proxy refused a batch then, or, with `still`, those behind it, as it has not heard that it was admitted. The
        earliest one that was refused has to come first."""
        if producer_id < 0 or (still and self._admitted.get(user, {}).get((producer_id, part)) == (epoch, sequence)):
            return
        key = user, producer_id, part
        known = self._fenced.get(key)
        if known is None and not self._shares.has_room(user):
            self.learn_overflow(user, at)
            return
        if known is not None:
            if epoch < known.epoch:
                return
            if epoch == known.epoch and 0 <= (sequence - known.sequence) % _WRAP < _HALF:
                sequence, unsure = known.sequence, known.unsure
        new = Fenced(epoch, sequence, code, quota, at + self._life, unsure)
        if known is not None and still and (epoch, sequence) == (known.epoch, known.sequence):
            new = new._replace(behind=known.behind, since=known.since, seen=known.seen)
        self._keep(key, new)
        self._told[key] = at

    def learn_admitted(self, user: str, producer_id: int, epoch: int, sequence: int, part: Part) -> None:
        """Another proxy has let the batch go on that was refused."""
        key = user, producer_id, part
        self._note_admitted(key, epoch, sequence)
        fenced = self._fenced.get(key)
        if fenced is not None and (epoch, sequence) == (fenced.epoch, fenced.sequence):
            self._drop(key)

    def learn_overflow(self, user: str, at: float) -> None:
        """Another proxy has refused batches of this user at `at`, and could not remember them. It announces this again after a
        third of its life at the earliest, so the overflow may have gone on for that time."""
        self.overflowing[user] = max(at + self._life * 4 / 3, self.overflowing.get(user, -inf))

    def sweep(self, now: float) -> None:
        """Forget producers that nothing was heard of, `SWEPT` at most, and overflows that are over."""
        for user in [user for user, until in self.overflowing.items() if now >= until]:
            del self.overflowing[user]
            self._overflow_told.pop(user, None)
        for _ in range(min(SWEPT, len(self._fenced))):
            key, fenced = next(iter(self._fenced.items()))
            if now < fenced.until:
                return
            self._drop(key)

    def _gone_on(self, key: Key, fenced: Fenced) -> None:
        """The batch that was refused has gone on."""
        self._drop(key)
        if self.tell is not None:
            user, producer_id, part = key
            self._note_admitted(key, fenced.epoch, fenced.sequence)
            self.tell("admitted", user, producer_id, fenced.epoch, fenced.sequence, *part)

    def _overflowed(self, key: Key, fenced: Fenced | None, epoch: int, sequence: int, now: float) -> Fenced:
        """Refuse a batch as its user is in overflow, and remember the earliest one if there is room."""
        self.overflows += 1
        user = key[0]
        new = Fenced(epoch, sequence, OVERFLOW_CODE, "", now + self._life, unsure=True)
        if fenced is None and not self._has_room(user, now):
            self._overflow(user, now)
            return new
        if fenced is not None and epoch == fenced.epoch and (sequence - fenced.sequence) % _WRAP < _HALF:
            new = fenced._replace(until=new.until)
        self._keep(key, new)
        self._tell_refused("refused", key, new, now)
        return new

    def _overflow(self, user: str, now: float) -> None:
        """A batch was refused that could not be remembered."""
        self.overflowing[user] = max(now + self._life, self.overflowing.get(user, -inf))
        if self.tell is not None and now >= self._overflow_told.get(user, -inf) + self._life / 3:
            self._overflow_told[user] = now
            self.tell("overflow", user)

    def _has_room(self, user: str, now: float) -> bool:
        if not self._shares.has_room(user):
            self.sweep(now)
        return self._shares.has_room(user)

    def _note_admitted(self, key: Key, epoch: int, sequence: int) -> None:
        user, which = key[0], key[1:]
        noted = self._admitted.setdefault(user, {})
        if noted.pop(which, None) is None and not self._admitted_shares.take(user):
            if noted:
                del noted[next(iter(noted))]  # its place is taken over
            else:
                self._admitted_shares.charge(user, 1)
        noted[which] = epoch, sequence

    def _tell_refused(self, how: str, key: Key, fenced: Fenced, now: float) -> None:
        if self.tell is not None and now >= self._told.get(key, -inf) + self._life / 3:
            self._told[key] = now
            user, producer_id, part = key
            self.tell(*(how, user, producer_id, fenced.epoch, fenced.sequence, *part, fenced.code, fenced.quota, fenced.unsure))

    def _keep(self, key: Key, fenced: Fenced) -> None:
        if self._fenced.pop(key, None) is None:
            user, producer_id, _ = key
            self.by_id[producer_id] = self.by_id.get(producer_id, 0) + 1
            self._by_producer[user, producer_id] = self._by_producer.get((user, producer_id), 0) + 1
            self._shares.charge(user, 1)
        self._fenced[key] = fenced

    def _drop(self, key: Key) -> None:
        del self._fenced[key]
        self._told.pop(key, None)
        user, producer_id, _ = key
        self._shares.give_back(user)
        _less(self.by_id, producer_id)
        producer = user, producer_id
        self._by_producer[producer] -= 1
        if not self._by_producer[producer]:
            del self._by_producer[producer]


def _less(counts: dict[int, int], key: int) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
