"""YAML with line numbers, and errors for people.

In: a file, a pydantic model. Out: an instance of it, or `FileError` with a line for each mistake: key, line, what is wrong, what
would be right."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Key = tuple[str | int, ...]
Lines = dict[Key, int]
M = TypeVar("M", bound=BaseModel)


class FileError(Exception):
    """A file that cannot be used; the message has one line per mistake."""


def validated(model: type[M], data: Any, where: str, lines: Mapping[Key, int], *, kind: str = "setting") -> M:
    """Data as a model. `where` and `kind` say in errors what it comes from, and what its keys are called."""
    try:
        return model.model_validate(data)
    except ValidationError as e:
        raise FileError("\n".join(_explain(model, where, error, lines, kind) for error in e.errors())) from None


def read(path: Path, example: str, *, kind: str = "setting") -> tuple[Any, Lines]:
    """Plain data of a YAML file, which has to be a mapping such as `example`, and on which line each key stands."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise FileError(f"{path}: is not UTF-8 text (byte {e.start})") from None
    except yaml.MarkedYAMLError as e:
        line = f"line {e.problem_mark.line + 1}: " if e.problem_mark else ""
        raise FileError(f"{path}: {line}is not YAML: {e.problem}") from None
    except yaml.YAMLError as e:
        raise FileError(f"{path}: is not YAML: {e}") from None
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise FileError(f"{path}: line 1: must be a mapping of {kind}s, such as `{example}`")
    lines: Lines = {}
    return _build(path, node, (), lines, frozenset()), lines


def _build(path: Path, node: yaml.Node, key: Key, lines: Lines, above: frozenset[int]) -> Any:
    """Plain data from a YAML node, noting on which line each key stands. An alias to a node it stands in is refused."""
    if id(node) in above:
        raise FileError(f"{path}: line {node.start_mark.line + 1}: an alias that contains itself")
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
            raise FileError(f"{path}: line {line}: `{dotted((*key, name))}` stands twice, first on line {first}")
        lines[(*key, name)] = line
        value = _build(path, value_node, (*key, name), lines, above)
        if value is not None:  # left empty: its default
            data[name] = value
    return data


def _scalar(path: Path, node: yaml.Node, key: Key) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError):
        at = f"{path}: line {node.start_mark.line + 1}: `{dotted(key)}`"
        raise FileError(f"{at}: {node.value!r} is not what its YAML tag {node.tag!r} says; write text in quotes") from None


def merge(base: Any, over: Mapping[str, Any]) -> Any:
    """Data with some replaced, e.g. {"upstream": {"bootstrap_servers": [...]}}."""
    merged = dict(base)
    for name, value in over.items():
        merged[name] = (
            merge(merged.get(name) or {}, value) if isinstance(value, Mapping) and isinstance(merged.get(name, {}), dict) else value
        )
    return merged


def _explain(model: type[BaseModel], where: str, error: ErrorDetails, lines: Mapping[Key, int], kind: str) -> str:
    key = _written(model, error["loc"])
    line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
    at = f"line {line}: " if line else ""
    name = f"`{dotted(key)}`: " if key else ""
    return f"{where}: {at}{name}{_reason(model, error, key, kind)}"


def _written(model: type[BaseModel], loc: Key) -> Key:
    """Where it stands in the file: without the tags by which pydantic says which part of a union it took, and without its mark
    for what is wrong with a name that the user chose."""
    return tuple(part for i, part in enumerate(loc) if part != "[key]" and not _is_tag(_at(model, loc[:i]), part))


def _is_tag(annotation: Any, part: str | int) -> bool:
    models = _models(annotation)
    return not any(part in found.model_fields for found in models) and any(part in _tags(found) for found in models)


def _reason(model: type[BaseModel], error: ErrorDetails, key: Key, kind: str) -> str:
    if error["type"] == "extra_forbidden":
        known = sorted(_fields_at(model, error["loc"][:-1]))
        close = difflib.get_close_matches(str(key[-1]), known, n=1)
        return f"there is no such {kind}; {f'`{close[0]}` is probably meant' if close else 'here there are ' + ', '.join(known)}"
    if "password" in str(key[-1:]):  # what was given is a secret, in whatever shape
        return error["msg"].removeprefix("Value error, ")
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        name = error["ctx"]["discriminator"].strip("'")
        tags = ", ".join(sorted(tag for found in _models(_at(model, error["loc"])) for tag in _values(found, name)))
        given = f"{error['ctx']['tag']!r} is not right: " if "tag" in error["ctx"] else ""
        return f"{given}`{name}` is one of {tags}"
    if error["type"] in ("model_type", "dict_type", "list_type"):
        return f"{error['input']!r} is not right: " + (
            "a list" if error["type"] == "list_type" else f"a section with {kind}s of its own"
        )
    given = error["input"]
    untold = isinstance(given, dict | list | BaseModel) or "://" in str(given)  # a URL may hold a password
    shown = "" if untold or error["type"] == "missing" else f"{given!r} is not right: "
    return shown + error["msg"].removeprefix("Value error, ")


def _fields_at(model: type[BaseModel], loc: Key) -> list[str]:
    """What exists at a place that pydantic names."""
    return [name for found in _models(_at(model, loc)) for name in found.model_fields]


def _at(annotation: Any, loc: Key) -> Any:
    """The annotation at a place that pydantic names: by fields, keys of mappings, numbers in lists, tags of unions."""
    for part in loc:
        annotation = next((found for option in _options(annotation) if (found := _step(option, part)) is not None), None)
    return annotation


def _step(option: Any, part: str | int) -> Any:
    if _is_model(option):
        if part in option.model_fields:
            return option.model_fields[str(part)].annotation
        return option if part in _tags(option) else None
    return get_args(option)[-1] if get_origin(option) in (list, dict) else None


def _options(annotation: Any) -> list[Any]:
    """The parts of a union, or the annotation alone."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [found for part in get_args(annotation) for found in _options(part)]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [option for option in _options(annotation) if _is_model(option)]


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tags(model: type[BaseModel]) -> set[str]:
    return {value for name in model.model_fields for value in _values(model, name)}


def _values(model: type[BaseModel], name: str) -> list[str]:
    """What a field of type `Literal` may be."""
    annotation = model.model_fields[name].annotation
    return [str(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else []


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is made of, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if (found := model_in(part)) is not None:
            return found
    return None


def dotted(key: Key) -> str:
    """A key as people write it: `phases[0].load`."""
    out = ""
    for part in key:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out
