"""The writer: rotation by size and age, a bound on what waits, gaps that are told, a disk that refuses."""

import json
import time
from pathlib import Path

import pytest

from proxy.observe.writer import Losses
from tests.observe.support import LogFiles, full_disk


@pytest.fixture
def log_files(tmp_path):
    return LogFiles(tmp_path / "logs")


def test_lines_are_written_in_order_one_a_line(log_files):
    log_files.put(3)
    log_files.put(2)
    log_files.work()
    assert log_files.files == ["usage-edge-0123456789abcdef-000001.jsonl"]
    text = (log_files.folder / log_files.files[0]).read_bytes()
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 5
    assert [line["seq"] for line in log_files.lines()] == [1, 2, 3, 4, 5]
    assert log_files.writer.waiting == 0


def test_the_thread_writes_and_stops(log_files):
    log_files.writer.start()
    log_files.put(3)
    log_files.writer.stop(60.0)
    assert len(log_files.lines()) == 3


def test_a_folder_that_cannot_be_made_is_said_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    log_files = LogFiles(tmp_path / "other")
    log_files.place._path = tmp_path / "file" / "logs"
    with pytest.raises(OSError, match="Not a directory"):
        log_files.place.make()


def test_a_folder_in_which_no_file_can_be_made_is_said_at_the_start(tmp_path):
    log_files = LogFiles(tmp_path / "logs")
    log_files.place.make()
    assert list((tmp_path / "logs").iterdir()) == []
    log_files.place._path = Path("/proc/self")  # where not even root can make a file
    with pytest.raises(OSError, match="/proc/self"):
        log_files.place.make()


def test_rotation_by_size_and_by_age_within_one_run(tmp_path):
    log_files = LogFiles(tmp_path / "logs", rotate_size=1000, rotate_interval=100)
    write = log_files.writer._write
    for now, size, files in [(0, 600, 1), (1, 600, 1), (2, 10, 2), (101, 10, 2), (102, 10, 3), (150, 10, 3)]:
        log_files.now = now
        write(None, [log_files.author.line("usage", pad="x" * size)])
        assert len(log_files.files) == files, now
    assert [line["seq"] for line in log_files.lines()] == [1, 2, 3, 4, 5, 6]


def test_a_full_queue_drops_lines_and_the_next_is_preceded_by_a_gap(tmp_path):
    log_files = LogFiles(tmp_path / "logs", queue_lines=5)
    log_files.put(4)
    log_files.put(2)
    log_files.put(3)
    assert log_files.writer.dropped == 5
    assert log_files.writer.waiting == 4
    log_files.work()
    log_files.put(1)
    log_files.work()
    lines = log_files.lines()
    assert [line["type"] for line in lines] == ["usage"] * 4 + ["gap", "usage"]
    gap = lines[4]
    assert gap["lines"] == 5
    assert gap["at"] == "2026-01-01T00:00:00.000Z"
    log_files.put(1)
    log_files.work()
    assert [line["type"] for line in log_files.lines()].count("gap") == 1


def seqs_told_lost(log_files) -> int:
    return sum(line["lines"] for line in log_files.lines() if line["type"] == "gap")


def test_a_disk_that_refuses_is_survived_counted_and_complained_about_once(log_files):
    with full_disk():
        for _ in range(3):
            log_files.put(2)
            log_files.work()
    assert log_files.complaints == ["No space left on device"]
    log_files.put(1)
    log_files.work()
    written = {line["seq"] for line in log_files.lines()}
    assert max(written) - len(written) == seqs_told_lost(log_files), "every sequence number is in the log or in a gap"
    with full_disk():
        log_files.put(1)
        log_files.work()
    assert len(log_files.complaints) == 2


def test_a_line_cut_in_half_by_a_full_disk_is_bad_alone(log_files):
    log_files.put(1)
    log_files.writer._write(*log_files.writer._queue.get()[:2])
    with full_disk(room=10):
        log_files.writer._write(None, [log_files.author.line("usage")])
    log_files.writer._write(None, [log_files.author.line("usage", after=True)])
    text = (log_files.folder / log_files.files[0]).read_bytes().split(b"\n")
    assert [line.get("after") for line in log_files.lines()] == [None, True]
    assert len(text) == 4
    assert len(text[1]) == 10
    assert text[3] == b""


def test_short_writes_are_carried_on(log_files):
    import os
    from unittest import mock

    real = os.write
    with mock.patch("proxy.observe.writer.os.write", lambda fd, data: real(fd, bytes(data[:7]))):
        log_files.put(3)
        log_files.work()
    assert [line["seq"] for line in log_files.lines()] == [1, 2, 3]
    assert log_files.complaints == []


def test_a_file_that_cannot_be_opened_is_a_disk_that_refuses(log_files):
    log_files.folder.rmdir()
    log_files.put(1)
    log_files.work()
    assert log_files.complaints == ["No such file or directory"]
    assert log_files.writer.dropped == 1
    log_files.folder.mkdir()
    log_files.put(1)
    log_files.work()
    assert seqs_told_lost(log_files) == 1


def test_lines_lost_last_are_told_before_the_end(log_files):
    with full_disk():
        log_files.put(2)
        log_files.writer._write(*log_files.writer._queue.get()[:2])
    log_files.writer._thread.start()
    log_files.writer.stop(60.0)
    assert seqs_told_lost(log_files) == 2


