"""A queue for each principal, taken from in turn, so that no principal has to wait for the items of others.

In: items, each of a principal. Out: the same, one of each principal at a time; of one principal in their order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from quota.fair_share import FairShare

T = TypeVar("T")


class Turns(Generic[T]):
    """`most` items wait at once, of which each principal has a share (`fair_share`)."""

    def __init__(self, capacity: int) -> None:
        self._shares = FairShare(capacity)
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._shares.held

    def put(self, principal: str, item: T) -> bool:
        """False, and it is not kept, where the principal's share is full."""
        if not self._shares.take(principal):
            return False
        self._queue(principal).append(item)
        return True

    def put_back(self, taken: Sequence[tuple[str, T]]) -> None:
        """What was taken stands first again, in its order, whether or not there is room."""
        for principal, item in reversed(taken):
            self._shares.charge(principal, 1)
            self._queue(principal).appendleft(item)

    def take(self, count: int) -> list[tuple[str, T]]:
        """At most `count` items, with their principals: one of each in turn."""
        taken: list[tuple[str, T]] = []
        while self._queues and len(taken) < count:
            principal, queue = next(iter(self._queues.items()))
            taken.append((principal, queue.popleft()))
            self._shares.give_back(principal)
            if queue:
                self._queues.move_to_end(principal)
            else:
                del self._queues[principal]
        return taken

    def _queue(self, principal: str) -> deque[T]:
        queue = self._queues.get(principal)
        if queue is None:
            queue = self._queues[principal] = deque()
        return queue


class TurnsOnce(Generic[T]):
    """The same without a bound, and each item at most once; items may be taken away before their turn."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, dict[T, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has(self, principal: str, item: T) -> bool:
        return item in self._queues.get(principal, ())

    def put(self, principal: str, item: T) -> None:
        """It waits, at its place if it waits already."""
        queue = self._queues.setdefault(principal, {})
        self._count += item not in queue
        queue[item] = None

    def discard(self, principal: str, item: T) -> None:
        """It waits no more."""
        queue = self._queues.get(principal)
        if queue is not None and item in queue:
            self._remove(principal, queue, item)

    def take(self, count: int) -> list[T]:
        """At most `count` items: one of each principal in turn."""
        taken: list[T] = []
        while self._queues and len(taken) < count:
            principal, queue = next(iter(self._queues.items()))
            item = next(iter(queue))
            self._queues.move_to_end(principal)
            self._remove(principal, queue, item)
            taken.append(item)
        return taken

    def _remove(self, principal: str, queue: dict[T, None], item: T) -> None:
        del queue[item]
        self._count -= 1
        if not queue:
            del self._queues[principal]
