"""Every world that a test makes is checked at its end: no bytes may have come out that no step asked for."""

from collections.abc import Callable, Iterator

import pytest

from tests.session.creating import FIVE, create, created
from tests.support import ANYBODY, World


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.nothing_left()


@pytest.fixture
def tired(world) -> World:
    """Anybody has used up the burst at 0 s."""
    w = world(limits={ANYBODY: FIVE})
    d = w.dialogue()
    d.client(create(7, 1, ("t", 560)))
    assert d.to_broker
    d.broker(created(7, 1, "t"))
    assert d.to_client
    return w
