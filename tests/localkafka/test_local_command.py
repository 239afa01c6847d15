"""python -m localkafka: runs until it is told to stop, and leaves nothing behind, however it ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Ends, with_word

from localkafka.__main__ import main
from localkafka.ready import known_brokers
from tests.real.proxies import wait_until

COMMAND = [sys.executable, "-m", "localkafka"]


@pytest.fixture
def running() -> Iterator[subprocess.Popen[str]]:
    """The command with one broker, about to start."""
    process = subprocess.Popen([*COMMAND, "--log-dirs", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield process
    process.kill()
    process.communicate()


def family(process: subprocess.Popen[str]) -> list[int]:
    """The processes that belong to a running command, but for itself: the watcher names it, the JVM names the watcher's folder."""
    (watcher,) = [pid for pid in with_word("_watch.py") if _command(pid)[-1] == str(process.pid)]
    return with_word(_command(watcher)[-2])


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:  # it has just ended; those of other tests do
        return [""]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 0, marks=pytest.mark.nightly), (signal.SIGKILL, -9)]
)
def test_nothing_is_left_after_a_signal(running: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    assert running.stdout is not None
    port = int(running.stdout.readline().strip().rpartition(":")[2])
    wait_until(lambda: list(known_brokers(port)) == [0], "the broker to answer")
    members = family(running)
    assert len(members) == 2
    ends = Ends(members)
    running.send_signal(number)
    assert running.wait(90) == code
    assert ends.wait(90)


def test_wrong_arguments_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", "four"]) == 1
    assert "not a version of Apache Kafka: 'four'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--sasl", "alice"])
    assert "'alice' has no ':' with something on both sides" in capsys.readouterr().err


@pytest.mark.kafka
def test_the_cache_is_filled_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fetch-only"]) == 0
    capsys.readouterr()
    assert main(["--fetch-only"]) == 0
    assert capsys.readouterr().err == ""
