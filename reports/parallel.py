"""Runs queries that do not depend on each other concurrently, so that no core is idle while Spark plans one of them.

In: functions that run queries. Out: what they return. Spark still runs one task on each core at a time, so that memory use stays
the same.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_MAX_CONCURRENT = 3


@contextmanager
def run_concurrently() -> Iterator[ThreadPoolExecutor]:
    """A pool for the time of the block. Everything submitted is done when the block ends; if the block raises, what has not begun
    is cancelled."""
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
