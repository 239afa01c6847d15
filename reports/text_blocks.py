"""The text of log files in blocks of whole lines, which threads work on side by side, so that memory does not grow with the logs.

In: a file, plain or compressed. Out: its text as blocks that end with a line. Left to others: which files, what is in the lines.
"""

from __future__ import annotations

import os
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


def text_blocks(path: Path) -> Iterator[bytes]:
    """The text of a file, in pieces of whole lines; the last line may have no end.

    Raises:
        OSError, ArrowInvalid: the file is gone, or is damaged, as a compressed one that ends too soon; what was before that came.
    """
    with pa.input_stream(str(path), compression="detect") as file:
        rest: list[bytes] = []
        read = file.read(BLOCK).removeprefix(BOM_UTF8)  # Spark leaves it out
        while read:
            end = read.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, read[:end]])
                rest.clear()
            if end < len(read):
                rest.append(read[end:])
            read = file.read(BLOCK)
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
