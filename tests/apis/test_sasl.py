"""SaslHandshake and SaslAuthenticate: who is on the connection, from when on, and what a client cannot get around."""

from io import BytesIO

import pytest

from quota.kinds.controller_mutations import MutationLimit
from tests.apis.topic_frames import create
from tests.messages import request, response
from tests.support import ALICE, Dialogue

FIVE = MutationLimit(5, 500)
HAND = request(17, 1, 1, mechanism="PLAIN")
SHAKEN = response(17, 1, 1, error_code=0, mechanisms=("PLAIN",))


def authenticate(token: bytes, version: int = 2, number: int = 1) -> bytes:
    return request(36, version, number, auth_bytes=token)


def answer(error: int = 0, token: bytes = b"", version: int = 2) -> bytes:
    return response(36, version, 1, error_code=error, error_message=None, auth_bytes=token)


def exchange(d: Dialogue, mechanism: str, *rounds: tuple[bytes, int, bytes]) -> Dialogue:
    """(client's token, error code, broker's token) of each round."""
    d.client(request(17, 1, 1, mechanism=mechanism)).broker(SHAKEN)
    for token, error, reply in rounds:
        d.client(authenticate(token)).broker(answer(error, reply))
    assert d.to_broker
    assert d.to_client
    return d


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_user_is_known_once_the_broker_said_yes_and_not_before(world, version):
    d = world().dialogue()
    d.client(HAND).broker(SHAKEN)
    d.client(authenticate(b"\0alice\0secret", version))
    assert d.session.client.user == "ANONYMOUS"
    d.broker(answer(version=version))
    assert d.session.client.user == "alice"
    assert d.to_broker == HAND + authenticate(b"\0alice\0secret", version)
    assert d.to_client == SHAKEN + answer(version=version)


def test_a_refused_user_is_nobody(world):
    d = exchange(world().dialogue(), "PLAIN", (b"\0alice\0wrong", 58, b""))
    assert d.session.client.user == "ANONYMOUS"


def test_scram_takes_two_rounds(world):
    d = exchange(world().dialogue(), "SCRAM-SHA-512", (b"n,,n=alice,r=x", 0, b"r=xy,s=AA==,i=4096"))
    assert d.session.client.user == "ANONYMOUS"
    d.client(authenticate(b"c=biws,r=xy,p=proof")).broker(answer(0, b"v=sig"))
    assert d.session.client.user == "alice"
    assert d.to_broker
    assert d.to_client


def test_a_user_logged_in_is_limited_by_the_limit_of_that_user(world):
    d = world(limits={ALICE: FIVE}, knows_nothing=True).dialogue().log_in("alice")
    d.client(create(7, 2, ("a", 560), ("b", 1)))
    assert b"\2b" not in d.to_broker


def test_what_is_sent_behind_the_login_without_waiting_is_judged_as_that_user(world):
    """A broker works off requests in order, so these are alice's requests; a client must not escape her limit by being quick."""
    d = world(limits={ALICE: FIVE}).dialogue()
    flood = create(7, 3, ("a", 560)) + create(7, 4, ("b", 560))
    d.client(HAND + authenticate(b"\0alice\0secret") + flood)
    d.broker(SHAKEN + answer())
    sent = d.to_broker
    assert create(7, 4, ("b", 560)) not in sent
    assert d.to_client.startswith(SHAKEN + answer())


def test_a_second_login_is_a_new_exchange(world):
    w = world()
    d = w.dialogue().log_in("alice")
    exchange(d, "PLAIN", (b"\0bob\0wrong", 58, b""))
    assert d.session.client.user == "alice"
    exchange(d, "PLAIN", (b"\0alice\0secret", 0, b""))
    assert d.session.client.user == "alice"


def test_traffic_is_counted_for_who_sent_it(world):
    w = world()
    d = w.dialogue().log_in("alice")
    d.client(request(12, 4, 1))
    assert d.to_broker
    assert {(row.key.principal, row.key.api_key) for row in w.rows()} >= {("User:alice", 12), ("User:ANONYMOUS", 17)}


def test_an_authentication_without_handshake_passes(world):
    d = world().dialogue()
    frame = authenticate(b"\0alice\0secret")
    d.client(frame).broker(answer())
    assert d.session.client.user == "ANONYMOUS"
    assert (d.to_broker, d.to_client) == (frame, answer())


def test_a_token_that_nests_too_deep_is_no_way_to_break_the_proxy(world):
    import base64

    payload = base64.urlsafe_b64encode(b"[" * 90_000).rstrip(b"=")
    d = world().dialogue()
    d.client(request(17, 1, 1, mechanism="OAUTHBEARER")).broker(SHAKEN)
    frame = authenticate(b"n,,\x01auth=Bearer e30." + payload + b".x\x01\x01")
    d.client(frame).broker(answer())
    assert d.session.client.user == "ANONYMOUS"
    assert d.to_broker.endswith(frame)
    assert d.to_client == SHAKEN + answer()


def test_the_secret_is_nowhere_in_the_session_once_it_is_passed_on(world):
    d = world().dialogue()
    d.client(HAND).broker(SHAKEN).client(authenticate(b"\0alice\0hunter22"))
    assert b"hunter22" in d.to_broker
    assert "hunter22" not in _everything_in(d.session)
    d.broker(answer())
    assert d.to_client
    assert "hunter22" not in _everything_in(d.session)


def _everything_in(thing: object, seen: set[int] | None = None) -> str:
    """All text and bytes that can be reached from an object of the proxy's own."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return ""
    seen.add(id(thing))
    if isinstance(thing, bytes | bytearray | memoryview):
        return bytes(thing).decode("latin-1")
    if isinstance(thing, str):
        return thing
    if isinstance(thing, dict):
        return " ".join(_everything_in(part, seen) for pair in thing.items() for part in pair)
    if isinstance(thing, list | tuple | set | frozenset) or type(thing).__name__ == "deque":
        return " ".join(_everything_in(part, seen) for part in thing)  # type: ignore[attr-defined]
    if not type(thing).__module__.startswith(("proxy", "quota")) or isinstance(thing, BytesIO):
        return ""
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    parts = [getattr(thing, name, None) for name in names] + list(getattr(thing, "__dict__", {}).values())
    return " ".join(_everything_in(part, seen) for part in parts)
