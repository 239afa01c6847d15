"""Whole room: the tables of the whole period, made of those by day.

In: the tables by day, the lines, what the person wants to know. Out: `entities`, `forecasts`, `chargeback`, `quotas`, `what_if`.
Left to others: the arithmetic (`reports.transforms`, `reports.forecast`, `reports.quotas`), showing it (`reports.summary`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.absorb import Absorbed
from reports.charge import Prices, chargeback
from reports.filling import Filling, fillings, forecast_rows, slowed
from reports.quotas.file import QuotaFile
from reports.quotas.replay import replay
from reports.transforms.entities import entities

FORECASTS = (
    "broker_id bigint, log_dir string, case string, level string, at_bytes bigint, days int, model string, reason string, "
    "per_day double, per_day_low double, per_day_high double, day timestamp, early timestamp, late timestamp, already boolean, "
    "tested_days int, tested_error double, tested_inside int"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person wants to know: the quotas in force, proposed ones, what things cost."""

    quotas: QuotaFile | None = None
    what_if: QuotaFile | None = None
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True, slots=True)
class Whole:
    """The tables, and what was forecast, as values."""

    tables: dict[str, DataFrame]
    fillings: tuple[Filling, ...]


def whole_tables(spark: SparkSession, absorbed: Absorbed, wanted: Wanted) -> Iterator[tuple[str, DataFrame, tuple[Filling, ...]]]:
    """Name, table, and forecasts (of `forecasts` alone), one after the other, as each is dear."""
    tables, seconds = absorbed.tables, absorbed.lengths.rates
    yield "entities", entities(tables), ()
    yield "chargeback", chargeback(tables, wanted.prices), ()
    for name, quotas in (("quotas", wanted.quotas), ("what_if", wanted.what_if)):
        if quotas is not None:
            yield name, replay(spark, absorbed.lines, quotas, seconds), ()
    found = fillings(tables, wanted.quotas)
    if wanted.what_if is not None:
        found = slowed(found, tables, replay(spark, absorbed.lines, wanted.what_if, seconds), wanted.what_if)
    rows = spark.createDataFrame(forecast_rows(found), FORECASTS)
    yield "forecasts", rows.orderBy("broker_id", "log_dir", "case", F.desc("at_bytes")), found
