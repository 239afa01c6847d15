"""What is written down and what is done are the same: the format that is read, the tables that are written."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"


def first_columns(markdown: str) -> list[tuple[str, str]]:
    """Names, in backquotes, and second column of the tables of a text; several names in one cell are several rows."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+?) \|", markdown, flags=re.MULTILINE)
    return [(name, second) for names, second in rows for name in re.findall(r"`(\w+)`", names)]


def sections(markdown: str, level: str) -> dict[str, str]:
    """Heading in backquotes -> text, up to the next heading of the same level."""
    parts = re.split(rf"^{level} ", markdown, flags=re.MULTILINE)[1:]
    return {found[1]: part for part in parts if (found := re.match(r"`(\w+)`", part))}


def test_the_schema_has_the_fields_of_the_format() -> None:
    pytest.importorskip("pyspark")
    from reports.schema import COMMON, FIELDS, Kind

    written = (DOCS / "log-format.md").read_text(encoding="utf-8")
    common = first_columns(written.split("## Fields of every line")[1].split("\n## ")[0])
    assert [name for name, _ in common] == [field.name for field in COMMON]
    kinds = {"integer": Kind.COUNT, "time": Kind.TIME, "number": Kind.NUMBER, "object": Kind.COUNTS, "string": Kind.TEXT}
    by_type = sections(written, "##")
    assert set(by_type) == set(FIELDS)
    for name in ("usage", "decision", "volume"):
        documented = dict(first_columns(by_type[name]))
        assert list(documented) == [field.name for field in FIELDS[name]]
        for field in FIELDS[name]:
            says = documented[field.name]
            assert field.required == ("or null" not in says) or field.name == "message" or says == "as above"
            if name != "decision" and field.kind is not Kind.API_KEY:
                assert field.kind is kinds[says.split(" ")[0]]


@pytest.mark.spark
def test_the_tables_have_the_documented_columns(spark: "SparkSession", tmp_path: Path) -> None:
    from reports.arrow_rows import write_no_rows
    from reports.chargeback import CHARGEBACK
    from reports.entities import ENTITIES
    from reports.ingest import Ingested
    from reports.line_counts import WRITERS
    from reports.line_store import stored_schema
    from reports.period_tables import BUDGETS, FORECASTS, Inputs, replays
    from reports.quotas.limits import QuotaFile
    from reports.reasons import MEANINGS
    from reports.stored import Stored
    from reports.tables import BY_DAY, NAMES, Lengths, tables_by_day
    from reports.transforms.lines import FILES
    from reports.transforms.quarantine import QUARANTINE, quarantine

    stored = spark.createDataFrame([], stored_schema())
    lengths, no_quotas = Lengths(10, 60), QuotaFile("none")
    made = {name: make() for name, make in tables_by_day(stored, lengths).items()}
    made["quarantine"] = quarantine(stored, "logs")
    schemas = {"lines": stored.schema, **{name: table.schema for name, table in made.items()}}
    schemas |= {"writers": WRITERS, "files": FILES, "quarantine": QUARANTINE, "forecasts": FORECASTS, "budgets": BUDGETS}
    schemas |= {"entities": ENTITIES, "chargeback": CHARGEBACK}
    for name in BY_DAY:
        write_no_rows(schemas[name], tmp_path / name)
    ingested = Ingested({name: Stored(schemas[name], ((tmp_path / name, None),)) for name in BY_DAY}, stored, lengths, ())
    schemas |= {name: table.schema for name, table in replays(spark, ingested, Inputs(no_quotas, no_quotas)).items()}
    written = sections((DOCS / "report.md").read_text(encoding="utf-8"), "###")
    assert list(written) == list(NAMES)
    assert set(schemas) == set(NAMES)
    for name, schema in schemas.items():
        documented = first_columns(written[name].split("| reason | meaning |")[0])
        assert documented == [(field.name, field.dataType.simpleString()) for field in schema.fields], name
    reasons = first_columns(written["quarantine"].split("| reason | meaning |")[1])
    assert {name: meaning for name, meaning in reasons if name not in ("too_large", "wrong_clock")} == {
        reason.value: meaning for reason, meaning in MEANINGS.items() if reason.value not in ("too_large", "wrong_clock")
    }
