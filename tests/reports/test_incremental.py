"""A daily run: it reads what is new, makes anew what changed, and comes to what a whole run comes to."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from reports import pipeline
from reports.chargeback import Prices
from reports.errors import ReportError
from reports.publish import MANIFEST
from tests.reports.conftest import Made, make_with
from tests.reports.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DAY = 86_400
LATER = datetime(2026, 12, 24, tzinfo=UTC)


def files(out: Path) -> dict[str, int]:
    """Every Parquet file with a day, and which it is."""
    return {str(path.relative_to(out)): path.stat().st_ino for path in out.rglob("date=*/*.parquet")}


PRICES = Prices(bytes_in=0.5, currency="EUR")


@dataclass
class Daily:
    """Logs, what a run each day made of them, and what one run makes of all."""

    logs: Path
    whole: Made
    daily: Made
    files: tuple[dict[str, int], dict[str, int]]
    """Those of the first day's run, before and after that of the second."""

    def copied(self, folder: Path) -> pipeline.Options:
        """Another run, of a copy."""
        logs, out = (Path(shutil.copytree(each, folder / each.name)) for each in (self.logs, self.daily.out))
        manifest = out / MANIFEST
        manifest.write_text(manifest.read_text().replace(str(self.logs), str(logs)))
        return pipeline.Options(logs=str(logs), out=out, made=LATER, incremental=True, prices=PRICES, note="Again.")


@pytest.fixture(scope="module")
def runs(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Daily:
    folder = tmp_path_factory.mktemp("daily")
    logs, out = folder / "logs", folder / "out"
    a = Log("proxy-a", "a1")
    a.usage(0, requests=1, request_bytes=100).usage(0, topic="t", record_bytes=90, requests=1).raw(b"torn")
    a.owned(0, stored_bytes=5).write(logs)
    a.usage(DAY, requests=2, request_bytes=200)
    second = list(a.lines)
    a.write(logs, 2)
    first = make_with(spark, logs, out, incremental=True, prices=PRICES)
    assert first.report.lines.read == 5
    before = files(out)

    # The second file grew, a third is new, a line of the second day came again in it.
    for line in second:
        a.raw(line)
    a.usage(DAY + 10, requests=4, request_bytes=400)
    new = a.lines[-1]
    a.write(logs, 2)
    a.raw(new).usage(2 * DAY, requests=8, request_bytes=800).owned(2 * DAY, stored_bytes=7).raw(b"{}").write(logs, 3)
    whole = make_with(spark, logs, folder / "whole", prices=PRICES)
    next(logs.glob("*000001.jsonl")).unlink()  # what was read of it stays
    daily = make_with(spark, logs, out, incremental=True, prices=PRICES)
    return Daily(logs, whole, daily, (before, files(out)))


def test_a_daily_run_comes_to_what_a_whole_run_comes_to(runs: Daily) -> None:
    whole, daily, (before, after) = runs.whole, runs.daily, runs.files
    kept = {name for name in before if "2026-03-01" in name}
    assert kept
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}  # not even written again
    for name in ("traffic", "topics", "writers", "rates", "owned", "quarantine", "files", "entities"):
        columns = [column for column in whole.table(name).columns if column not in ("file", "raw")]
        assert daily.rows(name, *columns) == whole.rows(name, *columns), name
    assert daily.report.lines == whole.report.lines
    assert daily.report.capacity.tenants == whole.report.capacity.tenants
    assert [row.stored for row in daily.report.capacity.tenants.rows] == [7]
    assert (daily.report.lines.read, daily.report.lines.duplicates, daily.report.lines.quarantined) == (10, 1, 2)
    assert daily.table("lines").count() == 7
    assert sum(size for (size,) in daily.rows("traffic", "request_bytes")) == 1500


def content(out: Path) -> dict[str, bytes]:
    """Every file of the report but those that say when it was made."""
    made = ("report.html", "summary.json", MANIFEST)
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name not in made}


