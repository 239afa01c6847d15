"""The CustomResourceDefinition of KafkaQuota. In: `quota.catalogue`. Out: the manifest. What one object can get wrong by itself is
refused by the API server; what takes other objects or the brokers is told in the status."""

from __future__ import annotations

from typing import Any, Final

from quota.catalogue import ADDRESS_RATE, KEYS, MUTATIONS_BURST, MUTATIONS_RATE, STORED_HARD, STORED_SOFT, TENANT_KINDS, Key
from quota.keys import MAX_NAME
from quota.tenants import TENANT_NAME

GROUP: Final = "kafka-quota-proxy.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "kafkaquotas"
KIND: Final = "KafkaQuota"
LIMITS: Final = {name: key for name, key in KEYS.items() if key is not ADDRESS_RATE}
"""Limits that an object can have: those of users, client ids and tenants."""
SIZE: Final = r"^[1-9][0-9]{0,17}(\.[0-9]{1,3})?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$"
"""How a size may be written; `configfile.units` has the last word."""


def definition() -> dict[str, Any]:
    """The manifest."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("User", ".spec.entity.user"),
            _column("Client id", ".spec.entity.clientId"),
            _column("Tenant", ".spec.entity.tenant"),
            _column("Accepted", '.status.conditions[?(@.type=="Accepted")].status'),
            _column("Reason", '.status.conditions[?(@.type=="Accepted")].reason'),
            _column("Throttled", '.status.conditions[?(@.type=="Throttled")].status'),
            _column("In force since", ".status.inForceSince", "date"),
            {**_column("Age", ".metadata.creationTimestamp", "date"), "priority": 1},
        ],
        "schema": {"openAPIV3Schema": _object({"spec": _spec(), "status": _status()}, ["spec"])},
    }
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": "kafkaquota", "shortNames": ["kq"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _spec() -> dict[str, Any]:
    name = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
    entity = _object(
        {
            "user": {**name, "description": "Name of the user, without `User:`; `<default>` for the default user."},
            "clientId": {**name, "description": "The client id; `<default>` for the default client id."},
            "tenant": {"type": "string", "pattern": f"^{TENANT_NAME}$", "description": "Name of the tenant."},
        }
    )
    entity["description"] = "Whose limits: of a user, a client id or both, or of a tenant."
    entity["x-kubernetes-validations"] = [
        _rule("has(self.user) || has(self.clientId) || has(self.tenant)", "name a user, a clientId, both, or a tenant"),
        _rule("!has(self.tenant) || !(has(self.user) || has(self.clientId))", "a tenant stands alone"),
        _rule("self == oldSelf", "an object stays with its entity: delete it and make another one"),
    ]
    limits = _object({name: _limit(key) for name, key in LIMITS.items()})
    limits |= {"minProperties": 1, "description": "The limits, by their names in the settings file and in `quotas alter`."}
    limits["x-kubernetes-validations"] = [
        _rule(f"!has(self.{MUTATIONS_BURST}) || has(self.{MUTATIONS_RATE})", f"{MUTATIONS_BURST} needs {MUTATIONS_RATE} beside it"),
        _rule(
            f"!has(self.{MUTATIONS_BURST}) || !has(self.{MUTATIONS_RATE}) || self.{MUTATIONS_BURST} >= self.{MUTATIONS_RATE}",
            f"{MUTATIONS_BURST} is at least {MUTATIONS_RATE}",
        ),
        _rule(f"!has(self.{STORED_SOFT}) || has(self.{STORED_HARD})", f"{STORED_SOFT} needs {STORED_HARD} beside it"),
    ]
    spec = _object({"entity": entity, "limits": limits}, ["entity", "limits"])
    tenants_only = [name for name, key in LIMITS.items() if key.tenants_only]
    users_only = [name for name, key in LIMITS.items() if key.users_only]
    not_tenants = [name for name, key in LIMITS.items() if key.kind not in TENANT_KINDS]
    spec["x-kubernetes-validations"] = [
        _none("has(self.entity.tenant)", tenants_only, "for tenants only"),
        _none("!has(self.entity.tenant)", not_tenants, "not for tenants"),
        _none("!has(self.entity.clientId)", users_only, "not for client ids"),
    ]
    return spec


def _none(unless: str, names: list[str], text: str) -> dict[str, str]:
    there = " || ".join(f"has(self.limits.{name})" for name in names)
    return _rule(f"{unless} || !({there})", f"{', '.join(names)}: {text}")


def _limit(key: Key) -> dict[str, Any]:
    told = {"description": f"{' '.join(key.help.split())} ({key.unit})"}
    if key.size:
        return told | {
            "x-kubernetes-int-or-string": True,
            "pattern": SIZE,
            "x-kubernetes-validations": [
                _rule(
                    f"type(self) != int || (self > 0 && self <= {int(key.maximum)})",
                    f"must be more than 0 and at most {key.maximum:.0f}",
                )
            ],
        }
    kind = "integer" if key.whole else "number"
    return told | {"type": kind, "minimum": 0, "exclusiveMinimum": True, "maximum": int(key.maximum)}


def _status() -> dict[str, Any]:
    text, time = {"type": "string"}, {"type": "string", "format": "date-time"}
    condition = _object(
        {
            "type": text,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": text,
            "message": text,
            "lastTransitionTime": time,
            "observedGeneration": {"type": "integer"},
        },
        ["type", "status", "reason", "message", "lastTransitionTime"],
    )
    conditions = {"type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    names = {"type": "array", "items": text}
    return _object(
        {
            "observedGeneration": {"type": "integer"},
            "conditions": conditions,
            "inForceSince": {**time, "description": "Since when the proxy has these limits."},
            "owned": {**names, "description": "Limits that this object has set, and gives back."},
            "conflictsWith": {**names, "description": "Older objects for the same entity, as namespace/name."},
            "throttledBy": {**names, "description": "Quotas that slow or refuse the entity now."},
        }
    )


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _column(name: str, path: str, kind: str = "string") -> dict[str, str | int]:
    return {"name": name, "type": kind, "jsonPath": path}


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}
