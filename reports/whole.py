"""Whole room: the tables of the whole period, made of those by day.

In: the tables by day, the lines, what the person wants to know. Out: `entities`, `forecasts`, `chargeback`, `quotas`, `what_if`.
Left to others: the arithmetic (`reports.transforms`, `reports.forecast`, `reports.quotas`), showing it (`reports.summary`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

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


Made = tuple[DataFrame, tuple[Filling, ...]]
"""A table, and what was forecast (with `forecasts` alone)."""


def whole_tables(spark: SparkSession, absorbed: Absorbed, wanted: Wanted) -> dict[str, Callable[[], Made]]:
    """How to make each table. They do not need each other."""
    tables, seconds = absorbed.tables, absorbed.lengths.rates
    made: dict[str, Callable[[], Made]] = {
        "entities": lambda: (entities(tables), ()),
        "chargeback": lambda: (chargeback(tables, wanted.prices), ()),
    }
    files = {"quotas": wanted.quotas, "what_if": wanted.what_if}
    replayed = {name: replay(spark, absorbed.lines, file, seconds) for name, file in files.items() if file is not None}
    if "what_if" in replayed:
        replayed["what_if"].persist()  # the forecasts ask for it, too
    made |= {name: partial(_alone, table) for name, table in replayed.items()}

    def forecasts() -> Made:
        found = fillings(tables, wanted.quotas)
        if wanted.what_if is not None:
            found = slowed(found, tables, replayed["what_if"], wanted.what_if)
        rows = spark.createDataFrame(forecast_rows(found), FORECASTS)
        return rows.orderBy("broker_id", "log_dir", "case", F.desc("at_bytes")), found

    return {**made, "forecasts": forecasts}


def _alone(table: DataFrame) -> Made:
    return table, ()
