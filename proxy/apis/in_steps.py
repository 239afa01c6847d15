"""Requests that the proxy reads item by item: large ones are judged in the turns of their connection, so that others are served in
between."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.session.client import Client
from proxy.session.plans import LARGE, Again, Outcome, Plain, Request, Steps

R = TypeVar("R")


@dataclass(slots=True)
class Look(Generic[R]):
    """A request that is looked at, more than once perhaps: what was read of it, and once it is clear what is to be done. It stands
    in `Client.progress` meanwhile. `undo` gives back what was charged for it, with the time; None while nothing is."""

    request: Request
    read: R | None = None
    outcome: Outcome | None = None
    undo: Callable[[float], None] | None = None

    def give_up(self, now: float) -> None:
        """Its connection ends, and the request does not go on."""
        if self.undo is not None:
            self.undo(now)

    def judge(self, client: Client, work: Generator[None, None, Outcome], *, large: bool, now: float) -> Outcome:
        """Do this work, which says what to do with the request: in the turns of its connection if it is `large`, else at once."""
        client.now, client.progress = now, self
        steps = self._find_out(work)
        if large:
            return Steps(steps)
        for _ in steps:
            pass
        return self.take(client)

    def take(self, client: Client) -> Outcome:
        """What to do with the request, now that it is clear. From here on it is the session's."""
        outcome, self.outcome = self.outcome, None
        assert outcome is not None
        if not isinstance(outcome, Again):
            self.undo = client.progress = None
        return outcome

    def _find_out(self, work: Generator[None, None, Outcome]) -> Iterator[None]:
        self.outcome = yield from work


class JudgedInSteps(Plain, Generic[R]):
    """An API with such requests."""

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        look: Look[R] = client.progress or Look(request)
        if look.outcome is not None:
            return look.take(client)
        return look.judge(client, self.judged(client, look, held), large=request.size > LARGE, now=now)

    @abstractmethod
    def judged(self, client: Client, look: Look[R], held: bool) -> Generator[None, None, Outcome]:
        """What to do with a request, in steps; `client.now` is the time. `held` as in `Handler.request`."""
