"""Room demo, clock: the one clock that all processes of this machine share, so that their times can be compared.

In: nothing. Out: seconds. Leaves to others: the time of day, which no figure needs.
"""

import time


def now() -> float:
    """Monotonic seconds since some moment, the same one for every process of this machine."""
    return time.monotonic()


def sleep_until(moment: float) -> None:
    """Sleep until that moment of `now`; return at once when it has passed."""
    time.sleep(max(0.0, moment - now()))
