"""Whether a file has changed. In: a path. Out: a stamp, which another state of the file does not have."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int]
"""(time of the last change in ns, bytes, inode)"""


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """None for a file that is not there, or cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
