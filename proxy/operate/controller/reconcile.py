"""What has to be done so that the proxy has the limits of KafkaQuota objects. In: objects, the limits that the proxy has, who is
throttled, the time. Out: alterations; and, once their results are there, the new status and events of each object. No I/O.

For one entity the oldest object counts; others own nothing. Limits that no object has set are left alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.apis.client_quotas import who_of
from proxy.observe.throttle_status import short
from proxy.operate.controller.objects import ACCEPTED, THROTTLED, KafkaQuota, Object, stamp, with_condition
from proxy.operate.plan import plain
from proxy.wire.client_quotas import Entry, Op
from quota.entity import Entity
from quota.keys import Values
from quota.overrides import Table
from quota.tenants import TenantEntity


class Event(NamedTuple):
    """What is told once about an object."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Step:
    """All that concerns one entity. `first`: the object that counts; None when none is left. `others`: later ones. `gone`: objects
    that are being deleted. `entry`: the alteration; None when nothing is to be altered."""

    entity: Entity
    first: KafkaQuota | None
    others: tuple[KafkaQuota, ...]
    gone: tuple[KafkaQuota, ...]
    entry: Entry | None
    have: Values


def steps(quotas: Iterable[KafkaQuota], have: Table) -> list[Step]:
    """One step for each entity that an object names."""
    named: defaultdict[Entity, list[KafkaQuota]] = defaultdict(list)
    for quota in sorted(quotas, key=lambda quota: quota.age):
        named[quota.entity].append(quota)
    return [_step(entity, found, have.get(entity, {})) for entity, found in named.items()]


def _step(entity: Entity, found: Sequence[KafkaQuota], have: Values) -> Step:
    staying = [quota for quota in found if not quota.deleting]
    first = staying[0] if staying else None
    gone = tuple(quota for quota in found if quota.deleting)
    # A mistake in an object takes no limits away.
    kept = frozenset() if first is None else first.owned if first.wrong else frozenset(first.limits)
    wanted = {} if first is None or first.wrong else first.limits
    owned = frozenset().union(*(quota.owned for quota in found))
    ops = [Op(key, value, False) for key, value in wanted.items() if have.get(key) != value]
    ops += [Op(key, 0.0, True) for key in sorted(owned - kept) if key in have]
    entry = Entry(who_of(entity), tuple(ops)) if ops else None
    return Step(entity, first, tuple(staying[1:]), gone, entry, have)


def claimed(quota: KafkaQuota) -> Object:
    """The status before limits are written: what this object may have set, should the controller end in between."""
    return quota.status | {"owned": sorted(quota.owned | set(quota.limits))}


def settled(step: Step, refusal: str | None, now: float) -> list[tuple[KafkaQuota, Object, list[Event]]]:
    """(object, its new status, what to tell) after the alteration; `refusal`: why it was not done."""
    done = []
    if step.first is not None:
        done.append((step.first, *_first(step.first, step, refusal, now)))
        for other in step.others:
            done.append((other, *_conflicting(other, step.first, refusal, now)))
    return done


def _first(quota: KafkaQuota, step: Step, refusal: str | None, now: float) -> tuple[Object, list[Event]]:
    before = quota.condition(ACCEPTED)
    status = {**quota.status, "observedGeneration": quota.generation, "conflictsWith": []}
    if quota.wrong or refusal:
        reason, message = ("Invalid", quota.wrong) if quota.wrong else ("Refused", refusal)
        status = with_condition(status, ACCEPTED, "False", reason, message or "", quota.generation, now)
        status.pop("inForceSince", None)
        if not quota.wrong:
            status["owned"] = claimed(quota)["owned"]
        return status, _told(before, Event("Warning", reason, message or ""))
    message = "The proxy has these limits."
    status = with_condition(status, ACCEPTED, "True", "InForce", message, quota.generation, now)
    status["owned"] = sorted(quota.limits)
    written = [op for op in step.entry.ops if not op.remove] if step.entry else []
    if written or "inForceSince" not in status:
        status["inForceSince"] = stamp(now)
    changes = "; ".join(f"{op.key} {_was(step.have.get(op.key))} -> {plain(op.value)}" for op in written)
    drifted = written and before.get("status") == "True" and before.get("observedGeneration") == quota.generation
    if drifted:
        return status, [Event("Warning", "DriftMended", f"Somebody else had altered it: {changes}")]
    if written or before.get("status") != "True":
        return status, [Event("Normal", "InForce", changes or message)]
    return status, []


