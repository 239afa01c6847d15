"""Where dialogues about throttles begin."""

import pytest

from tests.session.creating import FIVE, create, created
from tests.support import ANYBODY, World


@pytest.fixture
def tired(world) -> World:
    """Anybody has used up the burst at 0 s."""
    w = world(limits={ANYBODY: FIVE}, knows_nothing=True)
    d = w.dialogue()
    d.client(create(7, 1, ("t", 560)))
    assert d.to_broker
    d.broker(created(7, 1, "t"))
    assert d.to_client
    return w
