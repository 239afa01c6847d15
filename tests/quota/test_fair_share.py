"""Dividing a bounded resource: what greedy principals leave for others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.fair_share import EAGERNESS, FairShare


def fill(share: FairShare, principal: str) -> int:
    """Take all that one principal gets."""
    taken = 0
    while share.take(principal):
        taken += 1
    return taken


def test_one_principal_alone_gets_most_of_it() -> None:
    share = FairShare(9000)
    assert fill(share, "mallory") == pytest.approx(8000, abs=EAGERNESS)


@given(st.integers(0, 50), st.integers(1, 10_000))
def test_whoever_comes_after_greedy_principals_finds_room(greedy: int, total: int) -> None:
    share = FairShare(total)
    for i in range(greedy):
        fill(share, f"mallory-{i}")
    assert fill(share, "alice") >= max(share.least, 0 if greedy else total * EAGERNESS // (EAGERNESS + 1))
    assert share.held <= total + (greedy + 1) * share.least


def test_the_second_principal_gets_most_of_what_the_first_has_left() -> None:
    share = FairShare(9000)
    fill(share, "mallory")
    assert fill(share, "alice") == pytest.approx(888, abs=EAGERNESS)


def test_what_is_given_back_is_there_for_others() -> None:
    share = FairShare(100)
    assert share.take("alice", 80)
    assert not share.take("alice", 20)
    share.give_back("alice", 80)
    assert (share.held, share.held_by("alice")) == (0, 0)
    assert share.take("bob", 80)


def test_what_is_there_already_is_charged_even_without_room() -> None:
    share = FairShare(10)
    share.charge("alice", 25)
    assert share.held == share.held_by("alice") == 25
    assert share.has_room("bob", share.least)
    assert not share.has_room("bob", share.least + 1)
