"""The isolation matrix: whatever somebody else does, alice notices nothing, and what it takes is bounded. docs/isolation.md is the
table of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.isolation.attack import Attack
from benchmarks.isolation.attacks import ATTACKS
from benchmarks.isolation.tenants import BURST, CONNECTIONS, MALLORIES, MEMORY, MIB, RATE, NoFullVolume
from benchmarks.isolation.victims import KINDS, WORKLOADS
from quota.catalogue import TENANT_KINDS
from tests.isolation.cells import VARIATIONS, cells, page
from tests.isolation.matrix import Matrix, Outcome, matrix
from tests.redis_server import MISSING, program

LARGEST = 8 * MIB
"""`max_frame`: one request goes on whatever the memory is."""
BESIDE = 48 * MIB
"""What else the process may grow by: the allocator, logs, metrics."""
FENCES = 90_000
"""of 100,000 in all: one principal alone gets 8/9"""
FILES = 60
"""descriptors beside the two of each connection"""
SLACK = 60
"""partitions: a topic is created as a whole while the burst is not used up, and spreading lets a second one pass soon after"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    try:
        with matrix(tmp_path_factory.mktemp("isolation")) as made:
            yield made
    except NoFullVolume as e:
        pytest.skip(str(e))


def outcome(runs: Matrix, attack: Attack) -> Outcome:
    if attack.fleet and program() is None:
        pytest.skip(MISSING)
    return runs.of(attack)


def param(attack: Attack, *more: str) -> Any:
    """An attack as a parameter, for the night if it is a variation of another one."""
    return pytest.param(
        attack, *more, id="-".join((attack.name, *more)), marks=[pytest.mark.nightly] if attack.name in VARIATIONS else []
    )


attacks = pytest.mark.parametrize("attack", [param(attack) for attack in ATTACKS])


@pytest.mark.kafka
def test_alice_alone_notices_nothing(runs: Matrix) -> None:
    """Or no cell would say anything."""
    seen, used = runs.alone()
    assert {kind: noticed.hurt for kind, noticed in seen.items()} == {kind: [] for kind in KINDS}
    assert used.keys() == set(TENANT_KINDS.values()), "limits of her tenants"
    assert min(used.values()) > 0, used


@pytest.mark.kafka
@pytest.mark.parametrize(("attack", "kind"), [param(attack, kind) for attack, kind in cells()])
def test_alice_notices_nothing(runs: Matrix, attack: Attack, kind: str) -> None:
    """No error, no throttle time, no answer that is another one or comes in another order, none that takes for ever."""
    hurt = outcome(runs, attack).noticed[kind].hurt
    assert not hurt, "; ".join(hurt)


@pytest.mark.kafka
@attacks
def test_the_attack_was_one(runs: Matrix, attack: Attack) -> None:
    tally = outcome(runs, attack).tally
    assert all(getattr(tally, figure) > 0 for figure in attack.shows), tally


@pytest.mark.kafka
@attacks
def test_what_an_attack_takes_is_bounded(runs: Matrix, attack: Attack) -> None:
    found = outcome(runs, attack)
    assert found.failures == []
    assert found.took.held <= MEMORY + LARGEST
    assert found.took.grown <= MEMORY + BESIDE, f"the proxy grew by {found.took.grown >> 20} MiB"
    assert found.took.fences <= FENCES
    assert found.took.connections <= CONNECTIONS
    assert found.took.files <= 2 * CONNECTIONS + FILES
    if attack.gains is not None:
        most = attack.gains.at_once + attack.gains.rate * found.tally.seconds
        assert found.tally.gained <= most, f"{attack.gains.what}: {found.tally.gained}, more than {most:.0f}"
    assert found.partitions <= 2 * BURST + RATE * found.seconds + SLACK, "more partitions than its quota allows"
    assert not any(found.written.values()), "written to a volume that is full"


def test_the_page_is_of_this_table() -> None:
    assert Path("docs/isolation.md").read_text() == page(), "run `make docs`"


def test_every_kind_and_every_way_is_there() -> None:
    assert len({attack.way for attack in ATTACKS}) == 13
    assert len(cells()) > len(ATTACKS) * (len(KINDS) - 1)
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) <= MALLORIES


def test_every_limit_of_tenants_has_a_row() -> None:
    kinds = [kind for workload in WORKLOADS for kind in (workload.quota, *workload.of_tenant) if kind.startswith("tenant_")]
    assert sorted(kinds) == sorted(TENANT_KINDS.values())


def test_every_way_is_tried_before_every_push() -> None:
    always = {attack.name: attack.way for attack in ATTACKS if attack.name not in VARIATIONS}
    assert VARIATIONS.keys() | always.keys() == {attack.name for attack in ATTACKS}
    assert set(VARIATIONS.values()) <= always.keys()
    assert set(always.values()) == {attack.way for attack in ATTACKS}
