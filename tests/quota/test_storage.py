"""Storage: what the volumes of a cluster ask for, worked out by hand from seeds s0 and s3."""

from __future__ import annotations

from math import inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.kinds.storage import (
    LEAST_RATE,
    Below,
    Check,
    Gap,
    Happened,
    Reason,
    Replicas,
    Scope,
    Storage,
    StorageLimits,
    Volume,
    line,
)
from quota.windows.trend import Trend, seconds_until

MINUTE = 60.0
TOTAL = 1000
SINGLE = StorageLimits(Below(100), Below(100), margin=0.0)
SILENT = Gap(Reason.BROKER, "broker 2 does not answer", broker_id=2)
BOTH = frozenset({1, 2})


def volume(available: int, broker_id: int = 1, log_dir: str = "/data", total: int = TOTAL) -> Volume:
    return Volume(broker_id, log_dir, total, available)


def check(at: float, *volumes: Volume, gaps: tuple[Gap, ...] = (), **more: object) -> Check:
    return Check(at, volumes, gaps=gaps, brokers=BOTH, **more)  # type: ignore[arg-type]


def happened(storage: Storage, seen: Check) -> list[Happened]:
    return [event.what for event in storage.observe(seen)]


# the factor of one volume


@pytest.mark.parametrize(
    ("soft", "hard", "available", "factor"),
    [
        (Below(100), Below(100), 101, 1.0),
        (Below(100), Below(100), 100, 0.0),
        (Below(100), Below(100), 0, 0.0),
        (Below(ratio=0.1), Below(ratio=0.1), 101, 1.0),
        (Below(ratio=0.1), Below(ratio=0.1), 100, 0.0),
        (Below(500), Below(100), 500, 1.0),
        (Below(500), Below(100), 300, 0.5),
        (Below(500), Below(100), 200, 0.25),
        (Below(500), Below(100), 100, 0.0),
        (Below(ratio=0.5), Below(100), 300, 0.5),
        (Below(500), Below(ratio=0.1), 400, 0.75),
        (Below(ratio=0.05), Below(100), 101, 1.0),
        (Below(ratio=0.05), Below(100), 99, 0.0),
        (Below(ratio=1), Below(ratio=0), 1000, 1.0),
        (Below(ratio=0), Below(ratio=0), 0, 0.0),
    ],
)
def test_a_straight_line_between_the_limits(soft: Below, hard: Below, available: int, factor: float) -> None:
    storage = Storage(StorageLimits(hard, soft, margin=0.0))
    storage.observe(check(0, volume(available)))
    assert isclose(storage.factor, factor)
    assert storage.calm == (factor == 1)


def test_the_lowest_volume_decides() -> None:
    storage = Storage(StorageLimits(Below(100), Below(500), margin=0.0))
    storage.observe(check(0, volume(300), volume(900, 2), volume(200, 2, "/other")))
    assert storage.factor == 0.25
    assert storage.worst is not None
    assert str(storage.worst.volume) == "/other of broker 2"


def test_a_volume_that_is_told_twice_is_as_bad_as_the_worse() -> None:
    for order in ((volume(50), volume(900)), (volume(900), volume(50))):
        storage = Storage(SINGLE)
        storage.observe(check(0, *order))
        assert storage.factor == 0.0


# fallback and validity


def test_the_example_of_seed_s3() -> None:
    """Validity 2 minutes, fallback 0.0; minutes 0 and 4 succeed, 1 to 3 fail."""
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=0.0, validity=2 * MINUTE))
    seen = []
    for minute in range(5):
        gaps = () if minute in (0, 4) else (SILENT,)
        storage.observe(check(minute * MINUTE, volume(900), gaps=gaps))
        seen.append(storage.factor)
    assert seen == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert storage.counts.fallbacks == {Reason.BROKER: 1}


def test_the_default_validity_is_five_minutes() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=0.0))
    storage.observe(check(0, volume(900)))
    seen = {}
    for minute in range(1, 8):
        storage.observe(check(minute * MINUTE, gaps=(SILENT,)))
        seen[minute] = storage.factor
    assert seen == {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0, 6: 0.0, 7: 0.0}
    assert storage.counts.fallbacks == {Reason.BROKER: 2}, "it counts ticks"


