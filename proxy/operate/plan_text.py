"""A plan of quotas for people. In: a plan. Out: text for a terminal, or Markdown for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.operate.saved_plan import Plan
from proxy.operate.show import figure
from quota.keys import named, unit_of

_SHOWN = 50
"""Rows of a table of Markdown at most: a comment has a limit."""


def sentences(plan: Plan) -> list[str]:
    """What the tables do not say."""
    found = _outcome(plan)
    if plan.left_out:
        found.append(f"Not in the plan, as proxies have them from their own settings files alone: {', '.join(plan.left_out)}.")
    return found


def _outcome(plan: Plan) -> list[str]:
    replayed, found = plan.replayed, list[str]()
    if not plan.changes:
        return ["Nothing changes."]
    if replayed is None:
        return ["Who would be held back is not known: no logs were given (--logs)."]
    if replayed.first is None:
        found.append("Who would be held back is not known: the logs have no line of usage.")
    else:
        found.append(f"Replayed: {replayed.lines:,} lines, {replayed.first} to {replayed.last}.")
        if not replayed.held_back:
            found.append("Nobody would have been held back.")
        elif not plan.hurt:
            found.append(f"Nobody would have been held back for more than {plan.hurt_above:g} s.")
    if replayed.not_replayed:
        found.append(f"Not replayed, as the logs do not tell enough: {', '.join(replayed.not_replayed)}.")
    return found


def changes(plan: Plan) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: limit by limit."""
    rows: list[tuple[str, ...]] = [
        (named(entity), key, figure(old), figure(new), unit_of(key), _line(plan.lines.get((entity, key))))
        for entity, key, old, new in plan.changes
    ]
    return ("entity", "quota", "old", "new", "unit", "line"), rows


def held_back(plan: Plan) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: who would have been held back."""
    rows: list[tuple[str, ...]] = [
        (
            *(one.owner, one.quota, f"{figure(one.limit)} of {one.rule}", _line(one.line), f"{one.times:,}"),
            *(f"{one.seconds:,.1f} s", f"{one.longest_wait:,.1f} s", one.first or "-"),
        )
        for one in (plan.replayed.held_back if plan.replayed is not None else ())
    ]
    return ("who", "quota", "limit", "line", "times", "in all", "longest wait", "first"), rows


def text(plan: Plan) -> str:
    """For a terminal."""
    parts = [_columns(*table, title) for table, title in _tables(plan) if table[1]]
    return "\n\n".join([*parts, "\n".join(sentences(plan))]) + "\n"


def markdown(plan: Plan) -> str:
    """For a comment."""
    known = not plan.changes or (plan.replayed is not None and plan.replayed.first is not None)
    hurt = f"{len(plan.hurt)} would be hurt" if known else "who would be hurt is not known"
    parts = [f"### Quotas: {len(plan.changes)} limit(s) change, {hurt}"]
    for (head, rows), title in _tables(plan):
        if rows:
            lines = [f"**{title}**", "", _row(head), _row("---" for _ in head), *map(_row, rows[:_SHOWN])]
            lines += ["", f"and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
            parts.append("\n".join(lines))
    return "\n\n".join([*parts, *map(_escaped, sentences(plan))]) + "\n"


def _tables(plan: Plan) -> list[tuple[tuple[tuple[str, ...], list[tuple[str, ...]]], str]]:
    return [(changes(plan), f"What changes, by {plan.file}"), (held_back(plan), "Who would have been held back")]


def _line(line: int | None) -> str:
    return "-" if line is None else str(line)


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> str:
    shown = [head, *(tuple(_printable(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(cell: str) -> str:
    """Names are whatever clients claim: nothing of them is Markdown or HTML, and nobody is mentioned."""
    plain = _printable(cell).replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
    return (
        plain
        if plain == "---"
        else "".join(f"\\{one}" if one in "\\`*_[]|#!~" else one for one in plain).replace("&\\#64;", "&#64;")
    )


def _printable(cell: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in cell)
