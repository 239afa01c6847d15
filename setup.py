"""The optional compiled build of the hot path; everything else about the package is in pyproject.toml.

In: the sources that `proxy/compiled.py` names. Out: extension modules and what they are of, in `proxy/_hot/`, inside the
wheel or, for an editable install, in the working tree. Builds are kept in the cache folder, so that another clone or worktree with
these very sources need not compile them again. Where mypyc or a C compiler is missing, or anything goes wrong, there is a
line that says so, and a package of pure Python."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
GROUP = "kafka_quota_proxy_hot"
KEPT = 5  # builds in the cache, of 4 MB each
SUMS = "sums.txt"


def _compiled() -> ModuleType:
    """`proxy/compiled.py` without the package around it."""
    spec = importlib.util.spec_from_file_location("compiled", ROOT / "proxy" / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildHotPath(build_ext):
    """Builds all hot modules, or none."""

    def run(self) -> None:
        in_place = self.inplace or getattr(self, "editable_mode", False)
        target = (ROOT if in_place else Path(self.build_lib)) / "proxy" / "_hot"
        compiled = _compiled()
        shutil.rmtree(target, ignore_errors=True)
        if os.environ.get(compiled.PURE, "0") not in ("", "0"):
            print(f"kafka-quota-proxy: pure Python, as {compiled.PURE} is set")
            return
        try:
            obtain(compiled, target)
        except (Exception, SystemExit) as e:  # mypyc exits where it cannot go on
            print(
                f"kafka-quota-proxy: the hot path is not compiled and runs as pure Python: {type(e).__name__}: {e}", file=sys.stderr
            )

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []


class SideBySide(build_ext):
    """Runs as many compilers at once as there are processors: mypyc makes a C file of each module."""

    def build_extensions(self) -> None:
        self.parallel = os.cpu_count() or 1
        one_by_one = self.compiler.compile
        with ThreadPoolExecutor(self.parallel) as pool:

            def all_at_once(sources: list[str], *arguments: object, **options: object) -> list[str]:
                objects = pool.map(lambda source: one_by_one([source], *arguments, **options), sources)
                return [file for files in objects for file in files]

            self.compiler.compile = all_at_once
            super().build_extensions()


def obtain(compiled: ModuleType, target: Path) -> None:
    """Take the build of these sources from the cache, or make it and put it there."""
    kept = _cache() / _name(compiled)
    if _whole(kept):
        shutil.copytree(kept, target, ignore=shutil.ignore_patterns(SUMS))
        os.utime(kept)  # used last
        print("kafka-quota-proxy: the compiled hot path is taken from the cache")
        return
    build(compiled, target)
    print("kafka-quota-proxy: the hot path is compiled")
    try:
        _keep(target, kept)
    except OSError as e:
        print(f"kafka-quota-proxy: the build is not kept for other clones: {e}", file=sys.stderr)


def _cache() -> Path:
    """As of localkafka.jars, which cannot be imported here."""
    if own := os.environ.get("KAFKA_QUOTA_PROXY_CACHE"):
        return Path(own, "compiled")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafka-quota-proxy", "compiled")


def _name(compiled: ModuleType) -> str:
    """Of all that a build depends on: sources, this file, Python, compilers and their options, the C library."""
    parts = [compiled.digest(), Path(__file__).read_text(), compiled.manifest(), sys.version, *platform.libc_ver()]
    parts += [importlib.metadata.version("mypy"), *(os.environ.get(name, "") for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS"))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _keep(built: Path, kept: Path) -> None:
    """Copy a build into the cache, whole or not at all, and remove the oldest ones beyond KEPT."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".") as work:
        copy = shutil.copytree(built, Path(work, "build"))
        (copy / SUMS).write_text("".join(f"{_sha256(file)} {file.name}\n" for file in sorted(built.iterdir())))
        shutil.rmtree(kept, ignore_errors=True)
        copy.rename(kept)
    builds = sorted(
        (each for each in kept.parent.iterdir() if not each.name.startswith(".")), key=lambda each: each.stat().st_mtime
    )
    for old in builds[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _whole(kept: Path) -> bool:
    """Whether the cache has that build, with every file as it was put there."""
    try:
        lines = [line.split(" ", 1) for line in (kept / SUMS).read_text().splitlines()]
        return bool(lines) and all(_sha256(kept / name) == digest for digest, name in lines)
    except (OSError, ValueError):
        return False


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def build(compiled: ModuleType, target: Path) -> None:
    """Compile the hot modules of the working directory into a folder, with a note of what they are of."""
    from mypyc.build import mypycify

    digest = compiled.digest()
    files = [module.replace(".", "/") + ".py" for module in compiled.HOT]
    with tempfile.TemporaryDirectory() as work:
        extensions = mypycify(
            [*compiled.CHECKS, f"--cache-dir={work}/mypy", *files],
            group_name=GROUP,
            opt_level="3",
            target_dir=f"{work}/c",
            multi_file=True,
        )
        for extension in extensions:  # figures as of pure Python, also where a processor multiplies and adds in one step
            extension.extra_compile_args.append("-ffp-contract=off")
            # Functions call each other directly, not by way of a table that another library could change.
            extension.extra_compile_args.append("-fvisibility=hidden")
        command = SideBySide(Distribution({"name": GROUP, "ext_modules": extensions}))
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/temp"
        command.ensure_finalized()
        command.run()
        if compiled.digest() != digest:
            raise RuntimeError("the sources changed meanwhile")
        target.mkdir(parents=True)
        (target / ".gitignore").write_text("*\n")
        for extension in extensions:
            shutil.copy2(command.get_ext_fullpath(extension.name), target / compiled.built_file(extension.name))
    names = [extension.name for extension in extensions]
    (target / compiled.manifest()).write_text(json.dumps({"digest": digest, "modules": names}, indent=1))


if __name__ == "__main__":
    # The extension stands for all; it makes the wheel one of this machine and this Python.
    setup(ext_modules=[Extension("proxy._hot", [], optional=True)], cmdclass={"build_ext": BuildHotPath})
