"""Compiled modules and the same sources as pure Python do the same with the same bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.compiled import lacking
from tests import properties
from tests.fuzz.compare import Difference, compare, told
from tests.fuzz.pipelined import KEYS, PRODUCE

compiled = pytest.mark.skipif(lacking() is not None, reason=f"{lacking()}: make setup")

ANOTHER = """
import os, sys
from hashlib import sha256
sys.path.insert(0, os.getcwd())
from tests.fuzz.compare import told
key, first, frames = map(int, sys.argv[-3:])
print("compiled")
for seed in range(first, first + 6):
    done, came_out = told(key, seed)
    print(seed, done, sha256(repr(came_out).encode()).hexdigest() if seed != first + 3 else "different")
"""


@compiled
@pytest.mark.parametrize("key", KEYS)
def test_both_do_the_same(key: int) -> None:
    frames, found = compare(key, 0, properties.share(8_000))
    assert found == []
    assert frames >= properties.share(8_000)


@compiled
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("key", KEYS)
def test_both_do_the_same_with_a_million_frames(key: int) -> None:
    """The same defects in the first thousands: `test_both_do_the_same`."""
    assert compare(key, 1_000_000_000, 1_000_000)[1] == []


def test_a_dialogue_is_the_same_again() -> None:
    assert [told(PRODUCE, seed) for seed in range(40)] == [told(PRODUCE, seed) for seed in range(40)]


def test_a_difference_is_told_with_its_seed(tmp_path: Path) -> None:
    """In the place of compiled modules there is a process that has another outcome of one dialogue, and ends early."""
    (tmp_path / "another.py").write_text(ANOTHER)
    _, found = compare(PRODUCE, 100, 1000, f"{sys.executable} {tmp_path}/another.py")
    assert found == [
        Difference(PRODUCE, 103, "another outcome"),
        Difference(PRODUCE, 106, "compiled ended early"),
    ]


def test_without_compiled_modules_there_is_nothing_to_compare() -> None:
    with pytest.raises(SystemExit, match="nothing to compare"):
        compare(PRODUCE, 0, 10, f"env KAFKA_QUOTA_PROXY_PURE=1 {sys.executable}")
