"""The connection of one client: asks handlers about its requests, keeps answers in order, mutes.

In: what the sockets and the timer of `net` report, with the time. Out: calls on a `Port`. It leaves meaning to `apis`
and `wire`, limits to `quota`.

A request is judged when it is whole, before any byte of it goes on; those that nobody touches go on in the buffers that
they came in.

Blocked means that no further request is looked at: until the broker is connected, from a throttled request on until its
answer is out and the mute that follows is over, while a request is held or the broker is asked about it, and while too many
are in flight. What was read
waits in the backlog, and reading stops, so that the backlog holds one read at most. For want of memory only reading stops.

A client that closed its half gets the answers to what it sent; what it sent before it went away still goes to the broker,
as a broker too reads what was sent before a connection ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from math import ceil
from typing import Final

from proxy.session.answers import Answers
from proxy.session.client import Client
from proxy.session.plans import FORWARD, Answer, Ask, Forward, Handler, Hold, Outcome, Question, Request, Wait
from proxy.session.port import GONE, Bounds, Peer, Port, Services
from proxy.session.tally import Sum, TallyKey
from proxy.session.throttled import Throttled
from proxy.wire.frames import Frame, FrameCutter
from proxy.wire.headers import (
    API_VERSIONS,
    CLIENT_ID_AT,
    REQUEST_START,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHORTEST_REQUEST,
    client_id_end,
)
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.throttle import tell
from quota.engine import Metered

STALLED: Final = 5.0
"""Seconds in which a session that holds memory for which others wait has to get on with it."""
PROGRESS: Final = 1 << 18
"""Bytes that it has to get on by in this time."""


_UNCHARGED: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""What a client says before it is known who it is."""
_OWN: Final = TallyKey("", None, None, None, 3)


class State(Enum):
    """Whether requests are looked at, and if not, why."""

    NEW = "nothing came from the client yet"
    CONNECTING = "the broker is being connected"
    OPEN = "requests are looked at"
    AWAITING = "a request waits for its answer: a throttled one, or a login"
    MUTED = "the client is muted"
    HELD = "a request waits for a mute on another connection"
    ASKING = "a request waits for what the proxy asked its broker, or does elsewhere"
    FULL = "too many requests wait for their answers"
    LAST = "the proxy stops, and reads the rest of a request that has begun"
    CLOSED = "the end"


