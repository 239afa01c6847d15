"""Lengths are compared with what is there before anything is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.primitives import (
    INT32,
    BadBytes,
    array,
    encode_array_length,
    encode_string,
    encode_uvarint,
    fixed,
    skip_tags,
    span,
    string,
    uvarint,
)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_a_varint_comes_back(value, trailing):
    data = encode_uvarint(value)
    assert uvarint(b"xx" + data + trailing, 2, 2 + len(data)) == (value, 2 + len(data))
    for size in range(len(data)):
        with pytest.raises(BadBytes):
            uvarint(data, 0, size)


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\1", b"\xff\xff\xff\xff\x10", b"\xff" * 5, b"\x80\x80\x80\x80\x80\0", b""])
def test_a_varint_of_more_than_32_bits_is_none(data):
    with pytest.raises(BadBytes):
        uvarint(data, 0, len(data))


@given(st.none() | st.text(max_size=300), st.booleans(), st.binary(max_size=3))
def test_a_string_comes_back(text, compact, trailing):
    data = encode_string(text, compact)
    assert string(data + trailing, 0, len(data) + len(trailing), compact) == (text, len(data))
    for size in range(len(data)):
        with pytest.raises(BadBytes):
            string(data + trailing, 0, size, compact)


def test_a_string_that_is_not_utf8_is_bad_in_both_forms():
    for data, compact in ((b"\0\2\xc3\x28", False), (b"\3\xc3\x28", True)):
        with pytest.raises(BadBytes, match="UTF-8"):
            string(data, 0, len(data), compact)


@pytest.mark.parametrize("length", [-2, -(2**15)])
def test_a_negative_length_that_is_not_null_is_bad(length):
    with pytest.raises(BadBytes):
        span(length.to_bytes(2, "big", signed=True) + b"abc", 0, 5, compact=False)


def test_wide_spans_have_four_bytes_of_length():
    assert span(b"\0\0\0\3abc", 0, 7, False, INT32) == (4, 7)
    assert span(b"\xff\xff\xff\xff", 0, 4, False, INT32) == (-1, 4)


@given(st.integers(0, 2**31 - 1), st.integers(0, 40), st.integers(1, 9), st.booleans())
def test_an_array_has_as_many_elements_as_there_is_room_for(count, room, least, compact):
    data = encode_array_length(count, compact) + bytes(room)
    if count * least <= room:
        assert array(data, 0, len(data), compact, least) == (count, len(data) - room)
    else:
        with pytest.raises(BadBytes):
            array(data, 0, len(data), compact, least)


def test_null_and_impossible_arrays():
    assert array(b"\0", 0, 1, compact=True) == (-1, 1)
    assert array(b"\xff\xff\xff\xff", 0, 4, compact=False) == (-1, 4)
    for data, compact in ((b"\xff\xff\xff\xfe", False), (b"\xff\xff\xff\xff\x0f", True), (b"\0\0\0", False), (b"", True)):
        with pytest.raises(BadBytes):
            array(data, 0, len(data), compact)


def test_fixed_says_how_much_is_missing():
    assert fixed(3, 4, 7) == 7
    with pytest.raises(BadBytes, match="4 bytes announced, 3 left"):
        fixed(3, 4, 6)


@given(st.lists(st.tuples(st.integers(0, 2**31), st.binary(max_size=200)), max_size=5), st.binary(max_size=2))
def test_tagged_fields_are_skipped_whatever_they_are(fields, trailing):
    data = encode_uvarint(len(fields))
    for tag, value in fields:
        data += encode_uvarint(tag) + encode_uvarint(len(value)) + value
    assert skip_tags(data + trailing, 0, len(data) + len(trailing)) == len(data)
    for size in range(len(data)):
        with pytest.raises(BadBytes):
            skip_tags(data + trailing, 0, size)


def test_a_claimed_number_of_tagged_fields_costs_nothing():
    with pytest.raises(BadBytes):
        skip_tags(b"\xff\xff\xff\xff\x0f\0\0", 0, 7)
