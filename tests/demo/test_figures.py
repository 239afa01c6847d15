"""Results of the load test as the demo shows them."""

from demo import plan
from demo.figures import Flood, HeldBack, delivery, felt, flood, held_back, longest_wait, storm
from demo.throttling import Throttling
from loadtest.results.counts import Series
from loadtest.results.histogram import Histogram, Recorder
from loadtest.results.model import Endpoint, PhaseResult, RunResult, TenantResult, Verification

NEW = plan.STORMS[0]


def latencies(*ms: float) -> Histogram:
    recorder = Recorder()
    for each in ms:
        recorder.record(round(each * 1000))
    return recorder.histogram()


def series(*acknowledged: int, longest_ms: tuple[float, ...] = ()) -> Series:
    zeros = [0] * len(acknowledged)
    longest = [round(ms * 1000) for ms in longest_ms] or zeros
    return Series(
        first=100,
        intended=zeros,
        sent=zeros,
        acknowledged=list(acknowledged),
        failed=zeros,
        bytes=zeros,
        latency_sum_us=zeros,
        latency_max_us=longest,
    )


def tenant(name: str, operation: str, **values: object) -> TenantResult:
    return TenantResult.model_validate({"tenant": name, "operation": operation, "client": "", **values})


def phase(orders: TenantResult | None = None, teams: TenantResult | None = None, *others: TenantResult) -> PhaseResult:
    tenants = [orders or tenant("orders", "produce"), teams or tenant("teams", "new_topics"), *others]
    return PhaseResult(name="alone", started=100.0, duration_s=4.0, tenants=tenants)


def test_latencies_are_those_of_the_records_and_of_a_typical_second() -> None:
    orders = tenant("orders", "produce", latency=latencies(1, 2, 3, 40), series=series(1, 2, 0, 1, longest_ms=(3, 2, 0, 40)))
    found = felt(phase(orders)).produce
    assert found is not None
    assert (found.p50, found.worst, found.seconds, found.typical) == (2.0, 40.0, (3.0, 2.0, 40.0), 3.0)


def test_nothing_measured_is_no_figure() -> None:
    found = felt(phase())
    assert found.produce is None
    assert found.new_topics is None


def test_topics_that_could_not_be_written_to_yet_count_as_longer_than_all_others() -> None:
    teams = tenant("teams", "new_topics", intended=5, latency=latencies(100, 300, 500), failed={"SOME_ERROR": 1})
    found = felt(phase(teams=teams)).new_topics
    assert found is not None
    assert (found.count, found.pending) == (4, 1)
    assert 0.3 <= found.median <= 0.5
    assert found.worst == 4.0


def test_where_most_topics_are_pending_the_median_is_a_part_of_the_phase() -> None:
    found = felt(phase(teams=tenant("teams", "new_topics", intended=5, latency=latencies(100)))).new_topics
    assert found is not None
    assert (found.median, found.pending) == (2.0, 4)


def test_a_storm_is_what_it_created_and_what_the_proxy_refused() -> None:
    found = storm(
        phase(None, None, tenant("storm-new", "create_topics", series=series(560, 0, 0, 80))), NEW, "storm-new", Throttling(7)
    )
    assert (found.created, found.refused, found.failed, found.asked) == (640, 560, 0, 1200)
    assert found.longest_wait == 2.0


def test_a_storm_without_a_quota_that_has_all_it_wants_waits_no_more() -> None:
    assert longest_wait(series(560, 0, 560), 100.0, 9.0, ends=True) == 1.0
    assert longest_wait(series(560, 0, 560), 100.0, 9.0, ends=False) == 6.0
    assert longest_wait(series(), 100.0, 4.0, ends=False) == 4.0


def test_only_what_was_acknowledged_can_be_lost() -> None:
    run = RunResult(
        run_id="r",
        scenario="s",
        endpoint=Endpoint(name="e", bootstrap="e"),
        started=0.0,
        duration_s=1.0,
        drivers=[],
        phases=[phase(tenant("orders", "produce", failed={"_MSG_TIMED_OUT": 2})), phase()],
        verification=[Verification(client="c", acknowledged=10, consumed=9, lost=1)],
    )
    found = delivery(run)
    assert (found.acknowledged, found.refused, found.lost) == (10, 2, 1)


def test_what_was_held_back_is_of_the_phase_and_not_of_what_came_after_it() -> None:
    found = series(400, 0, 100, 100, 300)  # the last second is after the phase
    found.bytes = [10 * count for count in found.acknowledged]
    found.intended = [300, 300, 300, 300, 0]
    clicks = tenant("clicks", "produce", series=found)
    of_phase = phase(None, None, clicks).model_copy(update={"started": 100.2, "warmup_s": 0.0, "duration_s": 4.0})
    assert held_back(of_phase, "clicks", Throttling(7, 900)) == HeldBack(wanted=12_000, written=6_000, refused=7, throttle_ms=900)


def test_a_flood_is_seen_in_typical_seconds_before_the_quota_and_after_it_had_its_time() -> None:
    settled = plan.FAIR_AFTER + plan.SETTLED
    longest = [float(second) for second in range(plan.FLOOD_SECONDS + 1)]  # the last second is after the phase
    counts = [1] * len(longest)
    counts[settled] = 0
    orders = tenant("orders", "produce", series=series(*counts, longest_ms=tuple(longest)))
    found = flood(phase(orders), Throttling(0, 900))
    assert found == Flood(plan.FAIR_AFTER / 2, (settled + plan.FLOOD_SECONDS) / 2, 900)
    assert flood(phase(tenant("orders", "produce", series=series())), Throttling()) == Flood(None, None, 0)
