"""No client can tell: every API, in every version that a broker advertises, answers as it does directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localkafka import run_java
from localkafka.versions import Release, release_of
from tests.real.same_answers import JAVA, Twins, id_of, same_answers, same_ranges, twins_of

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]

NEW: dict[Release, list[int]] = {
    (3, 3): [*range(4), *range(8, 38), *range(42, 50), 55, 57, 60, 61, 64, 65, 66],
    (3, 9): [38, 39, 40, 41, 50, 51, 68, 69, 71, 72, 74, 75, 80, 81],
    (4, 2): [76, 77, 78, 79, *range(83, 93)],
    (4, 4): [93, 94],
}
"""Release of those that are tested -> APIs that a broker advertises with everything switched on, and older ones do not."""


def keys_of(version: str) -> list[int]:
    """All that a broker of this version advertises."""
    return sorted(key for release, keys in NEW.items() if release <= release_of(version) for key in keys)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "key" in metafunc.fixturenames:
        from tests.conftest import version_of

        metafunc.parametrize("key", keys_of(version_of(metafunc.config)), ids=id_of)


@pytest.fixture(scope="module")
def twins(kafka_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with twins_of(kafka_version, tmp_path_factory.mktemp("twins")) as made:
        yield made


def test_what_is_advertised_is_what_the_broker_advertises(twins: Twins, kafka_version: str) -> None:
    same_ranges(twins, keys_of(kafka_version))


def test_the_answer_is_the_same(twins: Twins, key: int) -> None:
    same_answers(twins, key)


@pytest.mark.since("3.7", "push of metrics (KIP-714)")
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
