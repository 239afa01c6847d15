"""localkafka.guard: children end with their guard and with their parent. The children are `sleep`."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Ends, with_word

from localkafka.guard import Guard

PARENT = """
    import os, sys, threading
    from localkafka.guard import Guard
    guard = Guard()
    {start}
    print(guard.folder, flush=True)
    {then}
"""
START = 'guard.popen(["sleep", "1000"], cwd=guard.folder)'


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


def children_of(guard_folder: Path) -> list[int]:
    """Registered processes; a registered one runs, as it registers itself."""
    return [int(entry.name) for entry in (guard_folder / "pids").iterdir()]


def test_closing_kills_what_runs_and_removes_the_folder(guard: Guard) -> None:
    process = guard.popen(["sleep", "1000"])
    guard.close()
    assert process.wait(90) == -signal.SIGKILL
    assert not guard.folder.exists()
    guard.close()


def test_a_grandchild_is_killed_too(guard: Guard) -> None:
    process = guard.popen(["sh", "-c", f"sleep 1000; echo {guard.folder}"])
    ends = Ends(with_word(str(guard.folder)))
    guard.close()
    process.wait(90)
    assert ends.wait(90)


def test_a_forgotten_process_is_left_alone(guard: Guard) -> None:
    process = guard.popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
    while not children_of(guard.folder):
        pass
    guard.forget(process)
    guard.close()
    assert process.poll() is None
    process.kill()
    process.wait()


def test_nothing_starts_once_the_guard_is_closed(guard: Guard) -> None:
    guard.close()
    process = guard.popen(["echo", "started"])
    out, _err = process.communicate()
    assert (process.returncode, out) == (1, b"")


def test_a_run_gives_what_was_printed_and_the_exit_code(guard: Guard) -> None:
    run = guard.run(["sh", "-c", "cat; echo err >&2; exit 3"], input="in\n", timeout=90)
    assert (run.returncode, run.stdout, run.stderr) == (3, "in\n", "err\n")
    assert guard.run(["sh", "-c", "echo out; echo err >&2"], merge=True, timeout=90).stdout == "out\nerr\n"
    assert children_of(guard.folder) == []


def test_a_run_that_takes_too_long_is_killed_and_says_what_it_printed(guard: Guard) -> None:
    for timeout in (0.5, 5, 30):  # within which a busy machine may not start a shell
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            guard.run(["sh", "-c", "echo so far; sleep 1000"], timeout=timeout)
        if raised.value.output:
            break
    assert raised.value.output == "so far\n"
    assert children_of(guard.folder) == []


@pytest.mark.parametrize(
    ("start", "then"),
    [
        (START, "os.kill(os.getpid(), 9)"),
        (START, "raise RuntimeError('no close')"),
        (START, "os._exit(0)"),
        # A copy of the pipe lives on in a fork that outlives the parent.
        (START, "if os.fork() == 0: os.setsid(); os.execvp('sleep', ['sleep', '3'])\n    os.kill(os.getpid(), 9)"),
        (START, "if os.fork() == 0: threading.Event().wait(4)\n    os.kill(os.getpid(), 9)"),
        (f"thread = threading.Thread(target=lambda: {START}); thread.start(); thread.join()", "os.kill(os.getpid(), 9)"),
    ],
)
def test_children_end_with_their_parent(start: str, then: str) -> None:
    code = textwrap.dedent(PARENT.format(start=start, then="sys.stdin.readline()\n    " + then))
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    folder = Path(parent.stdout.readline().strip())
    while not (children := children_of(folder)):
        pass
    ends = Ends([*children, *with_word(str(folder))])
    parent.stdin.write("go\n")
    parent.stdin.close()
    parent.wait(90)
    assert ends.wait(90)
    assert not folder.exists()
    parent.stdout.close()


def test_the_starting_thread_may_end(guard: Guard) -> None:
    """The trap of PR_SET_PDEATHSIG: it fires at the end of the thread."""
    code = textwrap.dedent(
        PARENT.format(
            start=f"thread = threading.Thread(target=lambda: {START}); thread.start(); thread.join()",
            then="sys.stdin.readline(); guard.close()",
        )
    )
    parent = guard.popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().decode().strip())
    while not (children := children_of(folder)):
        pass
    assert not Ends(children).wait(1.5)
    parent.communicate(b"end\n", 90)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_ctrl_c_in_the_terminal_does_not_reach_the_children(guard: Guard) -> None:
    process = guard.popen(["sleep", "1000"])
    assert os.getpgid(process.pid) != os.getpgid(0)
    assert os.getsid(process.pid) == process.pid