def test_no_validity_is_the_fallback_at_the_first_failure() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=0.3, validity=0.0))
    storage.observe(check(0, volume(900)))
    assert storage.factor == 1.0
    storage.observe(check(1, volume(900), gaps=(SILENT,)))
    assert storage.factor == 0.3


def test_before_the_first_success_the_fallback_holds() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=0.0))
    assert (storage.factor, storage.calm) == (0.0, False)
    assert storage.gap is not None
    assert happened(storage, check(0, gaps=(Gap(Reason.CLUSTER, "nobody answers"),))) == [Happened.INCOMPLETE, Happened.FALLBACK]
    assert storage.factor == 0.0
    assert happened(storage, check(60, volume(900))) == [Happened.KNOWN]
    assert (storage.factor, storage.gap) == (1.0, None)


def test_what_is_known_of_one_volume_is_not_opened_by_what_is_not_known_of_another() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=1.0, validity=0.0))
    storage.observe(check(0, volume(900), volume(900, 2)))
    assert storage.factor == 1.0
    storage.observe(check(60, volume(50), gaps=(SILENT,)))
    assert storage.factor == 0.0, "a breach that was seen counts, though the check is not complete"


def test_a_full_broker_that_vanishes_stays_in_trouble_while_its_sighting_is_valid() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), validity=5 * MINUTE))
    assert happened(storage, check(0, volume(900), volume(50, 2))) == [Happened.FULL]
    for minute in range(1, 6):  # fenced: DescribeCluster does not name it, and nothing is missing
        storage.observe(Check(minute * MINUTE, (volume(900),), brokers=frozenset({1})))
        assert storage.factor == 0.0, minute
    assert happened(storage, Check(6 * MINUTE, (volume(900),), brokers=frozenset({1}))) == [Happened.FORGOTTEN]
    assert storage.factor == 1.0


def test_a_full_broker_that_does_not_answer_stays_in_trouble_until_the_fallback() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), validity=5 * MINUTE))
    storage.observe(check(0, volume(900), volume(50, 2)))
    for minute in range(1, 6):
        storage.observe(check(minute * MINUTE, volume(900), gaps=(SILENT,)))
        assert storage.factor == 0.0, minute
    assert set(happened(storage, check(6 * MINUTE, volume(900), gaps=(SILENT,)))) == {Happened.FORGOTTEN, Happened.FALLBACK}
    assert storage.factor == 1.0


def test_it_is_released_at_once_when_it_is_seen_to_be_well() -> None:
    storage = Storage(SINGLE)
    storage.observe(check(0, volume(50, 2)))
    assert happened(storage, check(60, volume(500, 2))) == [Happened.RELEASED]
    assert storage.calm


def test_a_healthy_volume_of_a_broker_that_left_is_forgotten() -> None:
    storage = Storage(SINGLE)
    storage.observe(check(0, volume(900), volume(900, 2)))
    storage.observe(Check(60, (volume(900),), brokers=frozenset({1})))
    assert (len(storage), storage.brokers) == (1, 1)


def test_what_a_check_does_not_see_is_said_though_what_is_known_still_holds() -> None:
    storage = Storage(SINGLE)
    assert happened(storage, check(0, volume(900), volume(900, 2))) == []
    assert happened(storage, check(60, volume(900), gaps=(SILENT,))) == [Happened.INCOMPLETE]
    assert (storage.gap, storage.missing) == (None, (SILENT,))
    assert happened(storage, check(120, volume(900), gaps=(SILENT,))) == []
    assert happened(storage, check(180, volume(900), volume(900, 2))) == [Happened.KNOWN]
    assert storage.missing == ()


