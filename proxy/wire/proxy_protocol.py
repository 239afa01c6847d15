"""PROXY protocol, version 2: who the client is, said by a load balancer in front before the first byte of the client's
(haproxy's doc/proxy-protocol.txt, section 2.2).

In: the first 16 bytes, then the whole header. Out: its size, and the client's address; or `BadBytes`. What stands behind the
addresses (TLVs) is skipped. Version 1, which is a line of text, is refused: it has no length to read up to."""

from __future__ import annotations

import socket
from struct import Struct
from typing import Final

from proxy.wire.primitives import BadBytes

FIRST: Final = 16
"""Bytes that say how long the header is."""
MAX_HEADER: Final = 4096
"""The longest header that is taken, TLVs included."""

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_BEHIND_SIGNATURE: Final = Struct(">BBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6 = 0x00, 0x11, 0x21
_ADDRESSES: Final = {_TCP4: (socket.AF_INET, Struct(">4s4sHH")), _TCP6: (socket.AF_INET6, Struct(">16s16sHH"))}


def header_size(first: bytes) -> int:
    """Size in bytes of a header that begins with these 16. `BadBytes` when it is not one, or a longer one than is taken."""
    if first.startswith(b"PROXY "):
        raise BadBytes("the connection begins with PROXY protocol version 1; only version 2 is accepted")
    if len(first) < FIRST or not first.startswith(_SIGNATURE):
        raise BadBytes("the connection does not begin with a PROXY protocol v2 header")
    size = FIRST + int.from_bytes(first[FIRST - 2 : FIRST], "big")
    if size > MAX_HEADER:
        raise BadBytes(f"a PROXY protocol header of {size} bytes; {MAX_HEADER} is the limit")
    return size


def source_address(header: bytes) -> tuple[str, int] | None:
    """(host, port) of the client in a whole header; None when the load balancer speaks for itself (LOCAL, as in health
    checks) or does not say who it is (UNSPEC)."""
    if len(header) < FIRST or header_size(header[:FIRST]) != len(header):
        raise BadBytes("a PROXY protocol header that is cut off, or has more behind it")
    command, family, _ = _BEHIND_SIGNATURE.unpack_from(header, len(_SIGNATURE))
    if command not in (_LOCAL, _PROXY):
        raise BadBytes(f"a PROXY protocol header with version and command {command:#04x}; must be 0x20 or 0x21")
    if command == _LOCAL or family == _UNSPECIFIED:
        return None
    if family not in _ADDRESSES:
        raise BadBytes(f"a PROXY protocol header of family {family:#04x}; must be TCP over IPv4 (0x11) or IPv6 (0x21)")
    kind, layout = _ADDRESSES[family]
    if len(header) < FIRST + layout.size:
        raise BadBytes(f"a PROXY protocol header of {len(header)} bytes, too short for its addresses")
    host, _, port, _ = layout.unpack_from(header, FIRST)
    return socket.inet_ntop(kind, host), port