def _was(value: float | None) -> str:
    return "(none)" if value is None else str(plain(value))


def _conflicting(quota: KafkaQuota, first: KafkaQuota, refusal: str | None, now: float) -> tuple[Object, list[Event]]:
    message = f"{first.place} is older, and for the same entity."
    status = {**quota.status, "observedGeneration": quota.generation, "conflictsWith": [first.place]}
    status = with_condition(status, ACCEPTED, "False", "Conflict", message, quota.generation, now)
    status = with_condition(status, THROTTLED, "Unknown", "NotInForce", "These limits are not in force.", quota.generation, now)
    status.pop("inForceSince", None)
    status.pop("throttledBy", None)
    if refusal is None:
        status["owned"] = []
    return status, _told(quota.condition(ACCEPTED), Event("Warning", "Conflict", message))


def _told(before: Mapping[str, Any], event: Event) -> list[Event]:
    return [] if (before.get("reason"), before.get("message")) == (event.reason, event.message[:1000]) else [event]


def unreachable(quota: KafkaQuota, throttled: Mapping[Entity, set[str]] | None, reason: str, now: float) -> Object:
    """A status while no proxy answers: that its limits are not set, or not given back yet; else whether they throttle."""
    before = quota.condition(ACCEPTED)
    if quota.deleting or before.get("observedGeneration") != quota.generation:
        return with_condition(quota.status, ACCEPTED, "Unknown", "NoProxy", reason, quota.generation, now)
    return with_throttles(quota, quota.status, throttled, now) if before["status"] == "True" else quota.status


def with_throttles(quota: KafkaQuota, status: Object, throttled: Mapping[Entity, set[str]] | None, now: float) -> Object:
    """A status that says whether the entity is throttled now; None: that is not known."""
    if throttled is None:
        status = {**status, "throttledBy": []}
        return with_condition(status, THROTTLED, "Unknown", "NotKnown", "No admin listener answers.", quota.generation, now)
    by = sorted(set().union(*(found for owner, found in throttled.items() if _holds(quota.entity, owner))))
    value, reason = ("True", "Throttled") if by else ("False", "NotThrottled")
    status = {**status, "throttledBy": by}
    return with_condition(status, THROTTLED, value, reason, ", ".join(by), quota.generation, now)


def _holds(entity: Entity, owner: Entity) -> bool:
    """Has the owner a window under a limit of this entity? Under one of a client id each user has its own (`quota.entity`)."""
    if isinstance(entity, TenantEntity) or isinstance(owner, TenantEntity):
        return entity == owner
    if entity.user is None:
        return short(entity.client_id) == owner.client_id
    return (owner.user, owner.client_id) == (short(entity.user), short(entity.client_id))


def throttled_of(pages: Iterable[Mapping[str, Any]]) -> dict[Entity, set[str]]:
    """Entity → quotas that hold it now, of the throttles pages of all proxies; quotas that are only observed are left out."""
    found: defaultdict[Entity, set[str]] = defaultdict(set)
    for page in pages:
        for line in page["throttled"]:
            whose = line["entity"]
            if line["mode"] != "enforce":
                continue
            if whose.get("tenant") is not None:
                found[TenantEntity(None, None, whose["tenant"])].add(line["quota"])
            elif whose.get("topic") is None and whose.get("address") is None:
                found[Entity(whose["user"], whose["client_id"])].add(line["quota"])
    return found
