"""YAML with line numbers, and errors for people.

In: the text of a settings file. Out: `Settings`, or `SettingsError` with a line for each mistake: key, line, what is
wrong, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.config.models import Settings

Key = tuple[str | int, ...]


class SettingsError(Exception):
    """Settings that cannot be used; the message has one line per mistake."""


def load_settings(
    path: Path | None, overrides: Mapping[str, Any] | None = None, every_listener: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a file (None: no file), with some replaced, e.g. {"upstream": {"bootstrap_servers": [...]}}, by
    the command line; `every_listener` is replaced in each of them."""
    data, lines = ({}, {}) if path is None else _read(path)
    merged = _merge(data, overrides or {})
    if every_listener:
        more = merged.get("more_listeners")
        merged["listen"] = _with(merged.get("listen", {}), every_listener)
        if isinstance(more, dict):
            merged["more_listeners"] = {name: _with(listener, every_listener) for name, listener in more.items()}
    try:
        return Settings.model_validate(merged)
    except ValidationError as e:
        where = str(path) if path else "settings"
        raise SettingsError("\n".join(_explain(where, error, lines) for error in e.errors())) from None


def _read(path: Path) -> tuple[Any, dict[Key, int]]:
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as e:
        raise SettingsError(f"{path}: cannot be read: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise SettingsError(f"{path}: is not UTF-8 text (byte {e.start})") from None
    except yaml.MarkedYAMLError as e:
        line = f"line {e.problem_mark.line + 1}: " if e.problem_mark else ""
        raise SettingsError(f"{path}: {line}is not YAML: {e.problem}") from None
    except yaml.YAMLError as e:
        raise SettingsError(f"{path}: is not YAML: {e}") from None
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise SettingsError(
            f"{path}: line 1: a mapping of settings is right, such as `upstream: {{bootstrap_servers: [kafka:9092]}}`"
        )
    lines: dict[Key, int] = {}
    return _build(path, node, (), lines, frozenset()), lines


def _build(path: Path, node: yaml.Node, key: Key, lines: dict[Key, int], above: frozenset[int]) -> Any:
    """Plain data from a YAML node, noting on which line each key stands. An alias to a node it stands in is refused."""
    if id(node) in above:
        raise SettingsError(f"{path}: line {node.start_mark.line + 1}: an alias that contains itself")
    above |= {id(node)}
    lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_build(path, item, (*key, i), lines, above) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(path, node, key)
    data: dict[str, Any] = {}
    for name_node, value_node in node.value:
        name, line = str(name_node.value), name_node.start_mark.line + 1
        if name in data:
            first = lines[(*key, name)]
            raise SettingsError(f"{path}: line {line}: `{_dotted((*key, name))}` stands twice, first on line {first}")
        lines[(*key, name)] = line
        value = _build(path, value_node, (*key, name), lines, above)
        if value is not None:  # left empty: its default
            data[name] = value
    return data


def _scalar(path: Path, node: yaml.Node, key: Key) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError):
        at = f"{path}: line {node.start_mark.line + 1}: `{_dotted(key)}`"
        raise SettingsError(f"{at}: {node.value!r} is not what its YAML tag {node.tag!r} says; write text in quotes") from None


def _merge(base: Any, over: Mapping[str, Any]) -> Any:
    merged = dict(base)
    for name, value in over.items():
        merged[name] = (
            _merge(merged.get(name) or {}, value)
            if isinstance(value, Mapping) and isinstance(merged.get(name, {}), dict)
            else value
        )
    return merged


def _with(section: Any, over: Mapping[str, Any]) -> Any:
    """A section with some settings replaced; what is no section stays, to be refused."""
    return {**section, **over} if isinstance(section, dict) else section


def _explain(where: str, error: ErrorDetails, lines: Mapping[Key, int]) -> str:
    key = tuple(error["loc"])
    line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
    at = f"line {line}: " if line else ""
    name = f"`{_dotted(key)}`: " if key else ""
    return f"{where}: {at}{name}{_reason(error, key)}"


def _reason(error: ErrorDetails, key: Key) -> str:
    if error["type"] == "extra_forbidden":
        known = sorted(_fields_at(Settings, key[:-1]))
        close = difflib.get_close_matches(str(key[-1]), known, n=1)
        return f"there is no such setting; {f'`{close[0]}` is probably meant' if close else 'here there are ' + ', '.join(known)}"
    if "password" in str(key[-1:]):  # what was given is a secret, in whatever shape
        return error["msg"].removeprefix("Value error, ")
    if error["type"] in ("model_type", "dict_type", "list_type"):
        return f"{error['input']!r} is not right: " + (
            "a list" if error["type"] == "list_type" else "a section with settings of its own"
        )
    given = error["input"]
    shown = "" if isinstance(given, dict | list | BaseModel) or error["type"] == "missing" else f"{given!r} is not right: "
    return shown + error["msg"].removeprefix("Value error, ")


def _fields_at(model: type[BaseModel], key: Key) -> list[str]:
    """The settings that exist at a key."""
    for part in key:
        if isinstance(part, int):
            continue
        found = model_in(model.model_fields[part].annotation) if part in model.model_fields else None
        if found is None:
            return []
        model = found
    return list(model.model_fields)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is made of, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if (found := model_in(part)) is not None:
            return found
    return None


def _dotted(key: Key) -> str:
    out = ""
    for part in key:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out
