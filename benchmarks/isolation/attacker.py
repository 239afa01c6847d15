"""Who misbehaves: the tools that attacks are made of, and the process that they run in.

In: lines of JSON on standard input, `{"attack": NAME, "target": {…}, "threads": N}` and then `{"stop": true}`, again and again.
Out: a line of JSON for each attack, its tally. A process of its own, and one that others go before, so that an attack at full speed
slows the measurement down only through the system that it attacks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Final, Self

from benchmarks.isolation.tenants import login
from benchmarks.isolation.wire import Connection, WrongCorrelationId, dial
from loadtest.login import LoginFailed

SOURCE: Final = "127.0.0.2"
"""The address that attacks come from."""
MAX_REQUESTS: Final = 20_000
"""Requests that one thread of an attack sends at most, when nothing else is said."""
PAUSE: Final = 0.02
"""Seconds before a closed connection is opened again."""
NICE: Final = 10
"""The niceness of the attacker's process, so that the system under test goes first."""
SHOWN_WITHIN: Final = 30.0
"""Seconds beyond its time in which an attack has to have sent what it is about."""
PATIENCE: Final = 0.25
"""Seconds that an attack waits for one answer, or until one of its bytes is taken, before it looks whether it is over."""


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses of the proxy's listeners, of another proxy of the fleet if there is one; whom to log in as; a producer id near
    those that others just got; how many requests each thread sends at most."""

    main: str
    other: str
    balanced: str
    fleet: str | None
    user: str
    near_id: int
    max_requests: int = MAX_REQUESTS


@dataclass(slots=True)
class Tally:
    """What an attack did. `requests` and `bytes` were sent; `answers` came, `errors` of them with an error code; `closed`:
    connections that the other end closed, or did not take; `gained`: what it got of what is limited, for attacks that say what
    that is; `muted`: answers that told of a throttle time, for the same; `seconds`: how long the attack went."""

    connections: int = 0
    requests: int = 0
    bytes: int = 0
    answers: int = 0
    errors: int = 0
    closed: int = 0
    gained: int = 0
    muted: int = 0
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Attacker:
    """One thread of an attack. `number`: which one."""

    def __init__(self, target: Target, number: int, stop: threading.Event) -> None:
        self.target, self.number, self.tally = target, number, Tally()
        self._stop = stop
        self.failure = ""
        """what went wrong in the attack itself"""
        self._opened: list[Connection | socket.socket] = []

    def close(self) -> None:
        """All connections that are still open."""
        for each in self._opened:
            each.close()

    def going(self) -> bool:
        """Whether the attack goes on."""
        return not self._stop.is_set() and self.tally.requests < self.target.max_requests

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def connect(
        self, *, logged_in: bool = True, at: str | None = None, client_id: str = "mallory-app", user: str | None = None
    ) -> Connection:
        """`user`: as whom, if not as the one of the attack. Raises OSError, LoginFailed."""
        who = login(user or self.target.user) if logged_in else None
        found = Connection(at or self.target.main, client_id, who, SOURCE)
        found.sock.settimeout(PATIENCE)
        self._count(found)
        return found

    def sockets(self, count: int, *, at: str | None = None, source: str = SOURCE) -> list[socket.socket]:
        """Open this number of connections, or fewer if the attack is over. They stay open until then, unless the other end closes
        them."""
        found: list[socket.socket] = []
        while len(found) < count and self.going():
            try:
                found.append(dial(at or self.target.main, source))
                self._count(found[-1])
            except OSError:
                self.tally.closed += 1
                self.wait(PAUSE)
        return found

    def keep(self, sources: Sequence[str], first: bytes = b"", *, at: str | None = None) -> None:
        """A connection from each of these addresses, each of which sends this; another one in the place of each that is closed."""
        poll, by_number = select.poll(), {}
        wanted = list(sources)
        while self.going():
            while wanted and self.going():
                source = wanted.pop()
                for sock in self.sockets(1, at=at, source=source):
                    by_number[sock.fileno()] = (sock, source)
                    poll.register(sock, select.POLLIN)
                    with contextlib.suppress(OSError):
                        sock.sendall(first)
                        self.tally.requests += bool(first)
            for number, _ in poll.poll(10):
                poll.unregister(number)
                sock, source = by_number.pop(number)
                sock.close()
                wanted.append(source)
                self.tally.closed += 1

    @contextmanager
    def connected(self, **how: Any) -> Iterator[Connection]:
        """A connection for a while; that it ends is counted and no error."""
        try:
            with self.connect(**how) as connection:
                yield connection
        except TimeoutError:
            pass
        except (OSError, LoginFailed, WrongCorrelationId):
            self.tally.closed += 1
            self.wait(PAUSE)

    def ask(self, connection: Connection, what: tuple[int, int], /, **values: Any) -> Any:
        """The answer to a request, which is counted. Raises OSError."""
        self.tally.bytes += connection.send(what, **values)
        self.tally.requests += 1
        answer = connection.receive(what)
        self.tally.answers += 1
        self.tally.errors += has_error(answer)
        return answer

    def ask_again(self, what: tuple[int, int], values: Callable[[int], dict[str, Any]], *, pause: float = 0.0, **how: Any) -> None:
        """Requests one after the other, on a new connection whenever one ends. `values` of the request with this number."""
        number = 0
        while self.going():
            with self.connected(**how) as connection:
                while self.going():
                    number += 1
                    self.ask(connection, what, **values(number))
                    self.wait(pause)

    def pour(self, sock: socket.socket, data: bytes, limit: int = 1 << 30) -> None:
        """Send the same bytes again and again, whatever comes back, until the other end closes or `most` bytes were sent."""
        sock.settimeout(PATIENCE)
        view, at, sent = memoryview(data), 0, 0
        while self.going() and sent < limit:
            try:
                done = sock.send(view[at : at + (1 << 16)])
            except TimeoutError:
                continue
            except OSError:
                self.tally.closed += 1
                return
            at, sent = (at + done) % len(data), sent + done
            self.tally.bytes += done
        self.hold()

    def pipeline(self, sock: socket.socket, frame: bytes, at_once: int = 200) -> None:
        """Send the same request as fast as it is taken, and read what comes."""
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                try:
                    got = len(sock.recv(1 << 18))
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not got:
                    return
                self.tally.answers += 1

        sock.settimeout(PATIENCE)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        view, at, size = memoryview(frame * at_once), 0, len(frame)
        while self.going():
            try:
                at += sock.send(view[at:])
            except TimeoutError:
                continue
            except OSError:
                self.tally.closed += 1
                break
            if at == len(view):
                self.tally.requests += at_once
                self.tally.bytes += size * at_once
                at = 0
        ended.set()
        reader.join()

    def read_until_closed(self, sock: socket.socket) -> None:
        """Until the other end closes, or nothing comes for a while."""
        sock.settimeout(PATIENCE)
        try:
            while self.going():
                if not sock.recv(1 << 16):
                    self.tally.closed += 1
                    return
                self.tally.answers += 1
        except TimeoutError:
            return
        except OSError:
            self.tally.closed += 1

    def _count(self, opened: Connection | socket.socket) -> None:
        self.tally.connections += 1
        self._opened.append(opened)
        if len(self._opened) % 1000 == 0:
            self._opened = [each for each in self._opened if (each if isinstance(each, socket.socket) else each.sock).fileno() >= 0]

    def hold(self) -> None:
        """Do nothing any more until the attack ends, connections left as they are."""
        self._stop.wait()


def has_error(answer: Any) -> bool:
    """Whether an error code stands anywhere in a response."""
    if isinstance(answer, tuple):
        return any(has_error(item) for item in answer)
    names = getattr(answer, "__dataclass_fields__", ())
    for name in names:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            if value:
                return True
        elif (isinstance(value, tuple) or hasattr(value, "__dataclass_fields__")) and has_error(value):
            return True
    return False


class AttackProcess:
    """The process that attacks run in, as a context manager."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.isolation.attacker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def begin(self, attack: str, target: Target, threads: int | None = None) -> None:
        """`threads`: another number than the attack has."""
        self._tell({"attack": attack, "target": asdict(target), "threads": threads})

    def end(self) -> Tally:
        """What the attack did, once all of it is over. Raises RuntimeError if the attack itself is wrong."""
        self._tell({"stop": True})
        found = self._read()
        if found["failures"]:
            raise RuntimeError("\n".join(found["failures"]))
        return Tally(**found["tally"])

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the attacker ended")
        found: dict[str, Any] = json.loads(line)
        return found


