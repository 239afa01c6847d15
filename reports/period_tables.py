"""The tables of the whole period, made of those by day.

In: the tables by day, the lines, what the user asked for. Out: `entities`, `forecasts`, `chargeback`, `quotas`, `what_if`.
Left to others: the arithmetic (`reports.transforms`, `reports.forecast`, `reports.quotas`), showing it (`reports.summary`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from reports.arrow_rows import arrow_schema, table_schema
from reports.chargeback import Prices, chargeback
from reports.fill_forecast import VolumeForecast, forecast_rows, forecast_volumes, with_proposed_quotas
from reports.ingest import Ingested
from reports.quotas.file import QuotaFile
from reports.quotas.held_back import with_demand
from reports.quotas.replay import replay
from reports.stored import in_order
from reports.tables import BY_DAY, Tables
from reports.transforms.entities import entities

FORECASTS = table_schema(
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


def period_tables(spark: SparkSession, ingested: Ingested, inputs: Inputs) -> dict[str, Callable[[], DataFrame]]:
    """How to make each table but `forecasts`. They do not need each other."""
    tables = {name: ingested.tables[name].frame(spark) for name in BY_DAY}
    made: dict[str, Callable[[], DataFrame]] = {
        "entities": lambda: entities(tables),
        "chargeback": lambda: chargeback(tables, inputs.prices),
    }
    files = {"quotas": inputs.quotas, "what_if": inputs.what_if}
    replayed = {name: replay(spark, ingested.lines, file, ingested.lengths) for name, file in files.items() if file is not None}
    if inputs.quotas is not None:
        lengths, decided = ingested.lengths, tables["decisions"]
        replayed["quotas"] = with_demand(spark, replayed["quotas"], ingested.lines, decided, inputs.quotas, lengths.interval)
    return made | {name: partial(_itself, table) for name, table in replayed.items()}


def forecasts(tables: Tables, inputs: Inputs) -> tuple[VolumeForecast, ...]:
    """When each volume fills, with the proposed quotas too where there is the table `what_if`."""
    found = forecast_volumes(tables, inputs.quotas)
    if inputs.what_if is None:
        return found
    return with_proposed_quotas(found, tables, tables["what_if"], inputs.what_if)


def forecast_table(found: Sequence[VolumeForecast]) -> pa.Table:
    """The table `forecasts`."""
    rows = forecast_rows(found)
    columns = zip(*rows, strict=True) if rows else [()] * len(FORECASTS)
    kinds = arrow_schema(FORECASTS)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, kinds, strict=True)]
    order = [("broker_id", "ascending"), ("log_dir", "ascending"), ("case", "ascending"), ("at_bytes", "descending")]
    table = pa.Table.from_arrays(arrays, schema=kinds)
    return in_order(table, order)


def _itself(table: DataFrame) -> DataFrame:
    return table
