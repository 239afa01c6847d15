"""What is remembered of topics that are about to be there: a principal's own, within its share."""

from proxy.session.expected import WITHIN, Charge, Expected


def charge(when: float = 0.0, *, until_seen: bool = False) -> Charge:
    return Charge(object(), 0, 1, when, until_seen)


def test_a_topic_is_expected_for_a_moment():
    expected, one = Expected(), charge()
    expected.add("alice", "x", one)
    assert expected.still("alice", "x", WITHIN) is one
    assert expected.still("alice", "x", WITHIN + 0.1) is None
    assert expected.drop("alice", "x") is one
    assert expected.drop("alice", "x") is None
    assert len(expected) == 0


def test_one_that_lasts_is_expected_until_it_is_seen():
    expected, one = Expected(), charge(until_seen=True)
    expected.add("alice", "x", one)
    assert expected.still("alice", "x", 1e6) is one
    assert expected.seen("x") == [one]
    assert expected.still("alice", "x", 0.0) is None


def test_a_topic_that_is_seen_is_expected_by_nobody():
    expected, hers, his = Expected(), charge(), charge()
    expected.add("alice", "x", hers)
    expected.add("bob", "x", his)
    expected.add("bob", "y", charge())
    assert expected.seen("x") == [hers, his]
    assert expected.seen("x") == []
    assert len(expected) == 1


def test_what_is_charged_again_takes_the_place_of_the_first():
    expected, again = Expected(), charge(6.0)
    expected.add("alice", "x", charge())
    expected.add("alice", "x", again)
    assert expected.still("alice", "x", 7.0) is again
    assert len(expected) == 1


def test_who_names_too_many_forgets_their_own_the_oldest_first():
    expected = Expected(1000)
    expected.add("victim", "mine", charge())
    for i in range(2000):
        expected.add("flood", f"t-{i}", charge())
    assert expected.still("victim", "mine", 0.0)
    assert expected.still("flood", "t-1999", 0.0)
    assert expected.still("flood", "t-0", 0.0) is None
    assert len(expected) < 1000
    for i in range(50):
        expected.add("victim", f"more-{i}", charge())
    assert all(expected.still("victim", f"more-{i}", 0.0) for i in range(50)), "there is room for others"
