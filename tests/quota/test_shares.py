"""Which connection has had more of a shared rate than the others lately."""

from __future__ import annotations

import pytest

from quota.shares import AHEAD, LATELY, Share, Shares


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_a_connection_is_ahead_that_has_had_more_than_the_average_of_all(unit: float) -> None:
    shares = Shares()
    one, other, idle = Share(shares), Share(shares), Share(shares)
    one.add(AHEAD * unit, 0.0)
    assert not one.ahead(0.0), "it is all that there is"
    other.add((2 - AHEAD) * unit, 0.0)
    assert not one.ahead(0.0), "it has had 1.25 times the average, and not more"
    one.add(0.01 * unit, 0.0)
    assert [share.ahead(0.0) for share in (one, other, idle)] == [True, False, False]
    other.add(1.28 * unit, 1.0)
    assert [share.ahead(1.0) for share in (one, other)] == [False, True], "what came last weighs a little more"


def test_who_has_used_nothing_lately_is_out_of_it() -> None:
    shares = Shares()
    one, other = Share(shares), Share(shares)
    one.add(100, 0.0)
    other.add(1, 5.0)
    assert one.ahead(LATELY - 0.1)
    assert not one.ahead(LATELY)
    one.add(1, LATELY)
    assert not one.ahead(LATELY), "it begins anew"
    assert not other.ahead(LATELY + 4.9)
    assert not one.ahead(100.0)


def test_what_was_long_ago_weighs_nothing_however_long_connections_live() -> None:
    shares = Shares()
    one, other = Share(shares), Share(shares)
    for second in range(10_000):
        one.add(2 if second % 2 else 1, float(second))
        other.add(1 if second % 2 else 2, float(second))
        assert not one.ahead(float(second)), second
    one.add(20, 10_000.0)
    assert one.ahead(10_000.0)
    assert not other.ahead(10_000.0)
