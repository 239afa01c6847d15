"""The bookkeeping of memory and of connections, without sessions."""

from random import Random

import pytest

from proxy.session.budget import ANONYMOUS, STRANGERS, Budget, Census, Guest


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


class Coming:
    """Connections that come to a census, by name; those that had to go for others."""

    def __init__(self, census: Census) -> None:
        self.census, self.guests, self.evicted = census, dict[str, Guest](), list[str]()

    def come(self, host: str, name: str = "", *, let_in: bool = False) -> str | None:
        guest = self.census.arrive(host, lambda: self.evicted.append(name or host))
        if isinstance(guest, str):
            return guest
        self.guests[name or host] = guest
        if let_in:
            self.census.let_in(guest)
        return None


def test_connections_are_counted_in_total_and_by_address():
    one = Coming(Census(3, per_address=2))
    assert [one.come("a", name, let_in=True) for name in ("a1", "a2")] == [None, None]
    assert one.come("a") == "max_connections_per_address"
    assert one.come("b", let_in=True) is None
    assert one.come("b") == "max_connections"
    one.census.leave(one.guests["a1"])
    one.census.leave(one.guests["a1"])
    assert one.come("a", let_in=True) is None
    assert one.census.count == 3
    assert one.evicted == []


def test_who_is_refused_is_not_counted():
    one = Coming(Census(10, per_address=1))
    one.come("a", let_in=True)
    for _ in range(5):
        assert one.come("a", "refused") is not None
    one.census.leave(one.guests["a"])
    assert one.census.count == 0
    assert one.come("a") is None


def test_who_is_not_let_in_makes_room_and_who_is_in_stays():
    one = Coming(Census(6))
    one.come("victim", let_in=True)
    one.come("other", "waits")
    for i in range(4):
        one.come("attacker", f"silent-{i}")
    assert one.come("newcomer", let_in=True) is None
    assert one.evicted == ["silent-0"], "the oldest of the address that has most of them"
    for i in range(3):
        assert one.come("newcomer", f"in-{i}", let_in=True) is None
    assert one.evicted == ["silent-0", "silent-1", "silent-2", "waits"]
    assert one.come("newcomer", "last", let_in=True) is None
    assert one.evicted[-1] == "silent-3"
    assert one.come("newcomer", "one more") == "max_connections"
    assert one.census.count == 6
    assert not one.census._waiting
    assert not one.census._by_number


def test_within_an_address_its_own_make_room():
    one = Coming(Census(10, per_address=2))
    one.come("a", "in", let_in=True)
    one.come("a", "silent")
    one.come("b", "other")
    assert one.come("a", "next") is None
    assert one.evicted == ["silent"]


def test_a_connection_that_turns_out_to_be_from_elsewhere_counts_there():
    one = Coming(Census(10, per_address=1))
    for name in "xyz":
        one.census.per_address = None
        one.come("balancer", name)
    one.census.per_address = 1
    assert one.census.move(one.guests["x"], "a") is None
    assert one.come("balancer", "w") is None, "the oldest from there has to go"
    assert one.evicted == ["y"]
    assert one.census.move(one.guests["y"], "b") == "max_connections", "it is gone"
    one.census.let_in(one.guests["x"])
    assert one.census.move(one.guests["z"], "a") == "max_connections_per_address"
    assert one.census.count == 2


def test_many_addresses_cost_no_more_than_few():
    one = Coming(Census(2000))
    for i in range(50_000):
        assert one.come(f"host-{i % 4999}", f"{i}") is None
    assert len(one.evicted) == 48_000
    for name, guest in one.guests.items():
        one.census.leave(guest)
        assert name
    assert (one.census.count, one.census._largest, one.census._by_number) == (0, 0, {})


def test_a_user_has_a_share_of_all_connections():
    census = Census(90)
    assert [census.identify(ANONYMOUS, "mallory") for _ in range(90)].count(True) == 80
    for _ in range(10):
        census.forget("mallory")
    assert census.identify(ANONYMOUS, "alice")
    assert all(census.identify(ANONYMOUS, ANONYMOUS) for _ in range(100)), "who does not log in is everybody"


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
        census.let_in(arrived(census, "a"))
        census.identify(ANONYMOUS, "alice")
    census.per_address, census.per_principal = 3, 3
    assert census.arrive("a", lambda: None) == "max_connections_per_address"
    assert not census.identify(ANONYMOUS, "alice")


def test_nothing_is_kept_of_addresses_and_users_that_left():
    census = Census(10_000)
    for i in range(1000):
        guest = arrived(census, f"10.0.0.{i}")
        census.identify(ANONYMOUS, f"user-{i}")
        census.leave(guest)
        census.forget(f"user-{i}")
    assert not census._by_address
    assert not census._waiting
    assert not census.by_user()


def arrived(census: Census, host: str) -> Guest:
    guest = census.arrive(host, lambda: None)
    assert isinstance(guest, Guest)
    return guest
