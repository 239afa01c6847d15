"""What the sources of the proxy say that it may log and answer. In: its Python files. Out: events of the operations log, and error
codes of Kafka. They are read and not run, so what only happens once in a year is there too."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

from kio.schema.errors import ErrorCode

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
CODES = {code.name.upper(): int(code) for code in ErrorCode}
ANSWERS = {"Refusal", "Result", "Refused"}
"""Values that hold the error code of an answer, as their first field."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Call = tuple[ast.Call, Function | None]
"""A call, and the function in which it stands."""


@functools.cache
def sources(*packages: str) -> list[tuple[Path, ast.Module]]:
    """Each file of these packages, parsed; builds of the hot path are copies of them."""
    files = [path for package in packages for path in sorted((ROOT / package).rglob("*.py")) if "_hot" not in path.parts]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in files]


def logged() -> tuple[set[str], set[str]]:
    """(events, lines whose event is not found: it is neither a text nor a parameter to which texts are passed)."""
    events: set[str] = set()
    unknown: set[str] = set()
    for path, module in sources("proxy"):
        calls = _calls(module)
        for call, function in calls:
            if not _logs(call, function):
                continue
            match call.args:
                case [ast.Constant(value=str(event)), *_]:
                    events.add(event)
                case [ast.Name(id=name), *_] if function is not None and (found := _texts_of(name, function, _by_name(calls))):
                    events |= found
                case _:
                    unknown.add(f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}")
    return events, unknown


@functools.cache
def _calls(module: ast.Module) -> list[Call]:
    """Each call, with the function in which it stands."""
    found: list[Call] = []
    waiting: list[tuple[ast.AST, Function | None]] = [(module, None)]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Call):
            found.append((node, function))
        inside = node if isinstance(node, Function) else function
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def _logs(call: ast.Call, function: Function | None) -> bool:
    """Is it `log.info(…)`, `getattr(log, level)(…)`, or `say(…)` where `say` is one of these methods?"""
    match call.func:
        case ast.Attribute():
            return _is_method(call.func)
        case ast.Call(func=ast.Name(id="getattr"), args=[holder, *_]):
            return _is_log(holder)
        case ast.Name(id=name):
            return function is not None and name in _chosen(function)
    return False


@functools.cache
def _chosen(function: Function) -> set[str]:
    """Names in this function that stand for a method of a log."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.IfExp):
            methods = (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
            if any(_is_method(method) for method in methods):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in LEVELS and _is_log(node.value)


def _is_log(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in {"log", "_log", "_once_log"}


def _by_name(calls: list[Call]) -> dict[str, list[Call]]:
    """Calls by the name of what is called."""
    found: dict[str, list[Call]] = defaultdict(list)
    for call, function in calls:
        match call.func:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found[name].append((call, function))
    return found


def _texts_of(parameter: str, function: Function, calls: dict[str, list[Call]], depth: int = 3) -> set[str]:
    """Texts that are passed as this parameter, also through other functions of the file."""
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    if parameter not in names or not depth:
        return set()
    at, found = names.index(parameter), set()
    for call, caller in calls[function.name]:
        match call.args[at : at + 1]:
            case [ast.Constant(value=str(text))]:
                found.add(text)
            case [ast.Name(id=name)] if caller is not None:
                found |= _texts_of(name, caller, calls, depth - 1)
    return found


def named_codes() -> set[int]:
    """Error codes that the sources name, by their names in Kafka: in texts, names and as `ErrorCode.x`."""
    words: set[str] = set()
    for path, _ in sources("proxy", "quota"):
        text = path.read_text(encoding="utf-8")
        words |= {word for word in re.findall(r"\b[A-Z][A-Z_]{5,}\b", text) if word in CODES}
        words |= {name.upper() for name in re.findall(r"\bErrorCode\.(\w+)", text)}
    return {CODES[word] for word in words}


def answered_numbers() -> set[int]:
    """Error codes that the sources put into answers as numbers, such as `Refusal(42, …)`."""
    found = set()
    for _, module in sources("proxy", "quota"):
        for call, _ in _calls(module):
            if isinstance(call.func, ast.Name) and call.func.id in ANSWERS and call.args:
                try:
                    found.add(ast.literal_eval(call.args[0]))
                except ValueError:  # a name, which `named_codes` finds
                    continue
    return found - {0}
