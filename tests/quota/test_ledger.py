"""The ledger: whatever is lost, sent again, late or restarted, what proxies charge counts once for each of the others."""

from collections import deque
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet_simulation.store import Store
from quota.catalogue import KINDS
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.bytes_in import BytesIn, TopicLimits
from quota.kinds.controller_mutations import Algorithm, ControllerMutations, MutationLimit, Receipt
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Answer, Away, Batch, Ledger, key_of
from quota.limit_table import LimitTable, ResolvedLimit
from tests.properties import examples
from tests.support import limits_of

ALICE, BOB = Entity("alice", None), Entity("bob", "x")


class Counter:
    """A kind that only counts."""

    name = "counter"

    def __init__(self) -> None:
        self.charged: dict[Entity, float] = {}
        self.own: dict[Entity, float] = {}
        self.learned: dict[Entity, float] = {}
        self.room = float("inf")

    def charge(self, owner: Entity, amount: float) -> None:
        self.charged[owner] = self.charged.get(owner, 0) + amount
        self.own[owner] = self.own.get(owner, 0) + amount

    def take_charged(self) -> list[tuple[Entity, float]]:
        taken, self.charged = list(self.charged.items()), {}
        return taken

    def learn(self, owner: Entity, amount: float, now: float) -> None:  # noqa: ARG002
        self.learned[owner] = self.learned.get(owner, 0) + amount

    def level(self, owner: Entity, now: float) -> float:  # noqa: ARG002
        return self.own.get(owner, 0) + self.learned.get(owner, 0)

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:  # noqa: ARG002
        self.learned[owner] = level

    def weighs_for(self, owner: Entity, now: float) -> float:  # noqa: ARG002
        return 11.0

    def capacity(self, owner: Entity) -> float:  # noqa: ARG002
        return self.room


class Node:
    """A proxy with a ledger, and a connection that may lose what is said on it."""

    def __init__(self, name: str, store: Store, now: float = 0.0, **more: object) -> None:
        self.name, self.store, self.kind = name, store, Counter()
        self.ledger = Ledger([self.kind], now, **more)  # type: ignore[arg-type]

    def sync(self, now: float, *, arrives: bool = True, answered: bool = True) -> Batch:
        self.ledger.collect(now)
        (batch,) = self.ledger.batches(now)
        if arrives:
            answer = self.store.apply(self.name, batch, now)
            if answered:
                self.ledger.answered(batch, answer, now)
        return batch

    def settle(self, now: float) -> None:
        """Sync until all is said."""
        for _ in range(4):
            self.sync(now)


def fleet(n: int, **more: object) -> tuple[Store, list[Node]]:
    store = Store()
    nodes = [Node(f"p{i}", store, **more) for i in range(n)]
    for node in nodes:
        node.settle(0.0)
    return store, nodes


def test_what_one_charges_the_others_learn() -> None:
    _, (a, b, c) = fleet(3)
    for node in (a, b, c):
        node.kind.charge(ALICE, 1)
    for _ in range(3):
        for node in (a, b, c):
            node.sync(0.1)
    a.kind.charge(ALICE, 100)
    b.kind.charge(BOB, 7)
    for _ in range(2):
        for node in (a, b, c):
            node.sync(0.2)
    assert [node.kind.learned[ALICE] for node in (a, b, c)] == [2, 102, 102]
    assert b.kind.learned[BOB] == 0
    assert BOB not in a.kind.learned, "who has not charged it does not ask for it"


def test_an_owner_that_comes_to_another_proxy_brings_its_level() -> None:
    store, (a, b) = fleet(2)
    a.kind.charge(ALICE, 500)
    a.settle(0.1)
    a.kind.charge(ALICE, 40)
    a.sync(0.2)
    b.kind.charge(ALICE, 1)
    b.settle(0.3)
    assert b.kind.learned[ALICE] == 540
    assert store.total(key_of("counter", ALICE)) == 541


def test_fractions_and_what_is_taken_back_add_up() -> None:
    _, (a, b) = fleet(2)
    b.kind.charge(ALICE, 0)
    b.settle(0.1)
    for _ in range(30):
        a.kind.charge(ALICE, 1.1)
        a.sync(0.2)
    a.kind.charge(ALICE, -13)
    a.sync(0.3)
    b.sync(0.3)
    assert b.kind.learned[ALICE] == pytest.approx(20, abs=1)


