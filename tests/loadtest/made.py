"""Results with made figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loadtest.results.counts import Series
from loadtest.results.histogram import Histogram, Recorder
from loadtest.results.model import Driver, DriverProcess, Endpoint, Machine, PhaseResult, RunResult, TenantResult

START = 1_800_000_000.0


def histogram(latencies: Iterable[int]) -> Histogram:
    recorder = Recorder()
    for us in latencies:
        recorder.record(us)
    return recorder.histogram()


def machine(**different: Any) -> Machine:
    known = {"system": "Linux 6.1", "processor": "made", "cpus": 2, "memory_bytes": 8 << 30, "python": "3.11.7"}
    return Machine(**known | {"clock_resolution_ns": 50.0} | different)


def tenant(name: str = "victim", *, rate: float | None = 100.0, latencies: Sequence[int] = (), **different: Any) -> TenantResult:
    """One that reached its rate for 10 s, every latency 1 to 1000 µs, unless something is different."""
    count = 1000 if rate is None else int(rate * 10)
    taken = histogram(latencies or (1 + i % 1000 for i in range(count)))
    second = [count // 10] * 10
    series = Series(
        first=int(START),
        intended=second,
        sent=second,
        acknowledged=second,
        failed=[0] * 10,
        bytes=[value * 100 for value in second],
        latency_sum_us=[value * 500 for value in second],
        latency_max_us=[1000] * 10,
    )
    known = {"operation": "produce", "client": "confluent-kafka", "intended": count, "sent": count, "acknowledged": count}
    figures = {"bytes": 100 * count, "latency": taken, "service": taken, "series": series}
    return TenantResult(tenant=name, intended_rate=rate, **known | figures | different)


def phase(*tenants: TenantResult, name: str = "load", **different: Any) -> PhaseResult:
    return PhaseResult(**{"name": name, "started": START, "duration_s": 10.0, "tenants": list(tenants)} | different)


def driver(index: int = 0, *processes: DriverProcess, **different: Any) -> Driver:
    return Driver(index=index, processes=list(processes), **{"machine": machine()} | different)


def run(*phases: PhaseResult, **different: Any) -> RunResult:
    known = {"run_id": "r1", "scenario": "produce", "definition": {"topics": 1}, "started": START, "duration_s": 10.0}
    whole = {"endpoint": Endpoint(name="direct", bootstrap="a:9092", cluster_id="c1"), "drivers": [driver()]}
    return RunResult(**{"phases": list(phases) or [phase(tenant())]} | known | whole | different)
