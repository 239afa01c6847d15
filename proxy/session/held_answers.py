"""Plans for responses that are held until they are whole, and then looked at or replaced; `plans` says what a plan is. Handlers
inherit from these, and not all handlers are compiled; so these are not."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from proxy.wire.primitives import Buffer
from proxy.wire.steps import finish_at_once

if TYPE_CHECKING:
    from proxy.session.plans import Stream

LARGE: Final = 1 << 14
"""Bytes above which a request or a response that can be looked at in steps is."""


class SmallAnswer:
    """The usual plan: small responses, held until they are complete and patched as one buffer."""

    __slots__ = ("mute", "waits")

    def __init__(self, mute: float = 0.0, *, waits: bool = False) -> None:
        self.mute = mute
        self.waits = waits or mute > 0

    def holds(self, _size: int, /) -> bool:
        return True

    def begin(self, _buf: bytes, _start: int, _size: int, /) -> list[Buffer] | None:
        return None

    def in_steps(self, _size: int, /) -> bool:
        return False

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        raise NotImplementedError

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        raise NotImplementedError

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        joined = b"".join(chunks)
        pieces = self.finish(joined, 0, len(joined))
        return [joined] if pieces is None else pieces

    def stream(self, size: int) -> Stream:
        raise NotImplementedError


class InSteps(SmallAnswer):
    """A plan for responses of which some are so large that the proxy has to look at them in several turns."""

    __slots__ = ()

    def in_steps(self, size: int, /) -> bool:
        return size > LARGE

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return finish_at_once(self.work(bytes(buf[start:end])))


class Answer(SmallAnswer):
    """The proxy answers itself; the answer waits for its turn behind those of earlier requests."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes, mute: float = 0.0) -> None:
        super().__init__(mute)
        self.frame = frame


class Question(SmallAnswer):
    """The plan for an answer that the proxy itself wants. `done`: it has come."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        super().__init__(waits=True)
        self.done = False

    def give_up(self) -> None:
        """The answer did not come in time. A question that goes on waiting leaves `waits` true."""
        self.waits = False
