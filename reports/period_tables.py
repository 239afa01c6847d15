"""The tables of the whole period, made of those by day.

In: the tables by day, the lines, what the user asked for. Out: `entities`, `forecasts`, `budgets`, `chargeback`, `quotas`,
`what_if`. Left to others: the arithmetic (`reports.entities`, `chargeback`, `forecast`, `quotas`), showing it (`reports.summary`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from reports.arrow_rows import arrow_schema, table_schema
from reports.budget_forecast import Budgets, forecast_budgets
from reports.chargeback import CHARGEBACK, Prices, chargeback
from reports.entities import ENTITIES, entities
from reports.fill_forecast import VolumeForecast, forecast_rows, forecast_volumes, with_proposed_quotas
from reports.ingest import Ingested
from reports.let_through import let_through
from reports.parallel import run_concurrently
from reports.parquet import write_rows, write_table
from reports.quotas.held_back import with_demand
from reports.quotas.limits import QuotaFile
from reports.quotas.replay import replay, wanted
from reports.stored import Stored, in_order
from reports.tables import Tables

_RESULT = (
    "case string, level string, at_bytes bigint, days int, model string, reason string, "
    "per_day double, per_day_low double, per_day_high double, day timestamp, early timestamp, late timestamp, already boolean, "
    "tested_days int, tested_error double, tested_inside int"
)
FORECASTS = table_schema(f"broker_id bigint, log_dir string, {_RESULT}")
BUDGETS = table_schema(f"tenant string, used_bytes bigint, {_RESULT}")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The quotas in force, proposed quotas, and prices, as the user gave them."""

    quotas: QuotaFile | None = None
    what_if: QuotaFile | None = None
    prices: Prices = field(default_factory=Prices)


def write_period_tables(spark: SparkSession, ingested: Ingested, inputs: Inputs, folder: Path) -> dict[str, Stored]:
    """Make each table but those of forecasts, and write it below `folder`. Replays are Spark's, as they look at every line."""
    with run_concurrently() as pool:
        writing = {name: pool.submit(write_table, table, folder / name) for name, table in replays(spark, ingested, inputs).items()}
        written = {
            "entities": write_rows(entities(ingested.tables), ENTITIES, folder / "entities"),
            "chargeback": write_rows(chargeback(ingested.tables, inputs.prices), CHARGEBACK, folder / "chargeback"),
        }
        written |= {name: one.result() for name, one in writing.items()}
    return {name: Stored(schema, ((folder / name, None),)) for name, schema in written.items()}


def replays(spark: SparkSession, ingested: Ingested, inputs: Inputs) -> dict[str, DataFrame]:
    """The tables `quotas` and `what_if`, where there are such quotas."""
    lines, lengths, replayed = ingested.lines, ingested.lengths, {}
    for name, file in {"quotas": inputs.quotas, "what_if": inputs.what_if}.items():
        if file is not None:
            by_owner = wanted(spark, lines, file, lengths.interval)
            replayed[name] = replay(spark, lines, by_owner, file, lengths)
            if name == "quotas":
                decided = ingested.tables["decisions"].frame(spark)
                replayed[name] = with_demand(spark, replayed[name], by_owner, decided, file, lengths.interval)
    return replayed


@dataclass(frozen=True, slots=True)
class Forecasts:
    """When each volume fills, and when tenants have used up what they may store."""

    volumes: tuple[VolumeForecast, ...]
    budgets: Budgets


def forecasts(tables: Tables, inputs: Inputs) -> Forecasts:
    """All of them, with the proposed quotas too where there is the table `what_if`."""
    volumes, owned = forecast_volumes(tables, inputs.quotas), tables["owned"]
    if inputs.what_if is None:
        return Forecasts(volumes, forecast_budgets(owned, inputs.quotas))
    through = let_through(tables, tables["what_if"], inputs.what_if)
    budgets = forecast_budgets(owned, inputs.quotas, inputs.what_if, lambda tenant: through.tenants.get(tenant, 1.0))
    return Forecasts(with_proposed_quotas(volumes, through, inputs.what_if), budgets)


def write_forecasts(found: Forecasts, folder: Path) -> dict[str, Stored]:
    """The tables `forecasts` and `budgets`, below `folder`."""
    volumes = [row for one in found.volumes for row in forecast_rows(one.volume, one)]
    budgets = [row for one in found.budgets.found for row in forecast_rows((one.tenant, one.used), one)]
    written = {}
    for name, rows, schema in (("forecasts", volumes, FORECASTS), ("budgets", budgets, BUDGETS)):
        written[name] = Stored(write_rows(_table(rows, schema), schema, folder / name), ((folder / name, None),))
    return written


def _table(rows: Sequence[tuple[Any, ...]], schema: t.StructType) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    kinds = arrow_schema(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, kinds, strict=True)]
    order = [*((name, "ascending") for name in kinds.names[:3]), ("at_bytes", "descending")]
    return in_order(pa.Table.from_arrays(arrays, schema=kinds), order)
