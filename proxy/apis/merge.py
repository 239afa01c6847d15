"""The answer to a Produce request of which parts were refused. In: what the broker said of the rest. Out: one answer to all of it.

Not compiled: its base class is not either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.session.plans import Plan, Whole
from proxy.wire.primitives import Buffer
from proxy.wire.refusals import Part, Refusal, with_refused


class Merge(Whole):
    """The answer to what went on of a request, with what was refused. `inner`: what is done with answers otherwise."""

    __slots__ = ("_inner", "_order", "_refused", "_version")

    def __init__(self, version: int, order: Sequence[Part], refused: Mapping[Part, Refusal], inner: Plan | None) -> None:
        super().__init__()
        self._version, self._order, self._refused, self._inner = version, order, refused, inner

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        merged = with_refused(bytes(buf[start:end]), self._version, self._order, self._refused)
        pieces = None if self._inner is None else self._inner.finish(merged, 0, len(merged))
        return [merged] if pieces is None else pieces