def test_log_lines_come_once() -> None:
    storage = Storage(StorageLimits(Below(100), Below(500), fallback=0.5, validity=0.0, margin=0.0))
    story = [
        (check(0, volume(900)), []),
        (check(1, volume(400)), [Happened.SLOWED]),
        (check(2, volume(300)), []),
        (check(3, volume(100)), [Happened.FULL]),
        (check(4, volume(90)), []),
        (check(5, volume(200)), [Happened.SLOWED]),
        (check(6, volume(600)), [Happened.RELEASED]),
        (check(7, gaps=(SILENT,)), [Happened.INCOMPLETE, Happened.FALLBACK]),
        (check(8, gaps=(SILENT,)), []),
        (check(9, volume(900)), [Happened.KNOWN]),
    ]
    for seen, expected in story:
        assert [event for event in happened(storage, seen) if event is not Happened.WARNING] == expected, seen.at
    assert storage.counts.violations == 5, "one for each volume and tick"


def test_a_clock_that_jumps_makes_what_is_known_old_and_nothing_worse() -> None:
    """A machine that slept: a check that sees everything is as good as ever, one that does not brings the fallback."""
    hour = 3600.0
    storage = Storage(StorageLimits(Below(100), Below(100), fallback=0.5))
    storage.observe(check(0, volume(900), volume(50, 2)))
    storage.observe(check(hour, volume(900), volume(900, 2)))
    assert storage.calm
    assert set(happened(storage, check(2 * hour, gaps=(SILENT,)))) == {Happened.INCOMPLETE, Happened.FALLBACK}
    assert storage.factor == 0.5


# hysteresis


def test_a_volume_has_to_be_better_than_its_limit_to_be_well_again() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), margin=0.1))
    story = {101: 1.0, 100: 0.0, 101.5: 0.0, 110: 0.0, 111: 1.0, 105: 1.0, 99: 0.0}
    for at, (available, factor) in enumerate(story.items()):
        storage.observe(check(at, volume(int(available))))
        assert storage.factor == factor, available


def test_a_margin_that_no_volume_could_meet_is_cut() -> None:
    storage = Storage(StorageLimits(Below(ratio=0.98), Below(ratio=0.98), margin=1.0))
    storage.observe(check(0, volume(980)))
    storage.observe(check(1, volume(1000)))
    assert storage.factor == 1.0


@given(
    st.lists(st.integers(0, TOTAL), min_size=1),
    st.integers(0, TOTAL),
    st.integers(0, TOTAL),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_the_factor_is_never_above_the_line_and_an_empty_volume_is_free(
    seen: list[int], one: int, other: int, margin: float
) -> None:
    hard, soft = sorted((one, other))
    storage = Storage(StorageLimits(Below(hard), Below(soft), margin=margin))
    before = 1.0
    for at, available in enumerate([*seen, TOTAL]):
        storage.observe(check(at, volume(available)))
        allowed = line(available, hard, soft)
        assert storage.factor <= allowed
        assert storage.factor <= before or storage.factor <= allowed
        assert margin > 0 or storage.factor == allowed
        before = storage.factor
    assert storage.factor == 1.0 or soft == TOTAL


# scope volume


def held(*partitions: tuple[str, int]) -> Replicas:
    found: dict[str, frozenset[int]] = {}
    for topic, partition in partitions:
        found[topic] = found.get(topic, frozenset()) | {partition}
    return Replicas(found)


BY_VOLUME = StorageLimits(Below(100), Below(500), scope=Scope.VOLUME, margin=0.0)


def test_only_partitions_with_a_replica_on_a_volume_in_trouble() -> None:
    storage = Storage(BY_VOLUME)
    full, slow = volume(50), volume(300, 2)
    replicas = {
        full.key: held(("a", 0)),
        slow.key: held(("a", 0), ("a", 1)),
        (2, "/well"): held(("a", 2), ("b", 0)),
    }
    storage.observe(check(0, full, slow, volume(900, 2, "/well"), replicas=replicas))
    assert (storage.factor, storage.lowest, storage.calm) == (1.0, 0.0, False)
    found = {partition: storage.trouble("a", partition) for partition in range(4)}
    assert {partition: seen and seen.factor for partition, seen in found.items()} == {0: 0.0, 1: 0.5, 2: None, 3: None}
    assert storage.trouble("b", 0) is None


def test_reassignments_and_deletions_are_followed() -> None:
    storage = Storage(BY_VOLUME)
    full, other = volume(50), volume(900, 2)
    storage.observe(check(0, full, other, replicas={full.key: held(("a", 0)), other.key: held(("b", 0))}))
    assert storage.trouble("a", 0) is not None
    storage.observe(check(60, full, other, replicas={full.key: held(("b", 0)), other.key: held(("a", 0))}))
    assert storage.trouble("a", 0) is None
    assert storage.trouble("b", 0) is not None
    storage.observe(check(120, full, other, replicas={full.key: held()}))
    assert storage.trouble("b", 0) is None


def test_replicas_that_were_not_asked_for_are_those_that_were_told_last() -> None:
    storage = Storage(BY_VOLUME)
    storage.observe(check(0, volume(900), replicas={volume(0).key: held(("a", 0))}))
    storage.observe(check(60, volume(50)))
    assert storage.trouble("a", 0) is not None


def test_with_scope_volume_the_fallback_is_for_everybody() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), scope=Scope.VOLUME, fallback=0.5, validity=0.0))
    storage.observe(check(0, volume(900)))
    assert (storage.factor, storage.calm) == (1.0, True)
    storage.observe(check(60, gaps=(SILENT,)))
    assert (storage.factor, storage.calm) == (0.5, False)


