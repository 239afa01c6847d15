"""Writing room: the out folder is replaced as a whole or not at all, and nothing in it is deleted that no report wrote.

In: the folder, the names to replace. Out: a staging folder to write them in, moved into place when all of them are there. A
manifest in the folder lists the files of the last report; what it does not list is somebody else's. Left to others: what is
written.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from reports.errors import ReportError
from reports.folder import spark_path
from reports.tables import Tables

MANIFEST = ".kafka-quota-proxy-report.json"
"""File in the out folder that lists what the last report wrote there."""

_STAGING = ".report-"


@dataclass
class _Manifest:
    """`files`: written by a report, relative to the folder. `staging`: folders that a report was at work in."""

    files: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, out: Path) -> "_Manifest":
        try:
            found = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
            return cls(**{name: [str(item) for item in found[name]] for name in ("files", "staging")})
        except (OSError, ValueError, KeyError, TypeError):
            # Without a manifest that can be read, nothing here is known to be a report's.
            return cls()

    def save(self, out: Path) -> None:
        temporary = out / f"{MANIFEST}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        temporary.replace(out / MANIFEST)


@contextmanager
def replacing(out: Path, names: Sequence[str]) -> Iterator[Path]:
    """A new staging folder inside `out`. When the block ends well, each of `names` in it takes the place of its namesake in `out`.

    When the block fails, `out` is as it was. A reader never sees half a table; for a moment it may see tables of two runs.

    Raises:
        ReportError: the folder cannot be written, or holds something under one of `names` that no report wrote.
    """
    manifest = _prepare(out, names)
    staging = out / f"{_STAGING}{secrets.token_hex(4)}"
    manifest.staging.append(staging.name)
    manifest.save(out)
    staging.mkdir()
    try:
        yield staging
        _refuse_foreign(out, names, manifest)
        new = [name for name in names if (staging / name).exists()]
        files = _files(staging, new)
        # Listed before they are there, so that a report killed between two moves leaves nothing that the next one takes for
        # foreign.
        manifest.files = sorted({*manifest.files, *files})
        manifest.save(out)
        _swap(staging, out, new)
        manifest.files = sorted(files)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        manifest.staging.remove(staging.name)
        manifest.save(out)


def write_tables(spark: SparkSession, tables: Tables, folder: Path) -> Tables:
    """Write each table as Parquet below `folder`, those with a `date` in one folder a day; returns them as read back."""
    for name, table in tables.items():
        _write(table, folder / name)
    return {name: spark.read.schema(table.schema).parquet(spark_path(str(folder / name))) for name, table in tables.items()}


def _write(table: DataFrame, path: Path) -> None:
    target = f"file:{path.absolute()}"
    if "date" not in table.columns:
        table.coalesce(1).write.parquet(target)
        return
    # Files of a good size within each day, whatever the number of tasks, and each in the order of time.
    time = "start" if "start" in table.columns else "at"
    table.hint("rebalance", "date").sortWithinPartitions("date", time).write.partitionBy("date").parquet(target)
    if not any(path.glob("date=*")):
        # A table without rows has no day; without a file it would have no columns either.
        table.limit(0).coalesce(1).write.mode("overwrite").parquet(target)


def _prepare(out: Path, names: Sequence[str]) -> _Manifest:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"the out folder {out} cannot be made: {error.strerror}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ReportError(f"the out folder {out} cannot be written to")
    manifest = _Manifest.read(out)
    _refuse_foreign(out, names, manifest)
    for name in manifest.staging:  # of reports that were killed
        if name.startswith(_STAGING) and Path(name).name == name:
            shutil.rmtree(out / name, ignore_errors=True)
    manifest.staging.clear()
    return manifest


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


def _swap(staging: Path, out: Path, names: Sequence[str]) -> None:
    old = staging / "old"
    old.mkdir()
    for name in names:
        if (out / name).exists():
            (out / name).rename(old / name)
        (staging / name).rename(out / name)
