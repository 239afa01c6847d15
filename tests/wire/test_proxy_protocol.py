"""PROXY protocol v2: who the client is, or a refusal that says what came instead."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.primitives import BadBytes
from proxy.wire.proxy_protocol import FIRST, MAX_HEADER, header_size, source_address

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")


def header(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def tcp4(host: str, port: int, tlvs: bytes = b"") -> bytes:
    return header(0x21, 0x11, socket.inet_aton(host) + socket.inet_aton("10.0.0.1") + struct.pack(">HH", port, 9192) + tlvs)


def tcp6(host: str, port: int, tlvs: bytes = b"") -> bytes:
    hosts = socket.inet_pton(socket.AF_INET6, host) + socket.inet_pton(socket.AF_INET6, "::1")
    return header(0x21, 0x21, hosts + struct.pack(">HH", port, 9192) + tlvs)


AUTHORITY_TLV = b"\x02\0\x03abc"


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (tcp4("192.0.2.7", 40000), ("192.0.2.7", 40000)),
        (tcp4("192.0.2.7", 1, AUTHORITY_TLV), ("192.0.2.7", 1)),
        (tcp6("2001:db8::7", 65535), ("2001:db8::7", 65535)),
        (tcp6("2001:db8::7", 1, AUTHORITY_TLV), ("2001:db8::7", 1)),
        (header(0x20, 0x00, b""), None),
        (header(0x20, 0x11, b"\x7f\0\0\1" * 2 + b"\0\1\0\2"), None),
        (header(0x21, 0x00, AUTHORITY_TLV), None),
    ],
    ids=["IPv4", "IPv4 and TLV", "IPv6", "IPv6 and TLV", "LOCAL", "LOCAL with an address", "UNSPEC"],
)
def test_who_the_client_is(data: bytes, address: tuple[str, int] | None) -> None:
    assert header_size(data[:FIRST]) == len(data)
    assert header_size(data[:FIRST] + b"more") == len(data)
    assert source_address(data) == address


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n"[:FIRST], "version 1; only version 2 is accepted"),
        (bytes.fromhex("0000001a00120003000000010003666f"), "does not begin with a PROXY protocol v2 header"),  # Kafka
        (bytes.fromhex("16030102000100fc0303000000000000"), "does not begin with a PROXY protocol v2 header"),  # TLS
        (SIGNATURE, "does not begin"),
        (header(0x21, 0x11, b"\0" * (MAX_HEADER - FIRST + 1))[:FIRST], "4096 is the limit"),
    ],
    ids=["version 1", "Kafka", "TLS", "too few bytes", "too long"],
)
def test_what_is_no_header(first: bytes, told: str) -> None:
    with pytest.raises(BadBytes, match=told):
        header_size(first)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (header(0x22, 0x11, bytes(12)), "version and command 0x22"),
        (header(0x11, 0x11, bytes(12)), "version and command 0x11"),
        (header(0x21, 0x12, bytes(12)), "family 0x12"),  # UDP
        (header(0x21, 0x31, bytes(216)), "family 0x31"),  # a Unix socket
        (header(0x21, 0x11, bytes(11)), "too short"),
        (header(0x21, 0x21, bytes(35)), "too short"),
        (tcp4("192.0.2.7", 1)[:-1], "cut off"),
        (tcp4("192.0.2.7", 1) + b"x", "more behind it"),
        (b"", "cut off"),
    ],
)
def test_a_header_that_says_nothing_usable(data: bytes, told: str) -> None:
    with pytest.raises(BadBytes, match=told):
        source_address(data)


def test_the_longest_header_is_taken() -> None:
    data = tcp4("192.0.2.7", 1, bytes(MAX_HEADER - FIRST - 12))
    assert header_size(data[:FIRST]) == MAX_HEADER
    assert source_address(data) == ("192.0.2.7", 1)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(SIGNATURE.__add__))
def test_any_bytes_give_an_address_or_bad_bytes(data: bytes) -> None:
    try:
        found = source_address(data)
    except BadBytes:
        return
    assert found is None or isinstance(found[0], str)
