"""Connections of users at other proxies: who is gone is forgotten, unless it is this proxy that hears nothing."""

import pytest

from proxy.session.budget import Census
from proxy.session.presence import ALL, LIFE, MOST, Presence


def pair(limit: int | None = 3) -> tuple[Census, Presence]:
    census = Census(100, per_principal=limit)
    return census, Presence(census)


def test_counts_are_told_as_they_change_and_all_of_them_now_and_then() -> None:
    census, presence = pair()
    census.identify("ANONYMOUS", "alice")
    assert presence.tell(0.0) == ["connections", True, {"alice": 1}]
    assert presence.tell(0.1) is None
    census.identify("ANONYMOUS", "alice")
    census.identify("ANONYMOUS", "bob")
    assert presence.tell(0.2) == ["connections", False, {"alice": 2, "bob": 1}]
    census.forget("bob")
    assert presence.tell(0.3) == ["connections", False, {"bob": 0}]
    assert presence.tell(ALL) == ["connections", True, {"alice": 2}]


def test_nothing_is_told_where_nothing_is_limited() -> None:
    census, presence = pair(None)
    census.identify("ANONYMOUS", "alice")
    assert presence.tell(0.0) is None


def test_a_proxy_that_says_nothing_any_more_is_gone() -> None:
    census, presence = pair()
    presence.hear("p1", ["connections", True, {"alice": 2, "bob": 1}], 0.0, 0.0)
    presence.hear("p2", ["connections", False, {"alice": 1}], 0.0, 5.0)
    assert census.elsewhere == {"alice": 3, "bob": 1}
    presence.hear("p1", ["connections", False, {"bob": 0}], 0.0, 1.0)
    assert census.elsewhere == {"alice": 3}
    presence.sweep(1.0 + LIFE + 0.1, away=True)
    assert census.elsewhere == {"alice": 3}
    presence.sweep(20.0, away=False)
    assert not census.elsewhere
    presence.hear("p3", ["connections", True, {"alice": 9}], LIFE, 21.0)
    assert not census.elsewhere, "that was long ago"


def test_users_of_another_proxy_are_bounded_however_often_it_tells() -> None:
    census, presence = pair()
    for i in range(30):
        presence.hear("p1", ["connections", False, {f"user-{i}-{j}": 1 for j in range(1000)}], 0.0, 0.0)
    assert len(census.elsewhere) == MOST


@pytest.mark.parametrize("event", [["connections"], ["connections", True, {"a": -1}], ["connections", 1, {}], ["else"], "text"])
def test_what_is_no_count_is_refused(event: list[object]) -> None:
    _, presence = pair()
    with pytest.raises(ValueError, match="no counts"):
        presence.hear("p1", event, 0.0, 0.0)
