"""A Produce request that is judged piece by piece: what becomes of it is what becomes of it at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.batch import STORAGE_ERROR, Batch
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, user_limit_table
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Check, StorageLimits, Volume
from quota.limit_table import LimitTable
from quota.limits import Exempt
from quota.produce import Judging
from quota.rules import Rules
from tests.support import limits_of

ALICE = Entity("alice", None)
TOPICS = ("a", "b", "c", "free")
BATCH = Batch("orders", True, None, 0, 1000, 7, 0, 0)
batches = st.builds(
    Batch,
    st.sampled_from(TOPICS),
    st.just(True),
    st.none(),
    st.integers(0, 40),
    st.integers(1, 5000),
    st.sampled_from((-1, 7, 8)),
    st.just(0),
    st.integers(0, 3),
)
requests = st.lists(batches, max_size=12, unique_by=lambda batch: (batch.topic, batch.partition))


def engine(topics_mode: Mode, ids_mode: IdMode) -> Engine:
    limits = limits_of(
        TopicLimits(1000.0, {"a": 100.0}, mode=topics_mode),
        exempt=Exempt(topics=frozenset({"free"})),
        producer_ids=user_limit_table({ALICE: ProducerIdLimit(1, ids_mode)}),
        producer_byte_rate=LimitTable({ALICE: RateLimit(2000.0)}),
    )
    return Engine(limits, murmur3)


def items_of(decision: Decision) -> tuple[int, ...]:
    """Batches that came before the id that was one too many are not told of when they were judged before it: nothing follows
    for a batch."""
    told_of = (decision.quota, decision.action) != ("producer_ids", Action.THROTTLE)
    return tuple(sorted(decision.items)) if told_of else ()


def judged(requests: list[list[Batch]], e: Engine, piece: int | None, *, confirmed: bool) -> list[object]:
    """What becomes of these requests, one every 2 s, in pieces of so many batches or at once; and what was charged."""
    found: list[object] = []
    for i, request in enumerate(requests):
        now = 2.0 * i
        rules = Rules(e, "alice", "app", now)
        judging = Judging(e, rules, request, confirmed=confirmed)
        while not judging.done:
            judging.judge(len(request) if piece is None else piece, now)
        judgement = judging.finish()
        said = sorted((d.quota, d.action.value, str(d.entity), items_of(d), round(d.throttle, 6)) for d in judgement.decisions)
        refused = {i: why.code for i, why in judgement.refused.items()}
        found += [refused, said, round(judgement.throttle, 6), judging.counted]
    now = 2.0 * len(requests)
    found += [
        round(e.bytes_in.total.measured(now), 6),
        round(e.rates["producer_byte_rate"].meter(ALICE, now).charged, 6),
        len(e.fence),
    ]
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.lists(requests, min_size=1, max_size=4),
    st.integers(1, 12),
    st.sampled_from((Mode.TRANSIENT, Mode.THROTTLE)),
    st.sampled_from(IdMode),
    st.booleans(),
)
def test_pieces_come_to_the_same(sent, piece, topics_mode, ids_mode, confirmed):
    at_once = judged(sent, engine(topics_mode, ids_mode), None, confirmed=confirmed)
    assert judged(sent, engine(topics_mode, ids_mode), piece, confirmed=confirmed) == at_once


@settings(deadline=None, max_examples=60)
@given(st.lists(requests, min_size=1, max_size=4), requests, st.integers(1, 12), st.booleans())
def test_a_request_that_does_not_go_on_leaves_nothing_charged(before, request, piece, confirmed):
    e = engine(Mode.THROTTLE, IdMode.THROTTLE)
    judged(before, e, None, confirmed=True)
    rules, now = Rules(e, "alice", "app", 20.0), 20.0
    total, rate = e.bytes_in.total.count, e.rates["producer_byte_rate"].meter(ALICE, now).charged
    judging = Judging(e, rules, request, confirmed=confirmed)
    judging.judge(piece, now)
    judging.give_up(now)
    assert round(e.bytes_in.total.count - total, 6) == 0
    assert round(e.rates["producer_byte_rate"].meter(ALICE, now).charged - rate, 6) == 0
    assert not e.bytes_in.is_over("alice", "unknown", now) or e.bytes_in.total.measured(now) > 1000


def test_a_batch_behind_a_refused_one_is_told_which_quota_was_the_cause() -> None:
    engine = Engine(limits_of(TopicLimits(100, {"orders": 10}, "window", Mode.TRANSIENT)), murmur3)
    rules = Rules(engine, "alice", "app", 0.0)
    refused = []
    for sequence in range(4):
        judging = Judging(engine, rules, [BATCH._replace(size=5000, sequence=sequence)])
        judging.judge(1, 0.0)
        refused += [why.message for why in judging.finish().refused.values()]
    assert refused[-1].endswith("was refused by the bytes_in quota and has to be written first.")


def test_a_writer_to_a_volume_past_its_soft_limit_is_held_while_it_is_muted_elsewhere() -> None:
    engine = Engine(limits_of(StorageLimits(Below(100), Below(500), margin=0.0)), murmur3)
    engine.observe(Check(0.0, (Volume(1, "/data", 1000, 300),)), dict)
    rules = Rules(engine, "alice", "app", 0.0)
    batches = [BATCH, BATCH._replace(partition=1)]
    assert Judging(engine, rules, batches).hold(0.0) is None
    engine.mutes.start("storage", ALICE, 4.0)
    wait = Judging(engine, rules, batches).hold(1.0)
    assert wait is not None
    assert (wait.quota, wait.items, wait.throttle) == ("storage", (0, 1), 3.0)


def full(**more: object) -> Engine:
    """Its only volume is past its hard limit, and that of others past their soft one."""
    e = Engine(limits_of(StorageLimits(Below(100), Below(500), margin=0.0), **more), murmur3)
    e.observe(Check(0.0, (Volume(1, "/data", 1000, 50),)), dict)
    return e


def test_a_full_volume_that_is_only_observed_refuses_nothing() -> None:
    for observed, codes in (({}, [STORAGE_ERROR]), ({"storage": Action.REFUSE}, [])):
        e = full(observed=observed)
        judging = Judging(e, Rules(e, "alice", "app", 0.0), [BATCH])
        judging.judge(1, 0.0)
        assert [why.code for why in judging.finish().refused.values()] == codes
        assert [decision.quota for decision in e.would] == ["storage"] * len(observed)


@pytest.mark.parametrize(("user", "held", "waits"), [("alice", False, True), ("alice", True, False), ("exempt", False, False)])
def test_who_waits_for_a_slowed_volume(user: str, held: bool, waits: bool) -> None:
    """Once, and nobody who is exempt."""
    e = full(exempt=Exempt(users=frozenset({"exempt"})))
    e.observe(Check(1.0, (Volume(1, "/data", 1000, 300),)), dict)
    e.mutes.start("storage", Entity(user, None), 4.0)
    assert (Judging(e, Rules(e, user, "app", 1.0), [BATCH]).hold(1.0, held=held) is not None) == waits


def test_all_batches_of_a_topic_that_is_slowed_are_told_of() -> None:
    e = Engine(limits_of(TopicLimits(100, {"orders": 10, "bills": 10}, "window", Mode.THROTTLE)), murmur3)
    rules = Rules(e, "alice", "app", 0.0)
    parts = [BATCH._replace(topic=topic, partition=i, size=9000) for i, topic in enumerate(("orders", "bills", "orders", "orders"))]
    for _ in range(2):
        judging = Judging(e, rules, parts)
        judging.judge(4, 0.0)
    told = {decision.entity.topic: decision.items for decision in judging.finish().decisions}
    assert told == {"orders": (0, 2, 3), "bills": (1,)}
