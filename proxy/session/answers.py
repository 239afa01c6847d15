"""The in-flight queue: answers of the broker matched with the requests they belong to, and answers of the proxy in their turn.

In: requests as they go out, and what the broker sends. Out: what the client gets, in the order of its requests, and how
long it is then to be muted. Responses without a plan are passed on in the buffers they came in, parts of
them too. When the turn of the connection is over, what was read and not yet looked at waits here for the next turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from proxy.session.budget import Budget
from proxy.session.held_answers import Answer, Question
from proxy.session.outgoing import Outgoing, Send, nowhere
from proxy.session.plans import UNREAD, Plan, Stream, frequent
from proxy.session.tally import Sum
from proxy.wire.primitives import INT32, BadBytes, Buffer, as_bytes, int32
from proxy.wire.runs import Shape
from quota.in_flight import Passage
from quota.windows.durations import Durations

MAX_TOKEN: Final = 1 << 20
"""The largest SASL token without a header."""

AT_ONCE: Final = 8
"""Answers that are changed or read before it is seen whether the turn of the connection is over; a large one counts as several."""
BYTES: Final = 256
"""Bytes of an answer for which it counts as one more."""
MANY: Final = 4096
"""The same of answers that are like earlier ones, and of which little is looked at."""


class Due:
    """The answers to some requests, whose correlation ids follow each other: `count` more, the next to `correlation_id`. They went
    on at `when`, and their times are counted in `times`. `passage` ends with the answer. `own`: the answer of the proxy itself,
    None where the broker answers. `frequent`: the plan if it is called directly; `waits`: did the plan when they went on?
    `behind`: what is expected next; no deque, which compiled code calls by look-ups."""

    # fmt: off
    __slots__ = (
        "behind", "correlation_id", "count", "counted_in", "frequent", "own", "passage", "plan", "shape", "times", "waits", "when",
    )
    # fmt: on

    def __init__(
        self,
        correlation_id: int,
        counted_in: Sum,
        plan: Plan | None,
        count: int,
        shape: Shape | None,
        when: float,
        times: Durations | None,
        own: Answer | None = None,
        passage: Passage | None = None,
    ) -> None:
        self.correlation_id, self.counted_in, self.plan, self.own = correlation_id, counted_in, plan, own
        self.count, self.shape = count, shape
        self.behind: Due | None = None
        direct = self.frequent = frequent(plan)
        self.waits: bool = direct.waits if direct is not None else plan is not None and plan.waits
        self.when, self.times, self.passage = when, times, passage


class Answers:
    """The answers that one client waits for."""

    __slots__ = (
        "_answered",
        "_budget",
        "_chunks",
        "_due",
        "_first",
        "_last",
        "_left",
        "_out",
        "_own",
        "_plan",
        "_reads",
        "_sent",
        "_short",
        "_stream",
        "_turn_over",
        "_work",
        "_worked_at",
        "_working",
        "awaited",
        "mute",
        "now",
        "released",
        "tokens",
    )

    def __init__(self, to_client: Send, budget: Budget, turn_over: Callable[[], bool]) -> None:
        self._out = Outgoing(to_client)  # at the end of each read
        self._budget = budget
        self._turn_over = turn_over
        self._reads: deque[tuple[bytes, int]] = deque()  # what the broker sent, and how much of it was looked at
        self._own = 0  # bytes of the proxy's own answers in the queue
        self._first: Due | None = None  # whose answers are due next
        self._last: Due | None = None
        self._due = 0  # answers that are due in all
        self._sent = 0  # up to where the read that is looked at was passed on
        self._short = b""  # the first bytes of a response, fewer than say whose it is
        self._left = 0  # bytes to come of a response that has begun
        self._plan: Plan | None = None
        self._chunks: list[Buffer] = []  # of a response that is held
        self._stream: Stream | None = None  # of one that is looked at on its way
        self._work: Generator[None, None, list[Buffer]] | None = None  # what goes on with a response in several turns
        self._working: Plan | None = None  # whose work it is
        self._worked_at = 0  # bytes of this response
        self._answered = 0.0  # when the broker was free for the next request
        self.now = 0.0
        """When what is looked at was read; the session sets it."""
        self.awaited = 0
        """Answers before which no further request is looked at."""
        self.mute = 0.0
        """Seconds of the longest mute among the answers that went out; the session takes it and sets it back."""
        self.released = False
        """An answer went out that requests wait for; the session sets it back."""
        self.tokens: Callable[[bytes], None] | None = None
        """Told of every SASL token that comes without a header; None when answers have headers."""

    def __len__(self) -> int:
        return self._due + bool(self._left) + (self._work is not None)

    @property
    def due_next(self) -> int | None:
        """The API of the answer that is due next; None where none is due, or one has begun."""
        return None if self._first is None else self._first.counted_in.key.api_key

    @property
    def held(self) -> int:
        """Bytes of a response that is held until it is whole, of answers of the proxy that wait for their turn, and of what was
        read and not looked at."""
        held = self._own + self._worked_at
        if self._chunks:
            held += sum(map(len, self._chunks))
        for data, pos in self._reads:
            held += len(data) - pos
        return held

    @property
    def unread(self) -> bool:
        """True if something that was read was not looked at, as the turn was over."""
        return bool(self._reads) or self._work is not None

    @property
    def holding(self) -> bool:
        """Is a response held until it is whole?"""
        return bool(self._chunks)

    def expect(
        self,
        correlation_id: int,
        counted_in: Sum,
        plan: Plan | None,
        count: int = 1,
        shape: Shape | None = None,
        when: float = 0.0,
        times: Durations | None = None,
        passage: Passage | None = None,
    ) -> int:
        """Requests went out at `when`; how many answers are outstanding. `times` counts how long the broker takes."""
        due = Due(correlation_id, counted_in, plan, count, shape, when, times, None, passage)
        self._append(due)
        if due.waits:
            due.shape = None  # each answer is looked at
            self.awaited += not isinstance(plan, Question)
        return self._due

    def expect_own(self, correlation_id: int, counted_in: Sum, answer: Answer) -> None:
        """A request is answered by the proxy, behind the answers to earlier ones."""
        self._append(Due(correlation_id, counted_in, answer, 1, None, 0.0, None, answer))
        self.awaited += answer.waits
        self._own += len(answer.frame)

    def _append(self, due: Due) -> None:
        if self._last is None:
            self._first = due
        else:
            self._last.behind = due
        self._last = due
        self._due += due.count

    def _next(self, due: Due) -> None:
        """Nothing more is due of the first of them, which is this."""
        self._first = due.behind
        if due.behind is None:
            self._last = None

    def discard(self) -> None:
        """Drop all further answers, as the client has gone."""
        self._out.to, self._turn_over = nowhere, _never

    def give_up(self, now: float) -> None:
        """No further answer comes."""
        due = self._first
        while due is not None:
            if due.passage is not None:
                due.passage.end(now)
            due = due.behind

    def send_own(self) -> None:
        """Send the proxy's own answers that are next in turn."""
        self._send_own()
        self._out.send()

    def _send_own(self) -> None:
        while (due := self._first) is not None and not self._left and self._work is None and (answer := due.own) is not None:
            self._next(due)
            self._due -= 1
            due.counted_in.response_bytes += len(answer.frame)
            self._own -= len(answer.frame)
            self._out.add([answer.frame])
            self._done(answer)

    def feed(self, data: Buffer) -> None:
        """The broker sent this. `BadBytes` when it is not an answer to what was asked."""
        read = as_bytes(data)
        if self._reads or self._work is not None:
            self._reads.append((read, 0))
            return
        try:
            self._look(read, 0)
        finally:  # what came before a response that is bad still goes on
            self._out.send()

    def keep(self, data: Buffer) -> None:
        """The same, to be looked at in the next turn."""
        self._reads.append((as_bytes(data), 0))

    def go_on(self) -> None:
        """Another turn: look at what was read before. `BadBytes` as in `feed`."""
        try:
            if self._work is not None and not self._advance(self._work):
                return
            while self._reads:
                data, pos = self._reads.popleft()
                if not self._look(data, pos):
                    return
        finally:
            self._out.send()

    def _look(self, data: bytes, pos: int) -> bool:
        """Look at a read from `pos` on; False if the turn was over before its end."""
        if self._short:
            data, self._short = self._short + data, b""
        if self._left:
            pos = self._continue(data, len(data))
            if self._work is not None:
                if pos < len(data):
                    self._reads.appendleft((data, pos))
                return False
        return self._responses(data, pos)

    def _responses(self, data: bytes, pos: int) -> bool:
        """The same from the start of a response on."""
        size = len(data)
        self._sent = pos
        looked = 0
        try:
            while size - pos >= 8:
                due = self._first
                if due is None:
                    raise BadBytes("a response that was not asked for")
                shape = due.shape
                alike = 0 if shape is None else shape.answers(data, pos, due.correlation_id, due.count)
                if shape is not None and alike:
                    self._alike(due, shape, alike)
                    looked += 1 + alike // MANY
                    pos += alike
                else:
                    end = pos + self._size(due, data, pos)
                    if end > size:
                        self._begin(due.plan, data, pos, end)
                        return True
                    plan, direct = due.plan, due.frequent
                    if plan is not None:
                        if direct.in_steps(end - pos) if direct is not None else plan.in_steps(end - pos):
                            self._start_in(plan, data, pos, end)
                            return False
                        self._finish(due, plan, data, pos, end)
                        looked += 1 + (end - pos) // BYTES
                    pos = end
                if self._first is not None and self._first.own is not None:
                    self._out.part(data, self._sent, pos)
                    self._sent = pos
                    self._send_own()
                if looked >= AT_ONCE and pos < size and self._turn_over():
                    self._reads.appendleft((data, pos))
                    return False
        finally:  # what came before a response that is bad still goes on
            self._out.part(data, self._sent, min(pos, size))
        if pos < size:
            self._short = bytes(memoryview(data)[pos:])
        return True

    def _size(self, due: Due, data: bytes, pos: int) -> int:
        """Bytes of the response at `pos`, which is that which is due."""
        length, correlation_id, expected = int32(data, pos), int32(data, pos + 4), due.correlation_id
        if correlation_id != expected or length < 4:
            raise BadBytes(f"a response of {length} bytes to request {correlation_id}, when that to {expected} was due")
        self._passed(due, 1)
        due.counted_in.response_bytes += 4 + length
        return 4 + length

    def _finish(self, due: Due, plan: Plan, data: bytes, pos: int, end: int) -> None:
        """The response at data[pos:end] is whole."""
        direct, shape = due.frequent, due.shape
        pieces = direct.finish(data, pos, end) if direct is not None else plan.finish(data, pos, end)
        if pieces is not None:
            self._out.part(data, self._sent, pos)
            self._sent = end
            self._out.add(pieces)  # none of an answer that the proxy asked for itself
        elif shape is not None:
            shape.learn(data, pos, end)
        if (pieces is not None or due.waits) and (plan.waits or plan.mute > 0):
            self._done(plan)

    def _alike(self, due: Due, shape: Shape, size: int) -> None:
        """Answers are like earlier ones: so many bytes of them."""
        count = size // shape.answer_size
        due.counted_in.response_bytes += size
        if due.frequent is not None:
            due.frequent.answered(count)
        self._passed(due, count)

    def not_read_until(self, now: float) -> None:
        """Answers were not read before, as the client did not take them: that is not the broker's time."""
        self._answered = now

    def _passed(self, due: Due, count: int) -> None:
        """The next answers are no longer due."""
        times = due.times
        if times is not None:
            times.add((self.now - max(due.when, self._answered)) / count, count)
            self._answered = self.now
        if due.passage is not None:
            due.passage.end(self.now)
        self._due -= count
        due.count -= count
        due.correlation_id += count
        if not due.count:
            self._next(due)

    def feed_tokens(self, data: Buffer) -> None:
        """The same while SASL tokens come without headers, each behind its length, until `tokens` is None."""
        rest, self._short = self._short + bytes(data), b""
        while self.tokens is not None:
            length = INT32.unpack_from(rest)[0] if len(rest) >= 4 else 0
            if not 0 <= length <= MAX_TOKEN:
                raise BadBytes(f"a SASL token of {length} bytes")
            if len(rest) < 4 + length:
                self._short = rest
                return
            token, rest = rest[: 4 + length], rest[4 + length :]
            self._out.to([token])
            self.tokens(token[4:])
        if rest:
            self.feed(rest)

    def _start_in(self, plan: Plan, data: bytes, pos: int, end: int) -> None:
        """Look at the response at data[pos:end] in several turns, and then at what is behind it."""
        self._out.part(data, self._sent, pos)
        self._sent = pos
        self._start(plan, data[pos:end])
        if end < len(data):
            self._reads.appendleft((data, end))

    def _start(self, plan: Plan, frame: bytes) -> None:
        """A whole response is looked at in several turns; the first of them is another one."""
        self._work, self._working, self._worked_at = plan.work(frame), plan, len(frame)

    def _advance(self, work: Generator[None, None, list[Buffer]]) -> bool:
        """Go on with a response; False if the turn was over before its end."""
        try:
            while True:
                next(work)
                if self._turn_over():
                    return False
        except StopIteration as end:
            pieces: list[Buffer] = end.value
        plan, self._work, self._working, self._worked_at = self._working, None, None, 0
        assert plan is not None
        self._out.add(pieces)
        self._done(plan)
        self._send_own()
        return True

    def _done(self, plan: Plan) -> None:
        """An answer is out that mutes its client, or that requests wait for."""
        if isinstance(plan, Question):
            plan.done = True
        elif plan.waits:
            self.awaited -= 1
        if plan.waits or plan.mute > 0:
            self.released = True
            self.mute = max(self.mute, plan.mute)

    def _begin(self, plan: Plan | None, data: bytes, pos: int, end: int) -> None:
        """A response that does not end in this read: hold it or start to pass it on."""
        size = len(data)
        self._left = end - size
        self._plan = plan
        pieces = None if plan is None else plan.begin(data, pos, end - pos)
        as_it_is = plan is None or (pieces is not None and not pieces)
        self._out.part(data, self._sent, size if as_it_is else pos)
        self._sent = size
        if plan is None:
            return
        if pieces is not None:
            self._stream = UNREAD
            self._out.add(pieces)
        elif plan.holds(end - pos):
            if end - pos > self._budget.total:
                raise BadBytes(f"it has {end - pos} bytes to be held, more than `limits.memory_total`")
            self._chunks.append(memoryview(data)[pos:])
        else:
            self._stream = plan.stream(end - pos)
            self._feed_stream(data, pos, size)

    def _continue(self, data: bytes, size: int) -> int:
        """More of a response that has begun; where the next one starts."""
        stop = min(self._left, size)
        self._left -= stop
        if self._stream is not None:
            self._feed_stream(data, 0, stop)
        elif self._plan is None:
            self._out.part(data, 0, stop)
        else:
            self._chunks.append(data if stop == size else memoryview(data)[:stop])
        if not self._left:
            self._end()
        return stop

    def _feed_stream(self, data: bytes, start: int, stop: int) -> None:
        assert self._stream is not None
        pieces = self._stream.feed(data, start, stop)
        if pieces is None:
            self._out.part(data, start, stop)
        else:
            self._out.add(pieces)

    def _end(self) -> None:
        plan, self._plan, self._stream = self._plan, None, None
        chunks, self._chunks = self._chunks, []
        if plan is not None:
            if plan.in_steps(sum(map(len, chunks))):
                self._start(plan, b"".join(chunks))
                return
            if chunks:
                self._out.add(plan.finish_chunks(chunks))
            self._done(plan)
        self._send_own()


def _never() -> bool:
    return False
