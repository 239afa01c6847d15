"""Every world that a test makes is checked at its end: no bytes may have come out that no step asked for."""

from collections.abc import Callable, Iterator

import pytest

from tests.support import World


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.nothing_left()
