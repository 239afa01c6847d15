"""Headers against kio's schemas: which versions are flexible, where bodies start."""

import pytest

from proxy.wire.headers import CLIENT_ID_AT, client_id_end, flexible, request_body, response_body
from proxy.wire.primitives import BadBytes
from tests.messages import encode, make, schemas
from tests.messages import request as request_frame
from tests.messages import response as response_frame


def test_flexible_versions_are_those_of_the_schemas():
    wrong = [
        (key, version)
        for kind, key, version, schema in schemas()
        if kind == "request" and flexible(key, version) != schema.__flexible__
    ]
    assert wrong == []
    header = {(key, version): schema.__header_schema__.__version__ for kind, key, version, schema in schemas() if kind == "request"}
    assert [at for at, version in header.items() if (version == 2) != flexible(*at)] == []


def test_bodies_start_where_the_header_ends_in_every_request_and_response():
    from random import Random

    for kind, key, version, schema in schemas():
        body = encode(make(schema, Random(3)))
        if kind == "request":
            frame = request_frame(key, version, chance=Random(3), client_id="ünï")
            stop = client_id_end(frame, 0, len(frame))
            assert frame[CLIENT_ID_AT:stop] == b"\0\5" + "ünï".encode(), (key, version)
            assert frame[request_body(frame, stop, len(frame), key, version) :] == body, (key, version)
        else:
            frame = response_frame(key, version, chance=Random(3))
            assert frame[response_body(frame, 0, len(frame), key, version) :] == body, (key, version)


def test_tagged_fields_of_a_header_are_skipped():
    assert request_body(b"\2\0\1x\5\0body", 0, 10, 3, 12) == 6
    assert response_body(b"\0\0\0\x0a\0\0\0\1\1\0\2ab", 0, 13, 3, 12) == 13


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"\x80\0", b"\0\5abcd", b"\0", b""])
def test_a_client_id_that_cannot_be_is_bad(client_id):
    frame = bytes(CLIENT_ID_AT) + client_id
    with pytest.raises(BadBytes):
        client_id_end(frame, 0, len(frame))


def test_a_null_client_id_ends_behind_its_length():
    assert client_id_end(bytes(CLIENT_ID_AT) + b"\xff\xffrest", 0, CLIENT_ID_AT + 6) == CLIENT_ID_AT + 2
