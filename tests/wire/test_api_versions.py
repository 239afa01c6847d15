"""The ranges that clients see: what broker and proxy both understand."""

import pytest

from proxy.wire.api_versions import clamp, clamp_range, read_ranges, unsupported, without_target
from proxy.wire.primitives import BadBytes
from tests.messages import part_of, read_response, response

UNDERSTOOD = {0: (0, 13), 1: (0, 18), 18: (0, 5), 60: (0, 2), 78: (1, 2)}


def advertised(version: int, *ranges: tuple[int, int, int]) -> bytes:
    from kio.index import load_response_schema

    entry = part_of(load_response_schema(18, version), "api_keys")
    return response(18, version, error_code=0, api_keys=tuple(entry(api_key=k, min_version=a, max_version=b) for k, a, b in ranges))


def ranges_of(version: int, frame: bytes) -> list[tuple[int, int, int]]:
    return [(int(e.api_key), int(e.min_version), int(e.max_version)) for e in read_response(18, version, frame).api_keys]


@pytest.mark.parametrize("version", range(5))
def test_ranges_are_cut_to_what_is_understood_and_others_left_alone(version):
    frame = advertised(version, (0, 3, 13), (1, 4, 30), (60, 0, 1), (78, 0, 0), (2, 1, 99), (500, 7, 8))
    got = b"".join(clamp(frame, version, UNDERSTOOD))
    assert ranges_of(version, got) == [(0, 3, 13), (1, 4, 18), (60, 0, 1), (2, 1, 99), (500, 7, 8)]
    assert read_ranges(frame, version)[1] == (4, 30)


@pytest.mark.parametrize("version", range(5))
def test_what_stands_behind_the_ranges_survives(version):
    frame = response(18, version, error_code=0)
    before, after = read_response(18, version, frame), read_response(18, version, b"".join(clamp(frame, version, {})))
    assert before == after


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 20, (0, 13)), (3, 9, (3, 9)), (3, 30, (3, 13)), (14, 20, None), (13, 14, (13, 13))],
    ids=["wider", "narrower", "newer", "newer than the proxy", "one in common"],
)
def test_an_empty_range_is_left_out(low, high, wanted):
    assert clamp_range(0, low, high, UNDERSTOOD) == (None if wanted is None else (0, *wanted))


@pytest.mark.parametrize("asked", range(6))
def test_an_unsupported_version_is_answered_in_the_shape_of_version_0(asked):
    body = b"\0\x23" + b"\0\0\0\2" + b"\0\x12\0\0\0\5" + b"\0\0\0\0\0\x0d"
    frame = (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\1" + body
    got = b"".join(clamp(frame, asked, UNDERSTOOD))
    assert ranges_of(0, got) == [(18, 0, 5), (0, 0, 13)]
    assert got[8:10] == b"\0\x23"
    assert read_ranges(frame, asked) == {}


def test_unknown_tagged_fields_survive():
    entries = b"\3" + b"\0\0\0\0\0\x63" + b"\1\7\2ab" + b"\0\1\0\0\0\2" + b"\0"
    body = b"\0\0" + entries + b"\0\0\0\0" + b"\1\x2a\3xyz"
    frame = (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\1" + body
    got = b"".join(clamp(frame, 3, UNDERSTOOD))
    assert got == frame.replace(b"\0\0\0\0\0\x63\1\7", b"\0\0\0\0\0\x0d\1\7")


def test_the_proxys_own_answer_to_a_version_it_does_not_know():
    answer = read_response(18, 0, unsupported(9))
    assert int(answer.error_code) == 35
    assert [(int(e.api_key), int(e.min_version), int(e.max_version)) for e in answer.api_keys] == [(18, 0, 5)]
    assert unsupported(9)[4:8] == b"\0\0\0\x09"


def test_no_part_of_a_response_passes():
    for version in (0, 3):
        frame = advertised(version, (0, 3, 13), (1, 4, 30))
        stop = frame.index(b"\0\1\0\4\0\x1e") + 6
        for size in range(8, stop):
            with pytest.raises(BadBytes):
                clamp(frame[:size], version, UNDERSTOOD)


def test_the_answer_to_version_5_has_the_shape_of_version_4():
    frame = advertised(4, (0, 3, 14), (18, 0, 5))
    got = b"".join(clamp(frame, 5, UNDERSTOOD))
    assert got == b"".join(clamp(frame, 4, UNDERSTOOD))
    assert ranges_of(4, got) == [(0, 3, 13), (18, 0, 5)]


def expecting(cluster: bytes, node: int, tags: bytes = b"\0") -> tuple[bytes, int]:
    """A request of version 5, by hand, and where its body starts."""
    header = b"\0\x12\0\5\0\0\0\7\0\2me\0"
    body = b"\7apache" + b"\6" + b"4.4.0" + cluster + node.to_bytes(4, "big", signed=True) + tags
    return (len(header) + len(body)).to_bytes(4, "big") + header + body, 4 + len(header)


@pytest.mark.parametrize("tags", [b"\0", b"\1\x63\3abc"], ids=["no tags", "an unknown tag"])
@pytest.mark.parametrize("before", [b"", b"what came before"], ids=["at the start", "in the middle"])
def test_the_expected_broker_is_taken_out_and_all_else_stays(before, tags):
    frame, body = expecting(b"\6OtHer", 3, tags)
    data = before + frame
    pieces = without_target(data, len(before), len(before) + body, len(data))
    assert b"".join(pieces) == expecting(b"\0", -1, tags)[0]


@pytest.mark.parametrize(("cluster", "node"), [(b"\0", -1), (b"\0", 3), (b"\6OtHer", -1)])
def test_a_request_without_both_cluster_and_node_stays_as_it_is(cluster, node):
    frame, body = expecting(cluster, node)
    assert without_target(frame, 0, body, len(frame)) is None


def test_no_part_of_a_request_that_expects_a_broker_passes():
    frame, body = expecting(b"\6OtHer", 3)
    for size in range(body, len(frame) - 1):
        with pytest.raises(BadBytes):
            without_target(frame[:size], 0, body, size)
