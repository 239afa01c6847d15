"""Produce requests to topics whose owner has as much stored as it may: what is refused, with what, and who counts for whom."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.session.session import State
from quota.catalogue import TOPIC_STORED
from quota.decision import Action
from quota.kinds.stored_bytes import TENANT_STORED, StoredBytesOptions, StoredLimit, TopicBudgets
from quota.kinds.tenant_rates import TenantTable
from quota.limits import Exempt
from quota.steps import finish_at_once
from quota.tenants import Tenant, Tenants
from tests.apis.produce_frames import asked, records, throttle, told, topic_id, write, written
from tests.support import Dialogue, World, changed

APPS = Tenants({"apps": Tenant(topic_prefixes=("apps.",))})
SIZE = 100
"""Bytes of a batch."""


def limited(w: World, hard: int, soft: int | None = None, stored: int = 0, **options: Any) -> World:
    """The tenant apps may have so much, and has so much."""
    limit = StoredLimit(hard, hard if soft is None else soft)
    w.engine.change(
        changed(w.engine.limits, APPS, StoredBytesOptions(**options), **{TENANT_STORED: TenantTable(APPS, {"apps": limit})})
    )
    saw(w, stored)
    return w


def saw(w: World, stored: int) -> None:
    for budget in w.engine.stored.budgets:
        budget.begin()
        budget.finish(stored)


def used(w: World) -> int:
    (budget,) = w.engine.stored.budgets
    return budget.used


def goes_on(d: Dialogue, parts: Any, version: int = 9, errors: dict[str, int] | None = None) -> float:
    """A request goes on whole and is answered; what its client is told to wait."""
    d.client(write(parts, 1, version))
    assert d.to_broker == write(parts, 1, version)
    d.broker(written(list(parts), 1, version, errors=errors))
    return throttle(d.to_client, version)


def refused(d: Dialogue, parts: Any, version: int = 9) -> dict[tuple[str, int], tuple[int, str | None]]:
    d.client(write(parts, 1, version))
    assert d.to_broker == b""
    return told(d.to_client, version)


A = ("apps.a", 0)


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize(("fails", "code"), [(False, 56), (True, 44)])
def test_what_does_not_fit_is_refused_with_the_figures_and_the_rest_goes_on(
    world: Any, version: int, fails: bool, code: int
) -> None:
    w = limited(world(), 1000, stored=850, fails=fails)
    w.cluster.names = {topic_id(name).bytes: name for name in ("apps.a", "other")}
    d = w.dialogue("alice")
    assert goes_on(d, {A: records(SIZE)}, version) == 0
    both = {A: records(SIZE), ("other", 0): records(5000)}
    d.client(write(both, 1, version))
    assert asked(d.to_broker, version) == [("other", 0)]
    d.broker(written([("other", 0)], 1, version))
    answer = told(d.to_client, version)
    assert (answer[A][0], answer["other", 0][0]) == (code, 0)
    if version >= 8:
        assert answer[A][1] == "tenant apps has 950 B of 1000 B stored; what is written would pass its limit."
    assert d.session.state is State.OPEN, "other topics share the connection"
    (decision, _) = w.watcher.decisions[-1]
    assert (decision.quota, decision.action, str(decision.entity)) == (TENANT_STORED, Action.REFUSE, "tenant apps")
    assert (decision.usage, decision.limit, decision.left) == (950, 1000, 50)


def test_the_usual_requests_of_a_connection_are_refused_as_soon_as_they_do_not_fit(world: Any) -> None:
    w = limited(world(), 1000)
    d = w.dialogue("alice")
    for _ in range(10):
        goes_on(d, {A: records(SIZE)})
    assert refused(d, {A: records(SIZE)})[A][0] == 56
    saw(w, 300)
    for _ in range(7):
        goes_on(d, {A: records(SIZE)})
    assert refused(d, {A: records(SIZE)})[A][0] == 56


def test_behind_a_refused_batch_of_an_idempotent_producer_nothing_goes_on_before_it(world: Any) -> None:
    w = limited(world(), 1000, stored=1000)
    d = w.dialogue("alice")
    assert refused(d, {A: records(SIZE, 7, 0, 0)})[A][0] == 56
    saw(w, 0)
    assert refused(d, {A: records(SIZE, 7, 0, 1)})[A][0] == 56, "its predecessor was refused"
    for sequence in (0, 1):
        goes_on(d, {A: records(SIZE, 7, 0, sequence)})
    assert used(w) == 2 * SIZE


def test_what_the_broker_does_not_write_is_given_back(world: Any) -> None:
    w = limited(world(), 1000)
    d = w.dialogue("alice")
    for _ in range(2):
        goes_on(d, {A: records(900)}, errors={"apps.a": 6})
        assert used(w) == 0


def test_who_may_not_write_fills_nobodys_budget_and_learns_nothing_of_it(world: Any) -> None:
    w = limited(world(strangers=True), 1000, stored=900)
    d = w.dialogue("mallory")
    for _ in range(3):
        goes_on(d, {A: records(90)}, errors={"apps.a": 29})
    assert used(w) == 900
    code, message = refused(d, {A: records(5000)})[A]
    assert (code, message) == (56, "tenant apps has used up its stored bytes.")
    assert used(w) == 900
    assert finish_at_once(w.engine.look_at_stored()) == [], "nor has the log anything to say of it"


def test_who_writes_for_the_first_time_counts_with_the_answer(world: Any) -> None:
    w = limited(world(strangers=True), 1000)
    d = w.dialogue("alice")
    d.client(write({A: records(SIZE)}))
    assert d.to_broker
    assert used(w) == 0
    d.broker(written([A]))
    assert d.to_client
    assert used(w) == SIZE


def test_without_an_answer_what_does_not_fit_ends_the_connection(world: Any) -> None:
    w = limited(world(), 1000, stored=1000)
    d = w.dialogue("alice")
    d.client(write({A: records(SIZE)}, acks=0))
    assert d.port.closes
    assert used(w) == 1000


def test_where_it_is_only_observed_everything_goes_on_and_what_would_be_is_told(world: Any) -> None:
    w = limited(world(observed={TENANT_STORED: Action.REFUSE}), 1000, stored=1000)
    d = w.dialogue("alice")
    for n in range(1, 4):
        goes_on(d, {A: records(SIZE)})
        assert used(w) == 1000 + n * SIZE
    assert {(it.quota, it.action) for it, _ in w.watcher.would} == {(TENANT_STORED, Action.REFUSE)}


@pytest.mark.parametrize(
    "exempt", [Exempt(users=frozenset({"alice"})), Exempt(topics=frozenset({"apps.a"}))], ids=["users", "topics"]
)
def test_who_and_what_is_exempt_is_neither_refused_nor_counted(world: Any, exempt: Exempt) -> None:
    w = limited(world(exempt=exempt), 1000, stored=1000)
    goes_on(w.dialogue("alice"), {A: records(SIZE)})
    assert used(w) == 1000


def test_past_the_soft_limit_a_client_is_throttled_and_told_why(world: Any) -> None:
    mib = 1 << 20
    w = limited(world(max_frame=64 * mib), 100 * mib, soft=50 * mib, stored=90 * mib)
    w.engine.stored.produced = lambda: {"alice": float(mib)}
    d = w.dialogue("alice")
    assert goes_on(d, {A: records(3 * mib)}) > 0
    (decision, _) = w.watcher.decisions[-1]
    assert (decision.quota, decision.action) == (TENANT_STORED, Action.THROTTLE)
    assert decision.message.startswith(
        "tenant apps has 90 MiB of 100 MiB stored, its soft limit is 50 MiB; the throttle factor is 0.2."
    )
    assert used(w) == 93 * mib
    assert d.session.state is State.MUTED


def test_the_budget_of_a_topic_is_that_of_all_who_write_to_it(world: Any) -> None:
    w = world()
    w.engine.change(changed(w.engine.limits, **{TOPIC_STORED: TopicBudgets({"orders": StoredLimit(250, 250)})}))
    saw(w, 0)
    for user in ("alice", "bob"):
        goes_on(w.dialogue(user), {("orders", 0): records(SIZE)})
    d = w.dialogue("carol")
    assert refused(d, {("orders", 0): records(SIZE)})["orders", 0] == (
        56,
        "topic orders has 200 B of 250 B stored; what is written would pass its limit.",
    )
    goes_on(d, {("other", 0): records(5000)})
