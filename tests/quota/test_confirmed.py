"""Which users may count against which topics: what brokers confirmed, divided among users."""

from quota.confirmed import HOLDS, SWEPT, Confirmations


def test_a_pair_is_confirmed_and_revoked_for_that_user_and_topic_alone():
    table = Confirmations()
    pair = table.confirm("alice", "orders", 0.0)
    assert pair.confirmed
    assert table.find("alice", "orders") is pair
    assert table.confirm("alice", "orders", 1.0) is pair
    assert not table.find("bob", "orders").confirmed
    assert not table.find("alice", "bills").confirmed
    table.revoke("bob", "orders")
    assert pair.confirmed
    table.revoke("alice", "orders")
    assert not pair.confirmed, "connections that keep it see it at once"
    assert len(table) == 0


def test_one_user_cannot_use_up_the_room_of_others():
    table = Confirmations(90)
    victim = table.confirm("victim", "orders", 0.0)
    for i in range(10_000):
        table.confirm("greedy", f"t{i}", 1.0)
    assert len(table) <= 90
    assert victim.confirmed
    assert table.find("greedy", "t9999").confirmed, "the oldest make room"
    assert not table.find("greedy", "t0").confirmed
    assert table.confirm("new", "orders", 2.0).confirmed


def test_a_confirmation_holds_an_hour():
    table = Confirmations()
    old, renewed = table.confirm("alice", "a", 0.0), table.confirm("alice", "b", 0.0)
    table.confirm("alice", "b", 100.0)
    table.sweep(HOLDS + 1)
    assert (old.confirmed, renewed.confirmed, len(table)) == (False, True, 1)
    table.sweep(HOLDS + 200)
    assert len(table) == 0


def test_a_sweep_forgets_a_bounded_number_of_confirmations_of_a_user() -> None:
    confirmed = Confirmations()
    for i in range(SWEPT + 10):
        confirmed.confirm("alice", f"topic-{i}", 0.0)
    confirmed.sweep(HOLDS + 1)
    assert len(confirmed) == 10
