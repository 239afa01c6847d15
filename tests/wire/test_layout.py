"""The gate before kio: every message passes to its exact end, no part of one does, and no claimed length is believed."""

import contextlib
from random import Random
from typing import Any

import pytest

from proxy.wire.kio_bridge import decode_response
from proxy.wire.layout import Array, Blob, Entity, Fixed, Nullable, Text, layout_of
from proxy.wire.primitives import BadBytes, encode_uvarint
from tests.messages import encode, make, response, schemas
from tests.support import bad


@pytest.mark.parametrize("kind", ["request", "response"])
def test_every_message_is_skipped_to_its_exact_end_and_not_beyond(kind):
    for _, key, version, schema in (row for row in schemas() if row[0] == kind):
        for seed in range(3):
            body = encode(make(schema, Random(seed)))
            data = b"front" + body + b"\xff\xff\xff"
            assert layout_of(schema).skip(data, 5, 5 + len(body)) == 5 + len(body), (key, version, seed)
            assert layout_of(schema).skip(data, 5, len(data)) == 5 + len(body), (key, version, seed)


@pytest.mark.parametrize("kind", ["request", "response"])
def test_no_part_of_a_message_passes(kind):
    for _, key, version, schema in (row for row in schemas() if row[0] == kind):
        body = encode(make(schema, Random(1)))
        for size in {*range(min(len(body), 60)), *range(max(len(body) - 25, 0), len(body))}:
            assert bad(layout_of(schema).skip, body, 0, size), f"{kind} {key} v{version}: {size} of {len(body)} bytes pass"


def _lies(layout: Entity, front: bytes = b"") -> list[bytes]:
    """A body for each array in a layout, up to and with a length that nobody can keep, the least in front of it that can be."""
    lies = []
    for _, part in layout.fields:
        if isinstance(part, Array):
            tops = (
                [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08"]
                if part.compact
                else [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0"]
            )
            lies += [front + top + bytes(20) for top in tops]
            if isinstance(part.element, Entity):
                lies += _lies(part.element, front + (b"\2" if part.compact else b"\0\0\0\1"))
        front += _least(part)
    return lies


def _least(part: Any) -> bytes:
    if isinstance(part, Text | Blob | Array) and part.compact:
        return b"\1"
    if isinstance(part, Entity):
        return b"".join(_least(inner) for _, inner in part.fields) + (b"\0" if part.tagged is not None else b"")
    return b"\xff" if isinstance(part, Nullable) else bytes(part.least)


def test_a_claimed_array_length_is_refused_in_every_array_of_every_message():
    tried = 0
    for _, key, version, schema in schemas():
        for lie in _lies(layout_of(schema)):
            tried += 1
            assert bad(layout_of(schema).skip, lie, 0, len(lie)), f"{schema.__name__} {key} v{version} believes {lie.hex()}"
    assert tried > 1000


def test_a_tagged_field_that_is_not_as_long_as_it_says_is_bad():
    layout = Entity([], {0: Fixed(4)})
    assert layout.skip(b"\1\0\4abcd", 0, 7) == 7
    for body in (b"\1\0\5abcde", b"\1\0\3abc", b"\1\0\4abc"):
        with pytest.raises(BadBytes):
            layout.skip(body, 0, len(body))


def test_the_gate_before_kio_stops_what_kio_would_not_survive():
    body = bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(20)
    frame = (len(body) + 5).to_bytes(4, "big") + b"\0\0\0\1\0" + body
    with pytest.raises(BadBytes):
        decode_response(3, 12, frame)


def test_an_unknown_tag_is_kept_from_kio():
    frame = response(3, 12, brokers=(), topics=(), cluster_id="c", controller_id=1)
    assert frame[-1] == 0
    frame = (len(frame) - 4 + 3).to_bytes(4, "big") + frame[4:-1] + b"\1\x63\1x"
    with pytest.raises(BadBytes, match="tagged field 99 is not known"):
        decode_response(3, 12, frame)


def test_an_unknown_tag_is_skipped_where_nobody_decodes():
    layout = Entity([("number", Fixed(2))], {0: Fixed(4)})
    body = b"\0\7" + b"\2\0\4abcd\x63\3xyz"
    assert layout.skip(body + b"more", 0, len(body) + 4) == len(body)
    assert all(bad(layout.skip, body, 0, size) for size in range(len(body)))


def test_broken_bodies_are_decoded_or_bad_and_nothing_else():
    """kio behind its gate: whatever a peer sends, a body is read or refused, and the process lives."""
    for key, version in ((3, 12), (3, 1), (18, 3), (60, 1), (19, 7), (36, 2), (35, 4)):
        for seed in range(600):
            chance = Random(seed)
            data = bytearray(response(key, version, chance=Random(seed % 20)))
            for _ in range(chance.choice((1, 2, 4))):
                data[chance.randrange(9, len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            with contextlib.suppress(BadBytes):
                decode_response(key, version, bytes(data))


def test_what_kio_wrote_is_read_back_equal():
    from proxy.wire.kio_bridge import encode_response

    for kind, key, version, schema in schemas():
        if kind == "response":
            made = make(schema, Random(5))
            assert decode_response(key, version, encode_response(9, made)) == made


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**28, 2**32 - 2])
def test_blobs_and_texts_of_any_claimed_length(value):
    for part in (Blob(compact=True), Text(compact=True)):
        data = encode_uvarint(value + 1) + b"x" * min(value, 200)
        if value <= 200:
            assert part.skip(data, 0, len(data)) == len(data)
        else:
            with pytest.raises(BadBytes):
                part.skip(data, 0, len(data))
