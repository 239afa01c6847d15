"""KafkaQuota objects as values. In: objects of the Kubernetes API. Out: `KafkaQuota`; conditions as they are written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from proxy.config.units import parse_size
from proxy.operate.controller.definition import GROUP, LIMITS
from quota.entity import Entity
from quota.keys import Values, wrong_entity, wrong_together, wrong_value
from quota.tenants import owner_of

FINALIZER: Final = f"{GROUP}/give-back"
ACCEPTED: Final = "Accepted"
THROTTLED: Final = "Throttled"
Object = dict[str, Any]


@dataclass(frozen=True)
class KafkaQuota:
    """One object. `wrong`: why its limits cannot be; None when they can. `owned`: limits that it has set before."""

    object: Object
    entity: Entity
    limits: Values
    wrong: str | None

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def age(self) -> tuple[str, str]:
        """Orders objects: the older one first, by name where both are of one second."""
        return self.object["metadata"]["creationTimestamp"], self.place

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    @property
    def finalizers(self) -> list[str]:
        return list(self.object["metadata"].get("finalizers", []))

    @property
    def generation(self) -> int:
        return int(self.object["metadata"]["generation"])

    @property
    def status(self) -> Object:
        return dict(self.object.get("status", {}))

    @property
    def owned(self) -> frozenset[str]:
        return frozenset(self.status.get("owned", ()))

    def condition(self, kind: str) -> Mapping[str, Any]:
        """The condition of this type; empty when there is none."""
        return next((one for one in self.status.get("conditions", ()) if one["type"] == kind), {})


def read(found: Object) -> KafkaQuota:
    """An object that the CRD let in."""
    spec = found["spec"]
    named = spec["entity"]
    entity = owner_of(named["tenant"]) if "tenant" in named else Entity(named.get("user"), named.get("clientId"))
    try:
        limits = {name: _value(name, value) for name, value in spec["limits"].items()}
    except ValueError as e:
        return KafkaQuota(found, entity, {}, str(e))
    wrongs = [wrong_entity(entity), *(wrong_value(entity, *limit) for limit in limits.items()), wrong_together(limits)]
    return KafkaQuota(found, entity, limits, next(filter(None, wrongs), None))


def _value(name: str, value: float | str) -> float:
    try:
        return float(parse_size(value) if isinstance(value, str) and LIMITS[name].size else value)
    except (KeyError, ValueError):
        raise ValueError(f"{name} {str(value)[:40]!r} is not a limit that this version knows") from None


def with_condition(status: Object, kind: str, value: str, reason: str, message: str, generation: int, now: float) -> Object:
    """A status with this condition; its time is that of the last change of its value."""
    old: Object = next((one for one in status.get("conditions", ()) if one["type"] == kind), {})
    since = old["lastTransitionTime"] if old.get("status") == value else stamp(now)
    made: Object = {"type": kind, "status": value, "reason": reason, "message": message[:1000]}
    made |= {"lastTransitionTime": since, "observedGeneration": generation}
    others = [one for one in status.get("conditions", ()) if one["type"] != kind]
    return status | {"conditions": sorted([*others, made], key=lambda one: str(one["type"]))}


def stamp(now: float, places: str = "seconds") -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(now, UTC).replace(tzinfo=None).isoformat(timespec=places) + "Z"
