"""Quotas that are only observed: everything goes on as if there were none, and what they would have done is told."""

from random import Random

import pytest

from proxy.config.limits import limits_of
from proxy.config.models import Quotas, Settings
from proxy.session.session import State
from quota.catalogue import KINDS
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from tests.apis.produce_frames import asked, records, write, written
from tests.apis.topic_frames import FIVE, HEARTBEAT, create, created
from tests.messages import read_response, request
from tests.support import ALICE, ANYBODY, Dialogue, World
from tests.wire.test_fetch import fetched

BIG = {("orders", 0): records(5000)}
OBSERVED = dict.fromkeys(KINDS, Action.THROTTLE)


def would(w: World) -> list[tuple[str, Action, str]]:
    assert not w.watcher.decisions, "nothing was decided"
    return [(decision.quota, decision.action, by.principal) for decision, by in w.watcher.would]


def open_and_untouched(d: Dialogue, frame: bytes, answer: bytes) -> None:
    """A request goes on as it is, so does its answer, and the next is looked at."""
    d.client(frame)
    assert d.to_broker == frame
    d.broker(answer)
    assert d.to_client == answer
    assert d.session.state is State.OPEN


@pytest.mark.parametrize(("version", "action"), [(7, Action.REFUSE), (4, Action.THROTTLE)])
def test_topics_are_created_that_would_be_refused(world, version, action):
    w = world(limits={ANYBODY: FIVE}, observed=OBSERVED)
    d = w.dialogue()
    for number in range(3):
        frame = create(version, number, ("a", 560), ("b", 40))
        d.client(frame)
        assert d.to_broker == frame, "no question comes first"
        d.broker(answer := created(version, number, "a", "b"))
        assert d.to_client == answer
    found = would(w)
    assert len(found) == 3
    assert set(found) == {("controller_mutations", action, "User:ANONYMOUS")}
    assert w.watcher.would[-1][0].usage > 5
    assert not w.engine.would
    assert not w.engine.mutes.active(0.0)


def test_bytes_and_requests_and_producer_ids_go_on(world):
    w = world(produce={ALICE: 10}, requests={ALICE: 0.01}, producer_ids={ALICE: 0.5}, observed=OBSERVED)
    d = w.dialogue("alice")
    for number in range(3):
        frame = write({("orders", 0): records(5000, producer_id=number)}, 1)
        open_and_untouched(d, frame, written(asked(frame, 9), 1, 9))
    assert {quota for quota, _, _ in would(w)} == {"producer_byte_rate", "request_rate", "producer_ids"}
    other = w.dialogue("alice").client(HEARTBEAT)
    assert other.to_broker == HEARTBEAT, "nobody is held"


def test_what_is_fetched_goes_on(world):
    w = world(consume={ALICE: 1}, observed=OBSERVED)
    d = w.dialogue("alice")
    frame, answer = request(1, 12, 1, chance=Random(1)), fetched(12, Random(1), ("orders", [4000]))
    for _ in range(2):
        open_and_untouched(d, frame, answer)
    assert would(w)[-1] == ("consumer_byte_rate", Action.THROTTLE, "User:alice")


def test_thresholds_of_topics(world):
    observed = OBSERVED | {"bytes_in": Action.REFUSE}
    w = world(topics=TopicLimits(10, {"orders": 5}, "window"), topics_mode=Mode.THROTTLE, observed=observed)
    d = w.dialogue("alice")
    for number in range(4):
        frame = write(BIG, number)
        open_and_untouched(d, frame, written(asked(frame, 9), number, 9))
    assert would(w)[-1] == ("bytes_in", Action.REFUSE, "User:alice")
    assert w.watcher.would[-1][0].entity == Entity(None, None, "orders")


def test_one_kind_is_observed_and_the_others_hold(world):
    w = world(limits={ANYBODY: FIVE}, produce={ANYBODY: 10}, observed={"producer_byte_rate": Action.THROTTLE}, knows_nothing=True)
    d = w.dialogue()
    for number in range(2):
        frame = write(BIG, number)
        open_and_untouched(d, frame, written(asked(frame, 9), number, 9))
    d.client(create(7, 5, ("a", 560)))
    assert d.to_broker
    d.broker(created(7, 5, "a"))
    assert d.to_client
    d.client(create(7, 6, ("b", 1)))
    assert int(read_response(19, 7, d.to_client).topics[0].error_code) == 89
    assert [decision.quota for decision, _ in w.watcher.decisions] == ["controller_mutations"]


@pytest.mark.parametrize(("observe", "kinds"), [(False, []), (True, list(KINDS)), (["bytes_in"], ["bytes_in"])])
def test_settings_say_which(observe, kinds):
    entity = {"user": "a", "producer_ids_rate": 1}
    quotas = {"observe": observe, "entities": [entity], "producer_ids": {"mode": "reject"}, "topics": {"total_bytes_in_per_sec": 9}}
    limits = limits_of(Settings(quotas=Quotas.model_validate(quotas)))
    assert sorted(limits.observed) == sorted(kinds)
    found = limits.table("producer_ids").find("a", "")
    assert found is not None
    assert found.limit.mode.value == ("throttle" if "producer_ids" in kinds else "reject")
    topics = limits.option(TopicLimits)
    assert topics is not None
    assert topics.mode is (Mode.THROTTLE if "bytes_in" in kinds else Mode.TRANSIENT)
    assert limits.observed.get("bytes_in") in (None, Action.REFUSE)
