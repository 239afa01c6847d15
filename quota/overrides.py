"""Two layers of limits: the settings file is the base, and what was set while the proxy runs (dynamic quotas) wins, limit by limit.

In: tables of limits by entity. Out: the table that is in force, and how two tables differ. Tables are never changed: a change is a
new table, so that a reader sees all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from quota.entity import Entity
from quota.keys import Values, without_misfits

Table = Mapping[Entity, Values]
"""Limits by entity. Entities without limits are left out."""
NOTHING: Final[Table] = {}


class Change(NamedTuple):
    """One limit of one entity: its new value, None where it is taken away."""

    entity: Entity
    key: str
    value: float | None


class Difference(NamedTuple):
    """A limit that is another now; None where there was, or is, none."""

    entity: Entity
    key: str
    old: float | None
    new: float | None


def change(table: dict[Entity, Values], what: Change) -> None:
    """Make this change to a table that nobody else has yet."""
    entity, key, value = what
    values = {name: old for name, old in table.get(entity, {}).items() if name != key}
    if value is not None:
        values[key] = value
    if values:
        table[entity] = values
    else:
        table.pop(entity, None)


def changed(table: Table, changes: Iterable[Change]) -> dict[Entity, Values]:
    """The table after these changes, in their order."""
    made: dict[Entity, Values] = dict(table)
    for what in changes:
        change(made, what)
    return made


def count(table: Table) -> int:
    """Limits of all entities."""
    return sum(map(len, table.values()))


def together(file: Table, dynamic: Table, entity: Entity) -> Values:
    """The limits of one entity that are in force. Two layers may not fit: a burst that does not fit its rate is left out, so that
    the default holds, and so is a soft limit that does not fit the hard one."""
    return without_misfits({**file.get(entity, {}), **dynamic.get(entity, {})})


def merged(file: Table, dynamic: Table) -> dict[Entity, Values]:
    """What is in force."""
    both: dict[Entity, Values] = dict(file)
    both |= {entity: values for entity in dynamic if (values := together(file, dynamic, entity))}
    return both


def differences(old: Table, new: Table) -> Iterator[Difference]:
    """What is not the same."""
    for entity in dict.fromkeys((*old, *new)):
        yield from difference(entity, old.get(entity, {}), new.get(entity, {}))


def difference(entity: Entity, old: Values, new: Values) -> Iterator[Difference]:
    """The same for one entity."""
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield Difference(entity, key, old.get(key), new.get(key))
