"""The out folder is replaced completely or not at all, and only files that a report wrote are deleted from it.

In: the folder, the names to replace. Out: a staging folder to write them in, moved into place when all of them are there: whole
tables, or single days of them. A manifest in the folder lists the files of the last report, and the moves that are under way: when
a run is killed among them the next one ends them first. What the manifest does not list is somebody else's. Left to others: what is
written.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reports.errors import ReportError

MANIFEST = ".kafka-quota-proxy-report.json"
"""File in the out folder that lists what the last report wrote there."""

_STAGING = ".report-"


@dataclass
class _Manifest:
    """`files`: written by a report, relative to the folder. `staging`: folders that a report was at work in. `moving`: the one
    whose `moves` are under way. `kept`: what the next report has to know."""

    files: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)
    moving: str = ""
    moves: list[str] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path) -> "_Manifest":
        try:
            found = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
            lists = {name: [str(item) for item in found.get(name, [])] for name in ("files", "staging", "moves", "removals")}
            return cls(**lists, moving=str(found.get("moving", "")), kept=dict(found.get("kept", {})))
        except (OSError, ValueError, AttributeError, TypeError):
            # Without a manifest that can be read, nothing here is known to be a report's.
            return cls()

    def save(self, out: Path) -> None:
        temporary = out / f"{MANIFEST}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        temporary.replace(out / MANIFEST)


@dataclass
class Staging:
    """Where a report is written before it takes the place of the last one.

    `path` is the folder. `days` names the tables of which single days are replaced, and the folders of these days; of every other
    table, and of files, all is. `kept` is what the last report left for this one, and is saved for the next.
    """

    path: Path
    days: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def clear(self, kept: Mapping[str, Any]) -> None:
        """Begin again: nothing is written, and `kept` is what the last report left."""
        shutil.rmtree(self.path)
        self.path.mkdir()
        self.days.clear()
        self.kept.clear()
        self.kept.update(kept)

    def keep(self, names: Sequence[str]) -> None:
        """Leave these in the out folder as they are."""
        self.days |= {name: [] for name in names}

    def changes(self, out: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """What is to be moved into place, and what is to go away with nothing in its place."""
        single = [f"{name}/{day}" for name in names for day in self.days.get(name, ())]
        replaced = [name for name in names if name not in self.days] + single
        moves = [name for name in replaced if (self.path / name).exists()]
        return moves, [name for name in replaced if name not in moves and (out / name).exists()]


@contextmanager
def replacing(out: Path, names: Sequence[str]) -> Iterator[Staging]:
    """A new staging folder inside `out`. When the block ends well, each of `names` in it takes the place of its namesake in `out`.

    When the block fails, `out` is as it was. A reader never sees half a table, or half a day; for a moment it may see tables of two
    runs.

    Raises:
        ReportError: the folder cannot be written, or holds something under one of `names` that no report wrote.
    """
    manifest = _prepare(out, names)
    staging = Staging(out / f"{_STAGING}{secrets.token_hex(4)}", kept=dict(manifest.kept))
    manifest.staging.append(staging.path.name)
    manifest.save(out)
    staging.path.mkdir()
    try:
        yield staging
        _refuse_foreign(out, names, manifest)
        moves, removals = staging.changes(out, names)
        # Listed before they are there, so that a report killed between two moves leaves nothing that the next one takes for
        # foreign.
        manifest.files = sorted({*manifest.files, *_files(staging.path, moves)})
        manifest.moving, manifest.moves, manifest.removals = staging.path.name, moves, removals
        manifest.kept = staging.kept
        manifest.save(out)
        _swap(out, manifest)
        manifest.files = sorted(_files(out, names))
    finally:
        shutil.rmtree(staging.path, ignore_errors=True)
        manifest.staging.remove(staging.path.name)
        manifest.save(out)


def _prepare(out: Path, names: Sequence[str]) -> _Manifest:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"the out folder {out} cannot be made: {error.strerror}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ReportError(f"the out folder {out} cannot be written to")
    manifest = _Manifest.read(out)
    _refuse_foreign(out, names, manifest)
    if _is_staging(manifest.moving):
        _swap(out, manifest)  # of a report that was killed while it moved
    for name in manifest.staging:  # of reports that were killed before
        if _is_staging(name):
            shutil.rmtree(out / name, ignore_errors=True)
    manifest.staging.clear()
    return manifest


def _is_staging(name: str) -> bool:
    return name.startswith(_STAGING) and Path(name).name == name


def _refuse_foreign(out: Path, names: Sequence[str], manifest: _Manifest) -> None:
    foreign = sorted(set(_files(out, names)) - set(manifest.files))
    if foreign:
        raise ReportError(f"{out / foreign[0]} was not written by a report and would be lost: move it, or choose another --out")


def _files(folder: Path, names: Sequence[str]) -> list[str]:
    """Every file under the given names in `folder`, relative to it."""
    found = []
    for name in names:
        path = folder / name
        inside = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
        found += [str(file.relative_to(folder)) for file in inside if file.is_symlink() or file.is_file()]
    return found


def _swap(out: Path, manifest: _Manifest) -> None:
    """Make the moves and removals of the manifest, those left that were not made yet."""
    staging = out / manifest.moving
    old = staging / "old"
    for move in manifest.moves:
        if (staging / move).exists():
            _put_aside(out / move, old)
            (out / move).parent.mkdir(exist_ok=True)
            (staging / move).rename(out / move)
    for removal in manifest.removals:
        _put_aside(out / removal, old)
    manifest.moving, manifest.moves, manifest.removals = "", [], []


def _put_aside(path: Path, old: Path) -> None:
    if path.exists():
        old.mkdir(exist_ok=True)
        path.rename(old / secrets.token_hex(4))
