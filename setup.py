"""The optional compiled build of the hot path; everything else about the package is in pyproject.toml.

In: the sources that `proxy/compiled.py` names. Out: extension modules and what they are of, in `proxy/_hot/`, inside the
wheel or, for an editable install, in the working tree. Where mypyc or a C compiler is missing, or anything goes wrong,
there is a line that says so, and a package of pure Python."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
GROUP = "kafka_quota_proxy_hot"


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
            build(compiled, target)
        except (Exception, SystemExit) as e:  # mypyc exits where it cannot go on
            print(
                f"kafka-quota-proxy: the hot path is not compiled and runs as pure Python: {type(e).__name__}: {e}", file=sys.stderr
            )
        else:
            print("kafka-quota-proxy: the hot path is compiled")

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []


def build(compiled: ModuleType, target: Path) -> None:
    """Compile the hot modules of the working directory into a folder, with a note of what they are of."""
    from mypyc.build import mypycify

    digest = compiled.digest()
    files = [module.replace(".", "/") + ".py" for module in compiled.HOT]
    with tempfile.TemporaryDirectory() as work:
        options = ["--ignore-missing-imports", "--config-file=", f"--cache-dir={work}/mypy"]
        extensions = mypycify([*options, *files], group_name=GROUP, opt_level="3", target_dir=f"{work}/c")
        command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
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


# The extension stands for all; it makes the wheel one of this machine and this Python.
setup(ext_modules=[Extension("proxy._hot", [], optional=True)], cmdclass={"build_ext": BuildHotPath})
