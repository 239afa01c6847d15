"""Figures into tables. In: figures. Out: rich tables, 80 columns wide at most."""

from collections.abc import Sequence
from math import log

from rich import box
from rich.table import Table

from demo import plan
from demo.figures import Felt, StormFigures, Waits
from demo.throttling import Throttling
from demo.verdict import Results, seconds

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 15

_LABELS = (
    "speaks CreateTopics",
    "partitions asked for",
    "  created",
    "  refused with error 89",
    "  the quota's allowance",
    "created per second",
    "told to wait, in sum",
    "longest silence",
)


def quota_table(results: Results) -> Table:
    """What the quota did to the storm's clients."""
    table = _table("What the quota did to the storm")
    columns = []
    for limited in (False, True):
        for storm in plan.STORMS:
            client_id = storm.client_id if limited else storm.unlimited
            table.add_column(f"{storm.kind} client\n{'quota' if limited else 'no quota'}", justify="right")
            throttling = results.throttling.get(client_id, Throttling())
            allowed = f"{plan.allowance(results.seconds):,.0f}" if limited else "-"
            columns.append(_storm_cells(storm, results.storms[client_id], results.seconds, allowed, throttling.throttle_ms / 1000))
    for row in zip(_LABELS, *columns, strict=True):
        table.add_row(*row)
    return table


def _storm_cells(storm: plan.Storm, figures: StormFigures, length: float, allowed: str, told: float) -> tuple[str, ...]:
    """One column, in the order of _LABELS; `length` of the phase and `told` in seconds."""
    return (
        "v7" if storm.kind == "new" else "v4",
        f"{figures.asked:,}",
        f"{figures.created:,}",
        f"{figures.refused:,}" if figures.refused else "-",
        allowed,
        f"{figures.created / length:.0f}",
        seconds(told) if told else "-",
        seconds(figures.longest_wait),
    )


def felt_table(results: Results) -> Table:
    """What the ordinary clients felt."""
    table = _table("What the ordinary clients felt: produce latency, wait for a new topic")
    for heading in ("p50\nms", "p99\nms", "max\nms"):
        table.add_column(heading, justify="right")
    table.add_column("max by second", no_wrap=True, min_width=_SPARK_WIDTH)
    table.add_column("typ.\nmax", justify="right")
    for heading in ("topic\nmedian", "\nworst"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [("no storm", results.alone), ("no quota", results.unlimited), ("quota, 2nd half", results.limited)]
    known = [value for _, felt in rows if felt.produce for value in felt.produce.seconds]
    for label, felt in rows:
        table.add_row(label, *_felt(felt, max(known, default=1.0)))
    return table


def _felt(felt: Felt, top: float) -> list[str]:
    produce, new = felt.produce, felt.new_topics
    cells = (
        [_ms(produce.p50), _ms(produce.p99), _ms(produce.worst), spark(produce.seconds, top), _ms(produce.typical)]
        if produce
        else ["-"] * 5
    )
    return cells + ([_wait(new, new.median), _wait(new, new.worst)] if new else ["-"] * 2)


def spark(values: Sequence[float], top: float) -> str:
    """A bar for each value, on a logarithmic scale from 1 to `top`; of values that share a place the largest is shown."""
    share = max(1.0, len(values) / _SPARK_WIDTH)
    groups = [values[round(i * share) : round((i + 1) * share)] for i in range(round(len(values) / share))]
    return "".join(_block(max(group), max(top, 2.0)) for group in groups if group)


def _block(value: float, top: float) -> str:
    height = log(max(value, 1.0)) / log(top)
    return _BLOCKS[min(int(height * len(_BLOCKS)), len(_BLOCKS) - 1)]


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _wait(waits: Waits, value: float) -> str:
    return f"≥{seconds(value)}" if waits.pending else seconds(value)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("", no_wrap=True)
    return table