def test_a_late_answer_changes_nothing() -> None:
    _, (a, _) = fleet(2)
    a.kind.charge(ALICE, 5)
    a.ledger.collect(0.1)
    (batch,) = a.ledger.batches(0.1)
    answer = a.store.apply("p0", batch, 0.1)
    a.ledger.answered(batch, answer, 0.1)
    before = dict(a.kind.learned)
    a.ledger.answered(batch, answer, 0.2)
    assert a.kind.learned == before


@examples(300)
@given(st.data())
def test_any_interleaving_neither_loses_nor_doubles(data: st.DataObject) -> None:  # noqa: PLR0912
    """Batches and answers get lost, are delivered late and again; the store never forgets: all is counted, once."""
    _, nodes = fleet(3, stale_after=1e9)
    for node in nodes:
        node.kind.charge(ALICE, 1)
    for _ in range(3):
        for node in nodes:
            node.sync(0.0)
    late: deque[tuple[Node, Batch]] = deque()
    for _ in range(data.draw(st.integers(1, 25))):
        node = data.draw(st.sampled_from(nodes))
        match data.draw(st.sampled_from(["charge", "credit", "sync", "lost", "unanswered", "late"])):
            case "charge":
                node.kind.charge(ALICE, data.draw(st.integers(0, 1000)))
            case "credit":
                node.kind.charge(ALICE, -min(data.draw(st.integers(0, 50)), int(node.kind.own[ALICE])))
            case "sync":
                node.sync(0.1)
            case "lost":
                late.append((node, node.sync(0.1, arrives=False)))
            case "unanswered":
                late.append((node, node.sync(0.1, answered=False)))
            case "late" if late:
                who, batch = late.popleft()
                who.store.apply(who.name, batch, 0.1)  # it arrives after others, and nobody hears the answer
    for _ in range(2):
        for node in nodes:
            node.settle(0.2)
    everything = sum(node.kind.own[ALICE] for node in nodes)
    for node in nodes:
        assert node.kind.own[ALICE] + node.kind.learned[ALICE] == everything


@examples(300)
@given(st.data())
def test_a_store_that_forgets_makes_nothing_count_twice(data: st.DataObject) -> None:  # noqa: PLR0912
    """The same with restarts of an empty store, while answers are outstanding too: never more, less only by what was on its way."""
    store, nodes = fleet(3, stale_after=1e9)
    for node in nodes:
        node.kind.charge(ALICE, 1)
    for _ in range(3):
        for node in nodes:
            node.sync(0.0)
    late: deque[tuple[Node, Batch]] = deque()
    unsure = 0.0
    for _ in range(data.draw(st.integers(1, 25))):
        node = data.draw(st.sampled_from(nodes))
        match data.draw(st.sampled_from(["charge", "sync", "sync", "unanswered", "lost", "late", "restart"])):
            case "charge":
                node.kind.charge(ALICE, data.draw(st.integers(0, 1000)))
            case "sync":
                node.sync(0.1)
            case ("lost" | "unanswered") as how:
                batch = node.sync(0.1, arrives=how == "unanswered", answered=False)
                late.append((node, batch))
                if batch.generation != store.generation:  # nobody can tell that it was not stored before the restart
                    unsure += sum(item.delta for item in batch.items)
            case "late" if late:
                who, batch = late.popleft()
                who.store.apply(who.name, batch, 0.1)
            case "restart":
                for each in nodes:  # what is in the store and was not read is lost to those who did not read it
                    shard = each.ledger.shards[0]
                    knows = shard.generation == store.generation
                    for entry in shard.entries:
                        unsure += abs(store.total(entry.key) - (entry.total if knows and entry.total else 0))
                    under_way = shard.batch
                    unsure += sum(item.delta for item in under_way.items) if under_way else 0.0
                store.flush()
    for _ in range(3):
        for node in nodes:
            node.settle(0.2)
    everything = sum(node.kind.own[ALICE] for node in nodes)
    for node in nodes:
        known = node.kind.own[ALICE] + node.kind.learned[ALICE]
        assert everything - unsure <= known <= everything


