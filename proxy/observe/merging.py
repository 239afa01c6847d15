"""The figures of all workers as those of one proxy. In: metrics of each worker. Out: the same metrics once.

Counters and histograms add up, those of workers that have ended included: a sum that goes back is taken for a restart of the
proxy, and all of it for new. A gauge is the sum of what each worker has of its own, the least of what has to be right everywhere,
and otherwise the greatest: what workers share, such as how much of a quota is used, each of them tells in full. Of the busiest
users of each worker as many are shown as one proxy shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from math import isfinite
from typing import Any, Final, NamedTuple

from prometheus_client.core import Metric

from proxy.observe.metrics import PREFIX
from proxy.session.tally import OTHER
from quota.steps import Steps, finish_at_once

MOST_ENDED: Final = 1000
"""Samples of a counter that are kept of workers that have ended: entities have samples, and others come."""
Rows = list[list[Any]]
"""[name, meaning, type, [[name of samples, names of labels, [[values of labels, value], ...]], ...]] of each metric: what goes from
a process to another. Names stand there once, as there are many samples of them. JSON has no infinity: that is text."""
_Samples = dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], float]]
"""by name and labels' names, and by labels' values"""

_OWN: Final = (
    "client_bytes_in_rate",
    "client_bytes_out_rate",
    "client_connections",
    "client_mutation_rate",
    "client_request_rate",
    "ledger_behind",
    "memory_held_bytes",
    "memory_waiting_connections",
    "muted_connections",
    "producer_ids_filter_bytes",
    "usage_log_keys",
    "usage_log_topic_waiting_lines",
    "usage_log_waiting_lines",
)
_EVERYWHERE: Final = (
    "brokers",
    "controller_mutations_left",
    "dynamic_quotas_up",
    "ledger_up",
    "producer_ids_tokens",
    "storage_throttle_factor",
    "storage_throttling_volume",
    "storage_volume_available_bytes",
    "storage_volume_factor",
    "storage_volume_seconds_to_limit",
    "upstream_up",
    "usage_log_topic_up",
)
_COUNTED_BY_EACH: Final = (
    "quota_changes",
    "quota_records_skipped",
    "storage_fallback_applied",
    "storage_limit_violations",
)
"""Counters of what happens once for all workers, and each of them counts."""
_ADDS_UP: Final = {f"{PREFIX}_{name}" for name in _OWN} | {
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
}
_LEAST: Final = {f"{PREFIX}_{name}" for name in _EVERYWHERE} | {"process_start_time_seconds", "process_max_fds"}
_GREATEST: Final = {f"{PREFIX}_{name}" for name in _COUNTED_BY_EACH}


class _Ranked(NamedTuple):
    """Families of the same users, tenants or topics: those are shown of whom the sum of what is `counted` is the largest, or the
    largest part of their `limit`."""

    families: Sequence[str]
    counted: Sequence[str]
    limit: str | None = None


RANKED: Final = (
    _Ranked(
        [f"client_{it}_rate" for it in ("bytes_in", "bytes_out", "request", "mutation")],
        ["client_bytes_in_rate", "client_bytes_out_rate"],
    ),
    _Ranked(
        ["entity_throttle_seconds", "entity_throttled_requests", "entity_refused_items"],
        ["entity_throttled_requests", "entity_refused_items"],
    ),
    _Ranked(
        [f"controller_mutations_{it}" for it in ("rate", "limit", "left")],
        ["controller_mutations_rate"],
        "controller_mutations_limit",
    ),
    _Ranked(
        [f"producer_ids_{it}" for it in ("rate", "tokens", "throttle_time_seconds", "limit", "active")], ["producer_ids_active"]
    ),
    _Ranked([f"topic_bytes_in_{it}" for it in ("rate", "threshold")], ["topic_bytes_in_rate"], "topic_bytes_in_threshold"),
)
_USED: Final = "_used"
"""The end of names of families that are ranked by their limit."""


class Counters:
    """What workers that do not answer, or have ended, had counted when they were asked last."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, Rows]] = {}
        """by worker: which start of it answered last, and what"""
        self._ended: Rows = []

    def complete(self, answers: Mapping[int, tuple[int, Rows]]) -> list[Rows]:
        """The answers by worker, (start, metrics), and the counters that are missing in them."""
        for worker, (start, rows) in answers.items():
            before, last = self._last.get(worker, (start, []))
            if before != start:
                self._ended = _shortened(finish_at_once(rows_of(merged([self._ended, last]))))
            self._last[worker] = start, [row for row in rows if row[2] in ("counter", "histogram")]
        silent = [rows for worker, (_, rows) in self._last.items() if worker not in answers]
        return [*(rows for _, rows in answers.values()), *silent, self._ended]


