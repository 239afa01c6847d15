"""Messages about very many topics are read and written in steps, between which others are served: none is about more parts than
`FEW`, or `MANY` of what takes less time, and steps are not so small that they cost more than the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.wire import client_quotas, metadata, refusals
from proxy.wire.client_quotas import DONE, Entry, Op, Who
from proxy.wire.create_partitions import CREATE_PARTITIONS
from proxy.wire.create_topics import CREATE_TOPICS
from proxy.wire.delete_topics import DELETE_TOPICS
from proxy.wire.headers import client_id_end, request_body
from proxy.wire.items import ItemApi, Refusal
from proxy.wire.refusals import Part
from proxy.wire.steps import FEW, MANY, finish_at_once
from quota.steps import Steps
from tests.apis.topic_frames import create, created, delete, deleted, described, grow, grown
from tests.apis.topic_frames import metadata as about
from tests.messages import request, response
from tests.support import paused

TOPICS = 3 * MANY
NAMES = [f"topic-{i}" for i in range(TOPICS)]
WHY = Refusal(89, "too many")
FRAMES: dict[ItemApi, tuple[int, Callable[[], tuple[bytes, bytes]]]] = {
    CREATE_TOPICS: (7, lambda: (create(7, 1, *((name, 1) for name in NAMES)), created(7, 1, *NAMES))),
    DELETE_TOPICS: (6, lambda: (delete(6, 1, *NAMES), deleted(6, 1, *NAMES))),
    CREATE_PARTITIONS: (3, lambda: (grow(3, 1, *((name, 2) for name in NAMES)), grown(3, 1, *NAMES))),
}
"""API → its version, a request about these topics, and its answer."""
WHO: list[Who] = [(("user", name),) for name in NAMES]


def steps_of(work: Steps[Any], *, few: int = 0, many: int = 0) -> Any:
    """What such work gives. It has as many pauses as passes over all topics with `FEW` and `MANY` at once take, or up to twice as
    many."""
    pauses, given = paused(work)
    least = few * (TOPICS // FEW) + many * (TOPICS // MANY)
    assert least <= pauses <= 2 * least
    return given


def body_of(frame: bytes, key: int, version: int) -> int:
    return request_body(frame, client_id_end(frame, 0, len(frame)), len(frame), key, version)


@pytest.mark.parametrize("api", FRAMES)
def test_requests_about_topics_and_their_answers(api: ItemApi) -> None:
    version, made = FRAMES[api]
    asked, answer = made()
    start, end = body_of(asked, api.key, version), len(asked)
    items = steps_of(api.read(asked, start, end, version), few=1)
    assert [topic.name for topic in items.topics] == NAMES
    half = dict.fromkeys(range(0, TOPICS, 2), WHY)
    steps_of(api.without(items, half, asked, start, end, version), many=1)
    steps_of(api.refusal(1, version, items, dict.fromkeys(range(TOPICS), WHY), 0), few=1)
    answered = steps_of(api.answer(answer, version, items), few=1, many=1)
    steps_of(api.with_refused(answered, items, half, 0), few=1, many=1)
    steps_of(api.with_throttle(answered, range(TOPICS), "slow", 0), many=2)


def test_metadata() -> None:
    asked = about(9, 1, *NAMES)
    start, end = body_of(asked, 3, 9), len(asked)
    assert steps_of(metadata.read_auto_create(asked, start, end, 9), few=1) == NAMES
    steps_of(metadata.without(asked, start, end, 9, NAMES[:9]), few=1)
    steps_of(metadata.with_unknown(described(9, 1, dict.fromkeys(NAMES, 1)), 9, NAMES), few=2)
    steps_of(metadata.asking(1, "app", [(name, bytes(16)) for name in NAMES]), many=2)  # what it is made of is freed in steps, too


def test_refusals_of_produce_requests() -> None:
    parts: list[Part] = [(name.encode(), 0) for name in NAMES]
    answer = steps_of(refusals.refusal(1, 9, dict.fromkeys(parts, refusals.Refusal(19, "full")), 0), many=3)
    steps_of(refusals.with_refused(answer, 9, parts, {}), few=1, many=3)


def test_quotas_of_clients() -> None:
    entries = [Entry(who, (Op("request_percentage", 1.0, remove=False),)) for who in WHO]
    asked = steps_of(client_quotas.alter_request(1, "app", 1, entries, validate_only=False), few=1)
    read, _ = steps_of(client_quotas.read_alterations(asked[body_of(asked, 49, 1) :], 1), few=1)
    assert read == entries
    answer = steps_of(client_quotas.alter_response(1, 1, 0, [(who, DONE) for who in WHO]), few=1)
    _, results = steps_of(client_quotas.read_results(answer, 1), few=1)
    assert len(results) == TOPICS
    nothing = response(48, 1, error_code=0, error_message=None, entries=())
    pieces = steps_of(client_quotas.with_entries(nothing, 1, {who: {"request_percentage": 1.0} for who in WHO}), few=1, many=1)
    told = b"".join(pieces)
    steps_of(client_quotas.with_entries(told, 1, {}), few=1)
    done, limits = client_quotas.read_description(told, 1)
    assert (done, limits) == (DONE, {who: {"request_percentage": 1.0} for who in WHO})


def test_a_small_message_takes_one_step() -> None:
    asked = request(3, 9, topics=())
    assert list(metadata.read_auto_create(asked, body_of(asked, 3, 9), len(asked), 9)) == []
    assert finish_at_once(metadata.asking(1, "app", []))
