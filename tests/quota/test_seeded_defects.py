"""What seeded defects (`make mutants`) showed to be looked at by no quick test."""

from __future__ import annotations

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.confirmed import HOLDS, SWEPT, Confirmations
from quota.decision import Action
from quota.engine import Engine
from quota.entity import Entity
from quota.fleet_events import FleetEvents
from quota.kinds.bytes_in import BytesIn, Mode, TopicLimits
from quota.kinds.controller_mutations import ControllerMutations, MutationLimit
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIds, user_limit_table
from quota.kinds.storage import Below, Check, StorageLimits, Volume
from quota.limit_table import LimitTable
from quota.produce import Judging
from quota.rules import Rules
from tests.support import ALICE, limits_of

BATCH = Batch("orders", True, None, 0, 1000, 7, 0, 0)


def test_a_client_that_waits_for_a_producer_id_is_told_why_and_what_is_left() -> None:
    ids = ProducerIds(user_limit_table({ALICE: ProducerIdLimit(2)}), murmur3)
    assert ids.wait_for_room("alice", -1, 10.0, 0.0) is None
    ids.count("alice", [1, 2], 0.0)
    wait = ids.wait_for_room("alice", -1, 10.0, 0.0)
    assert wait is not None
    assert (wait.action, wait.usage, wait.limit, wait.throttle, wait.left) == (Action.HOLD, 2, 2, 10.0, 0.0)
    assert wait.message == "user alice has used up its producer id quota: a new id waits for 10 s."
    assert ids.wait_for_room("alice", 1, 10.0, 0.0) is None, "it has one that is known, and gets another epoch"


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


def test_producer_ids_that_another_proxy_counted_are_known_here() -> None:
    here, there = (Engine(limits_of(producer_ids=user_limit_table({ALICE: ProducerIdLimit(9)})), murmur3) for _ in range(2))
    told, heard = FleetEvents(there, lambda: 0.0), FleetEvents(here, lambda: 0.0)
    there.producer_ids.count("alice", [5, 6], 0.0)
    heard.hear("there", [event for _, (_, event) in told.take(10)], 0.0, 0.0)
    assert here.producer_ids.new("alice", [5, 6, 7], 0.0) == [2]


def test_nobody_has_used_anything_who_has_no_window() -> None:
    quota = ControllerMutations(LimitTable({ALICE: MutationLimit.of(5, 10)}))
    assert quota.level(ALICE, 0.0) == 0.0


def test_a_sweep_forgets_a_bounded_number_of_confirmations_of_a_user() -> None:
    confirmed = Confirmations()
    for i in range(SWEPT + 10):
        confirmed.confirm("alice", f"topic-{i}", 0.0)
    confirmed.sweep(HOLDS + 1)
    assert len(confirmed) == 10


def test_who_is_declined_is_told_to_come_back_at_the_next_tick_of_the_average() -> None:
    quota = BytesIn(TopicLimits(100, {"orders": 10}))
    quota.expect("alice", 10_000, 0.0)
    quota.expect("alice", 10_000, 6.0)
    assert quota.is_over("alice", "orders", 6.0)
    found = quota.decline("alice", "orders", 6.0)
    assert (found.entity, found.throttle) == (Entity("alice", None), 4.0)
    assert found.message.endswith("try again in 4 s.")
