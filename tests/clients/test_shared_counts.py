"""Workers of one proxy know at any time how many connections addresses and users have at all of them, and what memory they hold."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from proxy.clients.shared_counts import SharedCounts
from proxy.session.budget import Budget, Census, Guest
from tests.session.test_budget import Reader

WORKERS = 3


@pytest.fixture
def counts() -> Iterator[list[SharedCounts]]:
    """As each worker sees them: by a descriptor that it inherits."""
    _, fd = SharedCounts.make(WORKERS, 300)
    yield [SharedCounts(fd, WORKERS, worker) for worker in range(WORKERS)]
    os.close(fd)


def test_others_are_told_at_once_and_no_count_is_taken_for_another(counts: list[SharedCounts]) -> None:
    """However names come and go, in tables that are as full as they get."""
    choose, right = random.Random(1), [Counter[str]() for _ in range(WORKERS)]
    names = [f"10.0.{i // 250}.{i % 250}" for i in range(400)]
    for _ in range(5000):
        worker, name = choose.randrange(WORKERS), choose.choice(names)
        held = right[worker][name]
        right[worker][name] = held - 1 if held and (choose.random() < 0.5 or right[worker].total() >= 100) else held + 1
        right[worker] += Counter()  # those at 0 are gone
        if right[worker].total() > 100:
            right[worker][name] -= 1
        counts[worker].tell("address", name, right[worker][name])
        asked = choose.choice(names)
        expected = sum(right[other][asked] for other in range(WORKERS) if other != worker)
        assert counts[worker].elsewhere("address", asked) == expected
        assert counts[worker].elsewhere("user", asked) == 0


def test_a_worker_that_has_ended_has_no_connections(counts: list[SharedCounts]) -> None:
    for worker in (1, 2):
        counts[worker].tell("user", "alice", worker)
    counts[0].clear(2)
    assert counts[0].elsewhere("user", "alice") == 1
    assert counts[1].elsewhere("user", "alice") == 0


def arrive(census: Census, host: str) -> Guest | str:
    guest = census.arrive(host, lambda: None)
    if isinstance(guest, Guest):
        census.let_in(guest)
    return guest


def test_no_address_has_more_connections_than_its_limit_at_all_workers_together(counts: list[SharedCounts]) -> None:
    censuses = [Census(100, per_address=5, others=each) for each in counts]
    found = [arrive(censuses[i % WORKERS], "10.0.0.1") for i in range(9)]
    assert [isinstance(it, Guest) for it in found] == [True] * 5 + [False] * 4
    assert set(found[5:]) == {"max_connections_per_address"}
    assert isinstance(arrive(censuses[0], "10.0.0.2"), Guest), "another address"
    gone = found[1]
    assert isinstance(gone, Guest)
    censuses[1].leave(gone)
    assert isinstance(arrive(censuses[2], "10.0.0.1"), Guest), "there is room again, also at another worker"


def test_who_is_refused_takes_no_room_at_other_workers(counts: list[SharedCounts]) -> None:
    full, free = Census(1, per_address=2, others=counts[0]), Census(9, per_address=2, others=counts[1])
    assert isinstance(arrive(full, "a"), Guest)
    assert [arrive(full, "b") for _ in range(3)] == ["max_connections"] * 3
    assert isinstance(arrive(free, "b"), Guest)
    assert isinstance(arrive(free, "b"), Guest)


def test_a_place_that_is_taken_over_is_never_seen_free(counts: list[SharedCounts]) -> None:
    """A connection that was not let in makes room for another one of its address."""
    census, seen = Census(9, per_address=1, others=counts[0]), []
    evict = lambda: seen.append(counts[1].elsewhere("address", "a"))  # noqa: E731
    for _ in range(3):
        assert isinstance(census.arrive("a", evict), Guest)
    assert len(seen) == 2
    assert min(seen) >= 1
    assert counts[1].elsewhere("address", "a") == 1


def test_no_user_has_more_connections_than_its_limit_at_all_workers_together(counts: list[SharedCounts]) -> None:
    censuses = [Census(100, per_principal=4, others=each) for each in counts]
    assert [censuses[i % WORKERS].identify("ANONYMOUS", "alice") for i in range(4)] == [True] * 4
    assert not censuses[1].identify("ANONYMOUS", "alice")
    censuses[1].forget("alice")
    censuses[0].forget("alice")
    assert censuses[1].identify("ANONYMOUS", "alice")
    assert censuses[2].identify("ANONYMOUS", "bob")


def test_what_other_proxies_tell_of_a_user_is_not_counted_twice(counts: list[SharedCounts]) -> None:
    """With a ledger, a worker also hears of its siblings by the events of the fleet."""
    here, there = (Census(100, per_principal=3, others=each) for each in counts[:2])
    assert there.identify("ANONYMOUS", "alice")
    here.elsewhere["alice"] = 1
    assert here.identify("ANONYMOUS", "alice")
    here.elsewhere["alice"] = 2
    assert here.identify("ANONYMOUS", "alice") is False, "one more is at another proxy"


def test_a_users_share_is_of_all_connections_wherever_they_are(counts: list[SharedCounts]) -> None:
    """Of 90, 80 may be one user's, also where 30 of them are all that a worker has."""
    censuses = [Census(30, others=each) for each in counts]
    assert all(censuses[0].identify("ANONYMOUS", "alice") for _ in range(30))
    assert all(censuses[1].identify("ANONYMOUS", "alice") for _ in range(30))
    found = [censuses[2].identify("ANONYMOUS", "alice") for _ in range(30)]
    assert found == [True] * 20 + [False] * 10