def test_replicas_are_asked_for_where_they_matter() -> None:
    storage = Storage(BY_VOLUME)
    assert storage.wants_replicas(1, 0.0, 60.0), "nothing is known"
    storage.observe(check(0, volume(900), replicas={volume(0).key: held()}))
    assert not storage.wants_replicas(1, 59.0, 60.0)
    assert storage.wants_replicas(1, 60.0, 60.0)
    storage.observe(check(60, volume(700), replicas={volume(0).key: held()}))
    assert storage.wants_replicas(1, 61.0, 60.0), "it is near its limit"


def test_what_is_asked_of_a_partition_and_why() -> None:
    storage = Storage(BY_VOLUME)
    full, slow = volume(50, total=1 << 40), volume(300, 2)
    replicas = {full.key: held(("a", 0)), slow.key: held(("b", 0))}
    storage.observe(check(0, full, slow, replicas=replicas))
    asked = [storage.asks(*part) for part in (("a", 0), ("b", 0), ("b", 1), ("c", 0), (None, 0))]
    assert [factor for factor, _ in asked] == [0.0, 0.5, 1.0, 1.0, 0.0], "what is not known may be anywhere"
    assert [storage.concerns(topic) for topic in "abc"] == [True, True, False]
    assert storage.why(asked[0][1]) == (
        "Volume /data of broker 1 is at its limit: 50 B of 1 TiB available, limit 100 B, released above 100 B."
    )
    assert storage.why(asked[1][1]) == (
        "Volume /data of broker 2 is past its soft limit: 300 B of 1000 B available, soft limit 500 B, hard limit 100 B;"
        " the throttle factor is 0.5."
    )


def test_with_scope_cluster_everybody_is_asked_for_the_worst_volume() -> None:
    storage = Storage(StorageLimits(Below(100), Below(500), fallback=0.25, validity=0.0, margin=0.0))
    storage.observe(check(0, volume(900), volume(300, 2)))
    factor, seen = storage.asks("a", 0)
    assert (factor, seen and seen.volume.broker_id) == (0.5, 2)
    assert storage.concerns("a")
    storage.observe(check(1, volume(900), gaps=(SILENT,)))
    factor, seen = storage.asks("a", 0)
    assert (factor, seen) == (0.25, None)
    assert "broker 2 does not answer" in storage.why(seen)


# forecast


def test_the_time_to_the_limit_is_told_before_it_is_there() -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), warn_before=30.0))
    warnings = []
    for at in range(0, 90, 10):  # it fills by 10 a second
        warnings += [event for event in storage.observe(check(at, volume(TOTAL - 10 * at))) if event.what is Happened.WARNING]
    (warning,) = warnings
    assert warning.seen is not None
    (seen,) = storage.volumes
    assert isclose(seen.fill_rate or 0, 10)
    assert isclose(seen.seconds_left, (200 - 100) / 10)


def test_below_the_soft_limit_it_is_the_time_to_the_hard_one() -> None:
    storage = Storage(StorageLimits(Below(100), Below(500), margin=0.0))
    for at in range(7):
        storage.observe(check(at, volume(TOTAL - 100 * at)))
    (seen,) = storage.volumes
    assert isclose(seen.seconds_left, 3)


