"""Room demo, events: JSON lines from the load's processes to the demo.

In: fields. Out: lines on standard output, and such lines read back. Leaves to others: what the fields mean (load/, figures).
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def emit(kind: str, **fields: object) -> None:
    """Say one event on standard output, at once and in one write: a process may be killed after any line, and have threads."""
    os.write(1, (json.dumps({"event": kind, **fields}) + "\n").encode())


def read(path: Path, kind: str) -> Iterator[Event]:
    """The events of a kind, in order. A last line that a kill cut in half is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n") and (event := json.loads(line))["event"] == kind:
                yield event
