"""The tables: all cells there, in 80 columns."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from demo.figures import Felt
from demo.tables import felt_table, quota_table, spark
from tests.demo.results import felt, results


def printed(table: Table) -> list[str]:
    """The lines of a table on a terminal of 80 columns."""
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_quota_table_has_a_column_for_each_client_in_each_phase() -> None:
    lines = printed(quota_table(results()))
    assert any(line.split() == ["refused", "with", "error", "89", "-", "-", "560", "-"] for line in lines)
    assert any(line.split() == ["the", "quota's", "allowance", "-", "-", "575", "575"] for line in lines)
    assert any(line.split()[-4:] == ["12", "s", "9.3", "s"] for line in lines if "told to wait" in line)


def test_the_other_table_fits_and_marks_what_has_not_ended() -> None:
    lines = printed(felt_table(results(storm=felt(1234, 6.7, pending=14))))
    assert not any("…" in line for line in lines)
    (storm,) = [line for line in lines if "no quota" in line]
    assert storm.split()[2:5] == ["1.2", "1234", "2468"]
    assert storm.endswith("≥6.7 s    ≥13 s")


def test_a_phase_in_which_nothing_was_measured_has_dashes() -> None:
    (alone,) = [line for line in printed(felt_table(results(alone=Felt(None, None)))) if "no storm" in line]
    assert alone.split() == ["no", "storm", *"-------"]


@pytest.mark.parametrize(
    ("values", "bars"),
    [((), ""), ((0.1, 1.0), "▁▁"), ((100.0, 10.0, 1.0), "█▅▁"), ((*[1.0] * 28, 50.0, 1.0), "▁" * 14 + "█")],
)
def test_a_spark_has_a_bar_for_each_value_or_for_the_largest_of_some(values: tuple[float, ...], bars: str) -> None:
    assert spark(values, max(values, default=1.0)) == bars
