"""Bounds-checked primitives of the Kafka protocol (protocol guide, "Protocol Primitive Types"; KIP-482 for the compact ones).

In: a buffer, a position and the end of what may be read. Out: values and the position behind them, or `BadBytes`.
Lengths are compared with what is there before anything is sliced, so a claimed length costs nothing."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be

if TYPE_CHECKING:
    from mypy_extensions import i64

Buffer = bytes | memoryview
"""What the proxy holds of a frame. Never written to."""

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")


class BadBytes(Exception):
    """Bytes that are not what the protocol says. The connection that they came from is closed."""


def as_bytes(buf: Buffer) -> bytes:
    """The same; a copy of a view only. `bytes(buf)` takes 30 times as long where there is nothing to copy."""
    return buf if isinstance(buf, bytes) else bytes(buf)


def uvarint(buf: Buffer, pos: i64, end: i64) -> tuple[i64, i64]:
    """(value, position behind it) of an unsigned varint of at most 32 bits."""
    if not isinstance(buf, bytes):
        few = bytes(buf[pos : min(pos + 6, end)])
        number, size = uvarint(few, 0, len(few))
        return number, pos + size
    data: bytes = buf  # of one type, so that it is not looked at for each byte
    value: i64 = 0
    shift: i64 = 0
    while pos < end:
        byte: i64 = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
        shift += 7
        if shift > 28:
            raise BadBytes("a varint is longer than 5 bytes")
    raise BadBytes("a varint is cut off or above 32 bits")


def encode_uvarint(value: int) -> bytes:
    """The unsigned varint of a value >= 0."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fixed(pos: i64, size: i64, end: i64) -> i64:
    """The position behind `size` bytes that have to be there."""
    if size > end - pos:
        raise BadBytes(f"{size} bytes announced, {max(end - pos, 0)} left")
    return pos + size


def int32(buf: bytes, pos: i64) -> i64:
    """A signed integer that has to be there."""
    value: int = read_i32_be(buf, pos)
    return value


def int16(buf: bytes, pos: i64) -> i64:
    """The same of 2 bytes."""
    value: int = read_i16_be(buf, pos)
    return value


def int64(buf: bytes, pos: i64) -> i64:
    """The same of 8 bytes."""
    return read_i64_be(buf, pos)


def span(buf: Buffer, pos: i64, end: i64, compact: bool, width: Struct = INT16) -> tuple[i64, i64]:
    """(start, end) of a string or of bytes; start is -1 when it is null, and end is then the position behind the null."""
    if compact:
        length, pos = uvarint(buf, pos, end)
        length -= 1
    else:
        after = fixed(pos, width.size, end)
        length = width.unpack_from(buf, pos)[0]
        pos = after
    if length < 0:
        if length < -1:
            raise BadBytes(f"a length of {length}")
        return -1, pos
    if length > end - pos:
        raise BadBytes(f"a length of {length} where {end - pos} bytes are left")
    return pos, pos + length


def string(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[str | None, int]:
    """(text, position behind it); None when null. Invalid UTF-8 is `BadBytes`."""
    start, stop = span(buf, pos, end, compact)
    if start < 0:
        return None, stop
    try:
        return str(buf[start:stop], "utf-8"), stop
    except UnicodeDecodeError as e:
        raise BadBytes("a string is not UTF-8") from e


def array(buf: Buffer, pos: i64, end: i64, compact: bool, least: i64 = 1) -> tuple[i64, i64]:
    """(number of elements, position of the first); -1 when null. Each element takes `least` bytes or more, so more
    cannot be there."""
    if compact:
        count, pos = uvarint(buf, pos, end)
        count -= 1
    else:
        after = fixed(pos, 4, end)
        count = INT32.unpack_from(buf, pos)[0]
        pos = after
    if count < -1 or count * least > end - pos:
        raise BadBytes(f"an array of {count} where {end - pos} bytes are left")
    return count, pos


MAX_TAGS: Final = 16
"""Tagged fields of one section; no message of the protocol has more than a handful."""


def few(count: int) -> int:
    """As many tagged fields as one section may have."""
    if count > MAX_TAGS:
        raise BadBytes(f"{count} tagged fields in one section")
    return count


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """The position behind a section of tagged fields (KIP-482)."""
    if pos < end and buf[pos] == 0:
        return pos + 1
    count, pos = uvarint(buf, pos, end)
    if count * 2 > end - pos:
        raise BadBytes(f"{count} tagged fields where {end - pos} bytes are left")
    for _ in range(few(count)):
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos = fixed(pos, size, end)
    return pos


def encode_string(text: str | None, compact: bool) -> bytes:
    """A nullable string."""
    if text is None:
        return b"\0" if compact else b"\xff\xff"
    data = text.encode()
    return (encode_uvarint(len(data) + 1) if compact else INT16.pack(len(data))) + data


def encode_array_length(count: int, compact: bool) -> bytes:
    """The length of an array that is not null."""
    return encode_uvarint(count + 1) if compact else INT32.pack(count)
