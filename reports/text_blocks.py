"""The text of log files in blocks of whole lines, which threads work on side by side, so that memory does not grow with the logs.

In: a file, plain or compressed. Out: its text as blocks that end with a line. Left to others: which files, what is in the lines.
"""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

T = TypeVar("T")

BLOCK: Final = 8 << 20
"""Bytes of text in a block, and more only where one line is longer."""


def text_blocks(path: Path, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The text of a file, in pieces of whole lines; the last line may have no end. Of a plain file its bytes from `begin` to `end`.

    Raises:
        OSError, ArrowInvalid: the file is gone, or is damaged, as a compressed one that ends too soon; what was before that came.
    """
    with pa.input_stream(str(path), compression="detect") as file:
        if begin:
            file.seek(begin)
        left = sys.maxsize if end is None else end - begin
        mark = b"" if begin else BOM_UTF8  # Spark leaves it out
        rest: list[bytes] = []
        while read := file.read(min(BLOCK, left)):
            left -= len(read)
            read, mark = read.removeprefix(mark), b""
            lines = read.rfind(b"\n") + 1
            if lines:
                yield b"".join([*rest, read[:lines]])
                rest.clear()
            if lines < len(read):
                rest.append(read[lines:])
        if rest:
            yield b"".join(rest)


def work_threads() -> int:
    """Threads that work on blocks: as many as there are cores."""
    return len(os.sched_getaffinity(0))


def work_on(items: Iterable[T], work: Callable[[T], None]) -> None:
    """Call `work` for each of the items by several threads; only a few items are held at a time. Raises what `work` raised."""
    count = work_threads()
    with ThreadPoolExecutor(count) as pool:
        waiting: deque[Future[None]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > count:
                waiting.popleft().result()
        for one in waiting:
            one.result()
