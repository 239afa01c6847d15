"""The schedule of faults, without any part: the same for the same seed, each kind in turn."""

from __future__ import annotations

from itertools import islice

from tests.chaos.schedule import KINDS, PAUSES, schedule


def test_a_seed_gives_the_same_faults_again() -> None:
    first, again, other = (list(islice(schedule(seed), 100)) for seed in (1, 1, 2))
    assert first == again != other


def test_each_kind_comes_before_any_comes_again_and_each_part_is_hit() -> None:
    for seed in range(20):
        some = list(islice(schedule(seed), len(KINDS) * 20))
        for i in range(0, len(some), len(KINDS)):
            assert {fault.kind for fault in some[i : i + len(KINDS)]} == set(KINDS)
        for kind in KINDS:
            of_kind = [fault for fault in some if fault.kind is kind]
            assert {fault.target for fault in of_kind} == set(range(kind.of))
            assert all(0 <= fault.seconds <= kind.longest and PAUSES[0] <= fault.pause <= PAUSES[1] for fault in of_kind)
