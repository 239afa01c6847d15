"""The history of the bench: what became worse since the last quiet run on such a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench.__main__ import in_history
from benchmarks.bench.history import Entry as Run
from benchmarks.bench.history import HistoryError, append, entry, last_quiet, noise, read, worse
from benchmarks.bench.measure import Figure
from tests.loadtest.made import machine

CASE = "produce-100"


def figure(cost: float, others: float = 0.0) -> Figure:
    return Figure(frames=100_000, cpu=cost, p50=cost * 1e-4, p99=cost * 1e-3, peak=1 << 20, others=others)


def made(*ratios: float, case: str = CASE, others: float = 0.0, hop_ns: int = 60, **different: Any) -> Run:
    """Rounds in which the proxy took these multiples of the baseline, while others had a share of the machine."""
    pairs = {case: [(figure(1.0, others), figure(ratio)) for ratio in ratios]}
    found = entry(pairs, [(100.0, 150.0)], beside="C", seconds=3.0, hop_ns=hop_ns)
    return found.model_copy(update={"machine": machine(), "commit": "abc", "date": "2026-01-01"} | different)


def test_an_entry_has_ratios_and_facts() -> None:
    pairs = {CASE: [(figure(2.0, 0.25), figure(3.0, 0.5))]}
    found = entry(pairs, [], beside="C", seconds=3.0, hop_ns=60)
    assert found.cases == {CASE: {"cpu": [1.5], "p50": [1.5], "p99": [1.5], "others": [0.5]}}
    assert found.machine.cpus >= 1
    assert found.commit


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((1.4, 1.5, 1.9), 0.25),  # half of the distance between the lowest and the highest
        ((2.0, 2.0, 2.0), 0.06),  # runs differ more than these rounds do
        ((2.0, 2.0), 0.2),  # two rounds tell little
        ((2.0, 3.0), 0.5),
    ],
)
def test_noise(ratios: tuple[float, ...], expected: float) -> None:
    assert noise(ratios) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "after", "slower"),
    [
        ((1.5, 1.5, 1.5), (1.59, 1.59, 1.59), []),  # the noise is 0.045 and 0.048
        ((1.5, 1.5, 1.5), (1.6, 1.6, 1.6), ["cpu"]),
        ((1.5, 1.5, 1.5), (1.0, 1.0, 1.0), []),
        ((1.5,), (1.8,), []),  # one round: the noise is 0.15 and 0.18
        ((1.5,), (1.9,), ["cpu"]),
        ((1.4, 1.5, 1.6), (1.6, 1.7, 1.8), []),  # 0.1 and 0.1
        ((1.4, 1.5, 1.6), (1.65, 1.75, 1.85), ["cpu"]),
    ],
)
def test_what_grew_by_more_than_the_noise_of_both_is_worse(
    before: tuple[float, ...], after: tuple[float, ...], slower: list[str]
) -> None:
    assert [each.figure for each in worse([made(*before)], made(*after))] == slower


def test_the_time_to_the_answer_is_compared_at_a_fixed_rate_only() -> None:
    for case, figures in ((CASE, ["cpu"]), ("paced-100", ["cpu", "p50"])):
        found = worse([made(1.0, case=case)], made(2.0, case=case))
        assert [each.figure for each in found] == figures


def test_it_is_compared_with_the_last_quiet_run_of_such_a_machine() -> None:
    new = made(1.7)
    others = [
        made(9.0, others=0.11),
        made(9.0, machine=machine(cpus=64)),
        made(9.0, beside="no quotas"),
        made(9.0, hop_ns=300),
        made(9.0, case="fetch-1m"),
    ]
    assert last_quiet(others, new, CASE) is None
    assert last_quiet([made(1.0), made(1.2, others=0.1, hop_ns=110), *others], new, CASE) == made(1.2, others=0.1, hop_ns=110)


def test_check_tells_what_became_worse_and_records_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "history.jsonl"
    assert in_history(made(1.0, 1.0, 1.0), file, check=True) == 0
    assert "no quiet run of such a machine to compare with: produce-100, idle" in capsys.readouterr().out
    busy = made(1.7, 1.7, 1.7, others=0.5)
    assert in_history(busy, file, check=True) == 1
    out = capsys.readouterr().out
    assert "worse: produce-100, cpu: 1.00x of the baseline became 1.70x, +70% since abc of 2026-01-01 (noise 0.08)" in out
    assert "not quiet, so later runs are not compared with it: produce-100\n" in out
    assert read(file)[-1] == busy
    assert in_history(made(1.7), file, check=False) == 0
    assert in_history(made(1.0), file, check=True) == 0
    assert "nothing is worse in 2 compared cases" in capsys.readouterr().out


def test_a_line_that_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    append(file, made(1.5))
    with file.open("a") as out:
        out.write('{"commit": 5}\n')
    with pytest.raises(HistoryError, match=r"history\.jsonl, line 2: commit"):
        read(file)
    assert in_history(made(1.5), file, check=True) == 2
    assert "line 2" in capsys.readouterr().err
