"""Ends a command on Ctrl-C and SIGTERM after it has cleaned up. In: signals. Out: an exception in the block, an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interruptible(say: Callable[[], None]) -> Iterator[None]:
    """The first signal raises Interrupted in the block, which cleans up; later signals are ignored. If the block does not catch it,
    `say` is called and the process exits with 128 + the signal's number."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Interrupted(number)

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    except (Interrupted, SystemError) as error:  # Python wraps what a signal raises while a library in C makes an object
        interrupted = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(interrupted, Interrupted):
            raise
        say()
        sys.exit(128 + interrupted.number)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