@pytest.mark.parametrize("values", [[], [900], [900, 800], [500, 500, 500], [100, 200, 300]])
def test_a_volume_that_does_not_fill_has_no_end(values: list[int]) -> None:
    storage = Storage(SINGLE)
    for at, available in enumerate(values):
        assert not storage.observe(check(at, volume(available + 500, total=2000)))
    assert all(seen.seconds_left == inf for seen in storage.volumes)


def test_a_clock_that_stands_still_or_goes_back_divides_by_nothing() -> None:
    trend = Trend(5)
    for at in (10.0, 10.0, 10.0, 9.0, 9.0):
        trend.see(1.0, at)
        assert trend.slope() is None
    for at in (11.0, 12.0, 13.0):
        trend.see(-at, at)
    assert seconds_until(5.0, 1.0, trend.slope()) > 0


# who is slowed, and changes of settings


def test_whoever_has_no_rate_is_slowed_from_what_it_did_when_the_limit_was_crossed() -> None:
    storage = Storage(StorageLimits(Below(100), Below(500), margin=0.0))
    storage.observe(check(0, volume(900)), lambda: {"alice": 1e9})
    storage.observe(check(1, volume(400)), lambda: {"alice": 5e6, "bob": 3.0})
    storage.observe(check(2, volume(300)), lambda: {"alice": 1.0})
    assert (storage.rate_of("alice"), storage.rate_of("bob"), storage.rate_of("carol")) == (5e6, LEAST_RATE, LEAST_RATE)
    storage.observe(check(3, volume(900)), lambda: {"alice": 1.0})
    storage.observe(check(4, volume(400)), lambda: {"alice": 7e6})
    assert storage.rate_of("alice") == 7e6


def test_a_change_of_settings_holds_at_once() -> None:
    storage = Storage(None)
    assert (storage.calm, storage.factor, storage.observe(check(0, volume(0)))) == (True, 1.0, [])
    storage.change(SINGLE)
    assert (storage.factor, storage.gap and storage.gap.reason) == (1.0, Reason.NOT_YET)
    storage.observe(check(1, volume(300)))
    assert storage.calm
    storage.change(StorageLimits(Below(300), Below(300)))
    assert (storage.factor, storage.calm) == (0.0, False)
    storage.change(StorageLimits(Below(299), Below(299)))
    assert storage.calm, "without a margin"
    storage.change(StorageLimits(Below(100), Below(500), margin=0.0))
    assert storage.factor == 0.5
    storage.change(None)
    assert (storage.calm, storage.factor, len(storage)) == (True, 1.0, 0)


# what a check could not see


ALL = ((1, "/a"), (1, "/b"), (2, "/a"))


@pytest.mark.parametrize(
    ("gap", "kept"),
    [
        (Gap(Reason.CLUSTER, "nobody answers"), ALL),
        (Gap(Reason.BROKER, "broker 1 does not answer", 1), ALL[:2]),
        (Gap(Reason.VOLUME, "a volume cannot be read", 1, "/b"), ALL[1:2]),
        (Gap(Reason.VOLUME, "a volume cannot be read", None, "/a"), (ALL[0], ALL[2])),
    ],
)
def test_volumes_that_could_not_be_asked_stay_known_and_others_that_were_not_seen_are_gone(gap: Gap, kept: object) -> None:
    storage = Storage(StorageLimits(Below(100), Below(100), validity=60.0))
    storage.observe(check(0, *(volume(900, *key) for key in ALL)))
    storage.observe(check(60, gaps=(gap,)))
    assert tuple(sorted(seen.volume.key for seen in storage.volumes)) == kept
    storage.observe(check(61, gaps=(gap,)))
    assert len(storage) == 0, "not for longer than what was seen is valid"


def test_a_volume_in_trouble_that_is_kept_keeps_no_other_one() -> None:
    storage = Storage(SINGLE)
    storage.observe(check(0, volume(50), volume(900, 2)))
    storage.observe(Check(60))
    assert [seen.volume.broker_id for seen in storage.volumes] == [1]
