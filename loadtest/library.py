"""The scenarios that come with the program. In: a name, or a file. Out: where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from configfile.load import FileError

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
