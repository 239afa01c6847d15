"""The file of producer ids: it is remembered, it is whole or it is not used, and what is wrong is said once."""

import asyncio
import os
from pathlib import Path
from unittest import mock

import pytest

from proxy.hashing import murmur3
from proxy.process import producer_id_snapshot as snapshot
from proxy.process.producer_id_snapshot import ProducerIdSnapshot
from quota.kinds.producer_ids import ProducerIds, user_limit_table
from tests.observe.test_usage_log import Log


def ids(users: int = 0) -> ProducerIds:
    made = ProducerIds(user_limit_table({}), murmur3)
    for number in range(users):
        made.count(f"user-{number}", [1, 2], 0.0)
    return made


def keep(path: Path, quota: ProducerIds, wall: float = 1.8e9) -> tuple[ProducerIdSnapshot, Log]:
    log = Log()
    return ProducerIdSnapshot(path, quota, lambda: 0.0, lambda: wall, log), log


def saved(path: Path, quota: ProducerIds) -> None:
    """By a proxy that then ends."""
    one, _ = keep(path, quota)
    asyncio.run(one.save())
    one.close()


def said(log: Log) -> list[str]:
    return [event for _, event, _ in log.events]


def test_what_was_saved_is_remembered(tmp_path):
    path = tmp_path / "ids"
    saved(path, ids(250))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ids", "ids.lock"]
    assert os.stat(path).st_mode & 0o777 == 0o600, "it names users"
    after = ids()
    one, log = keep(path, after)
    one.load()
    assert len(after) == 250
    assert after.standing("user-7", 0.0).counted == 2
    assert said(log) == ["producer ids remembered"]


def test_nothing_is_kept_without_a_file(tmp_path):
    one = ProducerIdSnapshot(None, ids(1), lambda: 0.0, lambda: 0.0, Log())
    one.load()
    asyncio.run(one.save())
    assert list(tmp_path.iterdir()) == []


def test_no_file_yet_is_nothing_to_speak_of_and_no_folder_is(tmp_path):
    one, log = keep(tmp_path / "ids", ids())
    one.load()
    assert said(log) == []
    with pytest.raises(FileNotFoundError):
        keep(tmp_path / "missing" / "ids", ids())[0].load()


@pytest.mark.parametrize("wrong", ["cut", "changed", "of another version", "empty", "a folder"])
def test_a_file_that_cannot_be_used_is_said_in_one_line_and_ignored(tmp_path, wrong):
    path = tmp_path / "ids"
    saved(path, ids(3))
    data = path.read_bytes()
    if wrong == "a folder":
        path.unlink()
        path.mkdir()
    else:
        other = data.replace(b"producer_ids 1", b"producer_ids 9")
        path.write_bytes({"cut": data[:-1], "changed": data[:60] + b"?" + data[61:], "empty": b""}.get(wrong, other))
    after = ids()
    one, log = keep(path, after)
    one.load()
    assert (len(after), said(log)) == (0, ["producer ids forgotten"])


def test_a_full_disk_is_said_once_until_it_works_again_and_the_old_file_stays(tmp_path):
    path, quota = tmp_path / "ids", ids(3)
    one, log = keep(path, quota)
    asyncio.run(one.save())
    before = path.read_bytes()
    quota.count("more", [1], 0.0)
    with mock.patch.object(snapshot.os, "fsync", side_effect=OSError(28, "x")):
        asyncio.run(one.save())
        asyncio.run(one.save())
    assert path.read_bytes() == before
    assert said(log) == ["producer ids cannot be saved"]
    asyncio.run(one.save())
    assert path.read_bytes() != before


def test_others_have_their_turn_while_it_is_put_together(tmp_path):
    quota = ids(350)
    one, _ = keep(tmp_path / "ids", quota)

    async def both() -> None:
        saving = asyncio.create_task(one.save())
        await asyncio.sleep(0)
        for number in range(100):
            quota.count(f"late-{number}", [1], 0.0)
        quota.count("user-0", [3], 0.0)
        await saving

    asyncio.run(both())
    one.close()
    after = ids()
    keep(tmp_path / "ids", after)[0].load()
    assert len(after) == 350


def test_an_earlier_save_does_not_replace_a_later_one(tmp_path):
    one, _ = keep(tmp_path / "ids", ids(1))
    asyncio.run(one.save())
    asyncio.run(one.save())
    data = (tmp_path / "ids").read_bytes()
    one._write(tmp_path / "ids", snapshot.Writer(), 1)
    assert (tmp_path / "ids").read_bytes() == data


def test_one_proxy_writes_and_the_next_takes_over_when_it_has_ended(tmp_path):
    path = tmp_path / "ids"
    (first, first_log), (second, second_log) = keep(path, ids(3)), keep(path, ids(7))
    first.load()
    asyncio.run(first.save())
    written = path.read_bytes()
    second.load()
    asyncio.run(second.save())
    assert path.read_bytes() == written, "two that write in turn would lose what the other counted"
    assert said(first_log) == []
    assert said(second_log) == ["producer ids cannot be saved", "producer ids remembered"]
    reason = second_log.events[0][2]["reason"]
    assert f"process id {os.getpid()} " in reason
    assert "quotas.producer_ids.state_file" in reason
    first.close()
    asyncio.run(second.save())
    assert path.read_bytes() != written
