"""No client of Kafka 4.2 can tell: every API, in every version that a broker advertises, answers as it does directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localkafka import run_java
from tests.real.same_answers import JAVA, Twins, id_of, same_answers, same_ranges, twins_of

pytestmark = pytest.mark.kafka

KEYS = [*range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, 75, *range(76, 82), *range(83, 93)]
"""What a broker advertises with everything switched on."""


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with twins_of("4.2.0", tmp_path_factory.mktemp("twins")) as made:
        yield made


def test_what_is_advertised_is_what_the_broker_advertises(twins: Twins) -> None:
    same_ranges(twins, KEYS)


@pytest.mark.parametrize("key", KEYS, ids=id_of)
def test_the_answer_is_the_same(twins: Twins, key: int) -> None:
    same_answers(twins, key)


def test_java_clients_use_acls_delegation_tokens_and_the_push_of_metrics(twins: Twins) -> None:
    """The same program directly and through the proxy prints the same."""
    said = []
    for side in (twins.direct, twins.through):
        run = run_java(JAVA / "Secured.java", side.address, side.own("secured"), str(twins.node.log_file), check=True)
        said.append(run.stdout.splitlines())
    assert said[1] == said[0]
    assert said[1] == [
        "acls: TopicAuthorizationException, sent, deleted 1, TopicAuthorizationException",
        "tokens: sent, renewed true, of User:admin",
        "metrics: arrived",
    ]
