"""ApiVersions: key 18, versions 0-5 (KIP-35, KIP-511, KIP-1242). Charges nothing, refuses nothing.

The broker's ranges are cut to what the proxy understands, of the APIs that it must understand; others pass as they are,
newer than the proxy too. A version of this request that the proxy does not know is answered as Kafka answers it: with
error 35 and the range of this API, and the client asks again.

Since version 5 a client may say which broker of which cluster it expects to reach, and a broker that is another one answers with
error 129 REBOOTSTRAP_REQUIRED. Brokers have the same ids through the proxy as without it, so a client that came to the address of
a broker is compared with that broker, and is told when its address has become that of another. The bootstrap address leads to any
broker, so a client that comes there is not compared.

Since version 3 a client names its software, which the console shows: for a look only, as it is what the client claims."""

from __future__ import annotations

from typing import Final

from proxy.session.client import Client
from proxy.session.held_answers import Answer, SmallAnswer
from proxy.session.plans import Decided, Forward, Request
from proxy.wire.api_versions import FIRST_WITH_TARGET, MAX_VERSION, Understood, clamp, unsupported, without_target
from proxy.wire.headers import API_VERSIONS
from proxy.wire.primitives import BadBytes, Buffer, string

NAMED_SINCE: Final = 3
MOST_NAMED: Final = 64
"""Characters of the name and of the version of a client's software that are kept."""
_SOFTWARE: Final = API_VERSIONS << 8


class ApiVersions:
    key = API_VERSIONS
    versions = (0, 0x7FFF)

    def request(self, client: Client, request: Request) -> Decided:
        if request.version > MAX_VERSION:
            return Answer(unsupported(request.correlation_id))
        plan = _Clamp(request.version, client.services.understood)
        if request.version >= NAMED_SINCE:
            request.join()
            client.remembered[_SOFTWARE] = _software(request)
        if request.version < FIRST_WITH_TARGET or client.broker is not None:
            return Forward(plan)
        return Forward(plan, without_target(request.buf, request.start, request.body, request.end))


class _Clamp(SmallAnswer):
    __slots__ = ("_understood", "_version")

    def __init__(self, version: int, understood: Understood) -> None:
        super().__init__()
        self._version, self._understood = version, understood

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return clamp(bytes(buf[start:end]), self._version, self._understood)


def software_of(client: Client) -> str:
    """Name and version of the client's library, as it says, such as `librdkafka 2.12.0`; empty where it has not said."""
    return str(client.remembered.get(_SOFTWARE, ""))


def _software(request: Request) -> str:
    """What a request of version 3 or newer names. One that cannot be read names nothing: it is for the broker to refuse."""
    try:
        name, pos = string(request.buf, request.body, request.end, compact=True)
        version, _ = string(request.buf, pos, request.end, compact=True)
    except BadBytes:
        return ""
    return " ".join(part[:MOST_NAMED] for part in (name, version) if part)