def main() -> None:
    from benchmarks.isolation.attacks import BY_NAME

    _more_files()
    os.nice(NICE)
    print("{}", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        attack, target, stop = BY_NAME[told["attack"]], Target(**told["target"]), threading.Event()
        attackers = [Attacker(target, number, stop) for number in range(told["threads"] or attack.threads)]
        began = time.monotonic()
        run = partial(_run, attack.run, attack.shows, attackers)
        threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in attackers]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        _wait_until_it_was_one(attack.shows, attackers)
        stop.set()
        deadline = time.monotonic() + 5
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        total = Tally(seconds=time.monotonic() - began)
        for each in attackers:
            each.close()
            total.add(each.tally)
        failures = [each.failure for each in attackers if each.failure]
        print(json.dumps({"failures": failures, "tally": asdict(total)}), flush=True)


def _wait_until_it_was_one(shows: Sequence[str], attackers: Sequence[Attacker]) -> None:
    """On a busy machine an attack may not have begun when its time is over: it goes on until it shows, `SHOWN_WITHIN` at most."""
    limit = time.monotonic() + SHOWN_WITHIN
    while time.monotonic() < limit and not any(each.failure for each in attackers):
        if _was_one(shows, attackers):
            return
        time.sleep(0.05)


def _was_one(shows: Sequence[str], attackers: Sequence[Attacker]) -> bool:
    return all(any(getattr(each.tally, figure) for each in attackers) for figure in shows)


def _run(run: Callable[[Attacker], None], shows: Sequence[str], attackers: Sequence[Attacker], attacker: Attacker) -> None:
    """Once, and again while the attack has not been one: on a busy machine an answer may come later than it is waited for."""
    while True:
        _run_once(run, attacker)
        if attacker.failure or not attacker.going() or _was_one(shows, attackers):
            return
        attacker.wait(PAUSE)


def _run_once(run: Callable[[Attacker], None], attacker: Attacker) -> None:
    try:
        run(attacker)
    except (OSError, LoginFailed, WrongCorrelationId):
        attacker.tally.closed += 1
    except Exception:
        attacker.failure = traceback.format_exc()


def _more_files() -> None:
    """Each connection takes one, and the limit that shells set is 1024."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))


if __name__ == "__main__":
    main()
