"""APIs whose answers count towards a rate, and of which nothing else matters: those of the catalogue (`quota.catalogue.ANSWERED`)
without a handler of their own. Nothing of a request or an answer is read but its size; a throttle is told where the version has a
field for it."""

from __future__ import annotations

from typing import Final

from proxy.apis.streams import Delivery, held_or
from proxy.session.client import Client
from proxy.session.plans import UNREAD, Decided, Forward, Handling, Request, Stream
from proxy.wire.primitives import Buffer

ANY_VERSION: Final = (0, 0x7FFF)


class ChargedAnswers:
    """One such API."""

    def __init__(self, key: int) -> None:
        self.key, self.versions = key, ANY_VERSION

    def request(self, client: Client, request: Request) -> Decided | Handling:
        return held_or(client, self.key, request.version, Forward(ChargedAnswer(self.key, request.version, client)))


class ChargedAnswer(Delivery):
    """An answer that is charged when its size is known, and passed on as it comes."""

    __slots__ = ()

    def holds(self, size: int) -> bool:  # noqa: ARG002
        return False

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        self.charge(end - start)
        return self.told([buf[start:end]]) if self.throttled else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        self.charge(sum(map(len, chunks)))
        return self.told(chunks)

    def stream(self, size: int) -> Stream:
        self.charge(size)
        return self.passing(UNREAD)