def test_while_the_store_is_away_others_are_estimated_and_not_counted_again() -> None:
    _, (a, b) = fleet(2, proxies=2)
    now = 0.0
    for _ in range(50):  # a has three quarters of the traffic
        now += 0.1
        a.kind.charge(ALICE, 30)
        b.kind.charge(ALICE, 10)
        a.sync(now)
        b.sync(now)
    a.settle(now)
    b.settle(now)
    before = a.kind.learned[ALICE], b.kind.learned[ALICE]
    for _ in range(50):
        now += 0.1
        a.kind.charge(ALICE, 30)
        b.kind.charge(ALICE, 10)
        a.sync(now, arrives=False)
        b.sync(now, arrives=False)
    # not before `stale_after`
    assert a.kind.learned[ALICE] - before[0] == pytest.approx(10 * 40, rel=0.1)
    # b knows that it had a quarter; the floor is a half with two proxies
    assert b.kind.learned[ALICE] - before[1] == pytest.approx(10 * 40, rel=0.1)
    assert a.ledger.away(now)
    now += 0.1
    a.sync(now)
    b.sync(now)
    a.sync(now + 0.1)
    b.sync(now + 0.1)
    assert not a.ledger.away(now + 0.1)
    assert a.kind.own[ALICE] + a.kind.learned[ALICE] == pytest.approx(100 * 40, rel=0.06)


def test_split_takes_all_proxies_for_alike() -> None:
    _, (a, _) = fleet(2, when_away=Away.SPLIT, proxies=4)
    a.kind.charge(ALICE, 10)
    a.sync(5.0, arrives=False)
    assert a.kind.learned[ALICE] == 30


def test_a_long_absence_is_not_held_against_anybody() -> None:
    """After an hour away, what is published and learned is what weighs."""
    _, (a, b) = fleet(2, proxies=2)
    for node in (a, b):
        node.kind.charge(ALICE, 1)
        node.settle(0.1)
    a.kind.room = 110.0
    now = 0.1
    while now < 3600:
        now += 1
        a.kind.charge(ALICE, 10)
        b.kind.charge(ALICE, 10)
        a.sync(now, arrives=False)
        b.sync(now)
    learned = a.kind.learned[ALICE], b.kind.learned[ALICE]
    a.settle(now)
    b.settle(now)
    assert a.kind.learned[ALICE] - learned[0] <= 110
    assert 0 < b.kind.learned[ALICE] - learned[1] <= 2 * 11 * 10 + 20


def test_owners_that_are_past_are_forgotten_here() -> None:
    _, (a,) = fleet(1)
    a.kind.charge(ALICE, 1)
    a.settle(0.1)
    assert len(a.ledger) == 1
    a.settle(12.0)
    assert len(a.ledger) == 0


def test_the_windows_of_rates_are_those_of_the_fleet() -> None:
    store = Store()
    limit = LimitTable({ALICE: RateLimit(100.0)})
    kinds = [Rates("producer_byte_rate", "producer byte rate", "bytes", limit) for _ in range(2)]
    for kind in kinds:
        kind.publish()
    ledgers = [Ledger([kind], 0.0) for kind in kinds]

    def sync(now: float) -> None:
        for i, ledger in enumerate(ledgers):
            ledger.collect(now)
            (batch,) = ledger.batches(now)
            ledger.answered(batch, store.apply(f"p{i}", batch, now), now)

    found = kinds[0].find("alice", "")
    assert found is not None
    for now in (0.0, 0.1, 0.2):
        for kind in kinds:
            assert kind.meter(ALICE, now).take(200, now)
        sync(now)
    sync(0.3)
    sync(0.4)
    assert [kind.level(ALICE, 0.4) for kind in kinds] == pytest.approx([1160, 1160])  # 1000 fit, and time has paid some of the rest
    assert not kinds[0].meter(ALICE, 0.4).take(1, 0.4)
    assert kinds[1].meter(ALICE, 0.4).wait(0.4) == pytest.approx(1.7, abs=0.2)
    kinds[0].refund(ALICE, 400, 0.4)
    sync(0.5)
    sync(0.6)
    assert kinds[1].meter(ALICE, 0.6).wait(0.6) == 0

    # who comes to a third proxy has used up its burst there too
    third = Rates("producer_byte_rate", "producer byte rate", "bytes", limit)
    third.publish()
    kinds.append(third)
    ledgers.append(Ledger([third], 0.6))
    assert third.meter(ALICE, 0.6).take(900, 0.6)
    for now in (0.7, 0.8, 0.9):
        sync(now)
    assert not third.meter(ALICE, 0.9).take(1, 0.9)


def test_what_is_not_accepted_changes_nothing() -> None:
    _, (a,) = fleet(1)
    a.kind.charge(ALICE, 1)
    a.ledger.collect(0.1)
    (batch,) = a.ledger.batches(0.1)
    a.ledger.answered(batch, Answer("another", False, 0), 0.1)
    (again,) = a.ledger.batches(0.1)
    assert (again.generation, again.number, again.items) == ("another", 1, batch.items)