MIB = 1 << 20


class Workers:
    """What each of them has of one `memory_total`. They look what others gave back when `look` is called."""

    def __init__(self, counts: list[SharedCounts], total: int) -> None:
        self._later: list[Callable[[], None]] = []
        self.budgets = [Budget(total, each, lambda _, look: self._later.append(look)) for each in counts]

    def look(self) -> int:
        """How many looked: those at which somebody waits."""
        due, self._later = self._later, []
        for each in due:
            each()
        return len(due)

    def reader(self, worker: int, size: int, principal: str = "alice") -> Reader:
        made = Reader(self.budgets[worker], principal)
        made.read(size)
        return made


def test_what_one_worker_holds_leaves_the_others_less_of_the_memory(counts: list[SharedCounts]) -> None:
    """Of 90 MiB, 80 are a user's, wherever they are; one of its connections goes on at each worker."""
    workers = Workers(counts, 90 * MIB)
    assert all(workers.reader(0, 20 * MIB).reads for _ in range(3)), "more than an equal part"
    assert workers.reader(1, 20 * MIB).reads
    first, second = (workers.reader(2, MIB) for _ in range(2))
    assert (first.reads, second.reads) == (True, False)
    assert workers.reader(2, MIB, "bob").reads, "what is left is for others"
    assert workers.budgets[2].waiting == 1


def test_who_waits_goes_on_when_another_worker_gave_memory_back(counts: list[SharedCounts]) -> None:
    workers = Workers(counts, 90 * MIB)
    large, ahead = workers.reader(0, 80 * MIB), workers.reader(1, MIB)
    waiting = [workers.reader(1, MIB) for _ in range(2)]
    assert [workers.look(), workers.look()] == [1, 1]
    assert [each.reads for each in (ahead, *waiting)] == [True, False, False]
    large.finish()
    workers.look()
    assert [each.reads for each in waiting] == [True, True]
    assert workers.look() == 0, "nobody waits any more"


def test_a_worker_that_has_ended_holds_nothing(counts: list[SharedCounts]) -> None:
    workers = Workers(counts, 90 * MIB)
    workers.reader(2, 90 * MIB)
    workers.reader(0, MIB)
    assert not workers.reader(0, MIB).reads
    counts[0].clear(2)
    assert workers.reader(0, MIB).reads


def test_users_together_hold_no_more_than_the_memory_and_their_least(counts: list[SharedCounts]) -> None:
    """However reads and ends come: beyond the total there is a request of each user at each worker that goes on, and reads under
    way."""
    choose, total, users = random.Random(2), 90 * MIB, ["alice", "bob", "carol"]
    workers, there = Workers(counts, total), list[Reader]()
    for _ in range(3000):
        if len(there) > 100 or (there and choose.random() < 0.3):
            there.pop(choose.randrange(len(there))).finish()
        elif choose.random() < 0.5 or not there:
            there.append(workers.reader(choose.randrange(WORKERS), 64 << 10, choose.choice(users)))
        elif (reader := choose.choice(there)).reads and reader.held < 8 * MIB:
            reader.read(MIB)
        if choose.random() < 0.2:
            workers.look()
        assert sum(each.held for each in workers.budgets) <= total + (8 + 1) * MIB * len(users) * WORKERS
        assert all(
            counts[i].held_elsewhere() == sum(b.held for b in workers.budgets) - workers.budgets[i].held for i in range(WORKERS)
        )
    for reader in there:
        reader.finish()
    assert [each.held for each in workers.budgets] == [0] * WORKERS
    assert [each.elsewhere("memory", user) for each in counts for user in users] == [0] * (WORKERS * len(users))
