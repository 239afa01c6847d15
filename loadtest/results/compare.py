"""Comparing endpoints: one scenario at two or more of them, in turn. In: a callable that runs it once. Out: a `Comparison`.

The order is A B A B, so that a drift (a machine that gets warm, other load) affects all alike. A ratio is the median of the ratios
within a round, its interval is a bootstrap over rounds, and significance is a rank sum test of the values. With fewer than five
rounds there is no interval, and nothing is called better or worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from statistics import median
from typing import Final, Literal

from loadtest.results.measures import KINDS, Better, Key, figures
from loadtest.results.model import Comparison, Endpoint, Measure, Ratio, RunResult, Sample, Warning, WarningCode
from loadtest.results.statistics import FEWEST, LEVEL, interval, rank_sum

SAME: Final = 0.05
"""If the interval is within this distance of 1, the verdict is `same`."""
DRIFT: Final = 0.2
"""Share by which the later half of the rounds may differ from the earlier one at the first endpoint."""


def in_turn(
    endpoints: Sequence[Endpoint], rounds: int, run_once: Callable[[Endpoint], RunResult], scenario: str = ""
) -> Comparison:
    """Run rounds of all endpoints. The first endpoint is the base of the comparison. Raises what `run_once` raises."""
    runs = [run_once(endpoint) for _ in range(rounds) for endpoint in endpoints]
    return compare(endpoints, runs, scenario or runs[0].scenario)


def compare(endpoints: Sequence[Endpoint], runs: Sequence[RunResult], scenario: str) -> Comparison:
    """Compare runs that are in the order of `in_turn`."""
    rounds = len(runs) // len(endpoints)
    found = [[figures(run) for run in runs[place :: len(endpoints)]] for place in range(len(endpoints))]
    keys = dict.fromkeys(chain.from_iterable(chain.from_iterable(found)))
    common = [key for key in keys if all(key in values for at_one in found for values in at_one)]
    measures = [_measure(key, endpoints, [[values[key] for values in at_one] for at_one in found]) for key in common]
    return Comparison(
        scenario=scenario,
        endpoints=list(endpoints),
        rounds=rounds,
        measures=measures,
        runs=list(runs),
        warnings=[*_united(runs), *_drift(measures)],
    )


def _measure(key: Key, endpoints: Sequence[Endpoint], values: Sequence[Sequence[float]]) -> Measure:
    kind = KINDS[key.name]
    named = list(zip(endpoints, values, strict=True))
    return Measure(
        phase=key.phase,
        tenant=key.whose,
        name=key.name,
        unit=kind.unit,
        better=kind.better,
        samples=[Sample(endpoint=endpoint.name, values=list(some), median=median(some)) for endpoint, some in named],
        ratios=[ratio(endpoint.name, some, values[0], kind.better) for endpoint, some in named[1:]],
    )


def ratio(endpoint: str, values: Sequence[float], base: Sequence[float], better: Better) -> Ratio:
    """Values of an endpoint divided by those of the first one, round by round."""
    p_value = rank_sum(values, base)
    if not all(base):
        verdict: Verdict = "unsure" if any((*values, *base)) else "same"
        return Ratio(endpoint=endpoint, ratio=None, low=None, high=None, p_value=p_value, verdict=verdict)
    ratios = [value / before for value, before in zip(values, base, strict=True)]
    low, high = interval(ratios) or (None, None)
    verdict = _verdict(low, high, p_value, better)
    return Ratio(endpoint=endpoint, ratio=median(ratios), low=low, high=high, p_value=p_value, verdict=verdict)


Verdict = Literal["better", "worse", "same", "unsure"]


def _verdict(low: float | None, high: float | None, p_value: float | None, better: Better) -> Verdict:
    if low is None or high is None or p_value is None:
        return "unsure"
    if low >= 1 - SAME and high <= 1 + SAME:
        return "same"
    if p_value < LEVEL and not low <= 1 <= high:
        return "better" if (high < 1) == (better == "lower") else "worse"
    return "unsure"


def _united(runs: Sequence[RunResult]) -> list[Warning]:
    """Warnings of all runs, by code: how many runs have it, and the first text."""
    found: dict[tuple[WarningCode, str | None], list[str]] = {}
    for run in runs:
        for warning in {(w.code, w.phase): w for w in run.warnings}.values():
            found.setdefault((warning.code, warning.phase), []).append(f"at {run.endpoint.name}: {warning.text}")
    return [
        Warning(code=code, phase=phase, text=f"{len(texts)} of {len(runs)} runs, first {texts[0]}")
        for (code, phase), texts in found.items()
    ]


def _drift(measures: Sequence[Measure]) -> list[Warning]:
    """Figures of the first endpoint that changed over the rounds: as it stayed the same, something else changed."""
    found = []
    for measure in measures:
        values = measure.samples[0].values
        if measure.name not in ("rate", "p50", "cpu") or len(values) < FEWEST - 1:
            continue
        early, late = values[: len(values) // 2], values[-(len(values) // 2) :]
        before, after = median(early), median(late)
        apart = min(late) > max(early) or max(late) < min(early)
        if apart and before and abs(after / before - 1) > DRIFT:
            text = (
                f"{measure.name} of {measure.tenant} at {measure.samples[0].endpoint} went from {before:.3g} to {after:.3g} "
                f"{measure.unit} over the rounds: something else changed meanwhile"
            )
            found.append(Warning(code=WarningCode.DRIFT, text=text, phase=measure.phase))
    return found
