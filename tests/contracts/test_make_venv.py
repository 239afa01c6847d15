"""make_venv.py: what it says when packages cannot be had, with a real pip that has no index; and when there is nothing to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import make_venv
from proxy import compiled

SCRIPT = str(compiled.ROOT.parent / "make_venv.py")


def ran(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_packages_that_cannot_be_had_end_it_with_one_line_and_a_log(tmp_path: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    path = f"{uv.parent}{os.pathsep}{os.environ['PATH']}"
    done = ran(str(tmp_path / "venv"), PATH=path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "uv could not, now with pip" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("set-up failed: pip could not install what is needed: ERROR: ")
    assert str(tmp_path / "venv" / "setup.log") in line


def test_pure_python_is_not_compiled() -> None:
    done = ran("--compile", KAFKA_QUOTA_PROXY_PURE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("Collecting a\nERROR: no a\nERROR: and no b\n", "ERROR: no a"),
        ("noise\nerror: Microsoft\n", "error: Microsoft"),
        ("one\ntwo\n", "two"),
        ("", "it printed nothing"),
    ],
)
def test_the_line_that_says_why(printed: str, line: str) -> None:
    assert make_venv.reason(printed) == line
