"""Controller mutations (seed s1, KIP-599): how many partitions per second a client may create.

In: who asks, the partitions of each topic in the request's order, whether the client's version knows the error, the time.
Out: a verdict. It leaves to others: what a topic costs, how an answer looks, how long a connection is muted.

Admission is topic by topic, each recorded before the next is judged: a topic is admitted iff the average is below the
rate, so a request may overshoot by its last admitted topic. Refused topics are not recorded. Clients too old for the
error get everything accepted and recorded, and are told to wait what a refused topic would have waited (shared reading
of s1: the largest for them, the smallest for clients that know the error)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from quota.book import Found, QuotaBook
from quota.decision import Action, Decision, Verdict
from quota.entity import Entity
from quota.windows.spread import SpreadRate

NAME = "controller_mutations"
DEFAULT_WINDOWS = 11
"""controller.quota.window.num of seed s1: the burst is this many seconds of the rate where none is set."""
MAX_ENTITIES = 100_000
"""Windows kept at most: a client id is whatever a client claims. The least recently charged is forgotten first."""


@dataclass(frozen=True, slots=True)
class MutationLimit:
    """`rate` in partitions per second, `burst` >= `rate` in partitions (controller_mutations_rate, controller_mutations_burst)."""

    rate: float
    burst: float

    @classmethod
    def of(cls, rate: float, burst: float | None) -> MutationLimit:
        return cls(rate, DEFAULT_WINDOWS * rate if burst is None else burst)


class ControllerMutations:
    """The quota of all entities: one window each, made when first charged, dropped when everything in it has passed."""

    def __init__(self, book: QuotaBook[MutationLimit]) -> None:
        self.book = book
        """Operators may put another in its place; windows whose limit is another then start anew."""
        self._windows: OrderedDict[Entity, SpreadRate] = OrderedDict()

    def find(self, user: str, client_id: str) -> Found[MutationLimit] | None:
        """The limit that holds for this client, if any."""
        return self.book.find(user, client_id)

    def charge(self, found: Found[MutationLimit], partitions: Sequence[int], *, refusable: bool, now: float) -> Verdict:
        """Charge one request; `partitions[i]` is what topic i costs, 0 for one that costs nothing and is always admitted."""
        window = self._window(found)
        over: list[int] = []
        waits: list[float] = []
        usage, charged = 0.0, 0
        for i, amount in enumerate(partitions):
            if amount <= 0:
                continue
            if not window.admits(now):
                usage = max(usage, window.average(now))
                waits.append(window.wait(now))
                over.append(i)
                if refusable:
                    continue
            window.record(amount, now)
            charged += amount
        if not over:
            return Verdict(charged)
        return Verdict(charged, _decision(found, over, usage, min(waits) if refusable else max(waits), refusable))

    def average(self, found: Found[MutationLimit], now: float) -> float:
        """Partitions per second of whoever the limit is about."""
        return self._window(found).average(now)

    def usage(self, now: float) -> dict[Entity, tuple[float, float]]:
        """(average, rate) in partitions per second of every entity that has a window."""
        return {entity: (window.average(now), window.rate) for entity, window in self._windows.items()}

    def sweep(self, now: float) -> None:
        """Forget windows in which nothing is left."""
        for entity in [entity for entity, window in self._windows.items() if window.idle(now)]:
            del self._windows[entity]

    def _window(self, found: Found[MutationLimit]) -> SpreadRate:
        window = self._windows.get(found.owner)
        if window is None or (window.rate, window.burst) != (found.limit.rate, found.limit.burst):
            window = self._windows[found.owner] = SpreadRate(found.limit.rate, found.limit.burst)
            if len(self._windows) > MAX_ENTITIES:
                self._windows.popitem(last=False)
        self._windows.move_to_end(found.owner)
        return window


def _decision(found: Found[MutationLimit], over: list[int], usage: float, wait: float, refusable: bool) -> Decision:
    limit = found.limit
    verb = "refused" if refusable else "slowed down"
    message = (
        f"The controller mutation quota of {found.owner} is exceeded: {_figure(usage)} partition mutations/s on average,"
        f" limit {_figure(limit.rate)}/s"
        f" with a burst of {_figure(limit.burst)}; this topic was {verb}, try again in {_figure(wait)} s."
    )
    action = Action.REFUSE if refusable else Action.THROTTLE
    return Decision(NAME, action, found.owner, tuple(over), usage, limit.rate, wait, message)


def _figure(value: float) -> str:
    """Three significant digits for small figures, whole ones for large, never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
