"""Traffic of the last ten minutes, and what quotas did to whom: right, and bounded."""

from __future__ import annotations

from proxy.observe.activity import MOST, POINT, POINTS, Activity
from proxy.observe.decision_totals import KEPT, DecisionTotals
from proxy.observe.decision_totals import MOST as MOST_TOTALS
from proxy.session.requester import Requester
from proxy.session.tally import OTHER, Row, TallyKey
from quota.decision import Action, Decision
from quota.entity import OTHERS, Entity
from quota.steps import finish_at_once


def row(user: str, client_id: str | None, requests: int, size: int = 0, topic: str | None = None) -> Row:
    return Row(TallyKey(f"User:{user}", client_id, topic, None, 0), requests, size, 2 * size, 0, 0, 0, 0, {})


def close(activity: Activity, end: float, seconds: float, rows: list[Row]) -> None:
    finish_at_once(activity.closed(end, seconds, rows))


def rates(activity: Activity) -> dict[Entity, tuple[float, ...]]:
    return {entity: tuple(found) for entity, found in activity.ranked}


def test_rates_are_of_the_last_ten_seconds_and_rows_of_topics_are_not_counted_twice():
    activity = Activity()
    close(activity, 1000.0, 10.0, [row("a", "x", 50, 1000), row("a", "x", 30, 500), row("a", "x", 99, 99, "orders")])
    assert rates(activity) == {Entity("a", "x"): (150, 300, 8, 0)}
    close(activity, 1010.0, 10.0, [])
    assert rates(activity) == {Entity("a", "x"): (0, 0, 0, 0)}
    (_, traffic), *_ = activity
    assert traffic.history(2, activity.newest)[-3:] == [0, 80, 0]


def test_intervals_of_other_lengths_make_the_same_points():
    long, short = Activity(), Activity()
    close(long, 1200.0, 60.0, [row("a", "x", 600)])
    (_, traffic), *_ = long
    assert traffic.history(2, long.newest)[-7:] == [0, 100, 100, 100, 100, 100, 100]
    for second in range(1, 21):
        close(short, 1000.0 + second, 1.0, [row("a", "x", 7)])
    (_, traffic), *_ = short
    assert traffic.history(2, short.newest)[-3:] == [0, 70, 70]
    assert all(len(traffic.history(2, newest)) == POINTS for newest in range(300))


def test_what_is_older_than_the_history_is_forgotten():
    activity = Activity()
    close(activity, 1000.0, 10.0, [row("a", "x", 1)])
    close(activity, 1000.0 + POINT * (POINTS - 1), 10.0, [row("b", "y", 1)])
    assert len(activity) == 2
    close(activity, 1000.0 + POINT * POINTS, 10.0, [])
    assert [entity.user for entity, _ in activity] == ["b"]
    close(activity, 900.0, 10.0, [row("b", "y", 1)])  # the wall clock was set back
    assert len(activity) == 1


def test_client_ids_of_one_user_leave_room_for_others():
    activity = Activity()
    close(activity, 1000.0, 10.0, [row("mallory", f"c{i}", 1) for i in range(2 * MOST)] + [row("bob", "x", 5)])
    found = rates(activity)
    assert len(found) <= MOST
    assert found[Entity("bob", "x")][2] == 0.5
    assert (
        sum(it[2] for entity, it in found.items() if entity.user == "mallory") == 2 * MOST / 10
        or abs(sum(it[2] for entity, it in found.items() if entity.user == "mallory") - 2 * MOST / 10) < 1e-6
    )
    assert found[Entity("mallory", OTHER)][2] > 1


def test_totals_are_bounded_and_forgotten():
    now = [0.0]
    totals = DecisionTotals(lambda: now[0])
    for i in range(2 * MOST_TOTALS):
        decision = Decision("q", Action.THROTTLE, Entity("mallory", f"c{i}"), (), 2.0, 1.0, 1.0, "why")
        totals.decided(decision, Requester("User:mallory", f"c{i}", "h:1", 0, 0), "enforce")
    assert len(totals) <= MOST_TOTALS
    assert sum(it.throttle_seconds for _, it in totals) == 2 * MOST_TOTALS
    assert max(totals, key=lambda it: it[1].throttle_seconds)[0] == ("q", "enforce", Entity("mallory", OTHERS))
    now[0] = KEPT + 1
    totals.sweep()
    assert len(totals) == 0
