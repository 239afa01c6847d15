"""Which processes share the quotas, and what each of them says of itself. Pure; for people only, nothing is decided by it.

In: what this process is to say; what others say. Out: an event now and then, and all that are there. Who says nothing any more is
left out after `LIFE`; while nothing can be heard at all, what was known last stays, with its age."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

NAME: Final = "process"
"""What events with it begin with."""
EVERY: Final = 10.0
"""Seconds between two times that a process says it."""
LIFE: Final = 3 * EVERY
MOST: Final = 500
"""Other processes that are known."""
MAX_TEXT: Final = 128
"""Characters of a name or a version that are kept."""
MAX_COUNT: Final = 2**53
"""Seconds that no process has been up for: an event with more makes no sense."""


class Member(NamedTuple):
    """A proxy, or one of its workers. `worker`: its number, if it is one; `uptime`: seconds; `quota_topic`: True while it can be
    read and written, None where there is to be none; `limits`: that were set while proxies ran."""

    proxy: str
    worker: int | None
    version: str
    uptime: float
    connections: int
    quota_topic: bool | None
    limits: int


class Members:
    """`boot` identifies the start of this process, `about` tells of it."""

    def __init__(self, boot: str, about: Callable[[], Member]) -> None:
        self._boot, self._about = boot, about
        self._others: dict[str, tuple[float, Member]] = {}
        """by start: when it said so, and what"""

    def tell(self) -> list[Any]:
        """The event of this process."""
        return [NAME, *self._about()]

    def hear(self, boot: str, event: list[Any], age: float, now: float) -> None:
        """What another process told. ValueError for what is none of this."""
        match event:
            case [
                _,
                str(proxy),
                None | int() as worker,
                str(version),
                float() | int() as up,
                int(connections),
                None | bool() as quota_topic,
                int(limits),
                *_,
            ] if 0 <= up < MAX_COUNT:
                member = Member(proxy[:MAX_TEXT], worker, version[:MAX_TEXT], float(up), connections, quota_topic, limits)
            case _:
                raise ValueError("not what a process says of itself")
        if age < LIFE and (boot in self._others or len(self._others) < MOST):
            self._others[boot] = now - age, member

    def sweep(self, now: float) -> None:
        """Forget who has said nothing for long. Not to be called while this process hears nothing."""
        self._others = {boot: told for boot, told in self._others.items() if now - told[0] < LIFE}

    def seen(self, now: float) -> list[dict[str, Any]]:
        """This process and the others, each with the seconds since it said so."""
        found = {self._boot: (now, self._about()), **self._others}
        return [
            {"boot": boot, **member._asdict(), "uptime": round(member.uptime + now - at), "seconds_ago": round(now - at, 1)}
            for boot, (at, member) in found.items()
        ]
