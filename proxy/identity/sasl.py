"""A SASL exchange, watched (KIP-43, KIP-152, RFC 4616, RFC 5802, RFC 7628).

In: the mechanism, the client's tokens, the broker's answers. Out: the name of the user, as soon as the broker accepted
the exchange and not before. The proxy checks no secret and keeps none: of a token only the name in it is read.

PLAIN and SCRAM say the name themselves; of OAUTHBEARER the `sub` claim is taken, which is what Kafka takes unless told
otherwise. A name that is not valid Unicode leaves the user unknown. Other mechanisms (GSSAPI) are passed on and leave the user as
it was. A SCRAM exchange with a delegation token says the id of the token, not its owner, who stays unknown."""

from __future__ import annotations

import base64
import json
import re
from typing import Final

from proxy.wire.primitives import BadBytes

MAX_TOKEN: Final = 131_072
"""Bytes of a client's token. Reading the name in it takes two milliseconds at that size, and anybody may send one. Brokers take
more, 512 KiB unless told otherwise (`sasl.server.max.receive.size`), and no known login needs it."""

_ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}
"""Answers of the broker without an error after which the exchange is accepted."""


# Kafka's own grammars (OAuthBearerClientInitialResponse, ScramMessages): the proxy has to read the name that the broker reads.
_NAME: Final = r"(?:[\x01-+\--<>-\x7f]|=2C|=3D)+"
_SCRAM_FIRST: Final = re.compile(
    rf"n,(?:a={_NAME})?,(?:m=[\x01-+\--\x7f]+,)?n=({_NAME}),r=[!-+\--~]+((?:,[A-Za-z]+=[\x01-+\--\x7f]+)*)"
)
_BEARER_FIRST: Final = re.compile(rf"n,(?:a={_NAME})?,\x01((?:[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01")
_BEARER: Final = re.compile(r"(?i:bearer) +([-_.a-zA-Z0-9]+)")


class SaslExchange:
    """One exchange: one handshake and the tokens that follow it."""

    __slots__ = ("_accepted", "_mechanism", "_user")

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._accepted = 0
        self._user: str | None = None

    @property
    def counted(self) -> bool:
        """Is it known how many tokens there are? Then each token of the client is answered by one of the broker."""
        return self._mechanism in _ROUNDS

    @property
    def over(self) -> bool:
        """Is the exchange accepted? Known of mechanisms that are `counted` only."""
        return self._accepted == _ROUNDS.get(self._mechanism)

    def client_token(self, token: bytes) -> None:
        """The client sent this token; if it cannot be read, the user stays unknown. `BadBytes` if it is too long."""
        if len(token) > MAX_TOKEN:
            raise BadBytes(f"a SASL token of {len(token)} bytes; {MAX_TOKEN} is the limit")
        # In OAUTHBEARER a token that was refused may be followed by another one, and the last one counts.
        if self._mechanism == "OAUTHBEARER" or (self._user is None and self._accepted == 0):
            self._user = _name_in(self._mechanism, token)

    def broker_answer(self, error_code: int, token: bytes) -> str | None:
        """The broker answered; the user's name if the exchange is accepted with this answer."""
        if error_code:
            self._user = None
            return None
        if self._mechanism == "OAUTHBEARER" and token:
            return None  # a token that is refused is answered with a text first, and with the error after that
        self._accepted += 1
        return self._user if self.over else None


def _name_in(mechanism: str, token: bytes) -> str | None:
    try:
        if mechanism == "PLAIN":
            return _plain_name(token)
        if mechanism.startswith("SCRAM-"):
            return _scram_name(token)
        if mechanism == "OAUTHBEARER":
            return _bearer_name(token)
    except (ValueError, RecursionError):
        pass
    return None


def _plain_name(token: bytes) -> str | None:
    """authorization id, NUL, user, NUL, password; Kafka wants the first, if there is one, to be the user."""
    parts = token.split(b"\0")
    return parts[1].decode() or None if len(parts) == 3 else None


def _scram_name(token: bytes) -> str | None:
    """n,,n=user,r=nonce[,tokenauth=true], read as Kafka reads it: None for what Kafka would refuse."""
    first = _SCRAM_FIRST.fullmatch(token.decode())
    if first is None:
        return None
    extensions = dict(pair.split("=", 1) for pair in first[2].split(",")[1:])
    if extensions.get("tokenauth", "").lower() == "true":
        return None
    return first[1].replace("=2C", ",").replace("=3D", "=")


def _bearer_name(token: bytes) -> str | None:
    """n,,^Aauth=Bearer header.payload.signature^A^A. Where `auth` stands twice, Kafka takes the last one."""
    first = _BEARER_FIRST.fullmatch(token.decode())
    if first is None:
        return None
    pairs = dict(pair.split("=", 1) for pair in first[1].split("\x01")[:-1])
    auth = _BEARER.fullmatch(pairs.get("auth", ""))
    if auth is None or auth[1].count(".") != 2:
        return None
    payload = auth[1].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    name = claims.get("sub") if isinstance(claims, dict) else None
    if not isinstance(name, str) or not name.strip():  # Kafka refuses a blank one
        return None
    name.encode()  # ValueError for half a surrogate pair: JSON and Java's strings can hold it, but it cannot be written as UTF-8
    return name
