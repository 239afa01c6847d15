"""What the report needs beyond an installation of the proxy: PySpark, pyarrow, matplotlib, Jinja2, Java.

In: this Python and this machine. Out: nothing, or a clear error that says how to get it. Imports neither PySpark nor matplotlib.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from reports.errors import ReportError

OLDEST_JAVA = 17


def check_requirements() -> None:
    """Raise ReportError, in one line, where PySpark, pyarrow, matplotlib, Jinja2 or Java (>= OLDEST_JAVA) is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise ReportError(f"the report needs {' and '.join(missing)}: pip install 'kafka-quota-proxy[report]'")
    java = find_java()
    if java is None:
        raise ReportError(f"the report needs Java >= {OLDEST_JAVA}: install a JRE, or set JAVA_HOME")
    version = java_version(java)
    if version is not None and version < OLDEST_JAVA:
        raise ReportError(f"the report needs Java >= {OLDEST_JAVA}, and {java} is Java {version}: set JAVA_HOME to a newer one")


def find_java() -> str | None:
    """The `java` that Spark would start: of JAVA_HOME where that is set, else of the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home, "bin", "java")
        return str(candidate) if candidate.is_file() else None
    return shutil.which("java")


def java_version(java: str) -> int | None:
    """The feature version of `java` (8, 11, 17, …); None where it does not tell, which is left for Spark to judge."""
    try:
        said = _release(java)
        if not said:
            run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
            said = run.stderr + run.stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'(?:version "|JAVA_VERSION=")(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _release(java: str) -> str:
    """What the file beside a Java says of it, where there is one: to start Java for that takes a tenth of a second."""
    with suppress(OSError, UnicodeDecodeError):
        return (Path(java).resolve().parent.parent / "release").read_text(encoding="utf-8")
    return ""
