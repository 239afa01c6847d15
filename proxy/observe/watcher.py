"""What sessions report. In: decisions and incidents. Out: lines in the operations log and in the usage log, and counters.

A client that misbehaves gets one line for its connection. A broker that is away gets one line, and one when it is back;
what happens meanwhile is counted. No principal, and no host, gets more than `MAX_LINES` lines of a kind between two sweeps: the
others are counted, and told as one figure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Final

from proxy.observe.lines import api_name
from proxy.observe.operations import Log
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.session.latencies import Part
from proxy.session.requester import NO_API, Requester
from quota.decision import Action, Decision
from quota.entity import OTHERS, Entity
from quota.fair_share import FairShare

MAX_KEYS: Final = 1000
"""Limits and hosts that have lines of their own between two sweeps."""
MAX_LINES: Final = 10
"""Lines of one kind about one principal or one host between two sweeps."""
MAX_OVER: Final = 10_000
"""Quotas and entities that are known to be over their limit; each principal that makes such requests has its share."""


class Observer:
    """The `Watcher` of all sessions."""

    def __init__(self, log: Log, usage: UsageLog, throttle_status: ThrottleStatus) -> None:
        self._log, self._usage, self._throttle_status = log, usage, throttle_status
        self.totals = throttle_status.totals
        self._over: dict[tuple[str, Entity], str] = {}
        """quotas and entities with an event already -> the principal whose share holds them"""
        self._over_shares = FairShare(MAX_OVER)
        self._lines: Counter[tuple[str, str]] = Counter()
        """by event, and principal or host, since the last sweep"""
        self.refused_items: Counter[str] = Counter()
        self.throttled_requests: Counter[str] = Counter()
        self.throttle_seconds: defaultdict[str, float] = defaultdict(float)
        self.held_requests: Counter[str] = Counter()
        self.would_have_done: Counter[tuple[str, str]] = Counter()
        """by quota and action"""
        self.client_failures = 0
        self.broker_failures = 0
        self.limit_hits: Counter[str] = Counter()
        self._limit_counts: Counter[tuple[str, str]] = Counter()
        self.unanswered_questions = 0
        self._untold: set[str] = set()

    def decided(self, decision: Decision, request: Requester) -> None:
        """Every decision is counted and offered to the usage log; the first of an entity since it was within its limit
        is an event of operations."""
        self._usage.decided(decision, request)
        self._throttle_status.decided(decision, request)
        if decision.throttle and request.api_key != NO_API:
            self._usage.latencies.of(request.broker, request.api_key, Part.QUOTA).add(decision.throttle)
        if decision.action is Action.HOLD:
            self.held_requests[decision.quota] += 1
            return
        if decision.throttle:
            self.throttled_requests[decision.quota] += 1
        self.throttle_seconds[decision.quota] += decision.throttle
        if decision.action is Action.REFUSE:
            self.refused_items[decision.quota] += len(decision.items)
        self._tell_once("over quota", (decision.quota, decision.entity), decision, request)

    def _tell_once(self, event: str, key: tuple[str, Entity], decision: Decision, request: Requester) -> None:
        if key in self._over:
            return
        who = request.principal
        if self._over_shares.take(who):
            self._over[key] = who
        if self._may_say(event, who):
            self._tell(event, decision, request)

    def _may_say(self, event: str, who: str) -> bool:
        """Is this one of the first lines about a principal or host? The others are counted."""
        key = (event, who)
        if key not in self._lines and len(self._lines) >= MAX_KEYS:
            key = (event, OTHERS)
        self._lines[key] += 1
        return self._lines[key] <= MAX_LINES

    def _tell(self, event: str, decision: Decision, request: Requester) -> None:
        self._log.info(
            event,
            quota=decision.quota,
            entity=str(decision.entity),
            action=decision.action.value,
            usage=round(decision.usage, 3),
            limit=decision.limit,
            left=round(decision.left, 3),
            throttle_seconds=round(decision.throttle, 3),
            client=request.client_address,
            client_id=request.client_id,
            principal=request.principal,
            api=api_name(request.api_key),
        )

    def would_have(self, decision: Decision, request: Requester) -> None:
        """The same for a quota that is only observed."""
        self._usage.decided(decision, request, mode="observe")
        self._throttle_status.decided(decision, request, mode="observe")
        self.would_have_done[decision.quota, decision.action.value] += 1
        self._tell_once("over quota, only observed", (f"{decision.quota}, observed", decision.entity), decision, request)

    def not_told(self, request: Requester) -> None:
        """Every time is counted; one line for a principal until `sweep`."""
        self.unanswered_questions += 1
        if request.principal in self._untold or len(self._untold) >= MAX_KEYS:
            return
        self._untold.add(request.principal)
        self._log.warning(
            "broker did not tell",
            detail="how large these topics are: the request waits for its answer",
            client=request.client_address,
            client_id=request.client_id,
            principal=request.principal,
            api=api_name(request.api_key),
            topics=request.topics[:10],
        )

    def forget_quiet(self, muted: set[tuple[str, Entity]], lasting: Collection[str] = ()) -> None:
        """Entities that are no longer muted are within their limits: their next decision is an event again. Quotas in `lasting` are
        an exception: for them, one event is enough."""
        for key in [key for key in self._over if key not in muted and key[0] not in lasting]:
            self._over_shares.give_back(self._over.pop(key))

    def limited(self, limit: str, client_address: str, client_id: str | None, principal: str, *, closed: bool) -> None:
        """Every time is counted; one line for a limit and a client's host until `sweep`, so that a flood of connections is
        none of lines."""
        self.limit_hits[limit] += 1
        key = (limit, client_address.rpartition(":")[0])
        if key not in self._limit_counts and len(self._limit_counts) >= MAX_KEYS:
            key = (limit, OTHERS)
        self._limit_counts[key] += 1
        if self._limit_counts[key] > 1:
            return
        say = (
            self._log.warning if closed and limit != "max_connection_age" else self._log.info
        )  # a connection that is old is no fault
        say(
            "limit reached",
            limit=f"limits.{limit}",
            action="closed" if closed else "waits",
            client=client_address,
            client_id=client_id,
            principal=principal,
        )

    def sweep(self) -> None:
        """Limits that bit more than once since the last time: how often."""
        self._throttle_status.sweep()
        for (limit, host), times in self._limit_counts.items():
            if times > 1:
                self._log.info("limit reached again", limit=f"limits.{limit}", host=host, times=times - 1)
        for (event, who), times in self._lines.items():
            if times > MAX_LINES:
                self._log.info("lines left out", of=event, about=who, times=times - MAX_LINES)
        self._limit_counts.clear()
        self._lines.clear()
        self._untold.clear()

    def client_failed(self, client_address: str, client_id: str | None, reason: str) -> None:
        self.client_failures += 1
        if self._may_say("client connection closed", client_address.rpartition(":")[0]):
            self._log.warning("client connection closed", client=client_address, client_id=client_id, reason=reason)

    def broker_failed(self, client_address: str, reason: str) -> None:
        self.broker_failures += 1
        if self._may_say("broker connection closed", client_address.rpartition(":")[0]):
            self._log.warning("broker connection closed", client=client_address, reason=reason)