class Elsewhere:
    """A second place, which may refuse."""

    name = "elsewhere"
    ready = True

    def __init__(self) -> None:
        self.losses = Losses()
        self.taken: list[dict] = []
        self.refuses = False

    def write(self, lines: list[bytes]) -> None:
        if self.refuses:
            raise OSError(105, "no room")
        self.taken += map(json.loads, lines)

    def close(self) -> None: ...


def test_a_gap_has_one_number_and_says_in_each_place_what_is_missing_there(tmp_path):
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", others=[other])
    log_files.put(2)
    log_files.work()
    other.refuses = True
    log_files.put(3)
    log_files.work()
    log_files.put(1)
    log_files.work()
    other.refuses = False
    log_files.put(1)
    log_files.work()
    assert log_files.complaints == ["no room"]
    assert log_files.writer.dropped == other.losses.lines == 4
    everything = {
        place: {line["seq"]: line for line in lines} for place, lines in (("here", log_files.lines()), ("there", other.taken))
    }
    assert set(everything["here"]) == set(range(1, 10))
    assert set(everything["there"]) == {1, 2, 8, 9}
    assert [line["lines"] for line in log_files.lines() if line["type"] == "gap"] == [0, 0]
    assert [line["lines"] for line in other.taken if line["type"] == "gap"] == [5]


def test_what_the_queue_has_no_room_for_is_missing_everywhere(tmp_path):
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", queue_lines=2, others=[other])
    log_files.put(3)
    log_files.put(1)
    log_files.work()
    assert log_files.lines() == other.taken
    assert [line.get("lines") for line in other.taken] == [3, None]


def test_a_place_without_room_is_told_of_its_gap_when_it_has_some(tmp_path):
    """Or every line that it does not take would bring a gap line to the other place."""
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", others=[other])
    other.refuses, other.ready = True, False
    for _ in range(5):
        log_files.put(1)
        log_files.work()
    other.refuses = False
    log_files.put(1)
    log_files.work()
    assert [line["seq"] for line in log_files.lines()] == [1, 2, 3, 4, 5, 6]
    assert [line["seq"] for line in other.taken] == [6]
    other.ready = True
    log_files.put(1)
    log_files.work()
    assert [(line["type"], line["seq"], line.get("lines")) for line in other.taken[1:]] == [("gap", 8, 5), ("usage", 7, None)]


def test_what_was_lost_last_is_told_at_the_end_ready_or_not(tmp_path):
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", others=[other])
    other.refuses, other.ready = True, False
    log_files.put(2)
    log_files.work()
    other.refuses = False
    log_files.writer.start()
    log_files.writer.stop(60.0)
    assert [line["lines"] for line in other.taken] == [2]


@pytest.mark.parametrize("bad", ["a\ud800", 1 << 70, object(), b"raw"])
def test_a_line_that_has_no_form_in_json_is_lost_alone_and_said_once(tmp_path, bad):
    """Half a character ended the thread: nothing was written until a restart."""
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", others=[other])
    log_files.writer.start()
    for _ in range(2):
        log_files.writer.put(
            [log_files.author.line("usage"), log_files.author.line("usage", principal=bad), log_files.author.line("usage")]
        )
        wait_for(lambda: log_files.writer.waiting == 0)
    log_files.put(1)
    log_files.writer.stop(60.0)
    assert not log_files.writer._thread.is_alive()
    assert log_files.lines() == other.taken
    assert [line["seq"] for line in log_files.lines() if line["type"] == "usage"] == [1, 3, 4, 6, 8]
    assert seqs_told_lost(log_files) == 2
    assert log_files.writer.dropped == 4, "two in each place"
    assert len(log_files.complaints) == 1
    assert "a line of type usage cannot be written as JSON" in log_files.complaints[0]


def test_whatever_a_place_raises_the_thread_goes_on_and_the_other_place_too(tmp_path):
    other = Elsewhere()
    log_files = LogFiles(tmp_path / "logs", others=[other])
    real, faults = other.write, [RuntimeError("a mistake"), MemoryError()]

    def write(lines):
        if faults:
            raise faults.pop(0)
        real(lines)

    other.write = write
    log_files.writer.start()
    for _ in range(3):
        log_files.put(1)
        wait_for(lambda: log_files.writer.waiting == 0)
    log_files.writer.stop(60.0)
    assert len([line for line in log_files.lines() if line["type"] == "usage"]) == 3
    assert [line["lines"] for line in other.taken if line["type"] == "gap"] == [3], "two, and a gap line"
    assert log_files.complaints == ["a mistake"]


def test_a_complaint_that_fails_ends_nothing(tmp_path):
    log_files = LogFiles(tmp_path / "logs")
    log_files.writer._complain = lambda *_: 1 / 0
    log_files.writer.start()
    log_files.writer.put([log_files.author.line("usage", principal="\ud800")])
    log_files.put(1)
    log_files.writer.stop(60.0)
    assert [line["seq"] for line in log_files.lines() if line["type"] == "usage"] == [2]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_decisions_of_one_principal_take_no_lines_of_others(tmp_path):
    log_files = LogFiles(tmp_path, queue_lines=90)
    for _ in range(100):
        log_files.writer.put([log_files.author.line("decision")], "User:mallory")
    log_files.writer.put([log_files.author.line("decision")], "User:alice")
    log_files.writer.put([log_files.author.line("usage")] * 30)
    log_files.work()
    kinds = [line["type"] for line in log_files.lines() if line["type"] != "gap"]
    assert kinds.count("usage") == 30
    assert kinds.count("decision") == 41
    log_files.writer.put([log_files.author.line("decision")] * 30, "User:mallory")
    assert log_files.writer.waiting == 30, "what was written makes room"
