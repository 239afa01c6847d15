"""Files: results as JSON. In: paths, or `-` for standard input and output. Out: results, or an error for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from configfile.load import FileError
from loadtest.results.model import SCHEMA_VERSION, Comparison, Result, RunResult, Sweep

AnyResult = RunResult | Comparison | Sweep
_ADAPTER: Final = TypeAdapter[AnyResult](Result)


def write(result: AnyResult, path: str) -> None:
    """Write to a file, indented, or to standard output (`-`) as one line, so that the logs of many pods can be concatenated."""
    if path == "-":
        sys.stdout.write(result.model_dump_json() + "\n")
        sys.stdout.flush()
        return
    put(path, result.model_dump_json(indent=1) + "\n")


def put(path: str, text: str) -> None:
    """Raises FileError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}") from e


def read(path: str) -> AnyResult:
    """The one result of a file. Raises FileError."""
    text = _text(path)
    return _parse(text, path)


def read_runs(paths: Iterable[str]) -> list[RunResult]:
    """The runs in several files. A file may also be a log of pods: one run in a line, and other lines in between."""
    found = []
    for path in paths:
        text = _text(path)
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if _is_result(line)]
        parts = [(line, f"{path}, line {number}") for number, line in lines] or [(text, path)]
        for part, where in parts:
            result = _parse(part, where)
            if not isinstance(result, RunResult):
                raise FileError(f"{where}: this is a {result.kind}; only results of runs can be merged")
            found.append(result)
    return found


def _is_result(line: str) -> bool:
    """True if the line has a run, also after the name of a pod (`kubectl logs --prefix`)."""
    return '{"kind":"run"' in line


def _parse(text: str, where: str) -> AnyResult:
    at = text.find('{"kind":')
    try:
        return _ADAPTER.validate_json(text[max(at, 0) :])
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            raise FileError(f"{where}: not a result of a load test: {first['msg']}") from None
        if key.endswith("schema_version"):
            raise FileError(f"{where}: schema version {first['input']!r}; this program reads version {SCHEMA_VERSION}") from None
        raise FileError(f"{where}: not a result of a load test: {key or 'kind'}: {first['msg']}") from None


def _text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError:
        raise FileError(f"{path}: not a text file") from None
