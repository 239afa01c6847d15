"""Runs `kafka-quota-proxy report` on what the proxy logged, and on two generated weeks before it. In: the out folder. Out: the
report's page in it."""

import subprocess
import sys
from pathlib import Path

from demo import history
from demo.errors import DemoError
from demo.folder import Folder
from localkafka import find_java
from localkafka.guard import Guard

_LIMIT = 300.0  # seconds
_TAIL_LINES = 15


def make(folder: Folder, began: float) -> Path:
    """The page. `began`: when the proxy did, in seconds since the epoch. Errors: DemoError, JavaMissing."""
    history.write(folder.usage, began)
    command = [sys.executable, "-m", "proxy", "report", "--logs", str(folder.usage), "--out", str(folder.report)]
    command += ["--quotas", str(folder.settings), "--what-if", str(folder.proposed), "--note", history.NOTE]
    with Guard() as guard:
        try:
            run = guard.run(command, env=find_java().environment(), merge=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"the report was not done within {_LIMIT:.0f} s; its last words:\n{_tail(error.output)}") from None
    page = folder.report / "report.html"
    if run.returncode or not page.is_file():
        raise DemoError(f"the report ended with exit code {run.returncode}; its last words:\n{_tail(run.stdout)}")
    return page


def _tail(printed: str) -> str:
    return "\n".join(f"  {line}" for line in printed.strip().splitlines()[-_TAIL_LINES:])
