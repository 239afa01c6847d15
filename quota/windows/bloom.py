"""A Bloom filter of 64-bit ids that grows (seed s2, KIP-936; layers: Almeida and others, "Scalable Bloom Filters", 2007).

In: ids, a function that hashes one to 128 bits, the false positive rate that is asked for. Out: whether an id is in it:
"no" is certain, "yes" is wrong at that rate at most. When a layer is full, one twice as large with a tighter rate follows,
so that the rates of all layers together stay within what was asked. Nothing can be taken out. It leaves to others: the
hash (production gives MurmurHash3), when a filter is thrown away, and how much memory it may take."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log1p, log2
from typing import Final

from quota.state import BadState, Reader, Writer

Hash = Callable[[int], tuple[int, int]]
"""An id to two independent unsigned 64-bit halves of its hash, always the same for the same id."""
Hashed = tuple[int, int]

FIRST: Final = 256
"""Ids that the first layer is for: most users have fewer producers."""
GROWTH: Final = 2
TIGHTER: Final = 0.8
"""The rate of each layer by that of the one before; 0.8 takes the least memory for filters that grow a hundredfold and more."""
MOST_LAYERS: Final = 32
"""More than memory has room for."""
UNBOUNDED: Final = 1 << 62


class Layer:
    """A Bloom filter of a fixed size: for `capacity` > 0 ids, at which its rate is `rate` in (0, 1)."""

    __slots__ = ("added", "bits", "capacity", "hashes", "ones", "size")

    def __init__(self, capacity: int, rate: float) -> None:
        self.capacity = capacity
        self.size, self.hashes = shape(capacity, rate)
        self.bits = bytearray(self.size // 8)
        self.added = self.ones = 0

    def has(self, x: int, y: int) -> bool:
        """Is what has these two hashes in it, or seems to be?"""
        bits, size = self.bits, self.size
        x, y = x % size, y % size
        for i in range(1, self.hashes + 1):  # enhanced double hashing (Dillinger and Manolios): `y` moves too
            if not bits[x >> 3] >> (x & 7) & 1:
                return False
            x, y = (x + y) % size, y + i
        return True

    def put(self, x: int, y: int) -> None:
        """Take in what `has` does not know."""
        bits, size = self.bits, self.size
        x, y = x % size, y % size
        for i in range(1, self.hashes + 1):
            byte, bit = x >> 3, 1 << (x & 7)
            if not bits[byte] & bit:
                bits[byte] |= bit
                self.ones += 1
            x, y = (x + y) % size, y + i
        self.added += 1

    def rate(self) -> float:
        """How likely it is now to know an id that is not in it."""
        return float((self.ones / self.size) ** self.hashes)


class BloomFilter:
    """Layers of Bloom filters. `rate` in (0, 1) is the false positive rate of all of them together; `first` > 0 ids fit into
    the first. ValueError for what is not.

    >>> even = BloomFilter(0.01, lambda id: (id * 0x9E3779B97F4A7C15 % 2**64, id * 0xC2B2AE3D27D4EB4F % 2**64))
    >>> even.add(2), even.add(2), 2 in even, 3 in even
    (True, False, True, False)
    """

    __slots__ = ("_clear", "_estimate", "_hash", "asked", "count", "first", "layers", "size_bytes")

    def __init__(self, rate: float, hash128: Hash, first: int = FIRST) -> None:
        if not 0 < rate < 1 or first < 1:
            raise ValueError(f"need 0 < rate < 1 and first > 0, got rate {rate} and first {first}")
        self.asked, self.first = rate, first
        self.count = 0
        """ids that were new when they were added: never more than there are, as false positives are not new"""
        self.layers: list[Layer] = []
        self.size_bytes = 0
        """bytes of all bits"""
        self._hash, self._estimate = hash128, 0.0
        self._clear = 1.0  # how likely an id that is not in it is unknown to all layers but the last
        self.grow()

    def add(self, id: int, room: int = UNBOUNDED) -> bool:
        """Take an id in. Was it new? `room` is how many bytes it may grow by: without them the last layer takes more than it
        is for, and ids are taken for known more often than asked, never less often."""
        hashed = self._hash(id)
        return not self.has(hashed) and self.put(hashed, room)

    def __contains__(self, id: int) -> bool:
        return self.has(self._hash(id))

    def has(self, hashed: Hashed) -> bool:
        """`__contains__` of an id that is hashed already."""
        x, y = hashed
        return any(layer.has(x, y) for layer in reversed(self.layers))  # the larger layers first, they hold most

    def put(self, hashed: Hashed, room: int = UNBOUNDED) -> bool:
        """`add` of a hashed id that `has` does not know; True."""
        last = self.layers[-1]
        if last.added >= last.capacity:
            last = self.grow(room) or last
        self._estimate += 1 / (self._clear * (1 - last.rate()))  # it stands for those too that are taken for known now
        last.put(*hashed)
        self.count += 1
        return True

    def grow(self, room: int = UNBOUNDED) -> Layer | None:
        """The next layer, empty; None when it takes more than `room` bytes."""
        capacity, rate = _next(self.asked, len(self.layers), self.first)
        if shape(capacity, rate)[0] // 8 > room:
            return None
        if self.layers:
            self._clear *= 1 - self.layers[-1].rate()
        layer = Layer(capacity, rate)
        self.layers.append(layer)
        self.size_bytes += len(layer.bits)
        return layer

    def rate(self) -> float:
        """How likely it is now to know an id that is not in it."""
        return 1 - self._clear * (1 - self.layers[-1].rate())

    def estimate(self) -> float:
        """About how many distinct ids were added, those included that were taken for known."""
        return self._estimate

    @property
    def overfull(self) -> bool:
        """Does it hold more than its bits are for, so that its rate is above what was asked?"""
        return any(layer.added > layer.capacity for layer in self.layers)

    def save(self, out: Writer) -> None:
        """All that `restore` needs beside rate, hash and first."""
        out.real(self._estimate)
        out.number(len(self.layers))
        for layer in self.layers:
            out.number(layer.added)
            out.bits(layer.bits)

    @classmethod
    def restore(cls, data: Reader, rate: float, hash128: Hash, first: int = FIRST) -> BloomFilter:
        """The filter that was saved. BadState where there is none with something in it."""
        made = cls(rate, hash128, first)
        made._estimate = data.real()
        for number in range(max(data.number(MOST_LAYERS), 1)):
            layer = made.layers[0] if number == 0 else made.grow(data.left)
            if layer is None:
                raise BadState("a filter in it is larger than the rest of it")
            layer.added = data.number(UNBOUNDED)
            layer.bits[:] = data.bits(len(layer.bits))
            layer.ones = int.from_bytes(layer.bits, "little").bit_count()
            made.count += layer.added
        if not made.count or made._estimate < 0:
            raise BadState("a filter in it is empty")
        return made


def shape(capacity: int, rate: float) -> tuple[int, int]:
    """(bits, a multiple of 8; hashes per id) of a layer whose rate is `rate` when it holds `capacity` ids."""
    hashes = ceil(-log2(rate))
    return 8 * ceil(-hashes * capacity / log1p(-(rate ** (1 / hashes))) / 8), hashes


def _next(rate: float, index: int, first: int) -> tuple[int, float]:
    """(capacity, rate) of a layer; the sum of all rates is below what was asked."""
    return first * GROWTH**index, rate * (1 - TIGHTER) * TIGHTER**index
