"""What operators are told of brokers that cannot keep up. In: changes of the overload quota. Out: lines of the operations log."""

from __future__ import annotations

from math import inf

from proxy.observe.operations import Log
from quota.kinds.overload import Change


def tell_overload(log: Log, change: Change) -> None:
    """A broker became overloaded, or is no more."""
    times = {"latency_ms": round(change.latency * 1000, 1), "target_ms": round(change.target * 1000, 1)}
    if change.rate < inf:
        detail = "what it is given is shared fairly: users with more than this rate are slowed down"
        log.warning("broker overloaded", broker=change.broker, **times, rate=round(change.rate), detail=detail)
    else:
        log.info("broker no longer overloaded", broker=change.broker, **times)
