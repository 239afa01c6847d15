"""Connections of simulated clients. In: requests. Out: answers, in order, and a `History` of what went wrong.

A connection logs in, then sends requests one behind the other. Each answer has to belong to the oldest request that has none, and
has to come in time: not before a mute that the client was told of is over may it be late by more than what is documented."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation import messages as m
from tests.simulation.network import NetworkLoop

HOLD: Final = 10.0
"""Seconds that a request of an entity that is muted on another connection is held at most (docs/byte-quotas.md)."""
NOT_IN_TIME: Final = 2.0
"""Seconds for an answer beyond all that is documented, while no fault delays anything."""
FAULTY: Final = 25.0
"""The same for connections that a fault may have delayed: that of a proxy to its broker is cut, then that of its client, each is
noticed 10 s later only, and nodes are slow."""


@dataclass
class History:
    """What clients saw. `wrong`: what must never happen, with the time."""

    loop: NetworkLoop
    wrong: list[str] = field(default_factory=list)
    delayed_until: float = 0.0
    """faults may delay what is under way until then"""
    calm: Callable[[str], bool] = lambda _user: False
    """True of a user who is within all limits"""
    acknowledged: dict[int, str] = field(default_factory=dict)
    """numbers of records to the topic and partition that they were acknowledged for"""
    answers: int = 0
    throttles: int = 0
    errors: dict[int, int] = field(default_factory=dict)
    longest: float = 0.0

    def fail(self, what: str) -> None:
        if len(self.wrong) < 50:
            self.wrong.append(f"{self.loop.time():.3f} s: {what}")


UNDER_WAY: Final = 0.5
"""Seconds that an answer which tells of a throttle may have been under way, without any fault: the mute began before that."""
LONG_UNDER_WAY: Final = 6.0
"""The same behind slow nodes."""

Answered = Callable[[Any, float], None]
"""Takes the body of an answer, and the seconds of the throttle that it tells of."""


class Asked:
    """A request that was sent."""

    __slots__ = ("answered", "correlation_id", "key", "sent", "version")

    def __init__(self, key: int, version: int, correlation_id: int, sent: float, answered: Answered) -> None:
        self.key, self.version, self.correlation_id, self.sent, self.answered = key, version, correlation_id, sent, answered


def ask_for_brokers(connection: Connection, version: int) -> None:
    """A Metadata request about no topic."""
    connection.ask(
        m.METADATA,
        version,
        lambda *_: None,
        topics=(),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


class Connection(asyncio.Protocol):
    """One connection of a client. `up` is called when it has logged in, `down` when it is over. `hold`: seconds that a request
    of an entity which is muted on another connection is held at most."""

    def __init__(
        self, history: History, user: str, client_id: str, up: Callable[[], None], down: Callable[[], None], hold: float = HOLD
    ) -> None:
        self.history, self.user, self.client_id, self._up, self._down = history, user, client_id, up, down
        self.asked: deque[Asked] = deque()
        self._hold = hold
        self.ready = self.over = False
        self._frames, self._number = m.Frames(), 0
        self._may_wait_until = self._told_until = 0.0
        self._born = history.loop.time()
        self.closing = self.full = False
        self.number_of = 0
        """which of its client's connections this is"""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.closing:
            transport.abort()  # type: ignore[attr-defined]
            return
        self.ask(m.API_VERSIONS, 3, lambda *_: None, client_software_name="simulated", client_software_version="1")
        self.ask(m.HANDSHAKE, 1, self._shaken, mechanism="PLAIN")

    def _shaken(self, *_: object) -> None:
        self.ask(m.AUTHENTICATE, 2, self._in, auth_bytes=b"\0" + self.user.encode() + b"\0right")

    def _in(self, body: Any, _: float) -> None:
        if int(body.error_code):
            self.history.fail(f"the login of {self.user} failed: {body.error_code}")
            self.close()
            return
        self.ready = True
        self._up()

    def ask(self, key: int, version: int, answered: Answered | None, **given: Any) -> None:
        """Send a request; `answered` None: there is no answer."""
        self._number += 1
        if answered is not None:
            self.asked.append(Asked(key, version, self._number, self.history.loop.time(), answered))
        self.transport.write(m.request(key, version, self._number, self.client_id, **given))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._answered(frame)
                if self.over or self.closing:
                    return
        except Exception as e:
            self.history.fail(f"{self.client_id} cannot read an answer: {e!r}")
            self.close()

    def _answered(self, frame: bytes) -> None:
        history, now = self.history, self.history.loop.time()
        asked = self.asked.popleft() if self.asked else None
        if asked is None or asked.correlation_id != int.from_bytes(frame[4:8], "big"):
            history.fail(f"{self.client_id} got an answer to nothing that it asked")
            self.close()
            return
        self.look_at_wait(asked, now)
        body = m.read_response(asked.key, asked.version, frame)
        throttle = getattr(body, "throttle_time", m.ZERO).total_seconds()
        history.answers += 1
        history.throttles += throttle > 0
        if throttle and history.calm(self.user):
            history.fail(f"{self.user} is within its limits and was throttled for {throttle} s, API {asked.key}")
        early = self._told_until - now
        if early > (LONG_UNDER_WAY if self._faulty(asked) else UNDER_WAY):
            history.fail(f"{self.client_id} was told to wait for {early:.3f} s more, and got an answer for API {asked.key}")
        self._told_until = now + throttle
        self._may_wait_until = max(now, self._may_wait_until) + throttle
        asked.answered(body, throttle)

    def _faulty(self, asked: Asked) -> bool:
        """May a fault have delayed this request, its answer, or the connection?"""
        return min(asked.sent, self._born) < self.history.delayed_until

    def look_at_wait(self, asked: Asked, now: float) -> None:
        """Has this request waited for longer than its client was told, plus the holds that are documented?"""
        history = self.history
        slack = FAULTY if self._faulty(asked) else NOT_IN_TIME
        hold = 0.0 if history.calm(self.user) else self._hold
        late = now - max(asked.sent, self._may_wait_until)
        history.longest = max(history.longest, late)
        if late > hold + slack:
            history.fail(f"{self.client_id} ({self.user}) waited {late:.3f} s for API {asked.key} beyond what it was told")

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._up()

    def close(self, *, at_once: bool = True) -> None:
        self.closing = True
        if self.transport is not None:
            self.transport.abort() if at_once else self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.over:
            self.over, self.ready = True, False
            if not self.closing and self.asked:
                now = self.history.loop.time()
                self.look_at_wait(self.asked[0], now)
            self._down()
