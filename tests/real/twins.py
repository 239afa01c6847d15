"""The same request twice, once to the broker and once through the proxy, and what makes their answers comparable.

In: two addresses, a login. Out: answers as plain values, in which addresses, names of one side and what is volatile by
nature read the same on both sides; and a check that an answer shows no real address."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any

from tests.real.raw import Connection, connect

ADMIN, BOB = ("admin", "admin-secret"), ("bob", "bob-secret")
"""Who may everything, and who may nothing."""
REAL_HOST = re.compile(rb"(?<!/)127\.0\.0\.1")
"""The host of all listeners of localkafka. With a slash before it, it is a client's: groups name those of their members."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def ms(count: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=count)


class Side:
    """One of the two ways to the broker. `shown` says which (host, port) stands for what."""

    def __init__(self, letter: str, address: str, shown: Mapping[tuple[str, int], str], stack: ExitStack) -> None:
        self.letter, self.address, self.shown, self._stack = letter, address, shown, stack
        self.notes: dict[str, Any] = {}
        """what one request of this side leaves for a later one"""
        self.again()

    def again(self) -> None:
        """A new connection, for what comes next not to suffer from what went wrong before."""
        self.connection = self.log_in(self.connect())

    def connect(self) -> Connection:
        """A connection on which nobody has logged in."""
        return self._stack.enter_context(connect(self.address))

    def log_in(self, connection: Connection) -> Connection:
        assert connection.decoded(17, 1, mechanism="PLAIN").error_code == 0
        token = "\0" + "\0".join(ADMIN)
        assert connection.decoded(36, 2, auth_bytes=token.encode()).error_code == 0
        return connection

    def own(self, what: object) -> str:
        """A name that only this side uses."""
        return f"twin-{self.letter}-{what}"

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The decoded answer to a request that prepares another."""
        return self.connection.decoded(key, version, **fields)


class Comparable:
    """Makes plain values of answers: `volatile` are names of fields whose values cannot be the same twice; `listing` says
    that the answer lists what belongs to both sides, so that names are to be left alone."""

    def __init__(self, side: Side, volatile: Collection[str], *, listing: bool = False) -> None:
        self._volatile, self._shown = volatile, side.shown
        self._own = "" if listing else f"twin-{side.letter}-"
        self._topics = {topic_id: name for name, topic_id in side.notes.get("ids", {}).items()}
        self.errors: set[int] = set()
        """error codes that were met"""

    def of(self, value: Any, name: str = "") -> Any:
        if name in self._volatile:
            return "volatile"
        if dataclasses.is_dataclass(value):
            return self._entity(value)
        if isinstance(value, tuple):
            return [self.of(part) for part in value]
        if isinstance(value, enum.Enum) or (name.endswith("error_code") and isinstance(value, int)):
            self.errors.add(int(value))
            return int(value)
        if isinstance(value, bytes | memoryview):
            return self.of(bytes(value).decode("latin-1"))
        if isinstance(value, uuid.UUID):
            name = self._topics.get(value)
            return value if name is None else f"id of {self.of(name)}"
        if isinstance(value, str):
            return _UUID.sub("uuid", value.replace(self._own, "twin-") if self._own else value)
        return value

    def _entity(self, entity: Any) -> dict[str, Any]:
        values = {field.name: getattr(entity, field.name) for field in dataclasses.fields(entity)}
        if values.get("host") and "port" in values:
            place = (values.pop("host"), int(values.pop("port")))
            values["address"] = self._shown.get(place, place)
        return {name: self.of(value, name) for name, value in values.items()}


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two plain values differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [found for name in a for found in differences(a[name], b[name], f"{path}.{name}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [found for i, (x, y) in enumerate(zip(a, b, strict=True)) for found in differences(x, y, f"{path}[{i}]")]
    return [] if a == b else [f"{path}: {a!r} directly, {b!r} through the proxy"]


def shows(frame: bytes, ports: set[int], *, host: bool = True) -> list[str]:
    """Which real addresses stand somewhere in an answer: hosts as text, ports as int32."""
    found = [f"port {port}" for port in sorted(ports) if port.to_bytes(4, "big") in frame]
    if host:
        found += [match.group().decode() for match in REAL_HOST.finditer(frame)]
    return found


def until(ask: Callable[[], Any], done: Callable[[Any], Any], limit: float = 90.0) -> Any:
    """The first answer that is `done`. A real broker is asked again and again, as it does some things in the background."""
    deadline = time.monotonic() + limit
    while not done(answer := ask()):
        assert time.monotonic() < deadline, f"asked in vain for {limit:g} s; the last answer: {answer}"
        time.sleep(0.01)
    return answer


def uid(number: int) -> uuid.UUID:
    """An id that does not change from run to run."""
    return uuid.UUID(int=0x1234 << 100 | number)
