"""Requests about a list of topics, of which some may be refused: CreateTopics, DeleteTopics, CreatePartitions (KIP-599).

In: bodies. Out: where each topic stands; requests without some of them; responses with these put back, in the order of the
request, and what became of the others. What is not touched is taken over as it is, so error codes and tagged fields of newer
brokers pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from proxy.wire.headers import flexible, response_body
from proxy.wire.kio_bridge import request_layout, response_frame, response_layout
from proxy.wire.layout import Array, Entity
from proxy.wire.primitives import INT16, INT32, BadBytes, Buffer, encode_array_length, encode_string, fixed, string
from proxy.wire.steps import FEW, MANY

QUOTA_EXCEEDED: Final = 89
"""THROTTLING_QUOTA_EXCEEDED (KIP-599)"""
POLICY_VIOLATION: Final = 44
"""POLICY_VIOLATION (KIP-108)"""
NO_ID: Final = bytes(16)

Key = tuple[str | None, bytes]
"""What names a topic: its name, or its id."""


class Item(NamedTuple):
    """A topic of a request: its name, None where the request has its id only (16 bytes, else zeros). `amount` is the number that
    stands beside it: partitions to create, or in all; 0 where there is none. [start, stop) is where it stands in the body."""

    name: str | None
    topic_id: bytes
    amount: int
    start: int
    stop: int

    @property
    def key(self) -> Key:
        """What its result in the response has too."""
        return (self.name, NO_ID) if self.name is not None else (None, self.topic_id)

    @property
    def label(self) -> str:
        """For people."""
        return self.name if self.name is not None else f"topic id {self.topic_id.hex()}"


class Refusal(NamedTuple):
    """Why a topic is refused: an error code, and a message for people."""

    error: int
    message: str


class Items(NamedTuple):
    """The topics of a request. [start, stop) is where their array stands in the body, its length included."""

    topics: list[Item]
    start: int
    stop: int
    validate_only: bool


class Result(NamedTuple):
    """What became of a topic: its error code, and how many partitions it has where the response says so, else -1."""

    error: int
    partitions: int


class ResultEntry(NamedTuple):
    """The result of a topic: [start, stop) is where it stands in the response, `message` where its error message does, if any."""

    start: int
    stop: int
    result: Result
    message: tuple[int, int] | None


class Answered(NamedTuple):
    """The results of a response whose body starts at `body`, their array standing at [start, stop). `of`: topics of the request,
    by their indices, to the numbers of their results in `told`, as far as the response names them."""

    frame: Buffer
    version: int
    body: int
    start: int
    stop: int
    told: list[ResultEntry]
    of: dict[int, int]

    @property
    def results(self) -> Iterator[tuple[int, Result]]:
        """What became of each topic of the request."""
        return ((i, self.told[at].result) for i, at in self.of.items())


class ItemApi(ABC):
    """One such API."""

    key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    first_refusable: ClassVar[int]
    """the first version whose clients know the error"""
    first_throttle: ClassVar[int]
    """the first version whose response has a throttle time, as its first field"""
    answered: ClassVar[str]
    """the array of the response"""
    old_requests: ClassVar[Mapping[int, Entity]] = {}
    """layouts of versions before those that kio knows, which brokers before 4.0 speak"""
    old_responses: ClassVar[Mapping[int, Entity]] = {}

    def asked(self, version: int) -> str:  # noqa: ARG002
        """The array of the request."""
        return "topics"

    def request_layout(self, version: int) -> Entity:
        """The layout of a request body."""
        return self.old_requests.get(version) or request_layout(self.key, version)

    def response_layout(self, version: int) -> Entity:
        """The layout of a response body."""
        return self.old_responses.get(version) or response_layout(self.key, version)

    @abstractmethod
    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:
        """The topic of a request that stands at [start, stop)."""

    def named(self, buf: Buffer, spans: dict[str, tuple[int, int]], compact: bool) -> Key:
        """Name and id of the topic whose fields stand there."""
        return string(buf, *spans["name"], compact)[0], id_at(buf, spans)

    @abstractmethod
    def refused(self, topic: Item, version: int, refusal: Refusal) -> bytes:
        """Its result when it is refused, as Kafka writes it."""

    # ------------------------------------------------------------------ requests

    def read(self, buf: Buffer, pos: int, end: int, version: int) -> Generator[None, None, Items]:
        """The topics of a request body, or `BadBytes`, in steps. Their array is the first field of all these requests."""
        layout = self.request_layout(version)
        topics = layout.array(self.asked(version))
        count, stop = topics.count(buf, pos, end)
        found: list[Item] = []
        for i in range(count):
            if i % FEW == FEW - 1:
                yield
            start, stop = stop, topics.element.skip(buf, stop, end)
            found.append(self.item(topics, buf, start, stop, version))
        rest = layout.spans(buf, stop, end, 1)
        validate_only = "validate_only" in rest and buf[rest["validate_only"][0]] != 0
        return Items(found, pos, stop, validate_only)

    def without(
        self, items: Items, refused: Collection[int], buf: Buffer, pos: int, end: int, version: int
    ) -> Generator[None, None, list[Buffer]]:
        """The body [pos, end) without the topics at these indices, in pieces, in steps."""
        view, kept = memoryview(buf), len(items.topics) - len(refused)
        pieces: list[Buffer] = [view[pos : items.start], encode_array_length(kept, flexible(self.key, version))]
        part: list[Buffer] = []
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
                pieces.append(b"".join(part))
                part.clear()
            if i not in refused:
                part.append(view[topic.start : topic.stop])
        return [*pieces, *part, view[items.stop : end]]

    # ------------------------------------------------------------------ responses

    def refusal(
        self, correlation_id: int, version: int, items: Items, refused: Mapping[int, Refusal], throttle_ms: int
    ) -> Generator[None, None, bytes]:
        """A whole response frame that refuses all topics, in steps."""
        topics: list[bytes] = []
        for i, topic in enumerate(items.topics):
            if i % FEW == FEW - 1:
                yield
            topics.append(self.refused(topic, version, refused[i]))
        tagged = flexible(self.key, version)
        throttle = INT32.pack(throttle_ms) if version >= self.first_throttle else b""
        body = throttle + encode_array_length(len(topics), compact=tagged) + b"".join(topics) + (b"\0" if tagged else b"")
        return response_frame(correlation_id, body, tagged=tagged)

    def answer(self, frame: Buffer, version: int, items: Items) -> Generator[None, None, Answered]:
        """The results in a response, and which topic of the request each is of, in steps."""
        end, body = len(frame), response_body(frame, 0, len(frame), self.key, version)
        layout = self.response_layout(version)
        start, topics = layout.skip_to(self.answered, frame, body, end), layout.array(self.answered)
        element = topics.element
        assert isinstance(element, Entity)
        count, pos = topics.count(frame, start, end)
        told: list[ResultEntry] = []
        places: dict[Key, int] = {}
        again: dict[Key, deque[int]] = {}  # of what is named more than once
        for at in range(count):
            if at % FEW == FEW - 1:
                yield
            spans, stop = element.read(frame, pos, end)
            error = INT16.unpack_from(frame, spans["error_code"][0])[0]
            made = INT32.unpack_from(frame, spans["num_partitions"][0])[0] if "num_partitions" in spans else -1
            told.append(ResultEntry(pos, stop, Result(error, made), spans.get("error_message")))
            name, topic_id = self.named(frame, spans, topics.compact)
            if name is not None and places.setdefault((name, NO_ID), at) != at:
                again.setdefault((name, NO_ID), deque()).append(at)
            if (topic_id != NO_ID or name is None) and places.setdefault((None, topic_id), at) != at:
                again.setdefault((None, topic_id), deque()).append(at)
            pos = stop
        of: dict[int, int] = {}
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            if (found := places.pop(topic.key, None)) is not None:
                of[i] = found
            elif more := again.get(topic.key):  # a name that stands twice has two
                of[i] = more.popleft()
        return Answered(frame, version, body, start, pos, told, of)

    def with_refused(
        self, answer: Answered, items: Items, refused: Mapping[int, Refusal], throttle_ms: int
    ) -> Generator[None, None, list[Buffer]]:
        """The broker's response with these topics refused besides, all in the order of the request, and a throttle time of
        `throttle_ms` at least; in steps."""
        frame, body, view = answer.frame, answer.body, memoryview(answer.frame)
        pieces: list[Buffer] = []
        part: list[Buffer] = []
        written: set[int] = set()  # a topic that is named by its name and by its id has one result
        count = 0
        for i, topic in enumerate(items.topics):
            if i % FEW == FEW - 1:
                yield
                pieces.append(b"".join(part))
                part.clear()
            if i in refused:
                part.append(self.refused(topic, answer.version, refused[i]))
            elif (at := answer.of.get(i)) is not None and at not in written:
                written.add(at)
                part.append(view[answer.told[at].start : answer.told[at].stop])
            else:
                continue
            count += 1
        for at, (start, stop, _, _) in enumerate(answer.told):
            if at % MANY == MANY - 1:
                yield
            if at not in written:
                part.append(view[start:stop])
                count += 1
        head: list[Buffer] = [view[body : answer.start], encode_array_length(count, compact=flexible(self.key, answer.version))]
        if answer.version >= self.first_throttle:
            head[:1] = [_throttled(frame, body, throttle_ms), view[body + 4 : answer.start]]
        return _framed(frame, body, [*head, *pieces, b"".join(part), view[answer.stop :]])

    def with_throttle(
        self, answer: Answered, told: Collection[int], message: str, throttle_ms: int
    ) -> Generator[None, None, list[Buffer]]:
        """The broker's response with a throttle time of `throttle_ms` at least, and a message for these topics where what was
        asked for was done; in steps. The oldest versions have no throttle time, or no message: their clients feel the mute only."""
        frame, at, view = answer.frame, answer.body, memoryview(answer.frame)
        pieces: list[Buffer] = []
        if answer.version >= self.first_throttle:
            pieces.append(_throttled(frame, at, throttle_ms))
            at += 4
        text = encode_string(message, flexible(self.key, answer.version))
        meant = bytearray(len(answer.told))
        for n, i in enumerate(told):
            if n % MANY == MANY - 1:
                yield
            if i in answer.of:
                meant[answer.of[i]] = 1
        for number, (_, _, result, place) in enumerate(answer.told):
            if number % MANY == MANY - 1:
                yield
            if meant[number] and place is not None and result.error == 0:
                pieces += [view[at : place[0]], text]
                at = place[1]
        return _framed(frame, answer.body, [*pieces, view[at:]])


def name_at(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[str, int]:
    """(name of a topic, position behind it), or `BadBytes` where it has none."""
    name, pos = string(buf, pos, end, compact)
    if name is None:
        raise BadBytes("a topic without a name")
    return name, pos


def id_at(buf: Buffer, spans: dict[str, tuple[int, int]]) -> bytes:
    """The topic id of an entity whose fields stand there; zeros where it has none."""
    if "topic_id" not in spans:
        return NO_ID
    start, stop = spans["topic_id"]
    return bytes(buf[start:stop])


def _throttled(frame: Buffer, body: int, throttle_ms: int) -> bytes:
    """The throttle time, the broker's own if that is larger."""
    fixed(body, 4, len(frame))
    return INT32.pack(max(throttle_ms, INT32.unpack_from(frame, body)[0]))


def _framed(frame: Buffer, body: int, pieces: list[Buffer]) -> list[Buffer]:
    size = body - 4 + sum(len(piece) for piece in pieces)
    return [INT32.pack(size) + frame[4:body], *pieces]
