"""What Kafka 4.4 adds to the protocol, in frames made by hand, as kio has no schemas of it.

ApiVersions v5 (KIP-1242), TxnOffsetCommit v6 (KIP-1319), DeleteGroups v3, StreamsGroupDescribe v1 and
StreamsGroupTopologyDescriptionUpdate (KIP-1331), UnregisterController."""

from __future__ import annotations

import struct

import pytest

from tests.messages import request
from tests.support import ANYBODY, Dialogue

REBOOTSTRAP_REQUIRED, UNSUPPORTED_VERSION = 129, 35


def frame(*parts: bytes) -> bytes:
    return sum(map(len, parts)).to_bytes(4, "big") + b"".join(parts)


def versions_request(cluster: str | None, node: int, version: int = 5) -> bytes:
    """ApiVersions of a client that expects to reach this broker of this cluster."""
    header = struct.pack(">hhi", 18, version, 7) + b"\0\2me" + b"\0"
    expected = (b"\0" if cluster is None else bytes([len(cluster) + 1]) + cluster.encode()) + struct.pack(">i", node)
    return frame(header, b"\7apache", b"\x064.4.0", expected, b"\0")


def versions_response(error: int, *ranges: tuple[int, int, int]) -> bytes:
    """The same fields in versions 3 to 5."""
    entries = b"".join(struct.pack(">hhh", *each) + b"\0" for each in ranges)
    return frame(b"\0\0\0\7", struct.pack(">h", error), bytes([len(ranges) + 1]) + entries, b"\0\0\0\0", b"\0")


def unsupported(highest: int) -> bytes:
    """What a broker answers to a version that it does not know (KIP-511)."""
    return frame(b"\0\0\0\7", struct.pack(">h", UNSUPPORTED_VERSION), b"\0\0\0\1", struct.pack(">hhh", 18, 0, highest))


class Broker:
    """One that compares as Kafka 4.4 does."""

    def __init__(self, cluster: str, node: int) -> None:
        self._here = (cluster, node)

    def answers(self, dialogue: Dialogue, *ranges: tuple[int, int, int]) -> bytes:
        """What the client gets for the request that has reached the broker."""
        got = dialogue.to_broker
        expected = (got == versions_request(None, -1)) or got == versions_request(*self._here)
        return dialogue.broker(versions_response(0 if expected else REBOOTSTRAP_REQUIRED, *ranges)).to_client


@pytest.mark.parametrize("node", [1, 2, 3])
def test_who_came_to_the_bootstrap_address_is_never_told_that_it_is_at_the_wrong_broker(world, node):
    """There a broker is shown that has no port of its own, and any broker answers."""
    d = world().dialogue(broker=None)
    d.client(versions_request("cluster", node))
    assert Broker("cluster", 1).answers(d) == versions_response(0)


def test_who_came_to_the_address_of_its_broker_reaches_it(world):
    d = world().dialogue(broker=2)
    d.client(versions_request("cluster", 2))
    assert Broker("cluster", 2).answers(d) == versions_response(0)


@pytest.mark.parametrize(("cluster", "node"), [("cluster", 3), ("another", 2)])
def test_whose_broker_has_gone_from_this_address_is_told(world, cluster, node):
    """The broker itself says so, and the client asks a bootstrap server where its broker is now."""
    d = world().dialogue(broker=2)
    d.client(versions_request(cluster, node))
    assert Broker("cluster", 2).answers(d) == versions_response(REBOOTSTRAP_REQUIRED)


@pytest.mark.parametrize("broker", [None, 2])
def test_a_request_that_expects_no_broker_passes_as_it_is(world, broker):
    d = world().dialogue(broker=broker)
    sent = versions_request(None, -1)
    assert d.client(sent).to_broker == sent


def test_ranges_are_cut_in_version_5_too(world):
    d = world().dialogue()
    d.client(versions_request(None, -1))
    assert Broker("cluster", 1).answers(d, (0, 3, 99), (18, 0, 9), (93, 0, 0)) == versions_response(
        0, (0, 3, 13), (18, 0, 5), (93, 0, 0)
    )


def test_a_client_of_kafka_4_4_gets_along_with_an_older_broker(world):
    d = world().dialogue()
    d.client(versions_request("cluster", 1))
    assert d.to_broker
    assert d.broker(unsupported(4)).to_client == unsupported(4)
    again = request(18, 4, 8)
    assert d.client(again).to_broker == again


def test_a_request_in_pieces_is_understood(world):
    d = world().dialogue()
    sent = versions_request("cluster", 9)
    d.client(sent[:20], sent[20:30], sent[30:])
    assert d.to_broker == versions_request(None, -1)


def test_a_request_that_ends_in_its_node_id_closes_the_connection(world):
    d = world().dialogue()
    sent = versions_request("cluster", 9)[:-3]
    d.client((len(sent) - 4).to_bytes(4, "big") + sent[4:])
    assert d.to_broker == b""
    assert len(d.failures) == 1


NEW = [(28, 6), (42, 3), (89, 1), (93, 0), (94, 0)]


def any_request(key: int, version: int, number: int) -> bytes:
    return frame(struct.pack(">hhi", key, version, number), b"\0\2me", b"\0", b"whatever it is")


def any_response(number: int, throttle_ms: int = 0) -> bytes:
    return frame(struct.pack(">i", number), b"\0", struct.pack(">i", throttle_ms), b"whatever it is")


@pytest.mark.parametrize(("key", "version"), NEW)
def test_what_kio_has_no_schema_of_passes_as_it_is(world, key, version):
    w = world()
    d = w.dialogue()
    sent, answer = any_request(key, version, 9), any_response(9)
    d.client(sent).broker(answer)
    assert (d.to_broker, d.to_client) == (sent, answer)
    assert w.watcher.client_failures == w.watcher.broker_failures == []


@pytest.mark.parametrize(("key", "version"), [(28, 6), (42, 3), (89, 1)])
def test_a_throttle_is_told_in_them(world, key, version):
    w = world(requests={ANYBODY: 1.0})
    d = w.dialogue()
    for number in range(30):
        d.client(any_request(key, version, number)).broker(any_response(number))
        told = d.to_client
        if d.to_broker and told != any_response(number):
            break
    throttle_ms = int.from_bytes(told[9:13], "big")
    assert throttle_ms > 0
    assert told == any_response(number, throttle_ms)
    assert [decision.throttle > 0 for decision, _ in w.watcher.decisions] == [True]
