"""`python -m tests.fuzz.sanitized --frames 100000`: `tests.fuzz.compare` under AddressSanitizer (`make fuzz-asan`).

In: arguments of `tests.fuzz.compare`. Out: what it prints, and the report of AddressSanitizer where memory was used that is not the
modules' own; the exit code is not 0 then. The sources of the checkout are copied to a folder and built there by gcc with
-fsanitize=address, which takes some minutes. Python takes its objects from malloc, so that an access beyond one of them is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from proxy.compiled import PURE, ROOT

CHECKOUT: Final = ROOT.parent
FLAGS: Final = {"CFLAGS": "-fsanitize=address -fno-omit-frame-pointer -g -O1", "LDFLAGS": "-fsanitize=address"}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "sources"
        copy_checkout(copy)
        environment = os.environ | {"PYTHONPATH": str(copy), PURE: "0", "KAFKA_QUOTA_PROXY_CACHE": f"{folder}/cache"}
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, env=environment | FLAGS, check=True)
        library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        options = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
        command = [sys.executable, "-m", "tests.fuzz.compare", *sys.argv[1:]]
        return subprocess.run(command, cwd=copy, env=environment | options, check=False).returncode


def copy_checkout(target: Path) -> None:
    """What git knows, and what is new, but not what it ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (CHECKOUT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, target / name)


if __name__ == "__main__":
    sys.exit(main())
