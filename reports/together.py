"""Together: queries that do not need each other run side by side, so that no core waits while Spark plans one of them.

In: functions that run queries. Out: what they return. A task of Spark's still has a core, and its part of the memory, to itself:
only so many run as there are cores.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_AT_A_TIME = 3


@contextmanager
def together() -> Iterator[ThreadPoolExecutor]:
    """Runs what is submitted in the block, some at a time; it is all done when the block ends. Where the block raises, as a result
    does that is asked for, what has not begun is left out."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
