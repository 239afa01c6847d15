"""A topic of the proxy's own when brokers are behind; `tests/real` has the rest."""

import asyncio
from collections.abc import Mapping

import pytest

from proxy.upstream import internal_topic
from proxy.upstream.connector import TopicError, Upstream
from proxy.upstream.internal_topic import Description, InternalTopic
from proxy.wire.metadata import Topic

FIRST, SECOND = (Topic(b"quotas", bytes([number]) * 16, 1) for number in (1, 2))


class Told(InternalTopic):
    """A real broker cannot be made to hear of a new topic late. This one is told what each answer says; the last one stays."""

    def __init__(self, *answers: Topic | None) -> None:
        super().__init__("quotas", list, Upstream(1.0))
        self.answers = list(answers)

    async def describe(self) -> Description:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Description(answer, 1, ["localhost:9092"])

    async def _create(self, _servers: list[str], _replicas: int, settings: Mapping[str, str]) -> dict[str, str] | None:
        return dict(settings)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic, "FIRST_LOOK", 0)


def ensure(topic: InternalTopic) -> Topic | None:
    return asyncio.run(topic.ensure({}, lambda *_: None)).topic


def test_a_new_topic_is_known_by_its_id_though_its_broker_hears_of_it_late():
    """Else it could be deleted and made again by somebody else, and nobody would notice."""
    topic = Told(None, None, None, FIRST, FIRST, None, SECOND)
    assert ensure(topic) == FIRST
    asyncio.run(topic.verify())
    asyncio.run(topic.verify())  # a broker that does not know of it says nothing about which one it is
    with pytest.raises(TopicError, match="made anew"):
        asyncio.run(topic.verify())


def test_a_topic_that_cannot_be_seen_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(internal_topic, "PATIENCE", 0)
    assert ensure(Told(None)) is None
