"""One SASL exchange, watched: names are learnt when the broker says yes, and nothing secret stays."""

import base64
import json

import pytest

from proxy.identity.sasl import SaslExchange


def bearer(claims: object, head: str = "n,,\x01auth=Bearer ") -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}e30.{payload}.signature\x01\x01".encode()


def run(mechanism: str, *rounds: tuple[bytes, int, bytes]) -> list[str | None]:
    exchange = SaslExchange(mechanism)
    answers = []
    for token, error, reply in rounds:
        exchange.client_token(token)
        answers.append(exchange.broker_answer(error, reply))
    return answers


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0jörg\0geheim".encode(), "jörg"),
        (b"\0alice\0", "alice"),
        (b"\0\0secret", None),
        (b"alice", None),
        (b"\0a\0b\0c", None),
        (b"\0\xff\xfe\0secret", None),
        (b"", None),
    ],
)
def test_plain(token, name):
    assert run("PLAIN", (token, 0, b"")) == [name]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"n,,n=alice,r=nonce", "alice"),
        (b"n,a=admin,n=alice,r=nonce", "alice"),
        (b"n,,n=a=2Cb=3Dc,r=nonce", "a,b=c"),
        (b"n,,n=a=3D2Cb,r=nonce", "a=2Cb"),
        (b"n,,n=token-id,r=nonce,tokenauth=true", None),
        (b"n,,r=nonce", None),
        (b"\xff\xff", None),
        (b"", None),
    ],
)
def test_scram_says_the_name_after_the_second_answer(mechanism, token, name):
    assert run(mechanism, (token, 0, b"r=x,s=y,i=1"), (b"c=biws,r=x,p=proof", 0, b"v=z")) == [None, name]


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (bearer({"sub": "alice"}), "alice"),
        (bearer({"sub": "alice"}, "n,a=x,\x01host=h\x01auth=bearer "), "alice"),
        (bearer({"sub": 7}), None),
        (bearer({"name": "alice"}), None),
        (bearer(["alice"]), None),
        (b"n,,\x01auth=Bearer e30.!!!.x\x01\x01", None),
        (b"n,,\x01auth=Bearer e30.bm9qc29u.x\x01\x01", None),
        (b"n,,\x01auth=Bearer onlyone\x01\x01", None),
        (b"n,,\x01auth=Bearer a.\xff.c\x01\x01", None),
        (b"n,,\x01auth=Bearer e30.\xc3\xbc.c\x01\x01", None),
        (b"n,,\x01auth=Bearer e30." + base64.urlsafe_b64encode(b"[" * 90_000).rstrip(b"=") + b".c\x01\x01", None),
        (b"", None),
    ],
    ids=[
        "sub",
        "with host",
        "number",
        "no sub",
        "a list",
        "not base64",
        "not JSON",
        "no dots",
        "not UTF-8",
        "not ASCII",
        "too deep",
        "empty",
    ],
)
def test_oauthbearer(token, name):
    assert run("OAUTHBEARER", (token, 0, b"")) == [name]


def test_a_bearer_token_that_is_refused_is_answered_with_a_text_first():
    assert run("OAUTHBEARER", (bearer({"sub": "alice"}), 0, b'{"status":"invalid_token"}'), (b"\x01", 58, b"")) == [None, None]


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [("PLAIN", b"\0alice\0x"), ("SCRAM-SHA-512", b"n,,n=alice,r=x"), ("OAUTHBEARER", bearer({"sub": "alice"}))],
)
def test_a_refused_exchange_names_nobody_not_even_when_it_goes_on(mechanism, token):
    assert run(mechanism, (token, 58, b""), (b"\0admin\0x", 0, b""), (b"", 0, b""))[0] is None


def test_a_refused_name_is_not_accepted_by_a_later_answer():
    exchange = SaslExchange("PLAIN")
    exchange.client_token(b"\0alice\0wrong")
    assert [exchange.broker_answer(58, b""), exchange.broker_answer(0, b"")] == [None, None]


def test_a_scram_exchange_refused_in_the_second_round_names_nobody():
    assert run("SCRAM-SHA-256", (b"n,,n=alice,r=x", 0, b"r"), (b"c=biws,p=wrong", 58, b"")) == [None, None]


def test_the_first_name_counts_whatever_later_tokens_say():
    assert run("SCRAM-SHA-256", (b"n,,n=alice,r=x", 0, b"r"), (b"n,,n=admin,r=x", 0, b"v")) == [None, "alice"]


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM", ""])
def test_other_mechanisms_name_nobody(mechanism):
    assert run(mechanism, (b"\0alice\0secret", 0, b""), (b"", 0, b""), (b"", 0, b"")) == [None, None, None]


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [("PLAIN", b"\0alice\0hunter22"), ("OAUTHBEARER", bearer({"sub": "alice", "jti": "hunter22"})), ("PLAIN", b"hunter22")],
)
def test_no_attribute_holds_a_secret(mechanism, token):
    exchange = SaslExchange(mechanism)
    exchange.client_token(token)
    kept = [str(getattr(exchange, name)) for name in SaslExchange.__slots__]
    assert not any("hunter22" in text or "signature" in text for text in kept)
    assert not hasattr(exchange, "__dict__")


@pytest.mark.parametrize(
    "payload",
    [
        rb'{"sub":"a\ud800"}',
        rb'{"sub":"\udc00\ud800"}',
        b'{"sub":"a\xed\xa0\x80"}',
        b'{"sub":"  "}',
        b'{"sub":""}',
        b'{"sub":1}',
    ],
)
def test_a_subject_that_is_no_valid_unicode_or_blank_names_nobody(payload):
    """Half a character (a lone surrogate), written as JSON or as bytes, could not be written to any log."""
    token = b"n,,\x01auth=Bearer e30." + base64.urlsafe_b64encode(payload).rstrip(b"=") + b".signature\x01\x01"
    assert run("OAUTHBEARER", (token, 0, b"")) == [None]


def test_a_subject_of_two_halves_is_the_character():
    token = b"n,,\x01auth=Bearer e30." + base64.urlsafe_b64encode(rb'{"sub":"\ud83d\ude00"}').rstrip(b"=") + b".s\x01\x01"
    assert run("OAUTHBEARER", (token, 0, b"")) == ["\U0001f600"]
