"""What is to be done with a request and with its response. Values that API handlers hand to the session; the session alone does it.

A plan for the response is either *whole* (held until it is complete, then patched) or a stream (passed on as it comes,
looked at meanwhile)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from proxy.session.client import Client
from proxy.session.held_answers import Answer, Question
from proxy.session.pending import Pending
from proxy.wire.frames import Frame
from proxy.wire.headers import request_body
from proxy.wire.primitives import INT32, BadBytes, Buffer
from proxy.wire.runs import Run
from quota.in_flight import Passage

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_JOINED: Final = 1 << 20
"""Bytes of a request that is read topic by topic. No controller does so much at once (KRaft: 10 000 records)."""

Place = tuple[Buffer, int, int]
"""(buffer, start, end)"""


class Request:
    """One whole request frame. It stands at buf[start:end], or, when it came in pieces, in `chunks`, of which `buf` is the first.

    `header_stop` is where its client id ends in `buf`: the tagged fields of the header, if it has any, come next, then the body.
    """

    __slots__ = ("buf", "chunks", "correlation_id", "end", "header_stop", "key", "start", "version")

    def __init__(self, key: int, version: int, correlation_id: int, frame: Frame, header_stop: int) -> None:
        self.key, self.version, self.correlation_id = key, version, correlation_id
        self.buf, self.start, self.end, self.chunks = frame
        self.header_stop = header_stop

    @property
    def size(self) -> int:
        """Bytes of the whole frame, size field included."""
        return self.end - self.start if self.chunks is None else sum(map(len, self.chunks))

    @property
    def body(self) -> int:
        """Where the body starts in `buf`."""
        try:
            return request_body(self.buf, self.header_stop, self.end, self.key, self.version)
        except BadBytes:
            if self.chunks is None:
                raise
            self.join()  # tagged fields of the header that do not fit into the first piece
            return self.body

    def frame_pieces(self) -> list[Buffer]:
        """The whole frame, without joining what came in pieces."""
        if self.chunks is not None:
            return self.chunks
        return [self.buf if self.end - self.start == len(self.buf) else memoryview(self.buf)[self.start : self.end]]

    def with_body(self, body: Sequence[Buffer]) -> list[Buffer]:
        """The frame of this request with another body, in pieces."""
        header = bytes(self.buf[self.start + 4 : self.body])
        return [INT32.pack(len(header) + sum(map(len, body))), header, *body]

    def body_places(self) -> list[Place]:
        """The body, without joining what came in pieces."""
        body = self.body
        if self.chunks is None:
            return [(self.buf, body, self.end)]
        first = self.chunks[0]
        return [(first, body, len(first)), *((chunk, 0, len(chunk)) for chunk in self.chunks[1:])]

    def join(self) -> None:
        """Make it one buffer: for requests that are small and rare. `BadBytes` for one above `MAX_JOINED`: reading it part by
        part would hold up everybody for tenths of a second."""
        if self.size > MAX_JOINED:
            raise BadBytes(f"a request of {self.size} bytes, where {MAX_JOINED} are the most that is looked into")
        if self.chunks is not None:
            joined = b"".join(self.chunks)
            self.header_stop -= self.start
            self.buf, self.start, self.end, self.chunks = joined, 0, len(joined), None


class Plan(Protocol):
    """What to do with one response.

    `mute`: seconds that the client is muted once it is out. `waits`: no request behind it is looked at before.
    """

    waits: bool

    @property
    def mute(self) -> float: ...

    def holds(self, size: int, /) -> bool:
        """Is a response of `size` bytes to be held until it is whole?"""

    def begin(self, buf: bytes, start: int, size: int, /) -> list[Buffer] | None:
        """The first bytes of a response of `size` bytes are buf[start:]. If they say all that there is to know, the pieces to send
        in their place, or an empty list if they go on as they are: so does the rest, and no other method is called. None if it
        is to be held, or to stream."""

    def in_steps(self, size: int, /) -> bool:
        """Is a response of `size` bytes, once it is whole, looked at in several turns, by `work`? Else `finish` does it at once."""

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        """`finish` in small steps: a whole response frame; the pieces to send instead."""

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        """A whole response frame, 4-byte size included: the pieces to send instead, or None to send it as it is, upon which the
        client is not muted unless the plan `waits`."""

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        """The same for a response that came in pieces."""

    def stream(self, size: int) -> Stream:
        """A response of `size` bytes, 4-byte size included, that is not held."""


class FrequentPlan:
    """A plan of an API with many answers. It is no protocol, so that it is called without a look-up, and it is compiled: so
    `SmallAnswer`, from which what is not compiled inherits, has defaults of its own."""

    __slots__ = ("waits",)

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits

    @property
    def mute(self) -> float:
        return 0.0

    def holds(self, size: int) -> bool:  # noqa: ARG002
        return True

    def begin(self, buf: bytes, start: int, size: int) -> list[Buffer] | None:  # noqa: ARG002
        return None

    def in_steps(self, size: int) -> bool:  # noqa: ARG002
        return False

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        raise NotImplementedError

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        raise NotImplementedError

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        raise NotImplementedError

    def stream(self, size: int) -> Stream:
        raise NotImplementedError

    def answered(self, count: int) -> None:
        """So many responses are like the one that the `Shape` of their requests has learned, and go on: in place of `finish`."""
        raise NotImplementedError


def frequent(plan: object) -> FrequentPlan | None:
    """The plan, if it is one of these."""
    return plan if isinstance(plan, FrequentPlan) else None


class Stream(Protocol):
    """A response that is passed on as it comes."""

    def feed(self, buf: Buffer, start: int, end: int, /) -> list[Buffer] | None:
        """The next bytes: the pieces to send instead, or None to send them as they are."""


class Unread:
    """The rest of a response of which all that has to be known is known."""

    __slots__ = ()

    def feed(self, _buf: Buffer, _start: int, _end: int, /) -> list[Buffer] | None:
        return None


UNREAD: Final = Unread()


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass the request on; `pieces` in its place if given; `plan` for its response; `reply` is False when there will be none.
    `throttle`: seconds that the client is told, if there is a reply, and muted for. `close`: this is the last of the connection.
    `passage`: ends with the answer."""

    plan: Plan | None = None
    pieces: list[Buffer] | None = None
    reply: bool = True
    throttle: float = 0.0
    close: bool = False
    passage: Passage | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for this time (seconds): the entity of the request is muted on another connection."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this request of the proxy's own to the broker and wait for its answer, which goes to `question` and not to the client.
    When the answer does not come in time, `Question.give_up` is called."""

    frame: bytes
    correlation_id: int
    question: Question


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until this is done. `quota`: a quota has it wait."""

    pending: Pending
    quota: bool = False


