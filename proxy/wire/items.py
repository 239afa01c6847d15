"""Requests about a list of topics, of which some may be refused: CreateTopics, DeleteTopics, CreatePartitions (KIP-599).

In: bodies. Out: where each topic stands; requests without some of them; responses with these put back, in the order of the
request, and what became of the others. What is not touched is taken over as it is, so error codes and tagged fields of newer
brokers pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Collection
from typing import ClassVar, Final, NamedTuple

from proxy.wire.headers import flexible, response_body
from proxy.wire.kio_bridge import response_frame
from proxy.wire.layout import Array, Entity, Rewriter
from proxy.wire.primitives import INT16, INT32, BadBytes, Buffer, encode_array_length, encode_string, fixed, string

QUOTA_EXCEEDED: Final = 89
"""THROTTLING_QUOTA_EXCEEDED (KIP-599)"""
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

    def asked(self, version: int) -> str:  # noqa: ARG002
        """The array of the request."""
        return "topics"

    @abstractmethod
    def request_layout(self, version: int) -> Entity: ...
    @abstractmethod
    def response_layout(self, version: int) -> Entity: ...
    @abstractmethod
    def item(self, topics: Array, buf: Buffer, start: int, stop: int, version: int) -> Item:
        """The topic of a request that stands at [start, stop)."""

    @abstractmethod
    def refused(self, topic: Item, version: int, message: str) -> bytes:
        """Its result when it is refused, as Kafka 4.2 writes it."""

    # ------------------------------------------------------------------ requests

    def read(self, buf: Buffer, pos: int, end: int, version: int) -> Items:
        """The topics of a request body, or `BadBytes`. Their array is the first field of all these requests."""
        layout = self.request_layout(version)
        topics = layout.array(self.asked(version))
        stop, elements = topics.elements(buf, pos, end)
        if elements:
            stop = elements[-1][1]
        rest = layout.spans(buf, stop, end, 1)
        validate_only = "validate_only" in rest and buf[rest["validate_only"][0]] != 0
        return Items([self.item(topics, buf, *place, version) for place in elements], pos, stop, validate_only)

    def without(self, items: Items, refused: Collection[int], buf: Buffer, pos: int, end: int, version: int) -> list[Buffer]:
        """The body [pos, end) without the topics at these indices, in pieces."""
        view = memoryview(buf)
        kept = [topic for i, topic in enumerate(items.topics) if i not in refused]
        pieces: list[Buffer] = [view[pos : items.start], encode_array_length(len(kept), flexible(self.key, version))]
        pieces += [view[topic.start : topic.stop] for topic in kept]
        return [*pieces, view[items.stop : end]]

    # ------------------------------------------------------------------ responses

    def refusal(self, correlation_id: int, version: int, items: Items, message: str, throttle_ms: int) -> bytes:
        """A whole response frame that refuses all topics."""
        topics = b"".join(self.refused(topic, version, message) for topic in items.topics)
        body = INT32.pack(throttle_ms) + encode_array_length(len(items.topics), compact=True) + topics + b"\0"
        return response_frame(correlation_id, body, tagged=True)

    def results(self, frame: Buffer, version: int, items: Items) -> dict[int, Result]:
        """What became of the topics of a request, by their indices, as far as the response names them."""
        found: dict[int, Result] = {}
        answer = self._answer(frame, version)
        for i, topic in enumerate(items.topics):
            place = answer.take(topic)
            if place is not None:
                spans = answer.element.spans(frame, *place)
                error = INT16.unpack_from(frame, spans["error_code"][0])[0]
                made = INT32.unpack_from(frame, spans["num_partitions"][0])[0] if "num_partitions" in spans else -1
                found[i] = Result(error, made)
        return found

    def with_refused(
        self, frame: Buffer, version: int, items: Items, refused: Collection[int], message: str, throttle_ms: int
    ) -> list[Buffer]:
        """The broker's response with these topics refused besides, all in the order of the request, and a throttle time of
        `throttle_ms` at least."""
        answer, view = self._answer(frame, version), memoryview(frame)
        pieces: list[Buffer] = []
        written: set[tuple[int, int]] = set()  # a topic that is named by its name and by its id has one result
        for i, topic in enumerate(items.topics):
            if i in refused:
                pieces.append(self.refused(topic, version, message))
            elif (place := answer.take(topic)) is not None and place not in written:
                written.add(place)
                pieces.append(view[place[0] : place[1]])
        pieces += [view[start:stop] for start, stop in answer.left]
        body = answer.body
        head: list[Buffer] = [
            _throttled(frame, body, throttle_ms),
            view[body + 4 : answer.start],
            encode_array_length(len(pieces), compact=True),
        ]
        return _framed(frame, body, [*head, *pieces, view[answer.stop :]])

    def with_throttle(
        self, frame: Buffer, version: int, items: Items, told: Collection[int], message: str, throttle_ms: int
    ) -> list[Buffer]:
        """The broker's response with a throttle time of `throttle_ms` at least, and a message for these topics where what was
        asked for was done. The oldest versions have no throttle time, or no message: their clients feel the mute only."""
        answer, end = self._answer(frame, version), len(frame)
        r = Rewriter(frame, answer.body, end, _no_endpoint)
        if version >= self.first_throttle:
            r.replace(answer.body, answer.body + 4, _throttled(frame, answer.body, throttle_ms))
        places = {place for i in told if (place := answer.take(items.topics[i])) is not None}
        for start, stop in sorted(places):
            spans = answer.element.spans(frame, start, stop)
            if "error_message" in spans and INT16.unpack_from(frame, spans["error_code"][0])[0] == 0:
                r.replace(*spans["error_message"], encode_string(message, flexible(self.key, version)))
        return _framed(frame, answer.body, r.finish(end))

    def _answer(self, frame: Buffer, version: int) -> _Answer:
        end, body = len(frame), response_body(frame, 0, len(frame), self.key, version)
        layout = self.response_layout(version)
        start, stop = layout.spans(frame, body, end)[self.answered]
        topics = layout.array(self.answered)
        assert isinstance(topics.element, Entity)
        return _Answer(frame, topics, topics.element, body, start, stop)


class _Answer:
    """The results of a response, taken one by one by what names them."""

    def __init__(self, frame: Buffer, topics: Array, element: Entity, body: int, start: int, stop: int) -> None:
        self.element, self.body, self.start, self.stop = element, body, start, stop
        _, self._all = topics.elements(frame, start, stop)
        self._taken: set[tuple[int, int]] = set()
        self._places: dict[Key, deque[tuple[int, int]]] = defaultdict(deque)
        for place in self._all:
            spans = element.spans(frame, *place)
            name, _ = string(frame, *spans["name"], topics.compact)
            if name is not None:
                self._places[name, NO_ID].append(place)
            if (topic_id := id_at(frame, spans)) != NO_ID or name is None:
                self._places[None, topic_id].append(place)

    def take(self, topic: Item) -> tuple[int, int] | None:
        """Where the result of this topic stands; a name that stands twice has two."""
        places = self._places.get(topic.key)
        if not places:
            return None
        place = places.popleft()
        self._taken.add(place)
        return place

    @property
    def left(self) -> list[tuple[int, int]]:
        """Where those stand that nobody took."""
        return [place for place in self._all if place not in self._taken]


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


def _no_endpoint(node_id: int | None) -> tuple[str, int]:
    raise AssertionError(f"these APIs name no broker, asked for {node_id}")
