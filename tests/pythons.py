"""The unit and wire tests with every Python that the proxy runs on and that is there: `make test-pythons`.

In: interpreters on PATH, named python3.11 and so on. Out: what each said; exit code 1 when one failed, or none is there. Each gets
a virtual environment of its own in the cache folder, with what the proxy itself needs and what these tests need; there is no
compiled build, no Kafka, Java or Spark in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from localkafka.jars import cache_dir

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ROOMS = ("wire", "session", "apis", "quota", "identity", "cluster", "config", "fuzz")
"""Folders of tests that need no more than the proxy does."""
LEFT_OUT = ("tests/quota/test_fleet.py",)
"""Those in them that need the packages of the load test."""
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "cryptography")


def main() -> int:
    found = {version: path for version in VERSIONS if (path := shutil.which(f"python{version}")) and runs(path, version)}
    print(f"not on PATH, or of no use there: {', '.join(sorted(set(VERSIONS) - set(found))) or 'none'}", flush=True)
    failed = [version for version, path in found.items() if not tested(version, path)]
    print(f"passed: {', '.join(version for version in found if version not in failed)}; failed: {', '.join(failed) or 'none'}")
    return 1 if failed or not found else 0


def runs(interpreter: str, version: str) -> bool:
    """Whether it is one of this version. What a version manager puts on PATH may only say that the version is not chosen."""
    program = "import sys; print(*sys.version_info[:2], sep='.')"
    return subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False).stdout.strip() == version


def tested(version: str, interpreter: str) -> bool:
    """Whether the tests pass with this interpreter."""
    print(f"Python {version}", flush=True)
    try:
        python = environment(version, interpreter)
    except subprocess.CalledProcessError as e:
        print(f"Python {version}: {e}")
        return False
    folders = [f"tests/{room}" for room in ROOMS]
    ignored = [*(f"--ignore={file}" for file in LEFT_OUT), "-m", "not kafka and not spark"]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *folders, *ignored, *sys.argv[1:]]
    settings = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "KAFKA_QUOTA_PROXY_PURE": "1"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode == 0


def environment(version: str, interpreter: str) -> Path:
    """The interpreter of a virtual environment that has all that is needed; made anew when that has changed."""
    needed = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes()).hexdigest()
    folder = cache_dir() / f"python-{version}"
    ready, python = folder / "ready", folder / "bin" / "python"
    if not ready.exists() or ready.read_text() != needed:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
        subprocess.run([*install, *dependencies(), *TOOLS], cwd=ROOT, check=True)
        ready.write_text(needed)
    return python


def dependencies() -> list[str]:
    """What the proxy itself needs."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [str(name) for name in project["dependencies"]]


if __name__ == "__main__":
    sys.exit(main())
