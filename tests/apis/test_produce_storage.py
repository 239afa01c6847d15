"""Produce requests while volumes are in trouble (seeds s0, s3): who is refused, held or slowed down, and who is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from proxy.session.session import State
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Check, Gap, Reason, Replicas, Scope, StorageLimits, Volume
from quota.limit_table import LimitTable
from quota.limits import Exempt
from tests.apis import produce_frames as producing
from tests.apis.produce_frames import Parts, topic_id
from tests.messages import batch, read_request, read_response, request
from tests.support import Dialogue, World, changed

MIB = 1 << 20
STORAGE_ERROR = 56
CLUSTER = StorageLimits(Below(100), Below(100), margin=0.0, interval=5.0)
BY_VOLUME = StorageLimits(Below(100), Below(500), margin=0.0, scope=Scope.VOLUME, interval=5.0)


def seen(w: World, at: float = 0.0, produced: dict[str, float] | None = None, gap: Gap | None = None, **volumes: Any) -> None:
    """A check: name of a volume to what is available, or to (that, partitions of topics)."""
    found, replicas = [], {}
    for name, told in volumes.items():
        available, held = told if isinstance(told, tuple) else (told, {})
        volume = Volume(1, f"/{name}", 1000, available)
        found.append(volume)
        replicas[volume.key] = Replicas({topic: frozenset(parts) for topic, parts in held.items()})
    gaps = () if gap is None else (gap,)
    w.engine.observe(Check(at, tuple(found), gaps=gaps, brokers=frozenset({1}), replicas=replicas), lambda: produced or {})


def limited(w: World, limits: StorageLimits = CLUSTER, **volumes: Any) -> World:
    w.engine.change(changed(w.engine.limits, limits))
    seen(w, **volumes)
    return w


def write(version: int, parts: Parts, acks: int = 1, number: int = 1) -> bytes:
    return producing.write(parts, number, version, acks)


def written(version: int, *parts: tuple[str, int], number: int = 1) -> bytes:
    return producing.written(list(parts), number, version)


def codes(version: int, answer: bytes) -> dict[tuple[str, int], int]:
    """(topic, partition) to error code."""
    return {part: code for part, (code, _) in producing.told(answer, version).items()}


def goes_on(d: Dialogue, parts: Parts, version: int = 9) -> None:
    """The request passes as it is, and nobody waits."""
    frame = write(version, parts)
    d.client(frame)
    assert d.to_broker == frame
    d.broker(written(version, *parts))
    assert set(codes(version, d.to_client).values()) == {0}
    assert d.session.state is State.OPEN


ONE: Parts = {("orders", 0): batch()}


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_at_factor_0_nothing_goes_on_and_the_client_waits_for_the_next_check(world: Any, version: int) -> None:
    w = limited(world(), data=50)
    d = w.dialogue()
    d.client(write(version, ONE))
    assert d.to_broker == b""
    answer = d.to_client
    told = read_response(0, version, answer)
    assert codes(version, answer) == {("orders", 0): STORAGE_ERROR}
    assert told.throttle_time == timedelta(seconds=5)
    if version >= 8:
        (part,) = told.responses[0].partition_responses
        assert part.error_message == (
            "Volume /data of broker 1 is at its limit: 50 B of 1000 B available, limit 100 B, released above 100 B."
        )
    (decision, _) = w.watcher.decisions[-1]
    assert (decision.quota, decision.usage, decision.limit, decision.items) == ("storage", 50, 100, (0,))
    d.client(write(version, ONE, number=2))
    assert d.to_client == b"", "it is muted"
    seen(w, 5.0, data=900)
    d.wake(5.0)
    assert d.to_broker == write(version, ONE, number=2)


def test_the_usual_requests_of_a_connection_are_refused_as_soon_as_a_volume_is_full(world: Any) -> None:
    w = limited(world(), data=900)
    d = w.dialogue()
    for _ in range(3):
        goes_on(d, ONE)
    seen(w, 1.0, data=100)
    d.now = 1.0
    d.client(write(9, ONE))
    assert codes(9, d.to_client) == {("orders", 0): STORAGE_ERROR}


@pytest.mark.parametrize("limits", [CLUSTER, replace(CLUSTER, hold=True), StorageLimits(Below(10), Below(10**9), margin=0.0)])
def test_where_it_is_only_observed_everybody_goes_on_and_what_would_be_is_told(world: Any, limits: StorageLimits) -> None:
    w = limited(world(max_frame=64 * MIB), limits, data=50)
    w.engine.change(replace(w.engine.limits, observed={"storage": Action.THROTTLE}))
    d = w.dialogue()
    for _ in range(2):
        goes_on(d, {("orders", 0): batch(size=20 * MIB)})
    would = [decision for decision, _ in w.watcher.would]
    assert {decision.quota for decision in would} == {"storage"}
    assert "Volume /data of broker 1" in would[0].message


def test_no_throttle_lasts_longer_than_settings_allow(world: Any) -> None:
    w = limited(world(max_throttle=2.0), data=50)
    d = w.dialogue()
    d.client(write(9, ONE))
    assert read_response(0, 9, d.to_client).throttle_time == timedelta(seconds=2)


@pytest.mark.parametrize(
    "exempt",
    [
        Exempt(users=frozenset({"alice"})),
        Exempt(clients=frozenset({("alice", "app")})),
        Exempt(topics=frozenset({"orders"})),
    ],
)
def test_whoever_and_whatever_is_exempt_goes_on(world: Any, exempt: Exempt) -> None:
    w = limited(world(exempt=exempt), data=50)
    goes_on(w.dialogue("alice"), ONE)


def test_who_claims_an_exempt_client_id_writes_to_no_full_volume(world: Any) -> None:
    w = limited(world(exempt=Exempt(client_ids=frozenset({"app"}), clients=frozenset({("bob", "app")}))), data=50)
    d = w.dialogue("alice")
    d.client(write(9, ONE))
    assert set(codes(9, d.to_client).values()) == {56}


def test_nothing_but_producing_is_touched(world: Any) -> None:
    w = limited(world(), data=50)
    d = w.dialogue()
    for number, key in enumerate((1, 3, 12, 19, 20), 1):  # Fetch, Metadata, Heartbeat, CreateTopics, DeleteTopics
        version = {1: 12, 3: 9, 12: 4, 19: 5, 20: 4}[key]
        frame = request(key, version, number)
        d.client(frame)
        assert d.to_broker == frame, key


def test_with_scope_volume_a_request_is_taken_apart(world: Any) -> None:
    w = limited(world(), BY_VOLUME, full=(50, {"orders": [1], "logs": [0]}), well=(900, {"orders": [0, 1]}))
    d = w.dialogue()
    parts: Parts = {("orders", 0): batch(size=100), ("orders", 1): batch(size=200), ("logs", 0): batch(size=300)}
    d.client(write(9, parts))
    sent = read_request(0, 9, d.to_broker)
    assert [(topic.name, [part.index for part in topic.partition_data]) for topic in sent.topic_data] == [("orders", [0])]
    d.broker(written(9, ("orders", 0)))
    answer = d.to_client
    assert codes(9, answer) == {("orders", 0): 0, ("orders", 1): STORAGE_ERROR, ("logs", 0): STORAGE_ERROR}
    assert read_response(0, 9, answer).throttle_time == timedelta(0), "what shares its connection goes on"
    assert d.session.state is State.OPEN
    goes_on(d, {("orders", 0): batch(), ("other", 3): batch()})


def test_a_topic_whose_name_is_not_known_may_be_anywhere(world: Any) -> None:
    w = limited(world(), BY_VOLUME, full=(50, {"orders": [1]}))
    d = w.dialogue()
    d.client(write(13, ONE))
    assert codes(13, d.to_client) == {("orders", 0): STORAGE_ERROR}, "upon which it asks for metadata, and the proxy learns"
    w.cluster.names[topic_id("orders").bytes] = "orders"
    goes_on(d, ONE, 13)


def test_what_was_refused_of_an_idempotent_producer_comes_first_when_there_is_space(world: Any) -> None:
    w = limited(world(), data=50)
    d = w.dialogue()

    def send(sequence: int) -> dict[tuple[str, int], int]:
        d.client(write(9, {("orders", 0): batch(producer_id=7, epoch=0, sequence=sequence, records=1)}))
        if not d.to_broker:
            return codes(9, d.to_client)
        d.broker(written(9, ("orders", 0)))
        return codes(9, d.to_client)

    assert send(4) == {("orders", 0): STORAGE_ERROR}
    seen(w, 5.0, data=900)
    assert w.engine.storage.calm
    d.wake(5.0)
    assert send(5) == {("orders", 0): STORAGE_ERROR}, "it is behind the one that was refused"
    assert send(4) == {("orders", 0): 0}
    assert send(5) == {("orders", 0): 0}


def test_acks_0_is_dropped_and_the_connection_closed(world: Any) -> None:
    w = limited(world(), data=50)
    d = w.dialogue()
    d.client(write(9, ONE, acks=0))
    assert (d.to_broker, d.to_client) == (b"", b"")
    assert d.session.state is not State.OPEN
    assert d.port.closes == 1


def test_held_requests_wait_for_one_check_after_the_other(world: Any) -> None:
    w = limited(world(), StorageLimits(Below(100), Below(100), margin=0.0, interval=5.0, hold=True), data=50)
    d = w.dialogue()
    frame = write(9, ONE)
    d.client(frame)
    for at in (5.0, 10.0):
        assert (d.to_broker, d.to_client, d.port.wake) == (b"", b"", at)
        seen(w, at, data=50)
        d.wake()
    seen(w, 15.0, data=900)
    d.wake()
    assert d.to_broker == frame


# soft limits


SOFT = StorageLimits(Below(100), Below(500), margin=0.0, interval=5.0)


def amount(d: Dialogue, size: int) -> float:
    """Write so much, and how long the client is throttled for it."""
    d.client(write(9, {("orders", 0): batch(size=size)}))
    d.to_broker  # noqa: B018
    d.broker(written(9, ("orders", 0)))
    answer = d.to_client
    assert codes(9, answer) == {("orders", 0): 0}
    return float(read_response(0, 9, answer).throttle_time.total_seconds())


def test_between_the_limits_whoever_has_no_rate_is_slowed_from_what_it_did(world: Any) -> None:
    """Alice did 4 MiB/s; at factor 0.5 she has 2 MiB/s: the window is 10 s, so 20 MiB go at once, and 10 MiB more cost 5 s."""
    w = limited(world(max_frame=64 * MIB), SOFT, data=900)
    d = w.dialogue("alice")
    seen(w, 0.0, {"alice": 4 * MIB}, data=300)
    assert amount(d, 20 * MIB) == 0
    assert amount(d, 10 * MIB) == pytest.approx(5, abs=0.1)
    (decision, _) = w.watcher.decisions[-1]
    assert (decision.quota, decision.entity) == ("storage", Entity("alice", None))
    assert decision.limit == pytest.approx(2 * MIB)
    assert "the throttle factor is 0.5" in decision.message
    assert "slowed down to 2 MiB/s" in decision.message


def test_the_factor_multiplies_a_byte_rate(world: Any) -> None:
    w = world(max_frame=64 * MIB)
    rates = LimitTable({Entity("alice", None): RateLimit(MIB)})
    w.engine.change(changed(w.engine.limits, SOFT, producer_byte_rate=rates))
    seen(w, data=300)
    d = w.dialogue("alice")
    assert amount(d, 5 * MIB) == 0
    assert amount(d, int(2.5 * MIB)) == pytest.approx(5, abs=0.1)
    (decision, _) = w.watcher.decisions[-1]
    assert (decision.quota, decision.limit) == ("storage", pytest.approx(MIB / 2))


def test_a_lower_factor_is_a_lower_rate(world: Any) -> None:
    w = limited(world(max_frame=64 * MIB), SOFT, data=900)
    seen(w, 0.0, {"alice": 4 * MIB}, data=200)
    d = w.dialogue("alice")
    assert amount(d, 10 * MIB) == 0, "a quarter of 4 MiB/s for 10 s"
    assert amount(d, 5 * MIB) == pytest.approx(5, abs=0.1)


def test_whoever_writes_to_healthy_volumes_only_is_not_slowed(world: Any) -> None:
    w = limited(world(max_frame=64 * MIB), BY_VOLUME, slow=(300, {"logs": [0]}), well=(900, {"orders": [0]}))
    d = w.dialogue("alice")
    for _ in range(4):
        assert amount(d, 20 * MIB) == 0


def test_the_fallback_slows_everybody(world: Any) -> None:
    gap = Gap(Reason.BROKER, "broker 1 does not answer", 1)
    w = limited(world(max_frame=64 * MIB), StorageLimits(Below(100), Below(100), fallback=0.5, validity=0.0), data=900)
    seen(w, 60.0, {"alice": 4 * MIB}, gap)
    d = w.dialogue("alice")
    assert amount(d, 30 * MIB) == pytest.approx(5, abs=0.1)
    assert "broker 1 does not answer" in w.watcher.decisions[-1][0].message
