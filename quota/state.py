"""What a restart must not lose: values to bytes and back, with a version and a checksum.

In: numbers, texts and bits. Out: bytes that say what they are, or `BadState` for any that do not hold what was saved: each
length is checked against what is there before it is read. Times are saved as wall clock seconds, as monotonic ones start
anew with the machine. It leaves to others: where the bytes are kept."""

from __future__ import annotations

from hashlib import sha256
from math import isfinite
from struct import Struct
from typing import Final

NUMBER: Final = Struct(">Q")
REAL: Final = Struct(">d")
_SUM: Final = 32


class BadState(ValueError):
    """These bytes are no state that can be used. The message says why."""


class Writer:
    """Bytes of one state."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, value: int) -> None:
        """0 to 2⁶⁴ - 1."""
        self._parts.append(NUMBER.pack(value))

    def real(self, value: float) -> None:
        self._parts.append(REAL.pack(value))

    def text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self.number(len(data))
        self.bits(data)

    def bits(self, value: bytes | bytearray) -> None:
        """Bytes whose length the reader knows."""
        self._parts.append(bytes(value))

    def sealed(self, magic: bytes) -> bytes:
        """All of it, behind `magic`, which names kind and version, and before its checksum."""
        digest = sha256(magic)
        for part in self._parts:
            digest.update(part)
        return b"".join([magic, *self._parts, digest.digest()])


class Reader:
    """The values of a sealed state, in the order in which they were written."""

    def __init__(self, data: bytes, magic: bytes, maximum: int) -> None:
        """BadState for another kind or version, more than `maximum` bytes, or bytes that are not as they were sealed."""
        if data[: len(magic)] != magic:
            raise BadState("it is of another version, or something else")
        if not len(magic) + _SUM <= len(data) <= maximum:
            raise BadState(f"it has {len(data)} bytes, {maximum} at most are taken")
        self._data = memoryview(data)[:-_SUM]
        if sha256(self._data).digest() != data[-_SUM:]:
            raise BadState("its checksum is wrong: it was cut or changed")
        self._at = len(magic)

    def number(self, maximum: int = (1 << 64) - 1) -> int:
        value: int = NUMBER.unpack(self.bits(NUMBER.size))[0]
        if value > maximum:
            raise BadState(f"it says {value} where {maximum} is the most")
        return value

    def real(self) -> float:
        """A finite number."""
        value: float = REAL.unpack(self.bits(REAL.size))[0]
        if not isfinite(value):
            raise BadState(f"it says {value} where a number has to be")
        return value

    def text(self) -> str:
        try:
            return bytes(self.bits(self.number())).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise BadState("a text in it is not valid") from None

    def bits(self, length: int) -> memoryview:
        if length > self.left:
            raise BadState("it ends too early")
        self._at += length
        return self._data[self._at - length : self._at]

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise BadState("something stands behind its end")
