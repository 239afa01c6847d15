"""No client of Kafka 3.9 can tell either: every API, with the old versions that Kafka 4 has dropped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.same_answers import Twins, id_of, same_answers, same_ranges, twins_of

pytestmark = pytest.mark.kafka

KEYS = [*range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, 75, 80, 81]
"""What a broker advertises with everything switched on."""
NEW_GROUPS = {"group.coordinator.rebalance.protocols": "classic,consumer"}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with twins_of("3.9.1", tmp_path_factory.mktemp("twins"), **NEW_GROUPS) as made:
        yield made


def test_what_is_advertised_is_what_the_broker_advertises(twins: Twins) -> None:
    same_ranges(twins, KEYS)


@pytest.mark.parametrize("key", KEYS, ids=id_of)
def test_the_answer_is_the_same(twins: Twins, key: int) -> None:
    same_answers(twins, key)
