"""What the tests of this folder share: finding processes by a word of their command line, and waiting for their end."""

import os
import select
from pathlib import Path


def with_word(word: str) -> list[int]:
    """The ids of the processes whose command line holds a word, this one left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word.encode() in command and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


class Ends:
    """Waits for the end of processes that need not be children; made while they live."""

    def __init__(self, pids: list[int]) -> None:
        self._handles = [os.pidfd_open(pid) for pid in pids]

    def wait(self, seconds: float) -> bool:
        """Whether all have ended within that time each."""
        return all(select.select([handle], [], [], seconds)[0] for handle in self._handles)
