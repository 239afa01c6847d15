"""Something that the proxy does for a request outside of its connection."""

from __future__ import annotations

from collections.abc import Callable


class Pending:
    """It is under way, and done at some time. The code that does it calls `finish` once, on the event loop, at whatever time that
    takes; a time limit is its own affair."""

    __slots__ = ("_tell", "done")

    def __init__(self) -> None:
        self.done = False
        self._tell: Callable[[float], None] | None = None

    def tell(self, tell: Callable[[float], None]) -> None:
        """Whom to call with the time when it is done."""
        self._tell = tell

    def finish(self, now: float) -> None:
        """It is done, for better or worse."""
        self.done = True
        if self._tell is not None:
            self._tell(now)
