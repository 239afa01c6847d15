"""The same logs, summed by DuckDB: equal to the byte, with copies and torn lines in them.

For the night: before every push, sums by hand (test_sums.py), forecasts and what limits would do as arithmetic (test_forecast.py,
test_quotas.py) and the page of the demo, which has a forecast, proposed quotas and plots, fail for most of what fails here."""

from typing import TYPE_CHECKING

import pytest

from benchmarks.logs.generate import START, Wanted, generate
from benchmarks.logs.plan import make_plan
from tests.reports.conftest import Made, make_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PLAN = make_plan(5, 1, seed=5, most_topics=3)


@pytest.fixture(scope="module")
def made(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Fifteen days of two proxies, one line in a hundred twice, one in a thousand torn; what a limit would do is asked, too."""
    folder = tmp_path_factory.mktemp("duck")
    wanted = Wanted(lines=24_000, days=15, duplicates=10, bad=1000, form="gzip", seed=5)
    assert generate(PLAN, wanted, folder / "logs").lines > 15_000
    quotas = folder / "quotas.yaml"
    quotas.write_text("quotas: {entities: [{user: tenant-1, producer_byte_rate: 1MiB}], storage: {min_available_ratio: 0.3}}")
    return make_with(spark, folder / "logs", folder / "out", quotas=quotas, what_if=quotas, slides=True)


@pytest.mark.parametrize("table", ["traffic", "topics"])
def test_sums_equal_those_of_duckdb_to_the_byte(made: Made, table: str) -> None:
    from benchmarks.logs.duck import open_logs, sums

    with open_logs(made.out.parent / "logs") as connection:
        expected = sums(connection, table)
        assert connection.execute("select count(*) - (select count(*) from once) from lines").fetchall()[0][0] > 100
    columns = [name for name in made.table(table).columns if name not in ("date", "seconds", "start", "topic_id")]
    found = made.table(table).selectExpr("unix_seconds(start)", *columns).collect()
    assert len(found) > 1000
    assert {tuple(row) for row in found} == expected


def test_lines_are_accounted_for(made: Made) -> None:
    from benchmarks.logs.duck import open_logs

    lines = made.report.lines
    with open_logs(made.out.parent / "logs") as connection:
        good, once = connection.execute("select count(*), (select count(*) from once) from lines").fetchall()[0]
    assert lines.quarantined > 0
    assert (lines.read - lines.quarantined, lines.duplicates) == (good, good - once)
    assert made.table("lines").count() == once == lines.usage + lines.decisions + lines.volumes + lines.producer_ids


def test_volumes_are_expected_to_fill_on_the_day_on_which_they_do(made: Made) -> None:
    found = {row.log_dir: row for row in made.report.capacity.volumes}
    assert set(found) == {volume.log_dir for volume in PLAN.volumes}
    for volume in PLAN.volumes:
        row = found[volume.log_dir]
        assert row.model == "trend with a weekly season"
        assert row.tested_error is not None
        for level in row.levels:
            true = volume.day_of(level.at_bytes)
            assert level.day is not None
            day = (level.day.timestamp() - START) / 86_400
            assert abs(day - true) < 0.1 * (true - row.days), (level.name, day, true)
        assert row.drivers[0].principals[0][0].startswith("User:tenant-")


def test_proposed_quotas_put_the_day_off(made: Made) -> None:
    proposed = made.report.capacity.what_if
    assert proposed is not None
    assert [(row.kind, row.whose, row.state) for row in proposed.rows] == [("producer_byte_rate", "user tenant-1", "over")]
    row = proposed.rows[0]
    assert row.throttled > 0
    assert 0 < row.waiting < made.report.traffic.produced
    for volume in made.report.capacity.volumes:
        assert volume.factor is not None
        assert 0 < volume.factor < 1
        full, later = (next(level for level in levels if level.name == "full") for levels in (volume.levels, volume.proposed))
        assert full.day is not None
        assert later.day is None or later.day > full.day
        # The limit of the proposed file takes the place of the one in force.
        assert next(level.at_bytes for level in volume.proposed if level.name == "limit") == volume.total - round(
            0.3 * volume.total
        )


def test_percentiles_of_rates_are_right_to_within_a_bin(made: Made) -> None:
    from benchmarks.logs.duck import open_logs

    with open_logs(made.out.parent / "logs") as connection:
        rows = connection.execute(
            """
            with sums as (
                select principal, start::timestamp as a, any_value("end")::timestamp as b, sum(request_bytes) as bytes
                from once where type = 'usage' and topic is null and api = 'Produce' group by principal, start),
            rates as (select principal, bytes / (epoch(b) - epoch(a)) as rate from sums)
            select principal, quantile_disc(rate, 0.95), max(rate) from rates group by principal"""
        ).fetchall()
    found = {party.principal: (party.p95, party.peak) for party in made.report.traffic.principals}
    assert len(rows) == len(found) == 5
    for principal, p95, peak in rows:
        assert found[principal] == (pytest.approx(p95, rel=0.05), pytest.approx(peak, rel=1e-9))


def test_charges_add_up(made: Made) -> None:
    charged = made.table("chargeback").selectExpr("sum(in_bytes)", "sum(out_bytes)").collect()[0]
    assert tuple(charged) == (made.report.traffic.produced, made.report.traffic.fetched)
    lines = (made.out / "chargeback.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("principal,in_gib,out_gib,stored_gib_months,")
    assert len(lines) == made.table("chargeback").count() + 1


def test_plots_are_there_for_slides(made: Made) -> None:
    for name in ("produced-by-principal", "volume-01"):
        assert (made.out / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        drawing = (made.out / "plots" / f"{name}.svg").read_text(encoding="utf-8")
        assert "#0a0b" not in drawing
        assert "#0102" not in drawing
