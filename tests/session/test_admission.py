"""A connection is let in when a broker has shown that it serves it; before that, nothing is judged, counted or remembered."""

import pytest

from proxy.session.admission import CLOSED_FOR, MAX_REQUESTS, OPEN_FOR, Admission
from proxy.session.session import State
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.controller_mutations import MutationLimit
from tests.apis.produce_frames import records, write
from tests.apis.topic_frames import BEAT, HEARTBEAT, create
from tests.messages import request, response
from tests.support import ANYBODY, World

VERSIONS = request(18, 3, 1)
HAND, SHAKEN = request(17, 1, mechanism="GSSAPI"), response(17, 1, error_code=0, mechanisms=("GSSAPI",))
TOKEN, TAKEN = request(36, 2, auth_bytes=b"`x"), response(36, 2, error_code=0, error_message=None, auth_bytes=b"y")


def strangers(w: World) -> list[tuple[str | None, int]]:
    """Client id and requests of what was counted."""
    return [(row.key.client_id, row.requests) for row in w.rows()]


@pytest.mark.parametrize("sent", [HEARTBEAT, write({("orders", 0): records(100_000, 7, 0, 0)}), create(7, 1, ("x", 9000))])
def test_a_request_before_a_login_waits_for_the_brokers_word_and_counts_nowhere(world, sent):
    w = world(
        logins=True,
        topics=TopicLimits(1000, {"orders": 10}),
        limits={ANYBODY: MutationLimit(1, 10)},
        produce={ANYBODY: 1},
        requests={ANYBODY: 0.001},
    )
    d = w.dialogue()
    d.client(sent)
    assert d.session.state is State.ASKING
    assert d.to_broker.count(b"\0\3\0\x0c") == 1, "a question about no topic"
    d.session.broker_lost(None)
    assert d.port.closes == 1
    assert (len(w.watcher.decisions), len(w.engine.fence), w.engine.bytes_in.total.count) == (0, 0, 0.0)


def test_what_a_broker_serves_goes_on_as_it_came(world):
    w = world(logins=True)
    d = w.dialogue()
    d.client(HEARTBEAT * 2)
    assert d.to_client == b""
    d.told({})
    assert d.to_broker == HEARTBEAT * 2
    d.broker(BEAT * 2).client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT, "it is asked once"
    assert d.to_client == BEAT * 2


def test_a_login_needs_no_question(world):
    w = world(logins=True)
    d = w.dialogue().log_in("alice")
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT


def test_an_exchange_that_the_proxy_cannot_follow_is_let_in_by_what_the_broker_serves(world):
    d = world(logins=True).dialogue()
    d.client(HAND).broker(SHAKEN).client(TOKEN).broker(TAKEN).client(HEARTBEAT)
    assert d.told({}) == HAND + TOKEN
    assert d.to_broker == HEARTBEAT
    assert d.to_client == SHAKEN + TAKEN


def test_a_login_that_fails_lets_nobody_in(world):
    w = world(logins=True)
    d = w.dialogue()
    hand, answer = request(17, 1, mechanism="PLAIN"), response(17, 1, error_code=0, mechanisms=("PLAIN",))
    refused = response(36, 2, error_code=58, error_message="no", auth_bytes=b"")
    d.client(hand).broker(answer).client(request(36, 2, auth_bytes=b"\0alice\0no")).broker(refused)
    assert d.to_broker
    assert d.to_client == answer + refused
    d.client(HEARTBEAT)
    assert HEARTBEAT not in d.to_broker
    assert not w.services.census.by_user()


def test_client_ids_count_once_the_connection_is_let_in(world):
    w = world(logins=True)
    d = w.dialogue()
    d.client(request(18, 3, 1, client_id="somebody-elses"))
    assert d.to_broker
    assert strangers(w) == [(None, 1)]


def test_more_requests_than_a_login_takes_close_the_connection(world):
    w = world(logins=True)
    d = w.dialogue()
    d.client(VERSIONS * MAX_REQUESTS)
    assert (d.to_broker, d.port.closes) == (VERSIONS * MAX_REQUESTS, 0)
    d.client(VERSIONS)
    assert d.port.closes == 1
    assert d.failures == [f"more than {MAX_REQUESTS} requests before a login"]


def test_a_large_request_before_a_login_closes_the_connection(world):
    w = world(logins=True, max_frame=100 << 20)
    d = w.dialogue()
    d.client((600_000).to_bytes(4, "big") + HEARTBEAT[4:])
    assert d.port.closes == 1
    d = w.dialogue().log_in("alice")
    d.client((600_000).to_bytes(4, "big") + HEARTBEAT[4:])
    assert d.port.closes == 0


def test_a_connection_that_is_not_let_in_ends_in_time(world):
    w = world(logins=True)
    d = w.dialogue()
    d.client(VERSIONS)
    assert d.to_broker
    d.session.check(30.0)
    assert d.port.closes == 0
    d.session.check(30.1)
    assert w.watcher.limits == [("first_request_timeout", True)]


def test_a_cluster_is_open_for_a_while_after_it_served_somebody_without_a_login():
    admission = Admission()
    assert not admission.is_open(0.0)
    admission.served(0.0)
    assert admission.is_open(OPEN_FOR - 1)
    assert not admission.is_open(OPEN_FOR)


def test_a_login_closes_a_cluster_that_was_open():
    admission = Admission()
    admission.served(0.0)
    admission.logged_in(1.0)
    admission.served(2.0)
    assert not admission.is_open(3.0)
    admission.served(CLOSED_FOR)
    assert admission.is_open(CLOSED_FOR + 1.0)


def test_a_proxy_that_has_to_log_in_itself_takes_no_cluster_for_open():
    admission = Admission(logins=True)
    admission.served(0.0)
    assert not admission.is_open(1.0)


def test_an_open_cluster_lets_everybody_in_at_once(world):
    d = world().dialogue()
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT
