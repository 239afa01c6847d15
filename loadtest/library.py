"""The scenarios that come with the program. In: a name, or a file. Out: where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from configfile.load import FileError, read
from loadtest.scenario import EXAMPLE, Scenario, load_scenario

FOLDER: Final = Path(__file__).with_name("scenarios")


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def find(given: str) -> Path:
    """A scenario by its name, or a file by its path. Raises FileError."""
    own = FOLDER / f"{given}.yaml"
    if given in names():
        return own
    path = Path(given)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    raise FileError(f"there is no scenario {given!r}: give a file, or one of {', '.join(names())}")


def description(name: str) -> str:
    """Of a scenario that comes with the program, in one line."""
    data, _ = read(find(name), EXAMPLE, kind="key")
    return " ".join(str(data.get("description", "")).split())


def load(scenario: str, sets: Sequence[str]) -> Scenario:
    """By name or path, with what `--set` gives. Raises FileError."""
    given = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise FileError(f"--set {text}: must be KEY=VALUE, such as rate=500")
        given[key] = value
    return load_scenario(find(scenario), given)
