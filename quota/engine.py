"""The engine: all kinds of quotas of one proxy, and what they have in common: mutes, the cap of throttles, and observing instead of
enforcing. In: limits, verdicts of kinds, the time. Out: decisions that hold, and how long an entity is muted still.

Kinds are asked directly for what is theirs alone. Produce requests, which concern several kinds, are judged by `quota.judges`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from quota.catalogue import RATES, TENANT_RATES
from quota.confirmed import Confirmations
from quota.decision import Action, Decision, Verdict
from quota.fence import Fence
from quota.kind import EntityKind, Kind, LimitedKind
from quota.kinds.bytes_in import BytesIn
from quota.kinds.cold_reads import ColdReads
from quota.kinds.connections import AddressConnections
from quota.kinds.controller_mutations import ControllerMutations
from quota.kinds.overload import Overload
from quota.kinds.producer_ids import ProducerIds, Windows
from quota.kinds.rates import Rates
from quota.kinds.slowed_rates import SlowedRates, VolumesFilling
from quota.kinds.storage import Check, Event, Produced, Storage
from quota.kinds.stored_bytes import Budget
from quota.kinds.topic_numbers import kinds_of
from quota.kinds.topic_policy import TopicPolicies
from quota.kinds.topic_rates import TOPIC_IN, TOPIC_OUT
from quota.ledger import Sums
from quota.limit_table import ResolvedLimit
from quota.limits import NO_LIMITS, Limits
from quota.mutes import Mutes
from quota.owned_topics import OwnedTopics
from quota.stored_sizes import StoredSizes
from quota.tenants import NO_TENANTS, Tenants
from quota.windows.bloom import Hash

L = TypeVar("L")

MAX_WOULD_HAVE: Final = 1000
MAX_HOLD: Final = 10.0
"""Seconds that a request on another connection is held at most."""
DEFAULT_WINDOWS: Final = Windows()


class Engine:
    """Every quota of one proxy. `hash128` hashes producer ids, `windows` say how long they are remembered."""

    def __init__(self, limits: Limits, hash128: Hash, windows: Windows = DEFAULT_WINDOWS) -> None:
        self.limits = limits
        self.mutes = Mutes()
        self.controller_mutations = ControllerMutations()
        self.producer_ids = ProducerIds(NO_LIMITS, hash128, windows)
        self.rates = {row.kind: Rates(row.kind, row.title, row.unit.removesuffix("/s")) for row in RATES}
        """by kind: the plain rates of the catalogue"""
        self.tenant_rates = {
            row.kind: Rates(TENANT_RATES[row.kind], f"tenant {row.title}", row.unit.removesuffix("/s")) for row in RATES
        }
        """by the kind of the plain rate: the same of tenants"""
        self.topic_in = Rates(TOPIC_IN, TOPIC_IN.replace("_", " "), "bytes")
        self.topic_out = Rates(TOPIC_OUT, TOPIC_OUT.replace("_", " "), "bytes")
        """rates of topics by themselves; `limits_topic_in` and `limits_topic_out`: whether any topic has one"""
        self.limits_topic_in = self.limits_topic_out = False
        self.cold_lag = 0
        """offsets behind the end of the log from which on a read is cold"""
        self.owned = OwnedTopics()
        self.topic_numbers = kinds_of(self.owned)
        """numbers of topics and partitions of users and tenants; `follows_owners`: whether it matters who creates topics"""
        self.follows_owners = False
        self.topic_policies = TopicPolicies()
        self.address_connections = AddressConnections()
        self.bytes_in = BytesIn()
        self.storage = Storage()
        self.slowed_rates = SlowedRates(VolumesFilling(self.storage))
        self.stored = StoredSizes(self.owned)
        self.slowed_by_stored = tuple(SlowedRates(kind) for kind in self.stored.kinds)
        self.slowing: tuple[SlowedRates, ...] = ()
        """what may refuse or slow down now what is written: volumes in trouble, budgets of stored bytes"""
        self.overload = Overload()
        self.kinds: tuple[Kind, ...] = (
            *(self.controller_mutations, self.producer_ids),
            *(*self.rates.values(), *self.tenant_rates.values()),
            *self.topic_numbers,
            self.topic_policies,
            *(self.topic_in, self.topic_out, self.address_connections, self.bytes_in, self.storage, self.slowed_rates),
            *self.slowed_by_stored,
            *self.stored.kinds,
            self.overload,
        )
        self.fence = Fence()
        self.confirmed = Confirmations()
        """which users brokers have let write to which topics"""
        self.would: list[Decision] = []
        """what observed quotas would have done since it was last emptied; `MAX_WOULD_HAVE` at most"""
        self.limits_version = 0
        """another number whenever limits change"""
        self.looks_at_produce = False
        """Does anything but `producer_ids` and the fence have to see Produce requests?"""
        self.change(limits)

    def change(self, limits: Limits) -> None:
        """These limits hold from now on. What entities have used stays used; mutes that began go on."""
        self.limits = limits
        for kind in self.kinds:
            kind.configure(limits)
        self.owned.configure(limits.option(Tenants) or NO_TENANTS)
        self.stored.configure(limits)
        self.follows_owners = any(kind.limits for kind in self.topic_numbers) or not self.stored.of_tenants.calm
        self.cold_lag = (limits.option(ColdReads) or ColdReads()).lag
        self.limits_version += 1
        self._look()

    def publish(self) -> list[Sums]:
        """The proxies of a fleet share all quotas from now on; what they add up."""
        return [sums for kind in self.kinds for sums in kind.publish()]

    def sweep(self, now: float) -> None:
        """Forget what has passed; call it now and then, memory is bounded by what is in force."""
        for kind in self.kinds:
            kind.sweep(now)
        self.owned.sweep(now)
        self.mutes.sweep(now)
        self.confirmed.sweep(now)
        self.fence.sweep(now)

    def observe(self, check: Check, produced: Produced) -> list[Event]:
        """A check of the volumes is done. Returns what it changed. `produced`: users to the bytes per second."""
        events = self.storage.observe(check, produced)
        self.slowed_rates.configure(self.limits)
        self._look()
        return events

    def look_at_stored(self) -> Generator[None, None, list[Budget]]:
        """Whose stored bytes stand otherwise than told before; in steps. Where nobody is slowed down any more, rates are measured
        anew the next time."""
        found = yield from self.stored.changes()
        for rates, kind in zip(self.slowed_by_stored, self.stored.kinds, strict=True):
            if self.stored.none_slowed(kind) and kind.nobody_slowed():
                rates.configure(self.limits)
        return found

    def find(self, kind: LimitedKind[L], user: str, client_id: str) -> ResolvedLimit[L] | None:
        """The limit of this kind that holds for a client; None when it has none or is exempt."""
        exempt = self.limits.exempt
        if exempt.everywhere(user, client_id):
            return None
        return kind.find(user, client_id, client_ids=client_id not in exempt.client_ids)

    def hold(self, kind: EntityKind[L], found: ResolvedLimit[L], items: Sequence[int], now: float) -> Decision | None:
        """A charged request of an entity that this kind mutes on some connection waits, `MAX_HOLD` at most; None when it need
        not."""
        left = min(self.mutes.left(kind.name, found.owner, now), MAX_HOLD)
        if left <= 0:
            return None
        usage, limit, room = kind.stands(found, now)
        message = f"{found.owner} is muted on another connection by its {kind.title} quota for {left:.1f} s more."
        return Decision(kind.name, Action.HOLD, found.owner, tuple(items), usage, limit, left, message, room)

    def enforce(self, verdict: Verdict, now: float, *, mute: bool = True) -> Verdict:
        """The verdict that holds: its throttle is `max_throttle` at most, and its entity is muted for that long. `mute` False: no
        answer tells of a throttle and no connection is muted. Observed kinds decide nothing; what they would have done is kept in
        `would`."""
        decision = verdict.decision
        if decision is None:
            return verdict
        decision = replace(decision, throttle=min(decision.throttle, self.limits.max_throttle))
        action = self.limits.observed.get(decision.quota)
        if action is not None:
            if len(self.would) < MAX_WOULD_HAVE:
                self.would.append(decision if action is Action.THROTTLE else replace(decision, action=action))
            return replace(verdict, decision=None)
        if mute:
            self.mutes.start(decision.quota, decision.entity, now + decision.throttle)
        return replace(verdict, decision=decision)

    def arrive(self, host: str, now: float) -> Decision | None:
        """A connection came from this address: None if it may stay; else it is to be closed after the throttle of the decision."""
        return self.enforce(self.address_connections.arrive(host, now), now, mute=False).decision

    @property
    def counts_topics(self) -> bool:
        """True if bytes produced count for topics, so that brokers have to confirm who may write to them."""
        return self.limits_topic_in or self.bytes_in.limits is not None or bool(self.stored)

    def _look(self) -> None:
        self.limits_topic_in, self.limits_topic_out = bool(self.topic_in.limits), bool(self.topic_out.limits)
        tables = (self.rates["producer_byte_rate"].limits, self.tenant_rates["producer_byte_rate"].limits)
        limited = any(map(bool, tables)) or self.counts_topics or bool(self.overload)
        self.looks_at_produce = limited or not self.storage.calm
        self.slowing = tuple(rates for rates in (self.slowed_rates, *self.slowed_by_stored) if not rates.filling.calm)