class Session:
    """One client connection and its connection to a broker. `born`: when the client came."""

    __slots__ = (
        "_answers",
        "_asking",
        "_backlog",
        "_born",
        "_charged",
        "_cutter",
        "_draining",
        "_ended",
        "_handlers",
        "_held",
        "_last",
        "_mark",
        "_marked",
        "_most_in_flight",
        "_partial",
        "_partial_since",
        "_starved",
        "client",
        "port",
        "services",
        "state",
    )

    def __init__(self, services: Services, handlers: Mapping[int, Handler], port: Port, peer: Peer, born: float = 0.0) -> None:
        self.services = services
        self.port = port
        self.client = Client(services, peer)
        self.state = State.NEW
        self._handlers = handlers
        self._answers = Answers(port.to_client, services.budget)
        self._cutter = FrameCutter(services.bounds.max_frame)
        self._most_in_flight = services.bounds.max_in_flight
        self._backlog: deque[Buffer] = deque()
        self._held = False  # the next request was held before, and goes on now
        self._asking: Question | None = None  # what the proxy waits to be told about the next request; None: it waits for itself
        self._ended = False  # the client sends nothing more, or nothing more is read
        self._draining = False  # the proxy stops
        self._charged = 0  # bytes of the memory of all that are this session's
        self._starved = False  # it reads nothing more for want of memory
        self._born = self._last = born
        self._mark, self._marked = 0, born  # what was held at the last look, and when, if others wait for it
        self._partial, self._partial_since = 0, born  # which frame is not whole, and since when that was seen

    @property
    def in_flight(self) -> int:
        """Requests whose answers are outstanding."""
        return len(self._answers)

    @property
    def idle(self) -> bool:
        """Is there nothing under way?"""
        return not (len(self._answers) or self._backlog or self._cutter.waiting)

    # ------------------------------------------------------------------ what happens

    def client_bytes(self, data: Buffer, now: float) -> None:
        """Bytes came from the client."""
        self._last = now
        if self.state is State.OPEN:
            self._look_at(data, now)
        elif self.state is State.LAST:
            self._look_at_one(data, now)
        elif self.state is not State.CLOSED:
            self._backlog.append(data)
            if self.state is State.NEW:
                if self.client.too_many:
                    self._close_over("max_connections_per_principal")
                else:
                    self._block(State.CONNECTING)
                    self.port.connect()

    def client_ended(self) -> None:
        """The client sends nothing more, but may still read."""
        if self.state is not State.CLOSED:
            self._ended = True
            self._finish()

    def client_lost(self) -> None:
        """The client's connection is no more. What it sent before is still passed on, unanswered."""
        if self.state is not State.CLOSED:
            self._ended = True
            self._answers.discard()
            if not self._backlog:
                self._close()

    def broker_connected(self, now: float) -> None:
        """The connection to the broker is up."""
        if self.state is State.CONNECTING:
            self._unblock(now)

    def broker_bytes(self, data: Buffer, now: float) -> None:
        """Bytes came from the broker."""
        if self.state is State.CLOSED:
            return
        self._last = self.client.now = now
        try:
            if self._answers.tokens is None:
                self._answers.feed(data)
            else:
                self._answers.feed_tokens(data)
        except BadBytes as e:
            self.broker_lost(f"its answer cannot be understood: {e}")
            return
        if self._answers.released:
            self._go_on(now)
        if self.state is State.FULL and len(self._answers) < self._most_in_flight:
            self._unblock(now)
        if self._charged or self._answers.holding:
            self._account()
        if self._ended:
            self._finish()

    def broker_lost(self, reason: str | None) -> None:
        """The connection to the broker ended, or never came up; the client's ends with it. `reason` is None for an
        ordinary close."""
        if self.state is not State.CLOSED:
            if reason is not None:
                self.services.watcher.broker_failed(self.client.address, reason)
            self._close()

    def wake(self, now: float) -> None:
        """The time of `Port.wake_at` has come."""
        if self.state is State.ASKING and self._asking is not None:
            self._asking.give_up()
            if not self._asking.waits:
                self._unblock(now)
        elif self.state in (State.MUTED, State.HELD):
            self._unblock(now)

    def memory_free(self) -> None:
        """There is room again for what this session reads."""
        if self._starved and self.state is not State.CLOSED:
            self._starved = False
            self.port.resume_broker()
            if self.state in (State.OPEN, State.LAST) and not self._ended:
                self.port.resume_reading()

    def check(self, now: float) -> None:
        """Close the connection if it is overdue; to be called about every second."""
        if self.state is State.CLOSED:
            return
        bounds = self.services.bounds
        self._cutter.max_frame, self._most_in_flight = bounds.max_frame, bounds.max_in_flight
        limit = self._overdue(bounds, now)
        if limit is not None:
            self._close_over(limit)
        elif self._hoards(now):
            self._close_over("memory_total")

    def slow_side(self) -> None:
        """One side does not take what was written to it; the other is read no more for now."""
        if self.state is not State.CLOSED:
            self._limited("memory_per_connection", closed=False)

    def refuse(self, reason: str) -> None:
        """This client may not come in."""
        self.services.watcher.client_failed(self.client.address, None, reason)
        self._close()

    def left(self) -> None:
        """The end, and nobody asks for anything more."""
        self.port = GONE
        self._answers.discard()

    def drain(self) -> None:
        """The proxy stops: the end, once what was read is answered. Read on is only what is missing of a request that has
        begun, so that a client that always sends more does not keep its connection."""
        if self._ended or self._draining or self.state is State.CLOSED:
            return
        self._draining = True
        half_there = self._backlog or self._cutter.waiting
        if self.state in (State.NEW, State.OPEN) or (self.state is State.MUTED and not half_there):
            self._read_the_last()

    # ------------------------------------------------------------------ limits

    def _overdue(self, bounds: Bounds, now: float) -> str | None:
        """The timeout that is over, by its setting's name."""
        if not self.client.raw_client_id and now - self._born > bounds.first_request_timeout and self.state is not State.CONNECTING:
            return "first_request_timeout"
        if not (self._cutter.waiting and self.port.reading) or self._partial != self._cutter.begun:
            self._partial, self._partial_since = self._cutter.begun, now
        elif now - self._partial_since > bounds.request_timeout:
            return "request_timeout"
        waits = self.idle and self.state in (State.NEW, State.OPEN) and self.port.reading
        if now - self._last > bounds.idle_timeout and (waits or self._ended):  # who is gone does not wait for a broker for ever
            return "idle_timeout"
        return None

    def _hoards(self, now: float) -> bool:
        """Does it hold memory for which others wait, and get no further? Passing the turn on without giving the memory back
        would let each of many hold as much as a request may have."""
        budget, held = self.services.budget, self._charged
        if held <= budget.small or self._starved or not budget.waiting or not 0 <= held - self._mark < PROGRESS:
            self._mark, self._marked = held, now
            return False
        return now - self._marked > STALLED

    def _account(self) -> None:
        """Charge what is held for this connection, and stop reading if that is too much for all of them."""
        if self.state is State.CLOSED:
            return
        budget = self.services.budget
        held = self._cutter.gathered + self._answers.held
        budget.charge(held - self._charged)
        self._charged = held
        if not held:
            budget.finished(self)
            self.memory_free()  # what it waited for may have been in the backlog
        elif self._starved or (held > budget.small and budget.has_to_wait(self)):
            if not self._starved:
                self._starved = True
                self._limited("memory_total", closed=False)
                self.port.stop_reading()
            if self._answers.holding:
                self.port.stop_broker()

    def _limited(self, limit: str, *, closed: bool) -> None:
        client = self.client
        self.services.watcher.limited(limit, client.address, client.client_id, client.principal, closed=closed)

    def _close_over(self, limit: str) -> None:
        self._limited(limit, closed=True)
        self._close()

    # ------------------------------------------------------------------ requests

    def _look_at(self, data: Buffer, now: float) -> None:
        try:
            if self.client.tokens:
                self._tokens(data, now)
            else:
                self._requests(data, now)
        except BadBytes as e:
            self.services.watcher.client_failed(self.client.address, self.client.client_id, str(e))
            self._close()
        else:
            if self._charged or self._cutter.in_pieces:
                self._account()

    def _requests(self, data: Buffer, now: float) -> None:
        buf: Buffer = b""
        sent = pos = 0  # buf[sent:pos] is to be passed on as it is
        try:
            for frame in self._cutter.cut(data):
                outcome = self._judge(frame, now)
                whole, start, end, chunks = frame
                forward = outcome if isinstance(outcome, Forward) else None
                as_it_is = forward is not None and forward.pieces is None
                if chunks is not None:
                    if as_it_is:
                        self.port.to_broker(chunks)
                else:
                    if pos == 0:
                        buf, sent = whole, start
                    pos = end
                    if not as_it_is:
                        self._pass(buf, sent, start)
                        sent = end
                if forward is not None and not as_it_is:
                    self._send_instead(forward)
                if self.state is not State.OPEN:
                    if (rest := self._cutter.rest()) and self.state is not State.CLOSED:
                        self._backlog.appendleft(rest)
                    if isinstance(outcome, Hold | Ask | Wait):
                        self._backlog.appendleft(b"".join(chunks) if chunks else memoryview(whole)[start:end])
                    if isinstance(outcome, Ask | Wait):
                        self._ask(outcome, now)
                    break
        finally:  # what came before a request that is bad still goes on
            self._pass(buf, sent, pos)

    def _send_instead(self, forward: Forward) -> None:
        if forward.pieces:
            self.port.to_broker(forward.pieces)
        if forward.close:
            self._close()

    def _pass(self, buf: Buffer, start: int, stop: int) -> None:
        if start < stop:
            self.port.to_broker([buf if stop - start == len(buf) else memoryview(buf)[start:stop]])

    def _judge(self, frame: Frame, now: float) -> Outcome:
        """What to do with one whole request; it is counted, and expected to be answered, unless it is held."""
        buf, start, end, chunks = frame
        _, key, version, correlation_id = REQUEST_START.unpack_from(buf, start)
        client = self.client
        claimed = client.raw_client_id
        stop = start + CLIENT_ID_AT + len(claimed)
        if stop > end or buf[start + CLIENT_ID_AT : stop] != claimed or not claimed:
            stop = client_id_end(buf, start, end)
            client.claim(bytes(buf[start + CLIENT_ID_AT : stop]))
        rate = client.rules(now).request if key not in _UNCHARGED else None
        if (
            rate is not None
            and not (self._held or rate.meter.has_room(1, now))
            and (wait := self._muted_elsewhere(rate, key, version, now)) is not None
        ):
            return wait
        handler = self._handlers.get(key)
        outcome: Outcome = FORWARD
        if handler is not None:
            outcome = self._handle(handler, version, frame, stop, now)
            if isinstance(outcome, Hold | Ask | Wait):
                return outcome
        self._held = False
        throttle = 0.0
        if rate is not None and not rate.meter.take(1, now):
            throttle = client.charge_rate(rate, 1, key, version, now)
        if self.services.engine.would:
            client.would_have(key, version)
        counted_in = client.api_sum(key)
        counted_in.requests += 1
        counted_in.request_bytes += end - start if chunks is None else sum(map(len, chunks))
        if isinstance(outcome, Forward):
            if throttle or outcome.throttle:
                outcome = self._throttled(outcome, key, version, max(throttle, outcome.throttle), now)
            plan = outcome.plan
            if outcome.reply and self._answers.expect(correlation_id, counted_in, plan) >= self._most_in_flight:
                self._limited("max_in_flight", closed=False)
                self._block(State.FULL)
            if plan is not None and plan.waits:
                self._block(State.AWAITING)
        elif isinstance(outcome, Answer):
            if throttle > outcome.mute:
                outcome = Answer(b"".join(tell(key, version, [outcome.frame], ceil(throttle * 1000))), throttle)
            self._answer(correlation_id, counted_in, outcome, now)
        return outcome

    def _throttled(self, outcome: Forward, key: int, version: int, throttle: float, now: float) -> Forward:
        """A request goes on whose client is throttled: told with the answer if there is one, else muted at once."""
        if outcome.reply:
            return replace(outcome, plan=Throttled(outcome.plan, key, version, self.client, now + throttle))
        self._block(State.MUTED)
        self.port.wake_at(now + throttle)
        return outcome

    def _handle(self, handler: Handler, version: int, frame: Frame, stop: int, now: float) -> Outcome:
        """What the handler of its API says; blocked while the request is held or asked about."""
        low, high = handler.versions
        if not low <= version <= high:
            raise BadBytes(
                f"version {version} of API {handler.key}; the proxy understands {low} to {high}, and says so in ApiVersions"
            )
        recognized = handler.recognize(self.client, version, frame, stop, now)
        if recognized is not None:
            return recognized
        buf, start, _, _ = frame
        _, key, version, correlation_id = REQUEST_START.unpack_from(buf, start)
        outcome = handler.request(self.client, Request(key, version, correlation_id, frame, stop), now, self._held)
        if isinstance(outcome, Hold):
            self._hold(outcome, now)
        elif isinstance(outcome, Ask | Wait):
            self._block(State.ASKING)
        return outcome

    def _muted_elsewhere(self, rate: Metered, key: int, version: int, now: float) -> Hold | None:
        """Has its entity so many requests that this one is held?"""
        seconds = self.client.hold_rate(rate, key, version, now)
        if not seconds:
            return None
        hold = Hold(seconds)
        self._hold(hold, now)
        return hold

    def _hold(self, outcome: Hold, now: float) -> None:
        self._held = True
        self._block(State.HELD)
        self.port.wake_at(now + outcome.seconds)

    def _ask(self, outcome: Ask | Wait, now: float) -> None:
        """Everything before it has gone out. Its answer is counted nowhere, as no client asked for it."""
        if isinstance(outcome, Wait):
            self._asking = None
            outcome.pending.tell(self._done_elsewhere)
            return
        self._asking = outcome.question
        self._answers.expect(outcome.correlation_id, Sum(_OWN), outcome.question)
        self.port.to_broker([outcome.frame])
        self.port.wake_at(now + self.services.bounds.ask_timeout)

    def _done_elsewhere(self, now: float) -> None:
        """What `Wait` waits for is done: the request is looked at again."""
        if self.state is State.ASKING and self._asking is None:
            self._unblock(now)

    def _answer(self, correlation_id: int, counted_in: Sum, answer: Answer, now: float) -> None:
        """The proxy answers itself, as soon as all earlier requests are answered."""
        self._answers.expect(correlation_id, counted_in, answer)
        if answer.waits:
            self._block(State.AWAITING)
        self._answers.send_own()
        if self._answers.released:
            self._go_on(now)
        if self.state is State.OPEN and len(self._answers) >= self._most_in_flight:
            self._limited("max_in_flight", closed=False)
            self._block(State.FULL)

    # ------------------------------------------------------------------ SASL tokens without headers

    def _tokens(self, data: Buffer, now: float) -> None:
        """Tokens of a client whose handshake was of version 0. Where one is answered by one, each waits for its answer, so
        that nothing behind them is looked at before the user is known."""
        exchange = self.client.exchange
        assert exchange is not None
        self._cutter.shortest = 0
        self._answers.tokens = self._answered
        for buf, start, end, chunks in self._cutter.cut(data):
            frame = bytes(buf[start:end]) if chunks is None else b"".join(chunks)
            counted = exchange.counted
            over = not counted and len(frame) > SHORTEST_REQUEST + 4 and frame[4] == 0
            if not over:
                exchange.client_token(frame[4:])
                self.port.to_broker([frame])
            if counted:
                self._block(State.AWAITING)
            if counted or over:
                self._backlog.appendleft(self._cutter.rest())
            if over:  # no token of GSSAPI begins with a zero, and every request does
                self._backlog.appendleft(frame)
                self._no_more_tokens()
                self._unblock(now)
            if counted or over:
                break

    def _answered(self, token: bytes) -> None:
        """The broker answered a token."""
        client = self.client
        assert client.exchange is not None
        user = client.exchange.broker_answer(0, token)
        if user is not None:
            client.identify(user)
        self._answers.released = client.exchange.counted
        if client.exchange.over:
            self._no_more_tokens()

    def _no_more_tokens(self) -> None:
        self.client.tokens = False
        self._cutter.shortest = SHORTEST_REQUEST
        self._answers.tokens = None

    # ------------------------------------------------------------------ states

    def _go_on(self, now: float) -> None:
        """The answer is out that the requests behind it waited for.

        If it told a throttle time, nothing more is looked at before that is over (KIP-219).
        """
        mute, self._answers.mute, self._answers.released = self._answers.mute, 0.0, False
        if self.client.too_many:
            self._close_over("max_connections_per_principal")
        elif mute:
            self._block(State.MUTED)
            self.port.wake_at(now + mute)
        else:
            self._unblock(now)

    def _block(self, state: State) -> None:
        self.state = state
        self.port.stop_reading()

    def _unblock(self, now: float) -> None:
        self.state = State.OPEN
        while self._backlog and self.state is State.OPEN:
            self._look_at(self._backlog.popleft(), now)
        if self.state is State.OPEN:
            if self._ended:
                self._finish()
            elif self._draining:
                self._read_the_last()
            elif not self._starved:
                self.port.resume_reading()

    def _finish(self) -> None:
        """The client sends nothing more: the end, once all it sent is passed on and answered. Half a request is no request."""
        done = self.state in (State.NEW, State.OPEN, State.MUTED, State.LAST)
        if done and not self._backlog and not len(self._answers):
            self._close()

    def _read_the_last(self) -> None:
        """The proxy stops, and all that was read is looked at: read the rest of a request that has begun, and no more."""
        if self._cutter.waiting:
            self.state = State.LAST
            if not self._starved:
                self.port.resume_reading()
        else:
            self._ended = True
            self.port.stop_reading()
            self._finish()

    def _look_at_one(self, data: Buffer, now: float) -> None:
        """The last request goes on; the client will ask another proxy for what it sent behind it."""
        self._look_at(data, now)
        while len(self._backlog) > (self.state in (State.HELD, State.ASKING)):
            self._backlog.pop()
        if self.state is State.LAST and not self._cutter.waiting:
            self.state = State.OPEN
            self._read_the_last()

    def _close(self) -> None:
        self.state = State.CLOSED
        self._backlog.clear()
        self.services.budget.charge(-self._charged)
        self._charged = 0
        self.services.budget.finished(self)
        self.client.forget()
        self.port.close()
