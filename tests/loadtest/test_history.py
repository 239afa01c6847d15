"""The history of the bench: what got slower than the last time on such a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench.__main__ import in_history
from benchmarks.bench.history import FILE, Entry, HistoryError, append, entry, last_like, worse
from benchmarks.bench.measure import Figure
from tests.loadtest.made import machine


def figure(cost: float) -> Figure:
    return Figure(frames=100_000, cpu=cost, p50=cost * 1e-4, p99=cost * 1e-3, peak=1 << 20)


def made(*ratios: float, **different: Any) -> Entry:
    """Rounds in which the proxy took so many times what the baseline did."""
    pairs = {"produce-100": [(figure(1.0), figure(ratio)) for ratio in ratios]}
    found = entry(pairs, [(100.0, 150.0)], quotas=False, seconds=3.0)
    return found.model_copy(update={"machine": machine(), "commit": "abc", "date": "2026-01-01"} | different)


def test_an_entry_has_ratios_and_facts() -> None:
    found = entry({"produce-100": [(figure(2.0), figure(3.0))]}, [], quotas=False, seconds=3.0)
    assert found.cases == {"produce-100": {"cpu": [1.5], "p50": [1.5], "p99": [1.5]}}
    assert found.machine.cpus >= 1
    assert found.commit


@pytest.mark.parametrize(
    ("before", "after", "slower"),
    [
        ((1.5, 1.5, 1.5), (1.6, 1.6, 1.6), []),
        ((1.5, 1.5, 1.5), (1.7, 1.7, 1.7), ["cpu"]),
        ((1.5, 1.5, 1.5), (1.0, 1.0, 1.0), []),
        ((1.4, 1.5, 1.9, 1.5, 1.6), (1.4, 1.7, 1.7, 1.5, 1.9), []),  # over 10%, and as likely by chance
        ((1.4, 1.5, 1.4, 1.5, 1.6), (1.8, 1.7, 1.7, 1.9, 1.9), ["cpu"]),
    ],
)
def test_ten_percent_more_is_seen(before: tuple[float, ...], after: tuple[float, ...], slower: list[str]) -> None:
    assert [regression.figure for regression in worse(made(*before), made(*after))] == slower


def test_the_last_one_of_such_a_machine_is_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    new = made(1.7, 1.7, 1.7)
    assert in_history(new, file, record=False, check=True) == 0
    assert "nothing to compare" in capsys.readouterr().out
    for old in (made(9.0), made(1.5), made(1.0, machine=machine(cpus=64)), made(1.0, quotas=True)):
        append(file, old)
    assert last_like(file, new) == made(1.5)
    assert in_history(new, file, record=True, check=True) == 1
    assert "slower than abc of 2026-01-01: produce-100, cpu: 1.50x of the baseline became 1.70x, +13%" in capsys.readouterr().out
    assert last_like(file, new) == new
    assert in_history(made(1.7), file, record=False, check=True) == 0


def test_a_line_that_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    append(file, made(1.5))
    with file.open("a") as out:
        out.write('{"commit": 5}\n')
    with pytest.raises(HistoryError, match=r"history\.jsonl, line 2: commit"):
        last_like(file, made(1.5))
    assert in_history(made(1.5), file, record=True, check=True) == 2
    assert "line 2" in capsys.readouterr().err


def test_the_history_of_the_repository_can_be_read() -> None:
    last_like(FILE, made(1.0))
