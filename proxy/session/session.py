"""The connection of one client: asks handlers about its requests, keeps answers in order, mutes.

In: what the sockets and the timer of `clients.connection` report, with the time. Out: calls on a `Port`. It leaves meaning to
`apis` and `wire`, limits to `quota`.

A request is judged when it is complete, before any byte of it goes on. Requests that no handler changes go on in the buffers that
they came in.

Nothing of a connection is judged or counted in anybody's name before the connection is let in (`admission`).

Blocked means that no further request is looked at: until the broker is connected, from a throttled request on until its
answer is out and the mute that follows is over, while a request is held or the broker is asked about it, and while too many
are in flight. What was read waits in the cutter, and reading stops, so that one read waits at most. Why it is blocked follows
from what holds at the moment (`_reason`), so that the end of one reason does not end another.

Looking pauses, in whatever state, while the client does not take its answers, and when the turn of the connection is over:
connections take turns of a limited time, so that one with much to do does not keep the others waiting. For want of memory
only reading stops.

A client that closed its half gets the answers to what it sent; of what it sent before it went away, what wants no answer and the
first few of the rest still go to the broker, as a broker too reads what was sent until it cannot deliver an answer."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from math import ceil, inf
from typing import Final

from proxy.session.admission import MAX_FRAME, MAX_REQUESTS
from proxy.session.answers import Answers
from proxy.session.budget import STRANGERS
from proxy.session.client import Client
from proxy.session.held_answers import LARGE, Answer
from proxy.session.knock import knock
from proxy.session.latencies import Part
from proxy.session.outgoing import Outgoing, nowhere
from proxy.session.plans import FORWARD, Ask, Decided, Forward, Handlers, Handling, Hold, Pause, Request, Wait
from proxy.session.port import GONE, Bounds, Peer, Port, Services
from proxy.session.tally import Sum, TallyKey
from proxy.session.throttled import Throttled
from proxy.wire.frames import Frame, FrameCutter, size_of
from proxy.wire.headers import (
    API_VERSIONS,
    CLIENT_ID_AT,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHORTEST_REQUEST,
    client_id_end,
)
from proxy.wire.primitives import BadBytes, Buffer, int16, int32
from proxy.wire.runs import Run
from proxy.wire.throttle import tell
from quota.rules import Metered

STALLED: Final = 5.0
"""Seconds in which a session that holds memory for which others wait has to get on with it."""
PROGRESS: Final = 1 << 18
"""Bytes that it has to get on by in this time."""


EXPIRING: Final = 5.0
"""Seconds that a connection which has reached its age waits for a moment in which none of its requests is under way."""
AT_ONCE: Final = 4
"""Requests that are looked at before it is seen whether the turn of the connection is over."""
LAST: Final = 16
"""Requests of a client that is gone which still go on, of those that want an answer; the rest is dropped. A broker stops at the
first answer that it cannot deliver; ordinary clients have five requests under way."""
BUSY: Final = 0.1
"""Seconds for which a connection counts as busy after it needed more than a turn: what it reads then waits for its next turn where
connections have already taken what is theirs in this pass of the event loop, so that those with little to do are not behind it."""
SHORTEST_ALIKE: Final = 16
"""Bytes of a request that is looked at together with others: no other is as short."""
_BEFORE_LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
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


class Current:
    """A request whose handling takes time: what it counts against, who handles it, and what that waits for; None while it does
    not wait, or only for the next turn of its connection. It came at `since`, and quotas held it for `held` seconds."""

    __slots__ = ("handling", "held", "large", "pause", "paused", "pieces", "rates", "request", "since")

    def __init__(self, request: Request, rates: tuple[Metered, ...], handling: Handling, since: float) -> None:
        self.request, self.rates, self.handling = request, rates, handling
        self.since, self.held = since, 0.0
        self.pause: Pause = None
        self.paused = since
        self.large = request.size > LARGE
        """It is handled in several turns of its connection; a smaller one in one."""
        self.pieces = request.frame_pieces()
        """the request as it came; a handler may join them to read it"""

    def reason(self, held_until: float, now: float) -> State:
        """Why its handling does not go on now; `OPEN` if it does."""
        pause = self.pause
        if isinstance(pause, Hold):
            return State.HELD if now < held_until else State.OPEN
        if isinstance(pause, Ask):
            return State.ASKING if pause.question.waits and not pause.question.done else State.OPEN
        return State.ASKING if pause is not None and not pause.pending.done else State.OPEN


class Session:
    """One client connection and its connection to a broker. `born`: when the client came."""

    __slots__ = (
        "_alike_handlers",
        "_answers",
        "_born",
        "_busy_until",
        "_charged",
        "_clogged",
        "_current",
        "_cutter",
        "_draining",
        "_ended",
        "_expired",
        "_gone",
        "_handlers",
        "_held_until",
        "_last",
        "_lifetime",
        "_mark",
        "_marked",
        "_most_in_flight",
        "_muted_until",
        "_out",
        "_over",
        "_partial",
        "_partial_since",
        "_payer",
        "_starved",
        "_strange_requests",
        "_unanswerable",
        "client",
        "port",
        "services",
        "state",
    )

    def __init__(self, services: Services, handlers: Handlers, port: Port, peer: Peer, born: float = 0.0) -> None:
        self.services = services
        self.port = port
        self.client = Client(services, peer)
        self.state = State.NEW
        self._handlers, self._alike_handlers = handlers, handlers.alike
        self._out = Outgoing(port.to_broker)
        self._answers = Answers(port.to_client, services.budget, port.turn_over)
        self._cutter = FrameCutter(min(services.bounds.max_frame, MAX_FRAME))
        self._most_in_flight = services.bounds.max_in_flight
        self._strange_requests = 0  # requests before it was let in
        self._held_until = self._muted_until = -inf
        self._current: Current | None = None  # the request that is handled, where that takes time
        self._clogged = False  # the client does not take its answers
        self._over = False  # its turn is over before all is looked at
        self._busy_until = -inf  # it needed more than a turn lately
        self._ended = False  # the client sends nothing more, or nothing more is read
        self._gone = False  # the client takes nothing more
        self._unanswerable = 0  # requests that went on all the same, and that want an answer
        self._draining = False  # the proxy stops, or the connection is too old
        self._expired = False  # the connection has reached its age, and ends between two requests
        self._lifetime = peer.lifetime  # its share of `max_connection_age`
        self._payer = STRANGERS  # whose memory is charged
        self._charged = 0  # bytes of it that are this session's
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
        return not (len(self._answers) or self._waiting or self._cutter.waiting)

    @property
    def _waiting(self) -> bool:
        """True if requests were read that did not go on yet."""
        return self._current is not None or bool(self._cutter.unread)

    @property
    def waits_for(self) -> int | State:
        """What keeps it from its end: the API whose answer is due next, else why no request is looked at."""
        due = self._answers.due_next
        return self.state if due is None else due

    @property
    def payer(self) -> str:
        """The principal whose memory this connection takes; `STRANGERS` before it is let in."""
        return self.client.user if self.client.let_in else STRANGERS

    # ------------------------------------------------------------------ what happens

    def client_bytes(self, data: Buffer, now: float) -> None:
        """Bytes came from the client."""
        if self.state is State.CLOSED:
            return
        self._last = now
        self._cutter.feed(data)
        if self.state is State.NEW:
            if self.client.too_many:
                self._close_over("max_connections_per_principal")
            else:
                self._block(State.CONNECTING)
                self.port.connect()
        elif self.state is State.LAST:
            self._look_at_one(now)
        elif self._paused:
            self._account()
        elif now < self._busy_until and self.port.turn_over():
            self._yield(now)
            self._account()
        else:
            self._look(now)

    def client_ended(self) -> None:
        """The client sends nothing more, but may still read."""
        if self.state is not State.CLOSED:
            self._ended = True
            self._finish()

    def client_lost(self) -> None:
        """The client's connection is no more. What it sent before is still passed on, unanswered."""
        if self.state is not State.CLOSED:
            self._ended = self._gone = True
            self._answers.discard()
            self._clogged = False
            if not self._waiting:
                self._close()
            elif self.state is State.OPEN and not self._over:
                self._yield(self._last)

    def client_full(self) -> None:
        """The client does not take what was written to it: it gets no further answers, and sends no further requests."""
        self._clogged = True
        self.slow_side()

    def client_drained(self, now: float) -> None:
        """The client takes again what is written to it."""
        self._clogged = False
        self._answers.not_read_until(now)
        if not self._paused:
            self._go_on_looking(now)

    def broker_connected(self, now: float) -> None:
        """The connection to the broker is up."""
        if self.state is State.CONNECTING:
            self._come_in_if_open(now)
            self._resume(now)

    def broker_bytes(self, data: Buffer, now: float) -> None:
        """Bytes came from the broker."""
        if self.state is State.CLOSED:
            return
        self._last = self.client.now = self._answers.now = now
        try:
            if self._answers.tokens is not None:
                self._answers.feed_tokens(data)
            elif now < self._busy_until and self.port.turn_over():
                self._answers.keep(data)
            else:
                self._answers.feed(data)
        except BadBytes as e:
            self.broker_lost(f"its answer cannot be understood: {e}")
            return
        if self._answers.unread:
            self.port.stop_broker()
            self._yield(now)
        self._answered(now)

    def turn(self, now: float) -> None:
        """It is this connection's turn again, after `Port.next_turn`."""
        if self.state is State.CLOSED:
            return
        self._over = False
        self.client.now = self._answers.now = now
        if self._answers.unread:
            self._go_on_answering(now)
        if self._current is not None and self.state is State.ASKING and not self._over:
            self._resume(now)
        elif not self._paused:
            self._go_on_looking(now)

    def _go_on_answering(self, now: float) -> None:
        try:
            self._answers.go_on()
        except BadBytes as e:
            self.broker_lost(f"its answer cannot be understood: {e}")
            return
        if self._answers.unread:
            self._yield(now)
        elif not self._starved:
            self.port.resume_broker()
        self._answered(now)

    def _answered(self, now: float) -> None:
        """Answers went out."""
        if self._answers.released:
            self._go_on(now)
        if self.state is State.FULL and len(self._answers) < self._most_in_flight - self._most_in_flight // 4:
            self._resume(now)
        if self._charged or self._answers.holding or self._answers.unread:
            self._account()
        if self._expired and self.idle:
            self._retire()
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
        current = self._current
        if self.state is State.ASKING and current is not None and isinstance(current.pause, Ask):
            current.pause.question.give_up()
            self._resume(now)
        elif self.state in (State.MUTED, State.HELD):
            self._resume(now)

    def memory_free(self) -> None:
        """There is room again for what this session reads."""
        if self._starved and self.state is not State.CLOSED:
            self._starved = False
            if not self._answers.unread:
                self.port.resume_broker()
            if (self.state is State.LAST or not self._paused) and not self._ended:
                self.port.resume_reading()

    def check(self, now: float) -> None:
        """Close the connection if it is overdue; to be called about every second."""
        if self.state is State.CLOSED:
            return
        bounds = self.services.bounds
        self._most_in_flight = bounds.max_in_flight
        self._bound_frames()
        limit = self._overdue(bounds, now)
        if limit is not None:
            self._close_over(limit)
        elif self._hoards(now):
            self._close_over("memory_total")
        else:
            self._expire(bounds.max_connection_age * self._lifetime, now)

    def slow_side(self) -> None:
        """One side does not take what was written to it; the other is read no more for now."""
        if self.state is not State.CLOSED:
            self._limited("memory_per_connection", closed=False)

    def refuse(self, reason: str) -> None:
        """This client may not come in."""
        self.services.watcher.client_failed(self.client.address, None, reason)
        self._close()

    def end(self) -> None:
        """The end at once, as its place is wanted: nothing of what it sent goes on."""
        if self.state is not State.CLOSED:
            self._close()

    def left(self) -> None:
        """The connection has ended: nothing more is sent or read."""
        self.port, self._out.to = GONE, nowhere
        self._answers.discard()

    def drain(self) -> None:
        """The proxy stops: the end, once what was read is answered. Read on is only what is missing of a request that has
        begun, so that a client that always sends more does not keep its connection."""
        if self._ended or self._draining or self.state is State.CLOSED:
            return
        self._draining = True
        if self._waiting:
            return  # what was read comes first, and what is missing of a request may be in it; `_go_on_looking` reads the last
        if self.state in (State.NEW, State.OPEN) or (self.state is State.MUTED and not self._cutter.waiting):
            self._read_the_last()

    @property
    def draining(self) -> bool:
        """True if it ends as soon as what was read is answered."""
        return self._draining

    # ------------------------------------------------------------------ limits

    def _expire(self, age: float, now: float) -> None:
        """End a connection of this age or more: as soon as nothing is under way, which most clients do not even notice. One that
        is never without a request ends as when the proxy stops: no further request is read."""
        self._expired = now - self._born >= age
        if self._expired and (self.idle or now - self._born >= age + EXPIRING):
            self._retire()

    def _retire(self) -> None:
        if not self._draining:
            self._limited("max_connection_age", closed=True)
            self.drain()

    def _overdue(self, bounds: Bounds, now: float) -> str | None:
        """The timeout that is over, by its setting's name."""
        silent = not (self.client.raw_client_id and self.client.arrived)
        if silent and now - self._born > bounds.first_request_timeout and self.state is not State.CONNECTING:
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
        """Does it hold memory for which others of its principal wait, and get no further? Passing the turn on without giving the
        memory back would let each of many hold as much as a request may have."""
        budget, held = self.services.budget, self._charged
        if held <= budget.small or self._starved or not budget.others_wait(self._payer) or not 0 <= held - self._mark < PROGRESS:
            self._mark, self._marked = held, now
            return False
        return now - self._marked > STALLED

    def _account(self) -> None:
        """Charge what is held for this connection, and stop reading if that is too much for all of them."""
        if self.state is State.CLOSED:
            return
        budget = self.services.budget
        held = self._cutter.gathered + self._cutter.unread + self._answers.held
        if self._current is not None:
            held += self._current.request.size
        if self._payer != self.payer:
            self._pay_no_more()
            self._payer = self.payer
        if held != self._charged:
            budget.charge(self._payer, held - self._charged)
            self._charged = held
        if not held:
            budget.finished(self, self._payer)
            self.memory_free()  # what it waited for was looked at
        elif self._starved or (held > budget.small and budget.has_to_wait(self, self._payer)):
            if not self._starved:
                self._starved = True
                self._limited("memory_total", closed=False)
                self.port.stop_reading()
            if self._answers.holding:
                self.port.stop_broker()

    def _pay_no_more(self) -> None:
        """Give back the charge for held bytes for now."""
        self.services.budget.charge(self._payer, -self._charged)
        self._charged = 0
        self.services.budget.finished(self, self._payer)

    def _limited(self, limit: str, *, closed: bool) -> None:
        client = self.client
        self.services.watcher.limited(limit, client.address, client.client_id, client.principal, closed=closed)

    def _close_over(self, limit: str) -> None:
        self._limited(limit, closed=True)
        self._close()

    # ------------------------------------------------------------------ requests

    def _look(self, now: float) -> None:
        """Look at what was read, until nothing is left that is whole, or something blocks it."""
        try:
            if self.client.tokens:
                self._tokens()
            if not self.client.tokens:
                self._requests(now)
        except BadBytes as e:
            self._fail(e)
        else:
            if self._charged or self._cutter.in_pieces or self._waiting or self._answers.held:
                self._account()

    def _fail(self, error: BadBytes) -> None:
        """The client sent what cannot be understood: the end."""
        self.services.watcher.client_failed(self.client.address, self.client.client_id, str(error))
        self._close()

    def _requests(self, now: float) -> None:
        cutter = self._cutter
        looked = 0
        if self._current is not None:
            self._go_on_handling(self._current, now)
        try:
            while cutter.unread and (self.state is State.OPEN or (self.state is State.LAST and not looked)) and not self._clogged:
                if looked >= AT_ONCE:
                    looked = 0
                    if cutter.unread and self.port.turn_over():
                        self._yield(now)
                        break
                if self._unanswerable >= LAST:
                    self._out.send()
                    self._close()
                    break
                if (run := self._alike(now)) is not None:
                    looked += 1 + run.count // AT_ONCE
                    self._out.part(run.data, run.start, run.stop)
                elif (frame := cutter.next()) is not None:
                    looked += 1
                    self._look_at(frame, now)
                else:
                    break
        finally:  # what came before a request that is bad still goes on
            self._out.send()

    def _look_at(self, frame: Frame, now: float) -> None:
        """What becomes of one request, done."""
        decided = self._judge(frame, now)
        read, start, end, chunks = frame
        if isinstance(decided, Forward) and decided.pieces is None:
            if chunks is None:
                self._out.part(read, start, end)
            else:
                self._out.add(chunks)
            return
        self._out.send()
        if isinstance(decided, Forward):
            self._send_instead(decided)
        elif self._current is not None:
            self._go_on_handling(self._current, now)

    def _send_instead(self, forward: Forward) -> None:
        if forward.pieces:
            self.port.to_broker(forward.pieces)
        if forward.close:
            self._close()

    def _come_in_if_open(self, now: float) -> None:
        """Let the connection in if the cluster wants no logins."""
        if not self.client.let_in and self.services.admission.is_open(now):
            self.client.come_in()
            self._bound_frames()
            self._muted_until = max(self._muted_until, now + self.client.charge_connection(now))

    def _bound_frames(self) -> None:
        limit = self.services.bounds.max_frame
        self._cutter.max_frame = limit if self.client.let_in else min(limit, MAX_FRAME)

    def _may_not_come_in(self, key: int, correlation_id: int) -> Ask | None:
        """Before the connection is let in: what the proxy asks the broker to see whether it serves this connection; None for a
        request of a login, which goes on as it is."""
        self._strange_requests += 1
        if self._strange_requests > MAX_REQUESTS:
            raise BadBytes(f"more than {MAX_REQUESTS} requests before a login")
        return None if key in _BEFORE_LOGIN else knock(self.client, correlation_id)

    def _alike(self, now: float) -> Run | None:
        """Requests that are next in the read, like each other and within every limit: they are counted, and their answers expected.
        None where the next request has to be looked at by itself."""
        client = self.client
        if not client.let_in or self._gone or self.state is not State.OPEN:
            return None
        cutter = self._cutter
        if not cutter.in_read():
            return None
        data, start = cutter.data, cutter.pos
        if len(data) - start < SHORTEST_ALIKE:
            return None
        key, answers = int16(data, start + 4), self._answers
        alike = self._alike_handlers.get(key)
        if alike is None:
            return None
        client.now = now
        most = self._most_in_flight - len(answers)
        run = alike.run(client, data, start, most, cutter.max_frame + 4)
        if run is None:
            return None
        rates, count = self._rates(key, now), float(run.count)
        for rate in rates:
            if not rate.has_room(count, now):
                return None
        forward = alike.take(client, run)
        if forward is None:
            return None
        for rate in rates:
            rate.take(count, now)
        if self.services.engine.would:
            client.would_have(key, run.version)
        counted_in = client.api_sum(key)
        counted_in.requests += run.count
        counted_in.request_bytes += run.stop - start
        cutter.skip(run.stop)
        if forward.reply:
            times = client.times(key)
            self._await(answers.expect(run.correlation_id, counted_in, forward.plan, run.count, run.shape, now, times))
        return run

    def _judge(self, frame: Frame, now: float) -> Decided | None:
        """What becomes of one whole request; it is counted, and expected to be answered. None where that takes time: then it is
        `_current`."""
        buf, start, end, chunks = frame
        key, version, correlation_id = int16(buf, start + 4), int16(buf, start + 6), int32(buf, start + 8)
        client = self.client
        client.now = now
        claimed = client.raw_client_id
        stop = start + CLIENT_ID_AT + len(claimed)
        if stop > end or buf[start + CLIENT_ID_AT : stop] != claimed or not claimed:
            stop = client_id_end(buf, start, end)
            client.claim(bytes(buf[start + CLIENT_ID_AT : stop]))
        if not client.let_in and (question := self._may_not_come_in(key, correlation_id)) is not None:
            request = Request(key, version, correlation_id, frame, stop)
            self._current = Current(request, (), self._after(question, request), now)
            return None
        rates = self._rates(key, now)
        if rates and (seconds := self._rates_hold(rates, key, version, now)):
            request = Request(key, version, correlation_id, frame, stop)
            self._current = Current(request, rates, self._after(Hold(seconds), request), now)
            return None
        decided = self._handle(key, version, correlation_id, frame, stop)
        if isinstance(decided, (Forward, Answer)):
            return self._decide(
                decided, key, version, correlation_id, end - start if chunks is None else size_of(frame), rates, now
            )
        self._current = Current(Request(key, version, correlation_id, frame, stop), rates, decided, now)
        return None

    def _after(self, pause: Ask | Hold, request: Request) -> Handling:
        """A request that has to wait before its handler sees it: until the connection is let in, and while an entity of its
        rates is muted on another connection."""
        client, key, version = self.client, request.key, request.version
        while isinstance(pause, Ask):
            yield pause
            question = None if client.let_in else self._may_not_come_in(key, request.correlation_id)
            if question is not None:
                pause = question
                continue
            rates = self._rates(key, client.now)
            if self._current is not None:
                self._current.rates = rates
            pause = Hold(self._rates_hold(rates, key, version, client.now))
        if pause.seconds:
            yield pause
        frame = request.buf, request.start, request.end, request.chunks
        decided = self._handle(key, version, request.correlation_id, frame, request.header_stop)
        return decided if isinstance(decided, (Forward, Answer)) else (yield from decided)

    def _go_on_handling(self, current: Current, now: float) -> None:
        """On with the request that takes time: until it waits for something, the turn is over, or it is clear what becomes of
        it. What came before it has gone on."""
        self.client.now = now
        if isinstance(current.pause, Wait) and current.pause.quota:
            current.held += now - current.paused
        current.pause, current.paused = None, now
        try:
            while (pause := next(current.handling)) is None or (isinstance(pause, Wait) and pause.pending.done):
                if current.large and self.port.turn_over():
                    self._block(State.ASKING)
                    self._yield(now)
                    return
        except StopIteration as end:
            decided: Decided = end.value
        else:
            current.pause = pause
            self._wait(pause, now)
            return
        self._current, request = None, current.request
        waited = self.client.now - current.since - current.held
        self.services.latencies.of(self.client.broker, request.key, Part.PROXY).add(waited)
        decided = self._decide(
            decided, request.key, request.version, request.correlation_id, request.size, current.rates, self.client.now
        )
        if not isinstance(decided, Forward):
            return
        if decided.pieces is not None:
            self._send_instead(decided)
        else:
            self.port.to_broker(current.pieces)

    def _wait(self, pause: Hold | Ask | Wait, now: float) -> None:
        """Begin to wait for something. The answer to a question of the proxy is counted nowhere, as no client asked for it."""
        if self._current is not None:
            self._current.paused = now
        if isinstance(pause, Hold):
            if self._current is not None:
                self._current.held += pause.seconds
            self._held_until = now + pause.seconds
            self._block(State.HELD)
            self.port.wake_at(self._held_until)
            return
        self._block(State.ASKING)
        if isinstance(pause, Ask):
            self._answers.expect(pause.correlation_id, Sum(_OWN), pause.question)
            self.port.to_broker([pause.frame])
            self.port.wake_at(now + self.services.bounds.ask_timeout)
        else:
            pause.pending.tell(self._done_elsewhere)

    def _done_elsewhere(self, now: float) -> None:
        """What `Wait` waits for is done. Where a quota had it wait, another connection is at work, or this one."""
        current = self._current
        if current is not None and isinstance(current.pause, Wait) and current.pause.quota:
            if not self._over:
                self._over = True
                self.port.next_turn()
        elif self.state is State.ASKING:
            self._resume(now)

    def _decide(
        self,
        decided: Decided,
        key: int,
        version: int,
        correlation_id: int,
        size: int,
        rates: tuple[Metered, ...],
        now: float,
    ) -> Decided:
        """It is clear what becomes of a request of this size: count it, and expect its answer."""
        client = self.client
        throttle = 0.0
        for rate in rates:
            if not rate.take(1, now):
                throttle = max(throttle, client.charge_rate(rate, 1, key, version, now))
        if self.services.engine.would:
            client.would_have(key, version)
        counted_in = client.api_sum(key)
        counted_in.requests += 1
        counted_in.request_bytes += size
        if isinstance(decided, Forward):
            if throttle or decided.throttle:
                decided = self._throttled(decided, key, version, max(throttle, decided.throttle), now)
            self._expect(correlation_id, counted_in, decided, key, now)
            return decided
        if throttle > decided.mute:
            decided = Answer(b"".join(tell(key, version, [decided.frame], ceil(throttle * 1000))), throttle)
        self._answer(correlation_id, counted_in, decided, now)
        return decided

    def _expect(self, correlation_id: int, counted_in: Sum, forward: Forward, key: int, now: float) -> None:
        """A request goes on, and is answered by the broker if there is a reply."""
        self._unanswerable += self._gone and forward.reply
        if forward.reply:
            times = self.client.times(key)
            self._await(self._answers.expect(correlation_id, counted_in, forward.plan, 1, None, now, times, forward.passage))

    def _await(self, due: int) -> None:
        """An answer is expected, one of `due`: must requests behind it wait?"""
        if due >= self._most_in_flight:
            self._limited("max_in_flight", closed=False)
            self._block(State.FULL)
        if self._answers.awaited:
            self._block(State.AWAITING)

    def _rates(self, key: int, now: float) -> tuple[Metered, ...]:
        """The rates that a request counts against. A login is free, and so is the first question for versions."""
        client = self.client
        if not client.let_in:
            return ()
        if key == API_VERSIONS and not client.versions_told:
            client.versions_told = True
            return ()
        rules = client.rules(now)
        by_key = rules.requests
        return by_key[key] if 0 <= key < len(by_key) else rules.request

    def _rates_hold(self, rates: tuple[Metered, ...], key: int, version: int, now: float) -> float:
        """Seconds that a request waits as the entity of a rate is muted on another connection; 0 when it need not."""
        seconds = 0.0
        for rate in rates:
            if not rate.has_room(1, now):
                seconds = max(seconds, self.client.hold_rate(rate, key, version, now))
        return seconds

    def _throttled(self, outcome: Forward, key: int, version: int, throttle: float, now: float) -> Forward:
        """A request goes on whose client is throttled: told with the answer if there is one, else muted at once."""
        if outcome.reply:
            return replace(outcome, plan=Throttled(outcome.plan, key, version, self.client, now + throttle))
        self._mute(now + throttle)
        return outcome

    def _handle(self, key: int, version: int, correlation_id: int, frame: Frame, stop: int) -> Decided | Handling:
        """What the handler of its API says; a request of an API without one goes on."""
        handler = self._handlers.get(key)
        if handler is None:
            return FORWARD
        alike = self._alike_handlers.get(key)
        low, high = handler.versions
        if not low <= version <= high:
            raise BadBytes(f"version {version} of API {key}; the proxy understands {low} to {high}, and says so in ApiVersions")
        if alike is not None and (run := alike.one(self.client, version, frame)) is not None:
            forward = alike.take(self.client, run)
            if forward is not None:
                return forward
        return handler.request(self.client, Request(key, version, correlation_id, frame, stop))

    def _mute(self, until: float) -> None:
        """Look at no further request before that time."""
        self._muted_until = max(self._muted_until, until)
        self._block(State.MUTED)
        self.port.wake_at(self._muted_until)

    def _answer(self, correlation_id: int, counted_in: Sum, answer: Answer, now: float) -> None:
        """The proxy answers itself, as soon as all earlier requests are answered."""
        self._answers.expect_own(correlation_id, counted_in, answer)
        if answer.waits:
            self._block(State.AWAITING)
        self._answers.send_own()
        if self._answers.released:
            self._take_mute(now)
        if self.state is State.OPEN and len(self._answers) >= self._most_in_flight:
            self._limited("max_in_flight", closed=False)
            self._block(State.FULL)

    # ------------------------------------------------------------------ SASL tokens without headers

    def _tokens(self) -> None:
        """Tokens of a client whose handshake was of version 0. Where one is answered by one, each waits for its answer, so that
        nothing behind them is looked at before the user is known."""
        exchange, cutter = self.client.exchange, self._cutter
        assert exchange is not None
        cutter.shortest = 0
        self._answers.tokens = self._token_answered
        while self.client.tokens and self.state is State.OPEN and (found := cutter.next()) is not None:
            buf, start, end, chunks = found
            frame = bytes(buf[start:end]) if chunks is None else b"".join(chunks)
            if not exchange.counted and len(frame) > SHORTEST_REQUEST + 4 and frame[4] == 0:
                cutter.put_back(found)  # no token of GSSAPI begins with a zero, and every request does
                self._no_more_tokens()
                return
            exchange.client_token(frame[4:])
            self.port.to_broker([frame])
            if exchange.counted:
                self._block(State.AWAITING)

    def _token_answered(self, token: bytes) -> None:
        """The broker answered a token."""
        client = self.client
        assert client.exchange is not None
        client.exchange_answered(client.exchange, 0, token)
        self._answers.released = client.exchange.counted
        if client.exchange.over:
            self._no_more_tokens()

    def _no_more_tokens(self) -> None:
        self.client.tokens = False
        self._cutter.shortest = SHORTEST_REQUEST
        self._answers.tokens = None

    # ------------------------------------------------------------------ states

    def _take_mute(self, now: float) -> None:
        """An answer is out that the requests behind it waited for, or that mutes its client (KIP-219)."""
        mute, self._answers.mute, self._answers.released = self._answers.mute, 0.0, False
        if self.client.too_many:
            self._close_over("max_connections_per_principal")
            return
        mute = max(mute, self.client.charge_connection(now))
        if mute:
            self._mute(now + mute)

    def _go_on(self, now: float) -> None:
        """The same, and on with the requests behind it, unless the client is muted."""
        self._take_mute(now)
        if self.state is not State.CLOSED:
            self._bound_frames()
            self._resume(now)

    def _reason(self, now: float) -> State:
        """Why no request is looked at now; `OPEN` if there is no reason."""
        if now < self._muted_until:
            return State.MUTED
        if self._answers.awaited:
            return State.AWAITING
        if self._current is not None and (reason := self._current.reason(self._held_until, now)) is not State.OPEN:
            return reason
        return State.FULL if len(self._answers) >= self._most_in_flight else State.OPEN

    @property
    def _paused(self) -> bool:
        """True if no request is looked at now, for whatever reason."""
        return self.state is not State.OPEN or self._over or self._clogged

    def _block(self, state: State) -> None:
        self.state = state
        self.port.stop_reading()

    def _yield(self, now: float) -> None:
        """The turn is over, and there is more to look at."""
        self._busy_until = now + BUSY
        if not self._over:
            self._over = True
            self.port.stop_reading()
            self.port.next_turn()

    def _resume(self, now: float) -> None:
        """A reason to be blocked has ended: go on unless there is another one."""
        reason = self._reason(now)
        if reason is not State.OPEN:
            self._block(reason)
            if reason is State.MUTED or reason is State.HELD:
                self.port.wake_at(self._muted_until if reason is State.MUTED else self._held_until)
            return
        self.state = State.OPEN
        if not self._paused:
            self._go_on_looking(now)

    def _go_on_looking(self, now: float) -> None:
        """Look at what was read while it was blocked, then read on."""
        if self._waiting:
            self._look(now)
        if self._paused:
            return
        if self._ended:
            self._finish()
        elif self._draining:
            self._read_the_last()
        elif not self._starved:
            self.port.resume_reading()

    def _finish(self) -> None:
        """The client sends nothing more: the end, once all it sent is passed on and answered. Half a request is no request."""
        done = self.state in (State.NEW, State.OPEN, State.MUTED, State.LAST)
        if done and not self._waiting and not len(self._answers):
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

    def _look_at_one(self, now: float) -> None:
        """The last request goes on; the client will ask another proxy for what it sent behind it."""
        self._look(now)
        self._cutter.forget()
        if self.state is State.LAST and not self._cutter.waiting:
            self.state = State.OPEN
            self._read_the_last()

    def _close(self) -> None:
        self.state = State.CLOSED
        self._cutter.forget()
        current, self._current = self._current, None
        if current is not None:
            current.handling.close()
        self._answers.give_up(self._last)
        self._pay_no_more()
        self.client.forget()
        self.port.close()
