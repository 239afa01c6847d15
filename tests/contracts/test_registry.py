"""What the proxy says it understands is what it can read, and each API has one handler."""

import pytest

from proxy.apis.registry import default_handlers, understood
from proxy.session.plans import Handlers
from proxy.wire.addresses import _FIRST_WITH_ADDRESSES
from tests.messages import request, response, versions_of
from tests.support import HANDLERS, World


def test_two_handlers_for_one_api_are_refused():
    handlers = default_handlers()
    with pytest.raises(ValueError, match="two handlers for API 0"):
        Handlers([*handlers, handlers[0]])


def test_every_api_whose_answers_name_brokers_has_a_handler():
    assert set(_FIRST_WITH_ADDRESSES) <= set(HANDLERS)


def test_what_is_understood_of_api_versions_is_what_is_not_answered_here():
    assert understood(HANDLERS)[18] == (0, 5)


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_version_that_is_advertised_passes_both_ways(key):
    low, high = understood(HANDLERS)[key]
    tried = 0
    for version in versions_of(key):
        if not low <= version <= high:
            continue
        tried += 1
        world = World()
        d = world.dialogue()
        given = {"acks": 1} if key == 0 else {"mechanism": "PLAIN"} if key == 17 else {}
        sent, answer = request(key, version, 1, **given), response(key, version, 1)
        d.client(sent).broker(answer)
        assert d.to_broker == sent
        assert d.to_client[4:8] == answer[4:8]
        assert world.watcher.client_failures == world.watcher.broker_failures == []
    assert tried
    assert max(versions_of(key)) <= high, "kio knows a newer version: read its schema, then raise the range"
