"""Quotas of Strimzi's KafkaUsers as KafkaQuota objects. In: KafkaUsers, KafkaQuota objects. Out: KafkaQuota objects to be made,
altered and deleted. Each has the KafkaUser as its owner, and is like any other one then: an older one for the same user wins.

A KafkaUser's rates are of each broker; here they are of the whole cluster. `requestPercentage` is left out: nothing is like it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.operate.controller.api import Kind, Object
from proxy.operate.controller.definition import GROUP, KIND, VERSION

USERS: Final = Kind("kafka.strimzi.io", "v1", "kafkausers")
LABEL: Final = f"{GROUP}/kafka-user"
LIMITS: Final = {
    "producerByteRate": "cluster_producer_byte_rate",
    "consumerByteRate": "cluster_consumer_byte_rate",
    "controllerMutationRate": "controller_mutations_rate",
}


class Changes(NamedTuple):
    """KafkaQuota objects to be made, merged into what is there, and deleted by name."""

    make: list[Object]
    alter: list[Object]
    delete: list[str]


def changes(users: Iterable[Object], quotas: Iterable[Object]) -> Changes:
    """What makes the KafkaQuota objects of a namespace those of its KafkaUsers. Objects of others are left alone."""
    there = {quota["metadata"]["name"]: quota for quota in quotas}
    ours = {name: quota for name, quota in there.items() if LABEL in quota["metadata"].get("labels", {})}
    wanted = {made["metadata"]["name"]: made for user in users if (made := _quota(user)) is not None}
    # Whose an object is does not change: that of a user with another name is deleted, and made anew when it is gone.
    stays = {name for name in ours if name in wanted and wanted[name]["spec"]["entity"] == ours[name]["spec"]["entity"]}
    return Changes(
        [made for name, made in wanted.items() if name not in there],
        [wanted[name] for name in stays if wanted[name]["spec"] != ours[name]["spec"]],
        [name for name in ours if name not in stays and "deletionTimestamp" not in ours[name]["metadata"]],
    )


def _quota(user: Object) -> Object | None:
    """The object of one KafkaUser; None while it has no quotas, or no name of its principal yet."""
    quotas = user.get("spec", {}).get("quotas") or {}
    limits = {
        LIMITS[name]: value for name, value in quotas.items() if name in LIMITS and isinstance(value, int | float) and value > 0
    }
    principal = user.get("status", {}).get("username")
    if not limits or not principal or "deletionTimestamp" in user["metadata"]:
        return None
    name = user["metadata"]["name"]
    owner = {"apiVersion": user["apiVersion"], "kind": user["kind"], "name": name, "uid": user["metadata"]["uid"]}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": f"kafka-user-{name}", "labels": {LABEL: name[:63]}, "ownerReferences": [owner]},
        "spec": {"entity": {"user": principal}, "limits": limits},
    }