Pause = Hold | Ask | Wait | None
"""What a handler waits for before it goes on. None: the end of a step, where other connections may have their turn."""

Decided = Forward | Answer
"""What becomes of a request."""

Handling = Generator[Pause, None, Decided]
"""A handler at work on one request: it yields what it waits for and returns what becomes of the request. While it waits, nothing
behind the request is looked at. It is closed (GeneratorExit) when its connection ends, and then gives back what it charged
(`given_back`). `Client.now` is the time whenever it goes on."""

FORWARD = Forward()
NO_REPLY = Forward(reply=False)


class Handler(Protocol):
    """One Kafka API that the proxy touches."""

    key: int
    versions: tuple[int, int]
    """lowest and highest version that it understands; others close the connection"""

    def request(self, client: Client, request: Request) -> Decided | Handling:
        """What becomes of a request that came at `client.now`: the decision, or a generator where it may have to wait.
        `BadBytes` closes the connection."""


class AlikeRequests:
    """A handler of an API of which many requests of a connection are alike, and are handled together. It is no protocol, so that
    it is called without a look-up."""

    key: int
    versions: tuple[int, int]

    def request(self, client: Client, request: Request) -> Decided | Handling:
        """As of `Handler`."""
        raise NotImplementedError

    def run(self, client: Client, data: bytes, start: i64, most: i64, largest: i64) -> Run | None:
        """The requests at `start` that are whole and alike, up to `most` of `largest` bytes each; None if there is none."""
        raise NotImplementedError

    def one(self, client: Client, version: int, frame: Frame) -> Run | None:  # noqa: ARG002
        """The same for one request, which may have come in pieces."""
        return None

    def take(self, client: Client, run: Run) -> Forward | None:
        """How they go on, as they are; None where they have to be looked at one by one. Where `Run.shape` is given, their plan is a
        `FrequentPlan`."""
        raise NotImplementedError


class Handlers(dict[int, Handler]):
    """Handlers by API key; those that handle requests together stand in `alike` as well. ValueError for two of one API."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        super().__init__()
        self.alike: dict[int, AlikeRequests] = {}
        for handler in handlers:
            if handler.key in self:
                raise ValueError(f"two handlers for API {handler.key}: {self[handler.key]} and {handler}")
            self[handler.key] = handler
            if isinstance(handler, AlikeRequests):
                self.alike[handler.key] = handler


@contextmanager
def given_back(client: Client, undo: Callable[[float], None]) -> Iterator[None]:
    """Around what a handler does after it charged something: if its connection ends or the request turns out to be bad, `undo` is
    called with the time."""
    try:
        yield
    except BaseException:
        undo(client.now)
        raise
