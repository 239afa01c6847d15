"""A Produce request that is judged piece by piece: what becomes of it is what becomes of it at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, user_limit_table
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable
from quota.limits import Exempt
from quota.produce import Judging
from quota.rules import Rules
from tests.support import limits_of

ALICE = Entity("alice", None)
TOPICS = ("a", "b", "c", "free")
batches = st.builds(
    Batch,
    st.sampled_from(TOPICS),
    st.just(True),
    st.none(),
    st.integers(0, 40),
    st.integers(1, 5000),
    st.sampled_from((-1, 7, 8)),
    st.just(0),
    st.integers(0, 3),
)
requests = st.lists(batches, max_size=12, unique_by=lambda batch: (batch.topic, batch.partition))


def engine(topics_mode: Mode, ids_mode: IdMode) -> Engine:
    limits = limits_of(
        TopicLimits(1000.0, {"a": 100.0}, mode=topics_mode),
        exempt=Exempt(topics=frozenset({"free"})),
        producer_ids=user_limit_table({ALICE: ProducerIdLimit(1, ids_mode)}),
        producer_byte_rate=LimitTable({ALICE: RateLimit(2000.0)}),
    )
    return Engine(limits, murmur3)


def items_of(decision: Decision) -> tuple[int, ...]:
    """Batches that came before the id that was one too many are not told of when they were judged before it: nothing follows
    for a batch."""
    told_of = (decision.quota, decision.action) != ("producer_ids", Action.THROTTLE)
    return tuple(sorted(decision.items)) if told_of else ()


def judged(requests: list[list[Batch]], e: Engine, piece: int | None, *, confirmed: bool) -> list[object]:
    """What becomes of these requests, one every 2 s, in pieces of so many batches or at once; and what was charged."""
    found: list[object] = []
    for i, request in enumerate(requests):
        now = 2.0 * i
        rules = Rules(e, "alice", "app", now)
        judging = Judging(e, rules, request, confirmed=confirmed)
        while not judging.done:
            judging.judge(len(request) if piece is None else piece, now)
        judgement = judging.finish()
        said = sorted((d.quota, d.action.value, str(d.entity), items_of(d), round(d.throttle, 6)) for d in judgement.decisions)
        refused = {i: why.code for i, why in judgement.refused.items()}
        found += [refused, said, round(judgement.throttle, 6), judging.counted]
    now = 2.0 * len(requests)
    found += [
        round(e.bytes_in.total.measured(now), 6),
        round(e.rates["producer_byte_rate"].meter(ALICE, now).charged, 6),
        len(e.fence),
    ]
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.lists(requests, min_size=1, max_size=4),
    st.integers(1, 12),
    st.sampled_from((Mode.TRANSIENT, Mode.THROTTLE)),
    st.sampled_from(IdMode),
    st.booleans(),
)
def test_pieces_come_to_the_same(sent, piece, topics_mode, ids_mode, confirmed):
    at_once = judged(sent, engine(topics_mode, ids_mode), None, confirmed=confirmed)
    assert judged(sent, engine(topics_mode, ids_mode), piece, confirmed=confirmed) == at_once


@settings(deadline=None, max_examples=60)
@given(st.lists(requests, min_size=1, max_size=4), requests, st.integers(1, 12), st.booleans())
def test_a_request_that_does_not_go_on_leaves_nothing_charged(before, request, piece, confirmed):
    e = engine(Mode.THROTTLE, IdMode.THROTTLE)
    judged(before, e, None, confirmed=True)
    rules, now = Rules(e, "alice", "app", 20.0), 20.0
    total, rate = e.bytes_in.total.count, e.rates["producer_byte_rate"].meter(ALICE, now).charged
    judging = Judging(e, rules, request, confirmed=confirmed)
    judging.judge(piece, now)
    judging.give_up(now)
    assert round(e.bytes_in.total.count - total, 6) == 0
    assert round(e.rates["producer_byte_rate"].meter(ALICE, now).charged - rate, 6) == 0
    assert not e.bytes_in.is_over("alice", "unknown", now) or e.bytes_in.total.measured(now) > 1000
