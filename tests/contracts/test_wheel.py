"""The wheel has the compiled modules: where it is installed, no compiler is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from proxy import compiled

ROOT = compiled.ROOT.parent
COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
LOAD_ALL = """
import importlib, json
from proxy.compiled import HOT
print(json.dumps({name: importlib.import_module(name).__file__ for name in HOT}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built for this Python from a copy of the sources, with what is in the cache of builds."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for pattern in settings["tool"]["setuptools"]["packages"]["find"]["include"]:
        package = pattern.rstrip("*")
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("_hot", "__pycache__"))
    for file in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / file, copy)
    environment = {name: value for name, value in os.environ.items() if name not in (compiled.PURE, "PYTHONPATH")}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(out)]
    ran = subprocess.run([*command, str(copy)], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, where no compiler is. What it depends on is this environment's."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    places = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    # Without the .pth files there, of which one is of this clone.
    Path(places["purelib"], "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], env=without_compiler(folder / "bin"), check=True)
    return folder / "bin"


def without_compiler(programs: Path) -> dict[str, str]:
    return {"PATH": str(programs), "CC": "no-compiler", "HOME": str(programs)}


def test_the_wheel_is_for_this_python_and_machine(wheel: Path) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.search(rf"-{python}-{python}-linux_{os.uname().machine}\.whl$", wheel.name)


def test_where_it_is_installed_the_compiled_modules_are_used(installed: Path) -> None:
    environment = without_compiler(installed)
    assert not any(shutil.which(name, path=environment["PATH"]) for name in COMPILERS)
    ran = subprocess.run(
        [str(installed / "python"), "-c", LOAD_ALL], cwd=installed, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    files = json.loads(ran.stdout)
    assert set(files) == set(compiled.HOT)
    for module, file in files.items():
        assert file.startswith(str(installed.parent)), module
        assert file.endswith(EXTENSION_SUFFIXES[0]), module


def test_the_command_says_that_it_is_compiled(installed: Path) -> None:
    command = [str(installed / "kafka-quota-proxy"), "--version"]
    ran = subprocess.run(command, cwd=installed, env=without_compiler(installed), capture_output=True, text=True, check=True)
    assert "(hot path: compiled)" in ran.stdout