def no_spark(_master: str, **_: object) -> None:
    """Stands in for a Spark that must not start."""
    pytest.fail("Spark was started")


def test_without_anything_new_the_report_is_made_again_without_spark(
    runs: Daily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the cases below begin with: without a change, none of them would start Spark."""
    asked = runs.copied(tmp_path)
    before = content(asked.out)
    monkeypatch.setattr(pipeline, "spark_session", no_spark)
    again = pipeline.make_report(asked, lambda _: None)
    assert again == replace(runs.daily.report, logs=asked.logs, made=LATER, note="Again.")
    assert content(asked.out) == before
    page = (asked.out / "report.html").read_text()
    assert "2026-12-24" in page
    assert "Again." in page


@pytest.mark.parametrize("change", ["price", "file grew", "new file", "quotas", "table lost", "summary damaged"])
def test_spark_is_started_for_whatever_the_last_report_does_not_say(
    runs: Daily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    asked = runs.copied(tmp_path)
    logs, out = Path(asked.logs), asked.out
    match change:
        case "price":
            asked = replace(asked, prices=Prices(stored=1.0))
        case "quotas":
            (tmp_path / "quotas.yaml").write_text("quotas: {entities: [{user: a, producer_byte_rate: 5}]}\n")
            asked = replace(asked, quotas=tmp_path / "quotas.yaml")
        case "file grew":
            with next(logs.iterdir()).open("ab") as file:
                file.write(b"{}\n")
        case "new file":
            (logs / "usage-late.jsonl").write_bytes(b"{}\n")
        case "table lost":
            shutil.rmtree(out / "traffic")
        case _:
            (out / "summary.json").write_text('{"logs": 5}')

    def started(_master: str, **_: object) -> None:
        raise ReportError("Spark was started")

    monkeypatch.setattr(pipeline, "spark_session", started)
    with pytest.raises(ReportError, match="Spark was started"):
        pipeline.make_report(asked, lambda _: None)


def test_of_a_file_that_grew_what_is_new_is_read_and_a_line_that_was_not_whole_counts_once(
    make: Callable[..., Made], tmp_path: Path
) -> None:
    grows, torn, other = Log("proxy-a", "a1"), Log("proxy-b", "b1"), Log("proxy-c", "c1")
    for second in range(6):
        grows.usage(second, requests=1)
    grown = grows.raw(b"bad").write(tmp_path / "logs")
    line = torn.usage(0, requests=10).lines[0]
    cut = torn.write(tmp_path / "logs")
    cut.write_bytes(line[:40])
    first = make(incremental=True)
    assert first.rows("files", "lines", "quarantined") == [(0, 1), (0, 1), (6, 0)]
    read = grown.read_bytes()
    more = grows.usage(10, requests=2).raw(b"worse").lines[-2:]
    begin = b"x" * (len(read) - 1025) + b"\n"  # what was read is not looked at again but for its end
    grown.write_bytes(begin + read[-1024:] + b"\n".join(more) + b"\n")
    cut.write_bytes(line + b"\n")
    shutil.rmtree(first.out / "owned")  # as a version left it that did not have this table
    second_look = make(incremental=True)
    assert second_look.table("owned").count() == 0
    assert sum(requests for (requests,) in second_look.rows("traffic", "requests")) == 18
    wanted = [("proxy-a", 7, 0), ("proxy-b", 1, 0), (None, 0, 2)]
    assert second_look.rows("files", "proxy", "lines", "quarantined") == wanted
    assert second_look.rows("quarantine", "raw") == [("bad",), ("worse",)]
    for second in range(40):
        other.usage(second, requests=100)
    other.write(tmp_path / "elsewhere").rename(grown)
    third = make(incremental=True)
    assert ("proxy-c", 40, 0) in third.rows("files", "proxy", "lines", "quarantined"), "another file of that name is read whole"
