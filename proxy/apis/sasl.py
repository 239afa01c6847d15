"""SaslHandshake: key 17, versions 0-1. SaslAuthenticate: key 36, versions 0-2 (KIP-43, KIP-152, KIP-368). Charge nothing,
refuse nothing.

Both pass through; the exchange is watched to learn who is on the connection. Requests behind a token wait for the answer
to it, so that they are judged as the user whom the broker will see. After a handshake of version 0, which clients from before
Kafka 1.0 use, tokens come without headers: the session then passes them on as such, until the exchange is over."""

from __future__ import annotations

from proxy.identity.sasl import SaslExchange
from proxy.session.client import Client
from proxy.session.held_answers import SmallAnswer
from proxy.session.plans import FORWARD, Decided, Forward, Request
from proxy.wire.headers import SASL_AUTHENTICATE, SASL_HANDSHAKE, response_body
from proxy.wire.primitives import INT16, INT32, Buffer, fixed, span, string

FIRST_COMPACT = 2


class SaslHandshake:
    key = SASL_HANDSHAKE
    versions = (0, 1)

    def request(self, client: Client, request: Request) -> Decided:
        request.join()
        mechanism, _ = string(request.buf, request.body, request.end, compact=False)
        client.exchange = SaslExchange(mechanism or "")
        return FORWARD if request.version else Forward(_Bare(client))


class _Bare(SmallAnswer):
    """The answer to a handshake of version 0: when it is a yes, tokens without headers follow."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        super().__init__(waits=True)
        self._client = client

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        body = response_body(buf, start, end, SASL_HANDSHAKE, 0)
        fixed(body, 2, end)
        self._client.tokens = INT16.unpack_from(buf, body)[0] == 0
        return None


class SaslAuthenticate:
    key = SASL_AUTHENTICATE
    versions = (0, 2)

    def request(self, client: Client, request: Request) -> Decided:
        request.join()
        start, stop = span(request.buf, request.body, request.end, request.version >= FIRST_COMPACT, INT32)
        exchange = client.exchange
        if exchange is None:
            return FORWARD
        exchange.client_token(bytes(request.buf[start:stop]) if start >= 0 else b"")
        return Forward(_Watch(client, exchange, request.version))


class _Watch(SmallAnswer):
    __slots__ = ("_client", "_exchange", "_version")

    def __init__(self, client: Client, exchange: SaslExchange, version: int) -> None:
        super().__init__(waits=True)
        self._client, self._exchange, self._version = client, exchange, version

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        compact = self._version >= FIRST_COMPACT
        body = response_body(buf, start, end, SASL_AUTHENTICATE, self._version)
        after_error = fixed(body, 2, end)
        _, pos = string(buf, after_error, end, compact)
        token_at, stop = span(buf, pos, end, compact, INT32)
        token = bytes(buf[token_at:stop]) if token_at >= 0 else b""
        self._client.exchange_answered(self._exchange, INT16.unpack_from(buf, body)[0], token)
        return None
