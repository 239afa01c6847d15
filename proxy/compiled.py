"""The compiled build of the hot path: the same Python sources, through mypyc. Optional: without it everything runs as it is read.

In: what `setup.py` built into `proxy/_hot/`, and the sources as they are now. Out: where Python finds the hot modules. A
build is used only if it is of these very sources, byte by byte, and all of it or nothing: a changed source is never
shadowed by what was built from an older one. `KAFKA_QUOTA_PROXY_PURE=1` turns it off."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PURE = "KAFKA_QUOTA_PROXY_PURE"
ROOT = Path(__file__).parent
BUILT = ROOT / "_hot"

HOT = (
    "proxy.wire.primitives",
    "proxy.wire.headers",
    "proxy.wire.frames",
    "proxy.wire.walk",
    "proxy.wire.produce",
    "proxy.wire.runs",
    "proxy.wire.fetch",
    "proxy.wire.share_fetch",
    "proxy.wire.throttle",
    "proxy.session.tally",
    "proxy.session.latencies",
    "proxy.session.port",
    "proxy.session.outgoing",
    "proxy.session.plans",
    "proxy.session.client",
    "proxy.session.throttled",
    "proxy.session.answers",
    "proxy.session.session",
    "quota.windows.ewma",
    "quota.windows.rate",
    "quota.windows.durations",
    "quota.shares",
    "quota.kinds.rates",
    "quota.kinds.bytes_in",
    "quota.kinds.slowed_rates",
    "quota.kinds.stored_bytes",
    "quota.fence",
    "quota.pair",
    "quota.engine",
    "quota.rules",
    "quota.produce",
    "proxy.apis.streams",
    "proxy.apis.produced",
    "proxy.apis.produce",
    "proxy.apis.fetch",
    "proxy.apis.share_fetch",
    "proxy.apis.charged_answers",
    "proxy.transport",
    "proxy.clients.turns",
    "proxy.clients.connection",
)
"""What is compiled: what every frame passes through."""

CHECKS = ("--ignore-missing-imports", "--no-site-packages", "--config-file=")
"""Options of mypy for a build: what is installed, or is being installed, must not change it."""

APIS = ("produce", "produced", "fetch", "share_fetch", "charged_answers", "streams")
CLIENTS = ("transport.py", *(f"clients/{name}.py" for name in ("connection", "handover", "turns")))
OTHERS = ("config/units.py", "supervise.py", "upstream/connector.py")
READ_FROM = ("wire", "session", "identity", *(f"apis/{name}.py" for name in APIS), *CLIENTS, *OTHERS, "../quota")
"""Packages and files that the hot modules import from. A build covers all of them, as it may hold their constants."""


def digest() -> str:
    """The SHA-256 of the sources that a build is made of, and of which of them are compiled."""
    found = hashlib.sha256("\n".join(HOT).encode())
    for part in READ_FROM:
        place = ROOT / part
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            data = file.read_bytes()
            found.update(f"{file.relative_to(place)} {len(data)}\n".encode() + data)
    return found.hexdigest()


def built_file(module: str) -> str:
    """The name of the file that a module is built to, for this Python."""
    return module + EXTENSION_SUFFIXES[0]


def manifest() -> str:
    """The name of the file that says what a build for this Python is of: its digest, and its modules."""
    return f"build{EXTENSION_SUFFIXES[0]}.json"


def lacking() -> str | None:
    """Why there is no build to use; None when there is one."""
    try:
        build = json.loads((BUILT / manifest()).read_text())
    except OSError:
        return "no compiled build"
    except ValueError:
        return "a broken build"
    try:
        if build["digest"] != digest():
            return "the sources changed since the build"
    except OSError:
        return "the sources cannot be read"
    return None if all((BUILT / built_file(module)).exists() for module in build["modules"]) else "files of the build are missing"


class _Finder(MetaPathFinder):
    """Finds the hot modules where they were built, before Python looks for their sources."""

    def __init__(self, modules: list[str]) -> None:
        self._files = {module: str(BUILT / built_file(module)) for module in modules}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def use() -> None:
    """Use the compiled build if there is one of the present sources. To be called before any hot module is imported."""
    global state
    if os.environ.get(PURE, "0") not in ("", "0"):
        state = f"pure Python ({PURE} is set)"
        return
    reason = lacking()
    if reason is not None:
        state = f"pure Python ({reason})"
        return
    finder = _Finder(json.loads((BUILT / manifest()).read_text())["modules"])
    sys.meta_path.insert(0, finder)
    try:
        import_module(HOT[0])
    except (ImportError, ValueError) as e:  # what it was built with is another version, or not there
        sys.meta_path.remove(finder)
        state = f"pure Python (the build does not load: {e})"
        return
    state = "compiled"


def hot_path() -> str:
    """How the hot path runs in this process, for logs and `--version`: "compiled", or "pure Python" and why."""
    return state


state = "pure Python"