def test_keys_tell_owners_apart() -> None:
    users = ["a", "a/b", "-", "~a", "ä", "\ud800", "a" * 500, "a" * 501]
    owners = [Entity(user, None) for user in users]
    owners += [Entity(None, "a"), Entity("a", "b"), Entity(None, None), Entity(None, None, "a")]
    keys = [key_of("k", owner) for owner in owners]
    assert len(set(keys)) == len(owners)
    assert all(key.isascii() and key.isprintable() and len(key) < 600 for key in keys)


class Fleet:
    """Some objects of one kind, each with its ledger, on one store."""

    def __init__(self, *kinds: Any) -> None:
        self.store = Store()
        self.ledgers: list[Ledger] = []
        self.add(*kinds)

    def add(self, *kinds: Any) -> None:
        for kind in kinds:
            kind.publish()
            self.ledgers.append(Ledger([kind], 0.0))

    def sync(self, now: float, times: int = 4) -> None:
        for _ in range(times):
            for i, ledger in enumerate(self.ledgers):
                ledger.collect(now)
                for batch in ledger.batches(now):
                    ledger.answered(batch, self.store.apply(f"p{i}", batch, now), now)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_mutations_of_the_fleet_count_and_so_do_credits(algorithm: Algorithm) -> None:
    found = ResolvedLimit(MutationLimit(5, 50, algorithm), ALICE)
    a, b, c = (ControllerMutations(LimitTable({ALICE: found.limit})) for _ in range(3))
    fleet = Fleet(a, b)
    b.charge(found, [1], refusable=True, now=0.0)
    receipt = a.charge(found, [30, 40], refusable=True, now=0.0).receipt
    fleet.sync(0.1)
    assert b.level(ALICE, 0.2) == pytest.approx(71, abs=1.1)
    assert b.refuses(found, [1], 0.2)
    assert isinstance(receipt, Receipt)
    a.credit(receipt, [1])
    a.correct(receipt, 0, 35, 0.2)
    fleet.sync(0.2)
    assert b.level(ALICE, 0.2) == pytest.approx(36, abs=1.1)
    assert not b.refuses(found, [1], 0.2)
    fleet.add(c)
    a.charge(found, [20], refusable=True, now=0.3)
    fleet.sync(0.3)
    c.charge(found, [1], refusable=True, now=0.4)
    fleet.sync(0.4)
    assert c.refuses(found, [1], 0.4), "what was used elsewhere comes along"


@pytest.mark.parametrize("meter", ["ewma", "window"])
def test_topics_of_the_fleet_share_their_thresholds(meter: Literal["ewma", "window"]) -> None:
    limits = TopicLimits(400.0, {"orders": 200.0}, meter)
    a, b, c = (BytesIn(limits) for _ in range(3))
    fleet = Fleet(a, b)
    for second in range(5):
        for kind in (a, b):
            kind.topic("orders", second).take(450, second)
            kind.topic("others", second).take(100, second)
        fleet.sync(second + 0.5, times=1)
    fleet.sync(5.1)
    for kind in (a, b):
        assert not kind.topic("orders", 5.2).take(1, 5.2), "450 here, and as much there"
        assert kind.topic("others", 5.2).take(1, 5.2)
    fleet.add(c)
    assert c.topic("orders", 5.5).take(1, 5.5)
    fleet.sync(5.6)
    assert not c.topic("orders", 5.7).take(1, 5.7), "what was measured elsewhere comes along"
    # what did not go on after all is given back everywhere
    before = b.topic("others", 6.0).count
    a.topic("others", 6.0).take(50, 6.0)
    b.topic("others", 6.0).take(1, 6.0)  # who says something hears at once
    fleet.sync(6.1)
    assert b.topic("others", 6.1).count == before + 51
    a.topic("others", 6.1).give_back(50, 6.1)
    b.topic("others", 6.1).take(1, 6.1)
    fleet.sync(6.2)
    assert b.topic("others", 6.2).count == before + 2


