"""Entities and limits as kafka-configs.sh names them. In: options of the command line. Out: entities, filters, changes; ValueError,
which says what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from proxy.config.units import parse_size
from proxy.wire.client_quotas import ANY_NAME, DEFAULT_NAME, EXACT, Component, Filter, Op, Who
from quota.catalogue import DEPRECATED, KEYS
from quota.entity import DEFAULT

TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip", "tenants": "tenant"}
"""`--entity-type` and what it is called in the protocol"""
_OF_BROKERS: Final = {
    "producer_byte_rate": "cluster_producer_byte_rate",
    "consumer_byte_rate": "cluster_consumer_byte_rate",
    "controller_mutation_rate": "controller_mutations_rate",
    "request_percentage": "cluster_request_rate",
}
"""Limits that brokers have, and those of the proxy that are about the same thing."""
_SHORT: Final = {"--user": "users", "--client-id": "clients", "--ip": "ips"}
_SHORT_DEFAULT: Final = {"--user-defaults": "users", "--client-defaults": "clients", "--ip-defaults": "ips"}


def spelled_out(arguments: Iterable[str]) -> list[str]:
    """The same arguments by `--entity-type` and `--entity-name`, whose order tells which belong together. A default has no name
    in the protocol, so none that somebody could have."""
    out: list[str] = []
    waiting = [*arguments][::-1]
    while waiting:
        word = waiting.pop()
        name, equals, value = word.partition("=")
        if word == "--entity-default":
            out += ["--entity-name", DEFAULT]
        elif word in _SHORT_DEFAULT:
            out += ["--entity-type", _SHORT_DEFAULT[word], "--entity-name", DEFAULT]
        elif name in _SHORT:
            out += ["--entity-type", _SHORT[name], "--entity-name", *([value] if equals else [])]
        else:
            out.append(word)
    return out


def parts_of(types: Sequence[str], names: Sequence[str]) -> list[tuple[str, str | None]]:
    """(type in the protocol, name; `DEFAULT` for the default; None where no name is given), in the order of the types."""
    if len(names) > len(types):
        raise ValueError("there are more names than types; give --entity-type before each --entity-name or --entity-default")
    if len(set(types)) < len(types):
        raise ValueError("an --entity-type stands twice")
    return [(TYPES[kind], name) for kind, name in zip_longest(types, names)]


def filter_of(parts: Sequence[tuple[str, str | None]]) -> Filter:
    """Those to be described: everything where nothing is named, as a type without a name is all of that type."""
    return Filter(tuple(_component(kind, name) for kind, name in parts), strict=bool(parts))


def _component(kind: str, name: str | None) -> Component:
    if name is None:
        return Component(kind, ANY_NAME, None)
    return Component(kind, DEFAULT_NAME, None) if name == DEFAULT else Component(kind, EXACT, name)


def who_of_parts(parts: Sequence[tuple[str, str | None]]) -> Who:
    """The one to be altered."""
    if not parts:
        raise ValueError("whose? give --entity-type and --entity-name or --entity-default")
    if (missing := [kind for kind, name in parts if name is None]) != []:
        raise ValueError(f"which {missing[0]}? give --entity-name or --entity-default after each --entity-type")
    return tuple((kind, None if name == DEFAULT else name) for kind, name in parts)


def ops_of(add: Sequence[str], delete: Sequence[str]) -> tuple[Op, ...]:
    """`k=v,k=v` and `k,k`; rates of bytes and stored bytes may have units, such as 20MiB."""
    ops: dict[str, Op] = {}
    for pair in ",".join(add).split(",") if add else ():
        key, equals, value = pair.strip().partition("=")
        if not (key and equals):
            raise ValueError(f"--add-config {pair!r}: must be key=value, such as controller_mutations_rate=5")
        _once(ops, Op(key, _number(key, value.strip()), False))
    for key in ",".join(delete).split(",") if delete else ():
        if not key.strip():
            raise ValueError("--delete-config: a key is missing")
        _once(ops, Op(key.strip(), 0.0, True))
    if not ops:
        raise ValueError("alter what? give --add-config or --delete-config")
    return tuple(ops.values())


def notes_of(ops: Iterable[Op]) -> list[str]:
    """What to know of limits that a broker has under a name like one of the proxy's. ValueError for a name that neither has."""
    notes = []
    for op in ops:
        similar = _OF_BROKERS.get(op.key)
        if similar is not None and not op.remove:
            notes.append(f"note: {op.key} is enforced by each broker by itself; for the whole cluster set {similar}")
        elif similar is None and op.key in DEPRECATED:
            raise ValueError(f"there is no {op.key}; {DEPRECATED[op.key].name} is meant")
    return notes


def _once(ops: dict[str, Op], op: Op) -> None:
    if op.key in ops:
        raise ValueError(f"{op.key} stands twice")
    ops[op.key] = op


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        if key.endswith("_byte_rate") or (key in KEYS and KEYS[key].size):
            try:
                return float(parse_size(value))
            except ValueError:
                raise ValueError(f"{key}={value}: must be a number of bytes, such as 1048576 or 20MiB") from None
        raise ValueError(f"{key}={value}: must be a number") from None
