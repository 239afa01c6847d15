"""Breaking frames by chance. In: a valid frame, where its lengths stand, a source of chance. Out: a frame that is broken, mostly.

Half of the mutations are blind; the others know the protocol: lengths that lie (2^31-1, 2^32-1 and their neighbours, compact
and old), many tagged fields, tagged fields in tagged fields, text that is not UTF-8."""

from __future__ import annotations

from random import Random

from proxy.wire.primitives import encode_uvarint
from tests.fuzz.places import Place

MOST_TAGS = 3000
DEEPEST = 200
"""Tagged fields within tagged fields."""

_COMPACT = [
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\x80\x80\x80\x80\x08",  # 2^31, which is 2^31 - 1 elements
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\x80\x80\x80\x80\x10",  # 2^32: one too many
    b"\xff\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\0",  # 0 in two bytes
    b"\xff\xff\x7f",
    b"\0",
]
_OLD = {
    2: [b"\x7f\xff", b"\x80\0", b"\xff\xff", b"\xff\xfe", b"\0\0"],
    4: [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xfe", b"\0\xff\xff\xff", bytes(4)],
}
_NOT_TEXT = [b"\xc3\x28", b"\xed\xa0\x80", b"\xff", b"\xc0\x80", b"\xf8\x88\x80\x80\x80"]
_EXTREMES = [*_COMPACT, *_OLD[4], *_NOT_TEXT, b"\xff", b"\x01\x7f\0", b"\x02\x63\x00\x63\x00"]


def mutate(frame: bytes, places: list[Place], chance: Random, keep: int) -> bytes:
    """A broken copy, the first `keep` bytes as they are; the size field is right again, mostly."""
    data = bytearray(frame)
    rnd = chance.random
    if places and rnd() < 0.5:
        place = places[int(rnd() * len(places))]
        if place.start >= keep:
            lie(data, place, chance)
        if rnd() < 0.3:
            blind(data, chance, keep)
    else:
        for _ in range((1, 1, 1, 2, 5)[int(rnd() * 5)]):
            blind(data, chance, keep)
    if rnd() < 0.97:
        data[:4] = max(len(data) - 4, 0).to_bytes(4, "big")
    return bytes(data)


def blind(data: bytearray, chance: Random, keep: int) -> None:
    """Some bytes changed, put in, taken out or repeated."""
    rnd = chance.random
    size = len(data)
    at = keep + int(rnd() * (size + 1 - keep)) if size > keep else size
    match int(rnd() * 6):
        case 0 if at < size:
            data[at] ^= 1 << int(rnd() * 8)
        case 1 if at < size:
            data[at] = (0, 1, 0x7F, 0x80, 0xFF)[int(rnd() * 5)]
        case 2:
            extreme = _EXTREMES[int(rnd() * len(_EXTREMES))]
            data[at : at + (len(extreme) if rnd() < 0.7 else 0)] = extreme
        case 3:
            del data[at : at + 1 + int(rnd() * 29)]
        case 4:
            data[at:at] = chance.randbytes(1 + int(rnd() * 19))
        case _:
            data[at:at] = data[at : at + 1 + int(rnd() * 59)]


def lie(data: bytearray, place: Place, chance: Random) -> None:
    """Make what stands at this place say something else than it should."""
    rnd = chance.random
    start, stop, compact, kind = place
    if kind == "tags" and rnd() < 0.5:
        data[start:stop] = _tags(chance)
    elif kind == "text" and rnd() < 0.5:
        wrong = _NOT_TEXT[int(rnd() * len(_NOT_TEXT))]
        data[stop : stop + len(wrong)] = wrong
    elif rnd() < 0.3:  # a little more or less than there is
        value, size = _value(data, place) + (-2, -1, 1, 2, 100)[int(rnd() * 5)], stop - start
        data[start:stop] = encode_uvarint(max(value, 0)) if compact else (value % (1 << 8 * size)).to_bytes(size, "big")
    else:
        wrongs = _COMPACT if compact else _OLD[stop - start]
        data[start:stop] = wrongs[int(rnd() * len(wrongs))]


def _value(data: bytearray, place: Place) -> int:
    raw = bytes(data[place.start : place.stop])
    if not place.compact:
        return int.from_bytes(raw, "big", signed=True)
    return sum((byte & 0x7F) << 7 * i for i, byte in enumerate(raw))


def _tags(chance: Random) -> bytes:
    """A section of tagged fields in the place of one that has none, as a rule."""
    rnd = chance.random
    tag = bytes([(0, 1, 2, 3, 0x63)[int(rnd() * 5)]])
    match int(rnd() * 4):
        case 0:  # many
            count = 1 + int(rnd() ** 6 * MOST_TAGS)
            return encode_uvarint(count) + (tag + b"\0") * count
        case 1:  # one in another, and so on
            section = b"\0"
            for _ in range(1 + int(rnd() ** 4 * DEEPEST)):
                section = b"\1" + tag + encode_uvarint(len(section)) + section
            return section
        case 2:  # one that says it is longer than all there is
            return b"\1" + tag + _COMPACT[int(rnd() * len(_COMPACT))]
        case _:
            inner = chance.randbytes(int(rnd() * 40))
            return b"\1" + tag + encode_uvarint(len(inner)) + inner
