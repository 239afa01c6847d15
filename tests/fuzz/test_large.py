"""Large requests that are all structure: reading them in full would hold up everybody for seconds, and take gigabytes.

Each is refused with one report before that, whatever stands in it; the largest that is taken goes on as it is."""

import pytest

from proxy.identity.sasl import MAX_TOKEN
from proxy.session.plans import MAX_JOINED
from proxy.wire.primitives import INT32, MAX_TAGS, encode_uvarint
from proxy.wire.produce import MAX_TOPICS, MAX_UNUSUAL
from tests.apis.topic_frames import FIVE
from tests.messages import request, response
from tests.support import ANYBODY, World

READ = 256 << 10
BIG = 64 << 20
PRODUCE_START = b"\0\1\0\0\0\1"  # acks, timeout


def frame(key: int, version: int, body: bytes, tags: bytes) -> bytes:
    """A request; `tags` are those of its header, nothing where it has none."""
    inner = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\3app" + tags + body
    return INT32.pack(len(inner)) + inner


def tagged(count: int) -> bytes:
    return encode_uvarint(count) + b"\x63\0" * count


def produce_topics(count: int) -> bytes:
    return frame(0, 9, b"\0" + PRODUCE_START + encode_uvarint(count + 1) + b"\1\1\0" * count + b"\0", b"\0")


def produce_partitions(count: int) -> bytes:
    """Of one topic, without records."""
    partitions = encode_uvarint(count + 1) + b"\0\0\0\0\1\0" * count
    return frame(0, 9, b"\0" + PRODUCE_START + b"\2\2t" + partitions + b"\0\0", b"\0")


def produce_tags(count: int) -> bytes:
    return frame(0, 9, b"\0" + PRODUCE_START + b"\1" + tagged(count), b"\0")


def create_topics(size: int) -> bytes:
    """Version 4, so many bytes long: topics without partitions, and the last with a config that takes what is left."""
    topic = b"\0\3abc\0\0\0\0\0\1" + bytes(8)
    room = size - len(frame(19, 4, bytes(4 + 5), b""))
    count = room // len(topic)
    left = room - count * len(topic)
    name = b"\0" + bytes([3 + left]) + b"x" * (3 + left)
    return frame(19, 4, INT32.pack(count) + topic * (count - 1) + name + topic[5:] + b"\0\0\x03\xe8\0", b"")


REFUSED = {
    "topics of Produce": produce_topics(MAX_TOPICS + 1),
    "partitions without records": produce_partitions(MAX_UNUSUAL + 1),
    "tagged fields of Produce": produce_tags(MAX_TAGS + 1),
    "millions of them": produce_tags(1 << 20),
    "tagged fields of a header": frame(0, 9, b"", tagged(1 << 20)),
}
TAKEN = {
    "topics of Produce": produce_topics(MAX_TOPICS),
    "partitions without records": produce_partitions(MAX_UNUSUAL // 2),
    "tagged fields of Produce": produce_tags(MAX_TAGS),
    "tagged fields of a header": frame(0, 9, b"\0" + PRODUCE_START + b"\1\0", tagged(MAX_TAGS)),
    "CreateTopics": create_topics(MAX_JOINED),
}


def reads(data: bytes) -> list[bytes]:
    return [data[at : at + READ] for at in range(0, len(data), READ)]


@pytest.mark.parametrize("limits", [{}, {ANYBODY: FIVE}], ids=["no quota", "a quota"])
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_large_request_that_is_all_structure_closes_with_one_report(data, limits):
    world = World(limits, max_frame=BIG)
    d = world.dialogue()
    d.client(*reads(data))
    assert (d.port.closes, len(d.failures)) == (1, 1)
    assert d.to_broker == b""
    assert world.services.budget.held == 0


def test_topics_to_create_beyond_what_is_read_close_where_they_would_be_charged():
    data = create_topics(MAX_JOINED + 1)
    free, charged = World(max_frame=BIG), World({ANYBODY: FIVE}, max_frame=BIG)
    d = free.dialogue()
    d.client(*reads(data))
    assert (d.to_broker, d.failures) == (data, []), "without a quota it passes uncounted"
    d = charged.dialogue()
    d.client(*reads(data))
    assert (d.port.closes, len(d.failures), d.to_broker) == (1, 1, b"")


def test_names_beyond_what_is_read_close_where_they_might_be_created():
    names = b"".join(b"\0\x40" + b"%064d" % i for i in range(1 << 14))
    data = frame(3, 4, INT32.pack(1 << 14) + names + b"\1", b"")
    free, charged = World(max_frame=BIG), World({ANYBODY: FIVE}, max_frame=BIG)
    assert free.dialogue().client(*reads(data)).to_broker == data
    d = charged.dialogue().client(*reads(data))
    assert (d.port.closes, len(d.failures), d.to_broker) == (1, 1, b"")


@pytest.mark.parametrize("data", TAKEN.values(), ids=TAKEN)
def test_the_largest_that_is_taken_goes_on(data):
    d = World(max_frame=BIG).dialogue()
    d.client(*reads(data))
    assert d.failures == []
    assert d.to_broker == data


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"])
def test_a_token_longer_than_brokers_take_closes_with_one_report(mechanism, version):
    d = World(max_frame=BIG).dialogue()
    hand, answer = request(17, 1, mechanism=mechanism), response(17, 1, error_code=0)
    token = b"n,,n=" + b"a" * (MAX_TOKEN - 4)
    assert d.client(hand).broker(answer).to_broker == hand
    d.client(*reads(request(36, version, auth_bytes=token)))
    assert (d.port.closes, len(d.failures)) == (1, 1)
    assert d.to_broker == b""


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "GSSAPI"])
def test_so_does_one_without_a_header(mechanism):
    d = World(max_frame=BIG).dialogue()
    hand, answer = request(17, 0, mechanism=mechanism), response(17, 0, error_code=0)
    d.client(hand).broker(answer)
    assert d.to_broker == hand
    d.client(*reads(INT32.pack(MAX_TOKEN + 1) + b"n" * (MAX_TOKEN + 1)))
    assert (d.port.closes, len(d.failures)) == (1, 1)
    assert d.to_broker == b""
