"""The compiled build is optional, and never stands for other sources than it was made of."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import compiled

ROOT = compiled.ROOT.parent


@pytest.fixture
def copied(tmp_path, monkeypatch) -> Path:
    """A copy of the package, with a build of it that is all there, in name."""
    for room in ("proxy", "quota"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("_hot", "__pycache__"))
    monkeypatch.setattr(compiled, "ROOT", tmp_path / "proxy")
    monkeypatch.setattr(compiled, "BUILT", tmp_path / "proxy" / "_hot")
    compiled.BUILT.mkdir()
    for module in compiled.HOT:
        (compiled.BUILT / compiled.built_file(module)).touch()
    (compiled.BUILT / compiled.manifest()).write_text(json.dumps({"digest": compiled.digest(), "modules": compiled.HOT}))
    return tmp_path


@pytest.mark.usefixtures("copied")
def test_a_build_of_these_sources_is_used():
    assert compiled.lacking() is None


@pytest.mark.parametrize("source", ["proxy/wire/frames.py", "proxy/wire/headers.py", "proxy/apis/fetch.py", "quota/engine.py"])
def test_a_build_of_other_sources_is_not(copied, source):
    file = copied / source
    file.write_text(file.read_text() + "\n")
    assert compiled.lacking() == "the sources changed since the build"


def test_nor_after_a_source_came_or_went(copied):
    (copied / "proxy" / "wire" / "another.py").touch()
    assert compiled.lacking() == "the sources changed since the build"


@pytest.mark.usefixtures("copied")
def test_nor_half_a_build():
    (compiled.BUILT / compiled.built_file(compiled.HOT[0])).unlink()
    assert compiled.lacking() == "files of the build are missing"


@pytest.mark.usefixtures("copied")
def test_nor_none():
    (compiled.BUILT / compiled.manifest()).write_text("{")
    assert compiled.lacking() == "a broken build"
    (compiled.BUILT / compiled.manifest()).unlink()
    assert compiled.lacking() == "no compiled build"


def test_hot_modules_import_nothing_that_a_build_is_not_checked_against():
    rooms = {"proxy." + part.removesuffix(".py").replace("/", ".") for part in compiled.READ_FROM if not part.startswith("..")}
    for module in compiled.HOT:
        for node in ast.walk(ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "proxy":
                assert any(node.module == room or node.module.startswith(room + ".") for room in rooms), f"{module}: {node.module}"


def test_hot_modules_and_what_they_import_can_be_compiled():
    """Where they cannot, they run as pure Python, and nobody may notice."""
    files = [module.replace(".", "/") + ".py" for module in compiled.HOT]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *compiled.CHECKS, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def in_another_process(code: str, cwd: Path = ROOT, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_an_environment_variable_forces_pure_python():
    code = "import proxy.wire.frames as f, proxy.compiled as c; print(f.__file__[-3:], c.hot_path())"
    assert in_another_process(code, KAFKA_QUOTA_PROXY_PURE="1") == ".py pure Python (KAFKA_QUOTA_PROXY_PURE is set)"


def test_what_is_said_to_be_in_use_is_in_use():
    code = (
        "import proxy.wire.primitives as p, proxy.compiled as c; print((p.__file__[-3:] == '.so') == (c.hot_path() == 'compiled'))"
    )
    assert in_another_process(code, KAFKA_QUOTA_PROXY_PURE="0") == "True"


def test_a_build_that_does_not_load_is_not_used(copied):
    code = "import proxy.wire.frames as f, proxy.compiled as c; print(f.__file__[-3:], c.hot_path())"
    said = in_another_process(code, copied, KAFKA_QUOTA_PROXY_PURE="0", PYTHONPATH=str(copied))
    assert said.startswith(".py pure Python (the build does not load: ")


def test_where_it_cannot_be_compiled_the_build_says_so_and_goes_on(copied):
    shutil.copy(ROOT / "setup.py", copied)
    (copied / "mypyc").mkdir()
    (copied / "mypyc" / "__init__.py").write_text("raise ImportError('no mypyc here')")
    ran = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=copied,
        env=os.environ | {"PYTHONPATH": str(copied), compiled.PURE: "", "KAFKA_QUOTA_PROXY_CACHE": str(copied / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "not compiled and runs as pure Python: ImportError: no mypyc here" in ran.stderr
    assert compiled.lacking() == "no compiled build"
