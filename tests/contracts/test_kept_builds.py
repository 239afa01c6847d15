"""setup.py keeps compiled builds in the cache folder: for the same sources, and whole. The compiler is a stand-in."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from proxy import compiled

BUILT = {"a.so": b"machine code", "build.json": b"{}", ".gitignore": b"*\n"}


class Builder:
    """setup.py, with a compiler that takes no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = importlib.util.spec_from_file_location("setup_script", compiled.ROOT.parent / "setup.py")
        assert spec is not None
        assert spec.loader is not None
        self.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.script)
        self.compiled = 0
        monkeypatch.setattr(self.script, "build", self._build)

    def _build(self, _compiled: ModuleType, target: Path) -> None:
        self.compiled += 1
        target.mkdir(parents=True)
        for name, data in BUILT.items():
            (target / name).write_bytes(data)

    def obtain(self, target: Path) -> dict[str, bytes]:
        """What lands in the target."""
        self.script.obtain(compiled, target)
        return {file.name: file.read_bytes() for file in target.iterdir()}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def builder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:  # noqa: ARG001
    return Builder(monkeypatch)


def test_the_same_sources_are_compiled_once(builder: Builder, tmp_path: Path) -> None:
    assert builder.obtain(tmp_path / "one") == BUILT
    assert builder.obtain(tmp_path / "two") == BUILT
    assert builder.compiled == 1


@pytest.mark.parametrize("variable", ["CFLAGS", "CC"])
def test_another_compiler_makes_another_build(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    builder.obtain(tmp_path / "one")
    monkeypatch.setenv(variable, "-O0")
    builder.obtain(tmp_path / "two")
    assert builder.compiled == 2


def test_other_sources_make_another_build(builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.obtain(tmp_path / "one")
    monkeypatch.setattr(compiled, "digest", lambda: "another")
    builder.obtain(tmp_path / "two")
    assert builder.compiled == 2


@pytest.mark.parametrize("damage", ["cut", "missing", "no sums"])
def test_a_damaged_one_is_made_again(builder: Builder, tmp_path: Path, cache: Path, damage: str) -> None:
    builder.obtain(tmp_path / "one")
    (kept,) = cache.iterdir()
    if damage == "cut":
        (kept / "a.so").write_bytes(b"machine")
    else:
        (kept / ("a.so" if damage == "missing" else "sums.txt")).unlink()
    assert builder.obtain(tmp_path / "two") == BUILT
    assert builder.compiled == 2
    assert builder.obtain(tmp_path / "three") == BUILT
    assert builder.compiled == 2


def test_the_oldest_are_removed(builder: Builder, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(builder.script.KEPT + 3):
        monkeypatch.setattr(compiled, "digest", lambda number=number: str(number))
        builder.obtain(tmp_path / str(number))
        os.utime(max(cache.iterdir(), key=lambda kept: kept.stat().st_mtime), (number, number))
    assert len(list(cache.iterdir())) == builder.script.KEPT
    made = builder.compiled
    builder.obtain(tmp_path / "again")
    assert builder.compiled == made  # the newest is there


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", "/dev/null/cache")
    assert builder.obtain(tmp_path / "one") == BUILT
    assert "the build is not kept for other clones" in capsys.readouterr().err
