"""The cutter: whole, byte by byte, cut at random, with trailing data; impossible lengths; nothing joined that is large."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.frames import HEADER_ROOM, Frame, FrameCutter, places, places_of
from proxy.wire.primitives import BadBytes
from tests.support import byte_by_byte


def frame(size: int, fill: int = 7) -> bytes:
    return size.to_bytes(4, "big") + bytes([fill & 0xFF]) * size


def text_of(found: Frame) -> bytes:
    buf, start, end, chunks = found
    return bytes(buf[start:end]) if chunks is None else b"".join(chunks)


def cut(cutter: FrameCutter, read: bytes) -> list[Frame]:
    """All frames that are whole with this read."""
    cutter.feed(read)
    return list(iter(cutter.next, None))


def cut_all(reads: list[bytes], max_frame: int = 1 << 20) -> list[bytes]:
    cutter = FrameCutter(max_frame)
    return [text_of(found) for read in reads for found in cut(cutter, read)]


FRAMES = [frame(8, 1), frame(30, 2), frame(5000, 3), frame(8, 4), frame(511, 5), frame(512, 6), frame(70_000, 7), frame(9, 8)]


def test_whole():
    assert cut_all([b"".join(FRAMES)]) == FRAMES


def test_byte_by_byte():
    assert cut_all(byte_by_byte(b"".join(FRAMES[:6]))) == FRAMES[:6]


def test_a_frame_each():
    assert cut_all(FRAMES) == FRAMES


def test_trailing_data_waits_for_the_rest():
    cutter = FrameCutter(1000)
    assert [text_of(found) for found in cut(cutter, FRAMES[0] + FRAMES[1][:9])] == [FRAMES[0]]
    assert cutter.waiting
    assert [text_of(found) for found in cut(cutter, FRAMES[1][9:])] == [FRAMES[1]]
    assert not cutter.waiting


@given(st.integers(0, 1 << 32))
def test_random_cuts(seed):
    chance = Random(seed)
    frames = [frame(chance.choice((8, 9, 60, 507, 508, 512, 513, 3000)), i) for i in range(12)]
    data = b"".join(frames)
    places = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(chance.randrange(30)))})
    assert cut_all([data[a:b] for a, b in itertools.pairwise(places)]) == frames


def test_frames_of_one_read_stand_in_that_very_buffer():
    data = FRAMES[0] + FRAMES[1]
    assert [(found[0] is data, found[3]) for found in cut(FrameCutter(1000), data)] == [(True, None), (True, None)]


def test_the_chunks_of_a_large_frame_are_never_joined():
    whole = frame(100_000)
    reads = [whole[:40_000], whole[40_000:80_000], whole[80_000:] + FRAMES[0]]
    cutter = FrameCutter(1 << 20)
    found = [each for read in reads for each in cut(cutter, read)]
    assert [len(chunk) for chunk in found[0][3]] == [40_000, 40_000, 20_004]
    assert all(getattr(chunk, "obj", chunk) is read for chunk, read in zip(found[0][3], reads, strict=True))
    assert text_of(found[1]) == FRAMES[0]


def test_the_first_chunk_of_a_frame_has_room_for_its_header():
    whole = frame(5000)
    for first in range(1, HEADER_ROOM + 10):
        cutter = FrameCutter(1 << 20)
        (found,) = [each for read in (whole[:first], whole[first:3000], whole[3000:]) for each in cut(cutter, read)]
        assert len(found[0]) >= HEADER_ROOM
        assert text_of(found) == whole


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, 1001, 2**31 - 1])
def test_an_impossible_length_is_said_with_its_fourth_byte(length):
    cutter = FrameCutter(1000)
    data = FRAMES[0] + length.to_bytes(4, "big", signed=True)
    assert [text_of(found) for found in cut(cutter, data[:-1])] == [FRAMES[0]]
    with pytest.raises(BadBytes, match=str(length)):
        list(cut(cutter, data[-1:]))


def test_the_largest_frame_allowed_passes():
    assert cut_all([frame(1000)], 1000) == [frame(1000)]


def test_who_stops_in_the_middle_goes_on_there_and_nothing_is_copied():
    data = FRAMES[0] + FRAMES[1] + b"abc"
    cutter = FrameCutter(1000)
    cutter.feed(data)
    assert text_of(cutter.next()) == FRAMES[0]
    assert cutter.unread == len(FRAMES[1]) + 3
    cutter.feed(FRAMES[0])
    found = cutter.next()
    assert found[0] is data
    assert text_of(found) == FRAMES[1]
    with pytest.raises(BadBytes):
        cutter.next()


def test_a_frame_that_is_put_back_comes_again_before_what_is_behind_it():
    whole = FRAMES[2] + FRAMES[1]
    cutter = FrameCutter(10_000)
    assert cut(cutter, whole[:600]) == []
    cutter.feed(whole[600:])
    for _ in range(2):
        found = cutter.next()
        assert text_of(found) == FRAMES[2]
        assert cutter.unread == len(FRAMES[1])
        cutter.put_back(found)
        assert cutter.unread == len(whole)
    assert [text_of(each) for each in iter(cutter.next, None)] == FRAMES[2:0:-1]
    assert cutter.unread == 0


@given(st.integers(0, 1 << 32))
def test_what_is_unread_and_what_is_gathered_are_all_bytes_that_were_not_handed_out(seed):
    chance = Random(seed)
    stream = b"".join(frame(chance.choice((8, 60, 508, 3000)), i) for i in range(12))
    cutter, fed, out = FrameCutter(10_000), 0, 0
    while out < len(stream):
        size = chance.randrange(1, 4000)
        cutter.feed(stream[fed : fed + size])
        fed = min(fed + size, len(stream))
        for _ in range(chance.randrange(4)):
            found = cutter.next()
            if found is None:
                break
            out += len(text_of(found))
        assert cutter.unread + cutter.gathered == fed - out


def test_places_are_where_the_frame_stands_in_its_reads_and_nothing_is_copied():
    whole = frame(100_000)
    reads = [FRAMES[1] + whole[:40_000], whole[40_000:80_000], whole[80_000:] + FRAMES[0]]
    cutter = FrameCutter(1 << 20)
    found = [each for read in reads for each in cut(cutter, read)]
    at = found[1][1] + 100
    stands = places(found[1], at)
    assert b"".join(buf[start:end] for buf, start, end in stands) == whole[100:]
    assert all(buf is read for (buf, _, _), read in zip(stands, reads, strict=True))
    assert places_of(found[1][3]) == places(found[1], found[1][1])
    assert places(found[2], found[2][1]) == [found[2][:3]]


def test_what_is_gathered_is_what_came_of_a_frame_that_is_not_whole():
    """Counted as it comes: adding it up at every read would take longer with every read."""
    data = frame(60_000)
    cutter = FrameCutter(1 << 20)
    for _ in range(2):
        came = 0
        chance = Random(1)
        while came < len(data):
            read = data[came : came + chance.choice((1, 3, 600, 5000))]
            came += len(read)
            found = list(cut(cutter, read))
            assert cutter.gathered == (came if came < len(data) else 0)
        assert [text_of(each) for each in found] == [data]
