"""Files as they really lie about: in folders, compressed, growing, cut, damaged, strangely named. No line is lost silently."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reports.errors import ReportError
from tests.reports.logs import NOON, Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Found = list[tuple[str, str | None, str | None]]


def read(spark: "SparkSession", folder: Path) -> tuple[int, Found]:
    """Good lines; reason, file and raw text of the others."""
    from reports.ingest import Destination
    from reports.line_store import stored_schema, valid_lines
    from reports.publish import Staging
    from reports.read import load
    from reports.transforms.quarantine import quarantine

    destination = Destination(folder, Staging(folder.parent / f"{folder.name}-staging"), str(folder))
    load(spark, str(folder), NOON, destination)
    stored = spark.read.schema(stored_schema()).parquet(
        str(destination.staging.path / "incoming").translate({ord(c): f"\\{c}" for c in "[]{}*"})
    )
    bad = [tuple(row) for row in quarantine(stored, str(folder)).select("reason", "file", "raw").collect()]
    return valid_lines(stored).count(), sorted(bad, key=repr)


def test_a_tree_of_plain_and_compressed_files_is_read_and_nothing_else(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "a [b] {c}* ø+%20"
    Log(boot="1").usage().usage().write(folder)
    Log(boot="2").usage().write(folder / "deep" / "deeper", compress=True)
    # A whole frame as zstd has it when nothing could be compressed: magic, header, one raw block.
    line = Log(boot="4").usage().lines[0] + b"\n"
    frame = (0xFD2FB528).to_bytes(4, "little") + b"\x60" + (len(line) - 256).to_bytes(2, "little")
    (folder / "usage.jsonl.zst").write_bytes(frame + (len(line) << 3 | 1).to_bytes(3, "little") + line)
    Log(boot="3").usage().raw(b"bad").write(folder / "with spaces + plus")
    (folder / "notes.txt").write_text("not a log")
    (folder / "usage.jsonl.bak").write_text("not a log")
    (folder / "empty.jsonl").touch()
    good, bad = read(spark, folder)
    assert good == 5
    assert bad == [("not_json", "with spaces + plus/usage-proxy-a-3-000001.jsonl", "bad")]


def test_a_file_that_ends_within_a_line_or_a_character_loses_only_that_line(spark: "SparkSession", tmp_path: Path) -> None:
    log = Log().usage().usage(client_id="schön")
    data = log.lines[1]
    for name, end in (("line", data[:60]), ("character", data[: data.index("ö".encode()) + 1]), ("nothing", b"")):
        (tmp_path / f"{name}.jsonl").write_bytes(log.lines[0] + b"\n" + end)
    (tmp_path / "whole.jsonl").write_bytes(log.lines[0] + b"\n" + data)  # only the end of the line is not there yet
    good, bad = read(spark, tmp_path)
    assert good == 5
    assert [(reason, file) for reason, file, _ in bad] == [("cut", "line.jsonl"), ("not_utf8", "character.jsonl")]
    assert bad[0][2] == data[:60].decode()


def test_a_damaged_compressed_file_is_read_as_far_as_it_goes(spark: "SparkSession", tmp_path: Path) -> None:
    log = Log(boot="1")
    for at in range(5000):
        log.usage(at * 10, client_id=f"client-{at * 7919 % 5000}")
    path = log.write(tmp_path, compress=True)
    path.write_bytes(path.read_bytes()[:-2000])
    Log(boot="2").usage().write(tmp_path)
    (tmp_path / "noise.jsonl.gz").write_bytes(b"this is not gzip")
    good, bad = read(spark, tmp_path)
    assert 1 < good < 5001
    files = [(reason, file) for reason, file, _ in bad if reason != "cut"]
    assert files == [("damaged_file", "noise.jsonl.gz"), ("damaged_file", path.name)]


def test_a_folder_that_spark_finds_nothing_in_is_a_clear_error(spark: "SparkSession", tmp_path: Path) -> None:
    from reports.read import read_lines

    (tmp_path / ".hidden.jsonl").touch()
    with pytest.raises(ReportError, match=r"no \*.jsonl"):
        read_lines(spark, str(tmp_path))
    with pytest.raises(ReportError, match="cannot be read: PATH_NOT_FOUND"):
        read_lines(spark, f"file:{tmp_path}/nowhere")
