"""Programs in C that are built when they are first used, as what is beside the proxy is to cost little. In: a program's name. Out:
where it is, in the cache folder. A C compiler is needed (`$CC`, else `cc`).

- `baseline`  a proxy that only copies: what any copying proxy costs at least
- `sink`      a broker that does next to nothing
- `load`      clients with requests in flight, or at a fixed rate
- `hop`       how long a cache line takes from one processor to another
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from localkafka.jars import cache_dir

SOURCES: Final = Path(__file__).parent
FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


class CompilerError(SystemExit):
    """There is no C compiler, or it failed."""


@cache
def program(name: str) -> str:
    """The path of a program, which is built if it is not in the cache."""
    source = SOURCES / f"{name}.c"
    compiler = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS]
    parts = [source.read_bytes(), (SOURCES / "sockets.h").read_bytes(), " ".join(compiler).encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    built = cache_dir() / "bench" / f"{name}-{digest[:16]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            _compile([*compiler, "-o", f"{folder}/{name}", str(source)])
            Path(folder, name).replace(built)
    return str(built)


def _compile(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        raise CompilerError(f"The bench needs a C compiler, and {command[0]} was not found. Install gcc, or set CC.")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{shlex.join(command)} failed:\n{done.stderr}")
