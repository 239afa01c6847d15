"""The tables of the whole period, made of those by day.

In: the tables by day, the lines, what the user asked for. Out: `entities`, `forecasts`, `chargeback`, `quotas`, `what_if`.
Left to others: the arithmetic (`reports.transforms`, `reports.forecast`, `reports.quotas`), showing it (`reports.summary`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.chargeback import Prices, chargeback
from reports.fill_forecast import VolumeForecast, forecast_rows, forecast_volumes, with_proposed_quotas
from reports.ingest import Ingested
from reports.quotas.file import QuotaFile
from reports.quotas.held_back import with_demand
from reports.quotas.replay import replay
from reports.transforms.entities import entities

FORECASTS = (
    "broker_id bigint, log_dir string, case string, level string, at_bytes bigint, days int, model string, reason string, "
    "per_day double, per_day_low double, per_day_high double, day timestamp, early timestamp, late timestamp, already boolean, "
    "tested_days int, tested_error double, tested_inside int"
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The quotas in force, proposed quotas, and prices, as the user gave them."""

    quotas: QuotaFile | None = None
    what_if: QuotaFile | None = None
    prices: Prices = field(default_factory=Prices)


Result = tuple[DataFrame, tuple[VolumeForecast, ...]]
"""A table, and what was forecast (with `forecasts` alone)."""


def period_tables(spark: SparkSession, ingested: Ingested, inputs: Inputs) -> dict[str, Callable[[], Result]]:
    """How to make each table. They do not need each other."""
    tables = ingested.tables
    made: dict[str, Callable[[], Result]] = {
        "entities": lambda: (entities(tables), ()),
        "chargeback": lambda: (chargeback(tables, inputs.prices), ()),
    }
    files = {"quotas": inputs.quotas, "what_if": inputs.what_if}
    replayed = {name: replay(spark, ingested.lines, file, ingested.lengths) for name, file in files.items() if file is not None}
    if inputs.quotas is not None:
        lengths, decided = ingested.lengths, tables["decisions"]
        replayed["quotas"] = with_demand(spark, replayed["quotas"], ingested.lines, decided, inputs.quotas, lengths.interval)
    if "what_if" in replayed:
        replayed["what_if"].persist()  # the forecasts ask for it, too
    made |= {name: partial(_alone, table) for name, table in replayed.items()}

    def forecasts() -> Result:
        found = forecast_volumes(tables, inputs.quotas)
        if inputs.what_if is not None:
            found = with_proposed_quotas(found, tables, replayed["what_if"], inputs.what_if)
        rows = spark.createDataFrame(forecast_rows(found), FORECASTS)
        return rows.orderBy("broker_id", "log_dir", "case", F.desc("at_bytes")), found

    return {**made, "forecasts": forecasts}


def _alone(table: DataFrame) -> Result:
    return table, ()
