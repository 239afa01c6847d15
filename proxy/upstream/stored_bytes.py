"""Looks at the sizes of topics in the log dirs of the brokers, for the limits of stored bytes; where a budget is near its limit,
more often and at its topics alone.

In: the engine, who the brokers are. Out: budgets as they are right, lines in the operations log when an owner passes a limit, and
when brokers do not tell. While nobody has a limit, nobody is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from proxy.config.stored_bytes import StoredBytes as Settings
from proxy.observe.operations import Log
from proxy.upstream.cluster_client import ClusterClient, read_log_dirs_of
from proxy.upstream.connector import BrokerError
from proxy.upstream.moments import next_moment, passed
from proxy.wire.log_dirs import read_log_dirs
from proxy.wire.metadata import Broker
from quota.engine import Engine
from quota.kinds.stored_bytes import Budget, Stands
from quota.stored_sizes import BrokerSizes, Look

T = TypeVar("T")

EVERY: Final = 1.0
"""Seconds between two looks at whether something is due, at most."""
MOST_NAMED: Final = 50
"""Topics that are asked for by name; where there are more, all are."""
_NOT_AUTHORIZED: Final = 31


class StoredBytesWatch:
    """`clock`: monotonic seconds."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        cluster: ClusterClient,
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._stored, self._log, self._clock = engine, engine.stored, log, clock
        self._cluster, self._timeout = cluster, settings.check_timeout
        self._looked_near = clock()
        self._trouble = ""
        """why the last look was in vain; empty if it was not"""

    def change(self, settings: Settings) -> None:
        """These settings hold from now on."""
        self._timeout = settings.check_timeout

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await next_moment(min(EVERY, self._stored.options.near_interval))
            await self.look()

    async def look(self) -> None:
        """Look at what is due, and tell what changed."""
        if not self._stored:
            return
        now, options = self._clock(), self._stored.options
        if passed(self._stored.looked, now, options.interval):
            await self._look(now, everything=True)
        elif passed(self._looked_near, now, options.near_interval) or self._stored.unknown():
            await self._look(now, everything=False)
        for budget in await _in_turns(self._engine.look_at_stored()):
            self._tell(budget)

    async def _look(self, now: float, *, everything: bool) -> None:
        self._looked_near = now
        look = await _in_turns(self._stored.begin(now, everything=everything))
        if look is None:
            return
        trouble = await self._ask(look)
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                self._log.warning(
                    "stored bytes not seen", reason=trouble, detail="what was known holds, and what is written counts"
                )
            else:
                self._log.info("stored bytes seen again")
        if trouble and (now - self._stored.looked <= self._stored.options.validity or not look.brokers):
            return
        await asyncio.to_thread(self._stored.understand, look)
        await _in_turns(self._stored.finish(look))

    async def _ask(self, look: Look) -> str:
        """Ask all brokers. Why not all have told all; empty if they have."""
        try:
            brokers = await self._cluster.active_brokers(self._timeout)
        except BrokerError as e:
            return str(e)
        answers = await asyncio.gather(*(self._sizes_of(broker, look) for broker in brokers), return_exceptions=True)
        reasons = []
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, BrokerError):
                reasons.append(f"broker {broker.node_id}: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                look.brokers[broker.node_id] = answer
        return "; ".join(reasons)

    async def _sizes_of(self, broker: Broker, look: Look) -> BrokerSizes:
        wanted = look.wanted if look.wanted is not None and len(look.wanted) <= MOST_NAMED else None
        return await read_log_dirs_of(self._cluster, broker, wanted, self._timeout, _understood)

    def _tell(self, budget: Budget) -> None:
        about = {
            "entity": str(budget.owner),
            "stored_bytes": budget.used,
            "soft_limit_bytes": budget.limit.soft,
            "limit_bytes": budget.limit.hard,
            "throttle_factor": round(budget.factor, 3),
        }
        match budget.told:
            case Stands.WITHIN:
                self._log.info("stored bytes within the limits", **about)
            case Stands.SOFT:
                self._log.warning("stored bytes past the soft limit", **about)
            case Stands.HARD:
                self._log.error("stored bytes at the limit", **about)


def _understood(frame: bytes, version: int) -> BrokerSizes:
    """What a broker has, from its answer; `BrokerError` where it does not tell all of it."""
    error, log_dirs = read_log_dirs(frame, version)
    if error:
        raise BrokerError("it wants Describe on the cluster" if error == _NOT_AUTHORIZED else f"error {error}")
    sizes: dict[str, dict[int, int]] = {}
    for log_dir in log_dirs:
        if log_dir.error_code:
            raise BrokerError(f"{log_dir.path}: error {log_dir.error_code}")
        for topic, partitions in log_dir.sizes.items():
            of_topic = sizes.setdefault(topic, {})
            for partition, amount in partitions.items():
                of_topic[partition] = of_topic.get(partition, 0) + amount
    return sizes


async def _in_turns(steps: Generator[None, None, T]) -> T:
    """What comes of work in steps, between which the data path goes on."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            return e.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
