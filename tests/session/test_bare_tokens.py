"""SASL after a handshake of version 0: tokens without headers (KIP-43)."""

from __future__ import annotations

import base64
import json

import pytest

from proxy.session.session import State
from tests.messages import request, response
from tests.support import byte_by_byte

SCRAM = [(b"n,,n=bob,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"), (b"c=biws,r=abcdef,p=cHJvb2Y=", b"v=c2lnbmF0dXJl")]
JWT = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, {"sub": "carl"})) + ".x"
EXCHANGES = {
    "PLAIN": ("alice", [(b"\0alice\0secret", b"")]),
    "SCRAM-SHA-512": ("bob", SCRAM),
    "OAUTHBEARER": ("carl", [(b"n,,\x01auth=Bearer " + JWT.encode() + b"\x01\x01", b"")]),
}


def bare(token: bytes) -> bytes:
    return len(token).to_bytes(4, "big") + token


def shake_hands(d, mechanism: str):
    hand, answer = request(17, 0, 1, mechanism=mechanism), response(17, 0, 1, error_code=0, mechanisms=(mechanism,))
    d.client(hand).broker(answer)
    assert (d.to_broker, d.to_client) == (hand, answer)
    return d


def works(d, user: str) -> None:
    """Ordinary requests pass, and are this user's."""
    assert d.session.client.user == user
    asked, answer = request(3, 1, 7), response(3, 1, 7)
    d.client(asked).broker(answer)
    assert d.to_broker == asked
    assert d.to_client
    assert d.session.state is State.OPEN


@pytest.mark.parametrize("mechanism", EXCHANGES)
@pytest.mark.parametrize("cut", [lambda data: [data], byte_by_byte], ids=["whole", "byte by byte"])
def test_an_exchange_passes_and_names_the_user(world, mechanism, cut):
    d = shake_hands(world().dialogue(), mechanism)
    user, rounds = EXCHANGES[mechanism]
    for token, answer in rounds:
        assert d.session.client.user == "ANONYMOUS"
        d.client(*cut(bare(token)))
        assert d.to_broker == bare(token)
        d.broker(*cut(bare(answer)))
        assert d.to_client == bare(answer)
    works(d, user)


def test_a_request_behind_a_token_waits_for_the_brokers_answer(world):
    """Or it would be judged as somebody else's."""
    d = shake_hands(world().dialogue(), "PLAIN")
    asked = request(3, 1, 7)
    d.client(bare(b"\0alice\0secret") + asked)
    assert d.to_broker == bare(b"\0alice\0secret")
    d.broker(bare(b"") + response(3, 1, 7)[:3])
    assert d.to_client == bare(b"")
    assert d.session.client.user == "alice"
    assert d.to_broker == asked


def test_a_broker_that_closes_instead_of_an_answer_leaves_nobody(world):
    d = shake_hands(world().dialogue(), "PLAIN").client(bare(b"\0alice\0wrong"))
    assert d.to_broker
    d.session.broker_lost(None)
    assert d.session.client.user == "ANONYMOUS"
    assert d.port.closes == 1
    assert d.failures == []


def test_an_oauthbearer_token_that_is_refused_names_nobody(world):
    d = shake_hands(world().dialogue(), "OAUTHBEARER")
    _, [(token, _)] = EXCHANGES["OAUTHBEARER"]
    d.client(bare(token)).broker(bare(b'{"status":"invalid_token"}')).client(bare(b"\x01"))
    assert d.to_broker == bare(token) + bare(b"\x01")
    assert d.to_client
    assert d.session.client.user == "ANONYMOUS"


def test_gssapi_passes_with_an_unknown_user(world):
    """How many tokens there are, and whether each is answered, only the two sides know; the last is not."""
    d = shake_hands(world().dialogue(), "GSSAPI")
    for token, answer in ((b"\x60\x82first", b"\x60second"), (b"", b"\x05\x04layers")):
        d.client(bare(token)).broker(bare(answer))
        assert (d.to_broker, d.to_client) == (bare(token), bare(answer))
    d.client(bare(b"\x05\x04last") + request(3, 1, 7))
    assert d.to_broker == bare(b"\x05\x04last") + request(3, 1, 7)
    d.broker(response(3, 1, 7))
    assert d.to_client
    works(d, "ANONYMOUS")


def test_a_handshake_that_is_refused_changes_nothing(world):
    d = world().dialogue()
    d.client(request(17, 0, 1, mechanism="NONE")).broker(response(17, 0, 1, error_code=33, mechanisms=("PLAIN",)))
    assert d.to_broker
    assert d.to_client
    works(d, "ANONYMOUS")


def test_a_token_of_impossible_length_from_the_broker_closes_the_connection(world):
    d = shake_hands(world().dialogue(), "PLAIN").client(bare(b"\0alice\0secret"))
    assert d.to_broker
    d.broker(b"\x7f\xff\xff\xff")
    assert d.port.closes == 1
    assert len(d.world.watcher.broker_failures) == 1
