"""A queue for each principal, taken from in turn, so that nobody has to wait for what others have to say.

In: items, each of a principal. Out: the same, one of each principal at a time; of one principal in their order. All of them
together are bounded, and each principal has a share of that (`fair_share`)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from quota.fair_share import FairShare

T = TypeVar("T")


class Turns(Generic[T]):
    """`most` items wait at once."""

    def __init__(self, most: int) -> None:
        self._shares = FairShare(most)
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

    def take(self, most: int) -> list[tuple[str, T]]:
        """At most so many items, with their principals: one of each in turn."""
        taken: list[tuple[str, T]] = []
        while self._queues and len(taken) < most:
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
