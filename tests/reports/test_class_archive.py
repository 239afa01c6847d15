"""The archive of Spark's classes: Java starts with it where it is, says nothing of one that does not fit, and it can be made."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from reports import class_archive
from reports.errors import ReportError
from reports.requirements import find_java
from tests.reports.logs import Log


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without an archive."""
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_java_is_told_of_an_archive_only_where_there_is_one_and_passes_over_one_that_does_not_fit(cache: Path) -> None:
    java, archive = find_java(), class_archive.archive()
    if java is None or archive is None:
        pytest.skip("no Java")
    assert class_archive.java_options() == ""
    cache.mkdir()
    archive.write_bytes(b"no archive")
    options = shlex.split(class_archive.java_options())
    assert f"-XX:SharedArchiveFile={archive}" in options
    said = subprocess.run([java, *options, "-XshowSettings:none", "-version"], capture_output=True, text=True, check=True)
    assert said.stdout == ""


def test_a_machine_that_is_too_busy_is_told_so_in_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "check_requirements", lambda: None)
    monkeypatch.setattr(class_archive, "archive", lambda: cache / "spark-classes.jsa")
    monkeypatch.setattr(class_archive, "_LENGTH", 0.0)
    with pytest.raises(ReportError, match="was not made within 0 s"):
        class_archive.make()
    assert list(cache.iterdir()) == []


@pytest.mark.spark
@pytest.mark.nightly  # it takes a minute; `make test` makes one before its tests, and their reports start with it
def test_an_archive_is_made_and_a_report_starts_with_it(cache: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "reports.class_archive"], check=True)
    assert [file.suffix for file in cache.iterdir()] == [".jsa"]
    Log().usage().write(tmp_path / "logs")
    loaded, mapped = tmp_path / "loaded.txt", tmp_path / "mapped.txt"
    java = f"-XX:+UseSerialGC {class_archive.java_options()} -Xlog:class+load:file={loaded} -Xlog:cds:file={mapped}"
    command = [sys.executable, "-m", "reports.job", "--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out")]
    subprocess.run([*command, "--spark-conf", f"spark.driver.extraJavaOptions={java}"], check=True, stdout=subprocess.DEVNULL)
    text = loaded.read_text()
    assert text.count("shared objects file (top)") > text.count("source:") / 2
    assert "alternative address" not in mapped.read_text()  # where Java would have to rewrite it
