"""The bookkeeping of memory and of connections, without sessions."""

from random import Random

import pytest

from proxy.session.budget import ANONYMOUS, STRANGERS, Budget, Census


class Reader:
    """Holds what it read, and reads on when it is told."""

    def __init__(self, budget: Budget, principal: str = "alice") -> None:
        self.budget, self.principal, self.held, self.reads = budget, principal, 0, True

    def memory_free(self) -> None:
        self.reads = True

    def read(self, size: int) -> None:
        assert self.reads
        self.held += size
        self.budget.charge(self.principal, size)
        if self.budget.has_to_wait(self, self.principal):
            self.reads = False

    def finish(self) -> None:
        size, self.held = self.held, 0
        self.budget.charge(self.principal, -size)
        self.budget.finished(self, self.principal)


def readers(budget: Budget, count: int) -> list[Reader]:
    return [Reader(budget) for _ in range(count)]


def test_up_to_eight_ninths_of_the_total_nobody_waits():
    budget = Budget(90)
    one, two = readers(budget, 2)
    one.read(50)
    two.read(30)
    assert one.reads
    assert two.reads
    assert (budget.held, budget.waiting) == (80, 0)


def test_what_one_principal_holds_leaves_room_for_another():
    budget = Budget(900)
    greedy, next_one = readers(budget, 2)
    greedy.read(900 - 50)
    next_one.read(1)
    assert not next_one.reads
    bob = Reader(budget, "bob")
    bob.read(20)
    assert bob.reads
    assert not budget.others_wait("bob")
    assert budget.others_wait("alice")


def test_each_principal_has_one_that_goes_on():
    """However much others hold, and whoever of them goes on already."""
    budget = Budget(100)
    alice, bob, another = Reader(budget), Reader(budget, "bob"), Reader(budget, "bob")
    alice.read(200)
    bob.read(200)
    another.read(1)
    assert alice.reads
    assert bob.reads
    assert not another.reads
    alice.finish()
    assert not another.reads
    bob.finish()
    assert another.reads


def test_those_who_are_not_let_in_never_go_on_beyond_their_share():
    budget = Budget(100)
    stranger = Reader(budget, STRANGERS)
    stranger.read(95)
    assert not stranger.reads
    alice = Reader(budget)
    alice.read(100)
    assert alice.reads
    alice.finish()
    assert not stranger.reads
    budget.total = 1000
    alice.read(1)
    alice.finish()
    assert stranger.reads


def test_one_goes_on_however_much_it_needs():
    budget = Budget(100)
    one, two = readers(budget, 2)
    one.read(101)
    two.read(1)
    for _ in range(5):
        one.read(1000)
    assert one.reads
    assert not two.reads
    assert budget.waiting == 1


def test_the_next_goes_on_when_it_is_done_although_there_is_no_room():
    budget = Budget(100)
    hoarder, one, two, three = readers(budget, 4)
    hoarder.read(80)
    for reader in (one, two, three):
        reader.read(10)
    assert [reader.reads for reader in (one, two, three)] == [True, False, False]
    one.finish()
    assert [reader.reads for reader in (two, three)] == [True, False]
    two.finish()
    assert three.reads


def test_when_there_is_room_all_go_on():
    budget = Budget(100)
    hoarder, one, two, three = readers(budget, 4)
    hoarder.read(100)
    for reader in (one, two, three):
        reader.read(10)
    hoarder.finish()
    assert one.reads
    assert two.reads
    assert three.reads
    assert budget.waiting == 0


def test_one_that_ends_while_it_waits_is_not_told():
    budget = Budget(100)
    one, two, three = readers(budget, 3)
    one.read(101)
    two.read(1)
    three.read(1)
    two.finish()
    one.finish()
    assert three.reads
    assert not two.reads


@pytest.mark.parametrize("seed", range(30))
def test_all_finish_whatever_the_order_and_never_hold_more_than_the_total_and_one_request(seed):
    """Requests that are half there can never lock each other out."""
    chance = Random(seed)
    budget = Budget(500)
    wants = {reader: chance.randrange(1, 400) for reader in readers(budget, 20)}
    step, most = 50, 0
    while wants:
        ready = [reader for reader in wants if reader.reads]
        assert ready, "all wait for each other"
        reader = chance.choice(ready)
        reader.read(min(step, wants[reader] - reader.held))
        most = max(most, budget.held)
        if reader.held == wants[reader]:
            reader.finish()
            del wants[reader]
    assert most <= 500 + 400 + 20 * step
    assert (budget.held, budget.waiting) == (0, 0)


def test_connections_are_counted_in_total_and_by_address():
    census = Census(3, per_address=2)
    assert [census.arrive(host) for host in ("a", "a")] == [None, None]
    assert census.arrive("a") == "max_connections_per_address"
    assert census.arrive("b") is None
    assert census.arrive("b") == "max_connections"
    census.leave("a")
    assert census.arrive("a") is None
    assert census.count == 3


def test_who_is_refused_is_not_counted():
    census = Census(10, per_address=1)
    census.arrive("a")
    for _ in range(5):
        assert census.arrive("a") is not None
    census.leave("a")
    assert census.count == 0
    assert census.arrive("a") is None


def test_connections_are_counted_by_user_once_it_is_known():
    census = Census(10, per_principal=2)
    assert [census.identify(ANONYMOUS, "alice") for _ in range(3)] == [True, True, False]
    census.forget("alice")
    census.forget("alice")
    assert census.identify(ANONYMOUS, "alice")
    assert census.identify("alice", "bob")
    assert census.identify(ANONYMOUS, "alice")
    assert census.identify("bob", ANONYMOUS), "nobody is always welcome"
    assert census.identify(ANONYMOUS, "bob")


def test_a_limit_that_comes_later_counts_those_who_are_there():
    census = Census(10)
    for _ in range(3):
        census.arrive("a")
        census.identify(ANONYMOUS, "alice")
    census.per_address, census.per_principal = 3, 3
    assert census.arrive("a") == "max_connections_per_address"
    assert not census.identify(ANONYMOUS, "alice")


def test_nothing_is_kept_of_addresses_and_users_that_left():
    census = Census(10_000)
    for i in range(1000):
        census.arrive(f"10.0.0.{i}")
        census.identify(ANONYMOUS, f"user-{i}")
        census.leave(f"10.0.0.{i}")
        census.forget(f"user-{i}")
    assert not census._by_address
    assert not census._by_user