def test_who_is_far_from_a_limit_and_says_nothing_is_looked_at_now_and_then() -> None:
    """Else Redis would be asked of every owner at every interval."""
    limit = LimitTable({ALICE: RateLimit(100.0)})
    a, b = (Rates("producer_byte_rate", "producer byte rate", "bytes", limit) for _ in range(2))
    fleet = Fleet(a, b)
    for kind in (a, b):
        assert kind.meter(ALICE, 0.0).take(10, 0.0)
    for now in (0.1, 0.2, 1.3):
        fleet.sync(now)
    assert a.meter(ALICE, 1.4).take(100, 1.4)
    fleet.sync(1.5)
    assert b.level(ALICE, 1.5) == 20
    fleet.sync(2.4)
    assert b.level(ALICE, 2.4) == 120
    assert a.meter(ALICE, 2.5).take(600, 2.5)
    fleet.sync(3.5)
    assert b.level(ALICE, 3.5) == 720
    assert a.meter(ALICE, 3.6).take(100, 3.6)
    before = fleet.store.items
    fleet.sync(3.7, times=1)
    fleet.sync(3.8, times=1)
    assert b.level(ALICE, 3.8) == 820, "near its limit it is looked at in every batch"
    assert fleet.store.items - before == 4


def test_every_kind_is_published() -> None:
    kinds = Engine(limits_of(), lambda id: (id, id)).publish()
    not_summed = {"producer_ids", "topic_policy", "overload"} | {
        kind.name for kind in Engine(limits_of(), lambda id: (id, id)).topic_numbers
    }
    assert {kind.name for kind in kinds} == set(KINDS) - not_summed


def test_the_owners_of_one_user_do_not_make_those_of_others_wait() -> None:
    _, (a, b) = fleet(2)
    for i in range(5000):
        a.kind.charge(Entity("mallory", f"made-up-{i}"), 1)
    a.kind.charge(ALICE, 100)
    a.sync(0.1)
    b.kind.charge(ALICE, 1)
    b.sync(0.1)
    b.sync(0.2)
    assert b.kind.learned[ALICE] == 100
    assert a.ledger.behind() == 5001 - 200


def test_who_alone_has_used_something_is_thought_to_be_alone_while_the_store_is_away() -> None:
    _, (a, _) = fleet(2, proxies=4)
    a.kind.charge(ALICE, 1)
    a.settle(0.1)
    a.kind.charge(ALICE, 10)
    a.sync(5.0, arrives=False)
    assert a.kind.learned.get(ALICE, 0) == 0


def test_what_was_learned_estimated_and_synced_is_counted() -> None:
    _, (a, b) = fleet(2, when_away=Away.SPLIT, proxies=3)
    for now in (0.1, 0.2, 0.3):
        a.kind.charge(ALICE, 5)
        b.kind.charge(ALICE, 7)
        a.sync(now)
        b.sync(now)
    a.sync(0.4)
    assert (a.ledger.counts.learned, a.ledger.counts.estimated) == (21, 0)
    synced = a.ledger.counts.synced
    a.kind.charge(ALICE, 1)
    a.sync(0.5)
    assert a.ledger.counts.synced == synced + 1
    for now in (5.0, 5.1):
        a.kind.charge(ALICE, 10)
        a.sync(now, arrives=False)
    assert a.ledger.counts.estimated == 40, "two others as much, twice"


def test_a_ledger_is_quiet_that_has_nothing_to_say_and_heard_of_the_store_not_long_ago() -> None:
    _, (a,) = fleet(1, stale_after=3.0)
    (shard,) = a.ledger.shards
    a.sync(10.0)
    assert [a.ledger.quiet(shard, now) for now in (10.0, 10.9, 11.0)] == [True, True, False]
    a.kind.charge(ALICE, 1)
    a.ledger.collect(10.1)
    assert not a.ledger.quiet(shard, 10.2), "there is something to say"
    a.sync(10.3)
    assert not a.ledger.quiet(shard, 10.4), "others may have charged that owner"


def test_what_cannot_wait_is_of_owners_near_their_limits_and_of_new_ones():
    node = Node("a", Store())
    (shard,), new = node.ledger.shards, Entity("new", None)
    node.kind.room = 10_000

    def told(now: float, urgent: bool) -> dict[Entity, int]:
        batch = node.ledger.batch(shard, now, urgent=urgent)
        node.ledger.answered(batch, node.store.apply("a", batch, now), now)
        return {item.entry.owner: item.delta for item in batch.items if item.delta}

    node.settle(0.0)
    for owner in (ALICE, BOB):
        node.kind.charge(owner, 1)
    node.ledger.collect(0.0)
    assert told(0.0, urgent=True) == {ALICE: 1, BOB: 1}
    for owner, amount in ((ALICE, 6000), (BOB, 1), (new, 1)):
        node.kind.charge(owner, amount)
    node.ledger.collect(1.0)
    assert told(1.0, urgent=True) == {ALICE: 6000, new: 1}
    assert told(1.0, urgent=False) == {BOB: 1}
