"""Who may read the admin listener. In: files with a token and with users, headers of requests. Out: yes or no.

Files are read again when they change. One that cannot be read any more lets nobody in by it."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Final

from configfile.stamp import Stamp, stamp_of

CHALLENGE: Final = 'Basic realm="kafka-quota-proxy", charset="UTF-8"'


class LoginsError(Exception):
    """A file cannot be used; the message says why."""


class Logins:
    """`LoginsError` when a file cannot be used at the start."""

    def __init__(self, token_file: str | None, users_file: str | None) -> None:
        self._bearer = None if token_file is None else _Watched(Path(token_file), _token)
        self._basic = None if users_file is None else _Watched(Path(users_file), _users)

    def allow(self, authorization: str | None) -> bool:
        """True if this `Authorization` header is of somebody who may read."""
        scheme, _, given = (authorization or "").partition(" ")
        known = {"bearer": self._bearer, "basic": self._basic}.get(scheme.lower())
        if known is None:
            return False
        try:
            wanted = known.read()
            said = given.strip().encode() if known is self._bearer else base64.b64decode(given, validate=True)
        except (LoginsError, binascii.Error, ValueError):
            return False
        return sum(hmac.compare_digest(said, one) for one in wanted) > 0  # all are compared: the time does not tell which


class _Watched:
    """A file, and what stood in it when it was read last."""

    def __init__(self, path: Path, parse: Callable[[str], list[bytes]]) -> None:
        self._path, self._parse = path, parse
        self._stamp: Stamp | None = None
        self._found: list[bytes] = []
        self.read()

    def read(self) -> list[bytes]:
        """What stands in it now."""
        try:
            stamp = stamp_of(self._path)
            if stamp is None or stamp != self._stamp:
                self._found = self._parse(self._path.read_text(encoding="utf-8"))
                self._stamp = stamp
        except OSError as e:
            raise LoginsError(f"{self._path} cannot be read: {e.strerror}") from None
        except ValueError as e:
            raise LoginsError(f"{self._path}: {e}") from None
        return self._found


def _token(text: str) -> list[bytes]:
    token = text.strip()
    if not token or len(token.split()) > 1:
        raise ValueError("must have a token on one line, and nothing else")
    return [token.encode()]


def _users(text: str) -> list[bytes]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        name, _, password = line.partition(":")
        if not (name and password):
            raise ValueError("each line must be name:password")
    if not lines:
        raise ValueError("has no line name:password")
    return [line.encode() for line in lines]
