"""Tables for people. In: limits, differences. Out: rich tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advice.limits import reason
from proxy.operate.plan import in_order, plain
from proxy.operate.suggest import Suggestion
from proxy.wire.client_quotas import Who
from quota.catalogue import KEYS
from quota.keys import Values, is_own, named, unit_of
from quota.overrides import Difference

_UNITS: Final = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "%",
    "controller_mutation_rate": "partitions/s",
}
"""of limits that brokers have"""


def console() -> Console:
    """What is piped elsewhere is not cut to the width of a terminal that is not there."""
    return Console(width=None if sys.stdout.isatty() else 200)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty one, columns of figures to the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in ("limit", "old", "new", "usage") else "left", overflow="fold")
    return made


def name_of(who: Who) -> str:
    """An entity for people."""
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in who)


def limits(found: Mapping[Who, Values]) -> Table:
    """Who has which limits, and who holds them."""
    made = table("entity", "quota", "limit", "unit", "held by")
    for who, values in in_order(found):
        for i, (key, value) in enumerate(values.items()):
            mine = is_own(key)
            unit = unit_of(key) if mine else _UNITS.get(key, "")
            made.add_row(*map(Text, ("" if i else name_of(who), key, figure(value), unit, "the proxy" if mine else "each broker")))
    return made


def changes(found: Sequence[Difference]) -> Table:
    """What differs."""
    made = table("entity", "quota", "old", "new", "unit")
    for entity, key, old, new in found:
        made.add_row(*map(Text, (named(entity), key, figure(old), figure(new), unit_of(key))))
    return made


def suggestions(made: Sequence[Suggestion], percentile: float) -> Table:
    """What would have fitted, and what that rests on."""
    shown = table("entity", "quota", "limit", "unit", "rests on")
    for one in made:
        whose = named(one.entity) if one.entity.topic is None else str(one.entity)
        unit = KEYS[one.key].unit if one.key in KEYS else "bytes" if one.level else "bytes/s"  # of a topic
        why = reason(one.use, one.held_back, _amount, percentile / 100, level=one.level)
        shown.add_row(*map(Text, (whose, one.key, figure(one.limit), unit, why)))
    return shown


def _amount(value: float) -> str:
    return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def figure(value: float | None) -> str:
    """A number as people write it; a dash for none."""
    return "-" if value is None else f"{plain(value):,}"
