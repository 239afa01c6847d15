"""Lines of a summary: how many, of which kind, how complete.

In: the lines, the tables `files`, `writers`, `gaps`, `quarantine`. Out: `Lines`, `Writer`s, `Silence`s, `Quarantined`.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet

from reports.stored import Expression, sums
from reports.summary.model import Lines, Quarantined, Silence, Writer
from reports.tables import HOUR, Tables

EXAMPLE_LENGTH = 200
"""Characters of a bad line that are shown."""

MAX_SILENCES = 20
_LINES: Final[dict[str, tuple[str | Expression, str]]] = {"lines": ("lines", "sum")}
_NEVER: Final = datetime.fromtimestamp(0, tz=UTC)


def count_lines(tables: Tables, line_folders: Iterable[Path], writers: tuple[Writer, ...]) -> Lines:
    """How many lines there are; copies are counted apart from the kinds that they are of."""
    # Nearly all lines are of usage: they are what is left of all.
    others: Counter[str] = Counter()
    for folder in line_folders:
        kind = folder.parent.name.removeprefix("type=")
        if kind != "usage":
            others[kind] += sum(pyarrow.parquet.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    files = list(tables["files"].rows(["lines", "quarantined"]))
    good, bad = (sum(row[name] for row in files) for name in ("lines", "quarantined"))
    return Lines(
        read=good + bad,
        usage=sum(writer.lines for writer in writers) - others.total(),
        decisions=others["decision"],
        gaps=others["gap"],
        volumes=others["volume"],
        producer_ids=others["producer_ids"],
        owned=others["owned"],
        latencies=others["latency"],
        duplicates=sum(writer.duplicates for writer in writers),
        quarantined=bad,
    )


def list_writers(tables: Tables) -> tuple[Writer, ...]:
    """Every start of a proxy, in order, with what it says it lost and what is missing of it."""
    boot = {"proxy": "proxy", "boot": "boot"}
    ways = {"first_seq": "min", "last_seq": "max", "lines": "sum", "first": "min", "last": "max"}
    once = sums(tables["writers"].parts([*boot, *ways]), boot, {name: (name, way) for name, way in ways.items()})
    read, lost = (
        {(row["proxy"], row["boot"]): row["lines"] for row in sums(tables[name].parts([*boot, "lines"]), boot, _LINES)}
        for name in ("files", "gaps")
    )
    found = []
    for row in sorted(once, key=lambda row: (row["proxy"], row["first"] or _NEVER, row["boot"])):
        whose = row["proxy"], row["boot"]
        missing = row["last_seq"] - row["first_seq"] + 1 - row["lines"]
        row |= {"duplicates": read.get(whose, row["lines"]) - row["lines"], "missing": missing, "lost": lost.get(whose, 0)}
        found.append(Writer(**row))
    return tuple(found)


def list_silences(tables: Tables) -> tuple[Silence, ...]:
    """When a proxy had no line for an hour or more, between its first and its last; the longest first."""
    found = []
    last: dict[str, int] = {}
    for row in sorted(tables["writers"].rows(["proxy", "first", "last"]), key=lambda row: row["first"]):
        proxy, first = row["proxy"], int(row["first"].timestamp())
        if proxy in last and first - last[proxy] >= HOUR:
            found.append(Silence(proxy, datetime.fromtimestamp(last[proxy], tz=UTC), first - last[proxy]))
        last[proxy] = max(last.get(proxy, 0), int(row["last"].timestamp()))
    return tuple(sorted(found, key=lambda silence: (-silence.seconds, silence.first))[:MAX_SILENCES])


def list_quarantined(tables: Tables) -> tuple[Quarantined, ...]:
    """Bad lines by reason and field, most frequent first."""
    found: dict[tuple[str, str | None], list[Any]] = {}
    for part in tables["quarantine"].parts(["reason", "field", "file", "raw"]):
        raws = pc.utf8_slice_codeunits(part["raw"], 0, EXAMPLE_LENGTH).to_pylist()
        for reason, field, file, raw in zip(*(part[name].to_pylist() for name in ("reason", "field", "file")), raws, strict=True):
            of_reason = found.setdefault((reason, field), [0, file, raw])
            of_reason[0] += 1
            if file < of_reason[1]:
                of_reason[1:] = [file, raw]
    ordered = sorted(found.items(), key=lambda item: (-item[1][0], item[0][0], item[0][1] or ""))
    return tuple(Quarantined(reason, field, *example) for (reason, field), example in ordered)
