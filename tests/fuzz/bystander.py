"""A second connection in the world of a fuzzed one: another principal, whose requests are ordinary and whose answers are known.

In: the time, between the steps of the fuzzed connection. Out: nothing, or an AssertionError: a byte is another one, or something is
late, which is not there after the step in which it is due."""

from __future__ import annotations

import datetime
from functools import cache
from random import Random
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema

from proxy.session.session import State
from quota.entity import Entity
from quota.kinds.controller_mutations import MutationLimit
from tests.apis.topic_frames import create, created
from tests.messages import batch, part_of, produce, request, response
from tests.support import World, endpoint

CAROL, TOPIC = "carol", "carols"
PRODUCER_ID = 7
"""of a producer of hers. Others use it too: `corpus` forges it."""
PRODUCES = 1
"""The exchange that is a Produce request."""
ENTITY = Entity(CAROL, None)
MUTATIONS = MutationLimit(1000, 11_000)
PRODUCER_IDS = 1000.0
"""Limits that are above what she does in a dialogue."""


class Exchange(NamedTuple):
    """A request, which goes to the broker as it is; the broker's answer; what the client has to get."""

    what: str
    request: bytes
    answer: bytes
    expected: bytes


class Bystander:
    """`turn` is a request, or the answer to it. Answers are due at once, whatever the other connection does."""

    def __init__(self, world: World, first: int) -> None:
        """`first`: which exchange she begins with."""
        self._dialogue = world.dialogue(CAROL)
        self._dialogue.session.client.come_in()  # her login was before
        self._at = first
        self._waiting: Exchange | None = None

    def turn(self, now: float) -> None:
        d = self._dialogue
        d.now = now
        if self._waiting is None:
            self._waiting = exchange = exchanges()[self._at % len(exchanges())]
            self._at += 1
            d.client(exchange.request)
            assert d.to_broker == exchange.request, f"{exchange.what}: the request is late, or another one"
            assert d.to_client == b"", f"{exchange.what}: an answer before the broker's"
        else:
            exchange, self._waiting = self._waiting, None
            d.broker(exchange.answer)
            assert d.to_client == exchange.expected, f"{exchange.what}: the answer is late, or another one"
            assert d.to_broker == b"", f"{exchange.what}: more to the broker than was asked"
        assert d.session.state is State.OPEN, f"{exchange.what}: she is {d.session.state}"
        assert d.port.reading, f"{exchange.what}: she is not read"
        assert d.port.wake is None or d.port.wake > now, f"{exchange.what}: she waits"

    def leave(self, now: float) -> None:
        """What is under way is answered, and she is gone."""
        if self._waiting is not None:
            self.turn(now)
        self._dialogue.session.client_lost()
        self._dialogue.session.broker_lost(None)


_NOWHERE: dict[str, Any] = {"error_code": 15, "host": "", "port": -1, "node_id": -1}
"""There is no such coordinator."""


@cache
def exchanges() -> list[Exchange]:
    """One of each API that limits are about, and metadata."""
    return [
        _metadata(),
        _same(
            "Produce",
            produce(9, 1, batch(producer_id=PRODUCER_ID, epoch=0, sequence=5), topic=TOPIC),
            response(0, 9, 1, Random(0), throttle_time=_zero()),
        ),
        _same("Fetch", request(1, 12, 2, chance=Random(1)), response(1, 12, 2, Random(1), throttle_time=_zero())),
        _same(
            "InitProducerId",
            request(22, 4, 3, chance=Random(2)),
            response(22, 4, 3, Random(2), error_code=0, throttle_time=_zero()),
        ),
        _same("CreateTopics", create(7, 4, (TOPIC, 3)), created(7, 4, TOPIC, partitions=3)),
        _same(
            "FindCoordinator",
            request(10, 3, 5, chance=Random(3)),
            response(10, 3, 5, Random(3), error_code=15, host="", port=-1, node_id=-1),
        ),
        _same("ListOffsets", request(2, 6, 6, chance=Random(4)), response(2, 6, 6, Random(4), throttle_time=_zero())),
    ]


def _metadata() -> Exchange:
    """The answer shows the proxy's addresses in the place of the brokers'."""
    topic = part_of(load_request_schema(3, 8), "topics")
    asked = request(3, 8, 9, topics=(topic(name=TOPIC),), allow_auto_topic_creation=False)
    broker = part_of(load_response_schema(3, 8), "brokers")

    def answer(*addresses: tuple[str, int]) -> bytes:
        brokers = tuple(broker(node_id=i, host=host, port=port, rack=None) for i, (host, port) in enumerate(addresses))
        return response(3, 8, 9, Random(5), brokers=brokers, topics=(), throttle_time=_zero())

    return Exchange("Metadata", asked, answer(("b0", 9092), ("b1", 9093)), answer(endpoint(0), endpoint(1)))


def _same(what: str, asked: bytes, answer: bytes) -> Exchange:
    return Exchange(what, asked, answer, answer)


def _zero() -> Any:
    return datetime.timedelta(0)