def rows_of(metrics: Iterable[Metric | None]) -> Steps[Rows]:
    """The metrics as plain values, in steps; None for no metric yet."""
    rows = []
    for metric in metrics:
        yield
        if metric is None:
            continue
        alike: dict[tuple[str, tuple[str, ...]], list[list[Any]]] = {}
        for it in metric.samples:
            alike.setdefault((it.name, tuple(it.labels)), []).append(
                [list(it.labels.values()), it.value if isfinite(it.value) else str(it.value)]
            )
        samples = [[name, list(labels), values] for (name, labels), values in alike.items()]
        rows.append([metric.name, metric.documentation, metric.type, samples])
    return rows


def merged(workers: Iterable[Rows], most: int | None = None) -> list[Metric]:
    """The metrics of all workers as those of one proxy, in the order in which they come first. `most`: how many users, tenants and
    topics are shown."""
    known: dict[str, tuple[list[Any], _Samples]] = {}
    for rows in workers:
        for name, *about, samples in rows:
            _, found = known.setdefault(name, ([name, *about], {}))
            merge = _rule(name, about[1])
            for sample, labels, values in samples:
                totals = found.setdefault((sample, tuple(labels)), {})
                for of, told in values:
                    key, value = tuple(of), float(told)
                    totals[key] = merge((totals[key], value)) if key in totals else value
    if most is not None:
        for ranked in _ranked(known):
            _keep_busiest(ranked, {name: next(iter(known[name][1].values())) for name in ranked.families if known[name][1]}, most)
    return [_metric(about, found) for about, found in known.values()]


def _ranked(known: Collection[str]) -> Iterator[_Ranked]:
    """With the names of the families that there are."""
    for families, counted, limit in RANKED:
        there = [name for it in families if (name := f"{PREFIX}_{it}") in known]
        yield _Ranked(there, [f"{PREFIX}_{it}" for it in counted], f"{PREFIX}_{limit}" if limit else None)
    for name in known:
        if name.endswith(_USED):
            kind = name.removesuffix(_USED)
            limits = [it for it in (f"{kind}_limit", f"{kind}_soft_limit") if it in known]
            yield _Ranked([name, *limits], [name], f"{kind}_limit")


def _keep_busiest(ranked: _Ranked, found: dict[str, dict[tuple[str, ...], float]], most: int) -> None:
    """Of all families the same; what is left out is counted under `<other>` where there is that."""
    there = {key for totals in found.values() for key in totals if key[0] != OTHER}
    if len(there) <= most:
        return
    counted = [found[name] for name in ranked.counted if name in found]
    limits = found.get(ranked.limit, {}) if ranked.limit else {}
    weights = {key: sum(it.get(key, 0.0) for it in counted) / (limits.get(key) or 1.0) for key in there}
    kept = set(nlargest(most, weights, key=weights.__getitem__))
    for totals in found.values():
        others = next((key for key in totals if key[0] == OTHER), None)
        for key in [key for key in totals if key not in kept and key != others]:
            value = totals.pop(key)
            if others is not None:
                totals[others] += value


def merged_throttles(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all workers say at `/throttles`. Of somebody who is throttled at several, the line of the longest throttle stays."""
    found: dict[str, Any] = dict(workers[0])
    for name, value in workers[0].items():
        if isinstance(value, list):
            found[name] = _merged_lines([line for worker in workers for line in worker[name]])
    return found


def _merged_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known: dict[Any, dict[str, Any]] = {}
    for line in sorted(lines, key=lambda it: -it.get("seconds_left", 0.0)):
        key = (line["quota"], line["mode"], *line["entity"].values(), line.get("topic"))
        if (first := known.setdefault(key, line)) is not line:
            for count in ("requests", "items"):
                if count in line:
                    first[count] += line[count]
    return sorted(known.values(), key=lambda it: -it.get("items", 0))


def _shortened(rows: Rows) -> Rows:
    """The largest samples of each counter; all of a histogram, of which there are as many as APIs and brokers."""
    return [
        [*about, samples if about[2] == "histogram" else [[*names, _largest(values)] for *names, values in samples]]
        for *about, samples in rows
    ]


def _largest(values: list[Any]) -> list[Any]:
    return nlargest(MOST_ENDED, values, key=lambda it: float(it[1]))


def _rule(name: str, kind: str) -> Callable[[tuple[float, float]], float]:
    if name in _ADDS_UP or (kind != "gauge" and name not in _GREATEST):
        return sum
    return min if name in _LEAST else max


def _metric(about: Sequence[Any], found: _Samples) -> Metric:
    metric = Metric(*about)
    for (sample, labels), totals in found.items():
        for values, value in totals.items():
            metric.add_sample(sample, dict(zip(labels, values, strict=True)), value)
    return metric
