"""What the controller does with KafkaQuota objects, without an API server: passes over values, and the Lease."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.operate.controller import reconcile, strimzi
from proxy.operate.controller.api import ApiError
from proxy.operate.controller.lease import DURATION, Lease
from proxy.operate.controller.objects import ACCEPTED, THROTTLED, read
from proxy.wire.client_quotas import Op
from quota.entity import Entity
from quota.overrides import Table

RATE = "controller_mutations_rate"
BYTES = "cluster_producer_byte_rate"
ORDERS = Entity("orders", None)


def made(name: str, limits: dict[str, Any], *, second: int = 0, status: dict[str, Any] | None = None, **meta: Any) -> Any:
    created = f"2026-11-24T00:00:{second:02}Z"
    metadata = {"name": name, "namespace": "teams", "uid": name, "generation": 1, "creationTimestamp": created, **meta}
    return {"metadata": metadata, "spec": {"entity": {"user": "orders"}, "limits": limits}, "status": status or {}}


def one_pass(
    have: Table, *objects: Any, refusal: str | None = None, now: float = 0.0
) -> tuple[list[Op], dict[str, Any], list[str]]:
    """(alterations, status by name, reasons of events) of one entity; statuses are written back into the objects."""
    (step,) = reconcile.steps(map(read, objects), have)
    done = reconcile.settled(step, refusal, now)
    for quota, status, _ in done:
        quota.object["status"] = status
    events = [event.reason for _, _, events in done for event in events]
    return list(step.entry.ops if step.entry else ()), {quota.name: status for quota, status, _ in done}, events


def accepted(found: Any) -> tuple[str, str]:
    condition = read(found).condition(ACCEPTED)
    return condition["status"], condition["reason"]


def test_limits_are_written_once_and_drift_is_mended() -> None:
    quota = made("a", {RATE: 5, BYTES: "1MiB"})
    ops, _, events = one_pass({}, quota, now=10.0)
    assert ops == [Op(RATE, 5, False), Op(BYTES, 1048576, False)]
    assert (accepted(quota), events) == (("True", "InForce"), ["InForce"])
    assert quota["status"]["inForceSince"] == "1970-01-01T00:00:10Z"

    ops, _, events = one_pass({ORDERS: {RATE: 5, BYTES: 1048576}}, quota, now=20.0)
    assert (ops, events) == ([], [])
    assert quota["status"]["inForceSince"] == "1970-01-01T00:00:10Z"

    ops, _, events = one_pass({ORDERS: {RATE: 99, BYTES: 1048576}}, quota, now=30.0)
    assert (ops, events) == ([Op(RATE, 5, False)], ["DriftMended"])
    assert quota["status"]["inForceSince"] == "1970-01-01T00:00:30Z"


def test_a_limit_that_no_object_has_set_is_left_alone() -> None:
    quota = made("a", {RATE: 5})
    one_pass({ORDERS: {"producer_ids_rate": 7}}, quota)
    del quota["spec"]["limits"][RATE]
    quota["spec"]["limits"][BYTES] = 1
    ops, _, _ = one_pass({ORDERS: {"producer_ids_rate": 7, RATE: 5}}, quota)
    assert ops == [Op(BYTES, 1, False), Op(RATE, 0, True)]


def test_the_older_of_two_objects_wins_and_the_other_follows_it() -> None:
    old, young = made("z-old", {RATE: 5}), made("a-young", {RATE: 6, BYTES: 7}, second=1)
    ops, _, events = one_pass({}, young, old)
    assert ops == [Op(RATE, 5, False)]
    assert accepted(young) == ("False", "Conflict")
    assert young["status"]["conflictsWith"] == ["teams/z-old"]
    assert events == ["InForce", "Conflict"]
    assert one_pass({ORDERS: {RATE: 5}}, young, old)[2] == []

    old["metadata"]["deletionTimestamp"] = "2026-11-24T00:01:00Z"
    ops, _, _ = one_pass({ORDERS: {RATE: 5}}, young, old)
    assert ops == [Op(RATE, 6, False), Op(BYTES, 7, False)]
    assert accepted(young) == ("True", "InForce")
    assert young["status"]["conflictsWith"] == []


def test_what_is_deleted_gives_back_what_it_set_alone() -> None:
    quota = made("a", {RATE: 5})
    one_pass({}, quota)
    quota["metadata"]["deletionTimestamp"] = "2026-11-24T00:01:00Z"
    assert one_pass({ORDERS: {RATE: 5, BYTES: 7}}, quota)[0] == [Op(RATE, 0, True)]


def test_what_may_have_been_written_before_a_crash_is_given_back() -> None:
    quota = made("a", {RATE: 5})
    quota["status"] = reconcile.claimed(read(quota))  # and then the controller ended
    quota["spec"]["limits"] = {BYTES: 7}
    assert one_pass({ORDERS: {RATE: 5}}, quota)[0] == [Op(BYTES, 7, False), Op(RATE, 0, True)]


def test_a_mistake_takes_no_limits_away() -> None:
    quota = made("a", {RATE: 5})
    one_pass({}, quota)
    quota["spec"]["limits"] = {BYTES: "a lot"}
    assert one_pass({ORDERS: {RATE: 5}}, quota)[0] == []
    assert accepted(quota) == ("False", "Invalid")


def test_a_refusal_of_the_proxy_stands_in_the_status_and_is_told_once() -> None:
    quota = made("a", {RATE: 5})
    assert one_pass({}, quota, refusal="CLUSTER_AUTHORIZATION_FAILED")[2] == ["Refused"]
    assert one_pass({}, quota, refusal="CLUSTER_AUTHORIZATION_FAILED")[2] == []
    assert "inForceSince" not in quota["status"]


def test_who_is_throttled_now_is_shown() -> None:
    whose = {"user": "orders", "client_id": None, "topic": None}
    page = {"throttled": [{"entity": whose, "quota": "producer_byte_rate", "mode": mode} for mode in ("enforce", "observe")]}
    page["throttled"][1]["quota"] = "request_rate"
    quota = read(made("a", {RATE: 5}))
    by_client = {"user": "u", "client_id": "c", "topic": None}
    seen = reconcile.throttled_of([{"throttled": [{"entity": by_client, "quota": "q", "mode": "enforce"}]}])
    found = made("c", {RATE: 5})
    found["spec"]["entity"] = {"clientId": "c"}
    assert reconcile.with_throttles(read(found), {}, seen, 0.0)["throttledBy"] == ["q"]
    assert reconcile.with_throttles(quota, {}, seen, 0.0)["throttledBy"] == []
    for throttled, value, by in (
        (reconcile.throttled_of([page]), "True", ["producer_byte_rate"]),
        (reconcile.throttled_of([{"throttled": []}]), "False", []),
        (None, "Unknown", []),
    ):
        status = reconcile.with_throttles(quota, {}, throttled, 0.0)
        assert (status["conditions"][0]["type"], status["conditions"][0]["status"]) == (THROTTLED, value)
        assert status["throttledBy"] == by


def test_kafka_users_of_strimzi_become_objects() -> None:
    user: Any = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": "shop", "namespace": "teams", "uid": "1"},
        "spec": {"quotas": {"producerByteRate": 1000, "requestPercentage": 55}},
        "status": {"username": "CN=shop"},
    }
    made = strimzi.changes([user], [{"metadata": {"name": "by-hand"}}])
    (quota,) = made.make
    assert quota["spec"] == {"entity": {"user": "CN=shop"}, "limits": {BYTES: 1000}}
    assert (made.alter, made.delete) == ([], [])
    user["spec"]["quotas"]["producerByteRate"] = 2000
    assert strimzi.changes([user], [quota]).alter[0]["spec"]["limits"] == {BYTES: 2000}
    assert strimzi.changes([], [quota, {"metadata": {"name": "by-hand"}}]).delete == [quota["metadata"]["name"]]


class Leases:
    """An API server with one Lease at most."""

    def __init__(self) -> None:
        self.lease: Any = None

    async def get(self, *_: Any) -> Any:
        return self.lease

    async def create(self, _kind: Any, _namespace: str, body: Any) -> None:
        if self.lease is not None:
            raise ApiError("there", 409)
        self.lease = body | {"metadata": {"resourceVersion": "1"}}

    async def replace(self, _kind: Any, _namespace: str, body: Any) -> None:
        version = self.lease["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ApiError("altered", 409)
        self.lease = body | {"metadata": {"resourceVersion": str(int(version) + 1)}}


def test_one_of_two_holds_the_lease_and_the_other_takes_it_when_it_is_not_renewed() -> None:
    server: Any = Leases()
    now = [0.0]
    one, two = (Lease(server, "n", "l", name, lambda: now[0], lambda: now[0]) for name in ("one", "two"))

    def held(lease: Lease) -> bool:
        return asyncio.run(lease.held())

    assert (held(one), held(two)) == (True, False)
    now[0] = DURATION
    assert (held(one), held(two)) == (True, False)
    now[0] = 2 * DURATION
    assert not held(two), "it was renewed since this one looked"
    now[0] = 2 * DURATION + 1
    assert held(two)
    assert server.lease["spec"]["leaseTransitions"] == 1
    assert not held(one)
    asyncio.run(two.release())
    assert held(one)


def test_while_no_proxy_answers_an_object_says_what_waits_for_it() -> None:
    quota = made("a", {RATE: 5})
    one_pass({}, quota)

    def away(found: Any) -> tuple[tuple[str, str], str]:
        found["status"] = reconcile.unreachable(read(found), None, "no connection", 10.0)
        return accepted(found), read(found).condition(THROTTLED).get("status", "")

    quota["status"] = reconcile.with_throttles(read(quota), quota["status"], {}, 5.0)
    assert away(quota) == (("True", "InForce"), "Unknown"), "what is in force stays so"
    quota["metadata"]["generation"] = 2
    assert away(quota)[0] == ("Unknown", "NoProxy")
    quota = made("a", {RATE: 5}, deletionTimestamp="2026-11-24T00:00:00Z", status=quota["status"])
    assert away(quota)[0] == ("Unknown", "NoProxy"), "it is not given back yet"
