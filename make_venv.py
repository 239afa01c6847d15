"""Makes the virtual environment for development, and the compiled hot path; `make setup` calls it.

In: pyproject.toml, constraints.txt, the folder to make. Out: an environment with the package, editable, and all of its extras; a
build of the hot path in `proxy/_hot`; a line for each step, with its seconds. Exit code 1 with one line when it cannot be done.
Only the standard library is used, as there is nothing else yet. Packages come through uv where it is there, else through pip.

Two things take long: unpacking packages, and compiling. They run at the same time, on two cores. What was compiled is kept in the
cache folder (setup.py), and pip leaves out compiling all of the packages to bytecode: Python does so for what it
imports, or where it is told not to (PYTHONDONTWRITEBYTECODE), a step of its own does so on all cores."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent
HOT = ROOT / "proxy" / "_hot"
PURE = "KAFKA_QUOTA_PROXY_PURE"
BUILD_TOOLS = ("setuptools>=77", "mypy")
NOT_IMPORTED = r"/tests/|site-packages/(pip|mypy|mypyc|setuptools|pyspark/pandas|pygments/lexers)/"
"""What makes no process start later without bytecode."""


class Failed(Exception):
    """A step did not work; the message is one line."""


def main() -> int:
    """Make the environment, or with `--compile` only what is missing of the build of the hot path."""
    parser = argparse.ArgumentParser(prog="make_venv.py", description="Make the environment for development.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / ".venv")
    parser.add_argument(
        "--compile", action="store_true", help="only compile the hot path, where the build is not of the present sources"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.compile:
            compile_in_place(Path(sys.executable))
        else:
            make(options.folder.absolute())
    except Failed as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def make(folder: Path) -> None:
    """All of it, in three steps."""
    begin = time.monotonic()
    say("Setting up: about a minute, one more to compile for the first time; 0.6 GB are downloaded where they were not before.")
    log = folder / "setup.log"
    python = folder / "bin" / "python"
    with Step(f"{folder.name}: Python {sys.version.split()[0]}"):
        run([sys.executable, "-m", "venv", str(folder)], log, "the virtual environment could not be made")
    with Step("what builds need"):
        install(python, log, BUILD_TOOLS)
    hot = HotBuild(python, folder / "hot")
    try:
        with Step(f"packages{hot.beside}"):
            install(python, log, ["--no-build-isolation", "-e", f"{ROOT}[dev]"])
        if sys.dont_write_bytecode:
            with Step("bytecode, which Python is told not to write by itself"):
                try_to([str(python), "-m", "compileall", "-q", "-j", "0", "-x", NOT_IMPORTED, str(folder / "lib")], log, None)
        with Step("the hot path"):
            hot.put_in_place()
    finally:
        hot.end()
    say(f"Set up in {time.monotonic() - begin:.0f} s.")


class Step:
    """Says what is being done, and then for how long it was."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._begin = time.monotonic()
        say(f"  {self._what} ...", end="")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        say(f" {time.monotonic() - self._begin:.0f} s" if kind is None else " failed")


class HotBuild:
    """Compiles the hot path in a process of its own, beside the installing; nothing where pure Python is asked for."""

    def __init__(self, python: Path, folder: Path) -> None:
        """Start; the result goes to `folder` first, as installing clears the place where it belongs."""
        self._folder, self._log = folder, folder.with_name("hot.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.beside = ""
        if os.environ.get(PURE, "0") in ("", "0"):
            shutil.rmtree(folder, ignore_errors=True)
            command = [str(python), "setup.py", "--quiet", "build_ext", "--build-lib", str(folder)]
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            self.beside = ", and compiling the hot path beside that"

    def put_in_place(self) -> None:
        """Wait for it, and move it to where it is used from."""
        if self._process is None:
            return
        self._process.wait()
        built = self._folder / "proxy" / "_hot"
        if built.is_dir():
            shutil.rmtree(HOT, ignore_errors=True)
            shutil.move(built, HOT)
        else:
            say(f" {reason(self._log.read_text(errors='replace'))} ...", end="")

    def end(self) -> None:
        """Leave nothing behind, also after a failure."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # it then removes what it made so far
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def compile_in_place(python: Path) -> None:
    """Compile the hot path unless the build is of the present sources, or pure Python is asked for."""
    spec = importlib.util.spec_from_file_location("compiled", ROOT / "proxy" / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    compiled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    if compiled.lacking() is None or os.environ.get(PURE, "0") not in ("", "0"):
        return
    with Step("compiling the hot path (a minute, or a moment from the cache)"):
        command = [str(python), "setup.py", "--quiet", "build_ext", "--inplace"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if compiled.lacking() is not None:
            say(f" {reason(ran.stdout + ran.stderr)} ...", end="")


def install(python: Path, log: Path, what: Sequence[str]) -> None:
    """Install into the environment of `python`, with uv where it is there and can, else with pip."""
    constraints = ["-c", str(ROOT / "constraints.txt")]
    environment = {**os.environ, PURE: "1"}  # it is compiled beside this
    if (uv := shutil.which("uv")) is not None:
        if try_to([uv, "pip", "install", "--python", str(python), *constraints, *what], log, environment):
            return
        say(" uv could not, now with pip ...", end="")
    pip = [str(python), "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
    run([*pip, *constraints, *what], log, "pip could not install what is needed", environment)


def run(command: Sequence[str], log: Path, failed: str, environment: dict[str, str] | None = None) -> None:
    """Run a command to its end; what it prints goes to the log. Errors: Failed, with the reason that it printed."""
    if not try_to(command, log, environment):
        raise Failed(f"{failed}: {reason(log.read_text(errors='replace') if log.exists() else '')} (all that it printed: {log})")


def try_to(command: Sequence[str], log: Path, environment: dict[str, str] | None) -> bool:
    """Run a command to its end; whether it worked."""
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
        output.seek(0)
        if log.parent.is_dir():
            log.write_bytes(output.read())
        elif done.returncode != 0:
            raise Failed(reason(output.read().decode(errors="replace")))
    return done.returncode == 0


def reason(printed: str) -> str:
    """The line of an output that most likely says why: the first that begins as an error does, else the last."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "kafka-quota-proxy:"))]
    return (errors or lines[-1:] or ["it printed nothing"])[0]


def say(text: str, end: str = "\n") -> None:
    """Print at once."""
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
