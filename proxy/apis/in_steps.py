"""Requests that the proxy reads item by item: large ones are judged in the turns of their connection, so that others are served in
between."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.session.answers import LARGE
from proxy.session.client import Client
from proxy.session.plans import Again, Outcome, Plain, Request, Steps

R = TypeVar("R")


@dataclass(slots=True)
class Look(Generic[R]):
    """A request that is looked at, more than once perhaps: what was read of it, and once it is clear what is to be done."""

    request: Request
    read: R | None = None
    outcome: Outcome | None = None


class JudgedInSteps(Plain, Generic[R]):
    """An API with such requests. What has become of one stands in `Client.progress`."""

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        look: Look[R] | None = client.progress
        if look is None:
            look = client.progress = Look(request)
        if look.outcome is None:
            client.now = now
            work = self._judge(client, look, held)
            if request.size > LARGE:
                return Steps(work)
            for _ in work:
                pass
        outcome, look.outcome = look.outcome, None
        assert outcome is not None
        if not isinstance(outcome, Again):
            client.progress = None
        return outcome

    def _judge(self, client: Client, look: Look[R], held: bool) -> Iterator[None]:
        look.outcome = yield from self.judged(client, look, held)

    @abstractmethod
    def judged(self, client: Client, look: Look[R], held: bool) -> Generator[None, None, Outcome]:
        """What to do with a request, in steps; `client.now` is the time. `held` as in `Handler.request`."""
