"""The out folder: replaced as a whole or not at all, and nothing in it is lost that no report wrote."""

import json
from pathlib import Path

import pytest

from reports.errors import ReportError

pytest.importorskip("pyspark")
from reports.publish import MANIFEST, replacing

NAMES = ("table", "page.html")


def write(out: Path, text: str) -> None:
    """One run: a table of one file, and a page."""
    with replacing(out, NAMES) as staging:
        (staging.path / "table").mkdir()
        (staging.path / "table" / f"part-{text}").write_text(text)
        (staging.path / "page.html").write_text(text)


def break_off(out: Path) -> None:
    """A run that fails when half of it is written."""
    with replacing(out, NAMES) as staging:
        (staging.path / "page.html").write_text("2")
        raise ValueError("broken")


def interfere(out: Path) -> None:
    """A run during which somebody puts a file into the table."""
    with replacing(out, NAMES) as staging:
        (staging.path / "page.html").write_text("2")
        (out / "table" / "notes.txt").write_text("mine")


def content(out: Path) -> dict[str, str]:
    """Every file of the folder but the manifest."""
    files = (path for path in out.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(out)): path.read_text() for path in files}


def test_a_run_replaces_the_last_one(tmp_path: Path) -> None:
    write(tmp_path / "new" / "out", "1")
    write(tmp_path / "new" / "out", "2")
    assert content(tmp_path / "new" / "out") == {"table/part-2": "2", "page.html": "2"}


def test_a_run_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    write(tmp_path, "1")
    with pytest.raises(ValueError, match="broken"):
        break_off(tmp_path)
    assert content(tmp_path) == {"table/part-1": "1", "page.html": "1"}
    write(tmp_path, "3")


def test_what_the_last_run_wrote_and_this_one_does_not_goes_away(tmp_path: Path) -> None:
    write(tmp_path, "1")
    with replacing(tmp_path, NAMES) as staging:
        (staging.path / "page.html").write_text("2")
    assert content(tmp_path) == {"page.html": "2"}


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("cat")
    write(tmp_path, "1")
    write(tmp_path, "2")
    assert content(tmp_path)["photos/a.jpg"] == "cat"


@pytest.mark.parametrize("name", ["page.html", "table/part-0", "table/deep/notes.txt"])
def test_somebody_elses_file_under_a_name_of_ours_stops_the_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ReportError, match=f"{name} was not written by a report"):
        write(tmp_path, "1")
    assert content(tmp_path) == {name: "mine"}


def test_a_file_that_somebody_puts_into_a_table_stops_the_next_run(tmp_path: Path) -> None:
    write(tmp_path, "1")
    (tmp_path / "table" / "notes.txt").write_text("mine")
    with pytest.raises(ReportError, match=r"notes\.txt was not written by a report"):
        write(tmp_path, "2")
    assert content(tmp_path) == {"table/part-1": "1", "page.html": "1", "table/notes.txt": "mine"}


def test_a_file_that_appears_while_the_run_is_at_work_stops_it(tmp_path: Path) -> None:
    write(tmp_path, "1")
    with pytest.raises(ReportError, match="was not written by a report"):
        interfere(tmp_path)
    assert content(tmp_path)["page.html"] == "1"


def test_a_run_that_was_killed_is_swept_up_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, "1")
    # As a kill between the two moves of a table leaves it: the new part is there, the old one in the staging folder.
    (tmp_path / ".report-dead" / "old").mkdir(parents=True)
    (tmp_path / "table").rename(tmp_path / ".report-dead" / "old" / "table")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "part-2").write_text("2")
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest |= {"files": [*manifest["files"], "table/part-2"], "staging": [".report-dead"]}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    write(tmp_path, "3")
    assert content(tmp_path) == {"table/part-3": "3", "page.html": "3"}


def test_single_days_are_replaced_and_the_others_stay(tmp_path: Path) -> None:
    for days in ({"date=1": "a", "date=2": "b", "date=3": "c"}, {"date=2": "new"}):
        with replacing(tmp_path, NAMES) as staging:
            for day, text in days.items():
                (staging.path / "table" / day).mkdir(parents=True)
                (staging.path / "table" / day / "part").write_text(text)
            if len(days) == 1:
                staging.days["table"] = ["date=2", "date=3"]
    assert content(tmp_path) == {"table/date=1/part": "a", "table/date=2/part": "new"}


def test_a_run_that_was_killed_while_it_moved_is_ended_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, "1")
    staging = tmp_path / ".report-half"
    (staging / "table").mkdir(parents=True)
    (staging / "table" / "part-2").write_text("2")
    (tmp_path / "page.html").write_text("2")  # moved already
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest |= {"files": [*manifest["files"], "table/part-2"], "staging": [".report-half"], "moving": ".report-half"}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {"moves": ["table", "page.html"], "removals": []}))
    with pytest.raises(ValueError, match="broken"):
        break_off(tmp_path)
    assert content(tmp_path) == {"table/part-2": "2", "page.html": "2"}


def test_a_manifest_cannot_name_folders_of_others_for_deletion(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).write_text('{"files": [], "staging": ["../precious", ".report-x/../../precious"]}')
    write(tmp_path / "out", "1")
    assert (tmp_path / "precious").is_dir()


def test_an_out_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="cannot be made: Not a directory"):
        write(tmp_path / "file" / "out", "1")
