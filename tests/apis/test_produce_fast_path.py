"""The fast path of Produce says and counts what the judges would (`quota.produce`): the same requests, at the same times, once with
the short cuts and once judged batch by batch, come to the same answers, waits, decisions and meters.

One difference is meant: the fast path knows the bytes of each topic, not of each partition, so it takes the partitions of a topic
as one batch. With averages that move at ticks that is the same; with samples a later partition could be refused by itself. So with
samples requests have one partition of a topic here."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.apis.produce import Produce, RequestShapes, judged_request
from proxy.apis.registry import default_handlers
from proxy.session.client import Client
from proxy.session.plans import Handlers, Handling, Request
from proxy.session.session import State
from quota.catalogue import TOPIC_STORED
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Check, Replicas, Scope, StorageLimits, Volume
from quota.kinds.stored_bytes import StoredLimit, TopicBudgets
from quota.kinds.topic_rates import TOPIC_IN, Above, TopicRateOptions, TopicTable
from quota.limits import Exempt
from tests.apis.produce_frames import asked, records, write, written
from tests.properties import examples
from tests.support import ALICE, Dialogue, World, changed

BOB = Entity("bob", "app")
STORAGE = StorageLimits(Below(100), Below(500), margin=0.0, scope=Scope.VOLUME)
TOPICS = ("a", "b", "free", "slow", "full")


class JudgedProduce:
    """Produce without short cuts."""

    key, versions = Produce.key, Produce.versions

    def request(self, client: Client, request: Request) -> Handling:
        return judged_request(client, request, RequestShapes(client, request.version))


class Sent(NamedTuple):
    """A request: seconds after the one before, who sends it, what, and whether the broker writes it."""

    after: float
    user: str
    parts: tuple[tuple[str, int, int], ...]
    """(topic, partition, bytes)"""
    producer_id: int
    acks: int
    version: int
    error: str | None


parts = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), st.sampled_from((90, 500, 3000))),
    min_size=1,
    max_size=3,
    unique_by=lambda part: part[:2],
)
sent = st.builds(
    Sent,
    st.sampled_from((0.0, 0.3, 1.0, 7.0, 40.0)),
    st.sampled_from(("alice", "alice", "bob", "carol")),
    parts.map(tuple),
    st.sampled_from((-1, 7, 7, 8, 9)),
    st.sampled_from((-1, -1, 1)),
    st.sampled_from((9, 9, 3)),
    st.sampled_from((None, None, None, None, "a")),
)


def world(
    judged: bool,
    meter: Literal["ewma", "window"],
    mode: Mode,
    ids: IdMode,
    volumes: bool,
    above: Above | None,
    requests: float | None = None,
    *,
    stored: bool = False,
) -> World:
    handlers = [JudgedProduce() if judged and handler.key == Produce.key else handler for handler in default_handlers()]
    made = World(
        producer_ids={ALICE: 2},
        ids_mode=ids,
        produce={ALICE: 300, BOB: 100},
        requests={} if requests is None else {ALICE: requests},
        topics=TopicLimits(250, {"a": 50, "b": 150}, meter),
        topics_mode=mode,
        exempt=Exempt(topics=frozenset({"free"})),
        handlers=Handlers(handlers),
    )
    if above is not None:
        rates = TopicTable({"a": RateLimit(200), "b": RateLimit(60), "free": RateLimit(1)})
        made.engine.change(changed(made.engine.limits, TopicRateOptions(above), **{TOPIC_IN: rates}))
    if stored:
        budgets = TopicBudgets({"a": StoredLimit(4000, 1500), "b": StoredLimit(3500, 3500), "free": StoredLimit(1, 1)})
        made.engine.change(changed(made.engine.limits, **{TOPIC_STORED: budgets}))
        for budget in made.engine.stored.budgets:
            budget.begin()
            budget.finish(0)
    if volumes:
        made.engine.change(changed(made.engine.limits, STORAGE))
        on = {name: Replicas({name: frozenset({0, 1})}) for name in ("slow", "full")}
        left = {"slow": 300, "full": 50}
        found = tuple(Volume(1, f"/{name}", 1000, left[name]) for name in on)
        made.engine.observe(Check(0.0, found, replicas={(1, f"/{name}"): held for name, held in on.items()}), dict)
    return made


def step(d: Dialogue, one: Sent, number: int) -> list[object]:
    """What becomes of a request; the broker answers what it gets, and waits pass."""
    sequence = number if one.producer_id >= 0 else -1
    wanted = {(topic, i): records(size, one.producer_id, 0, sequence) for topic, i, size in one.parts}
    seen: list[object] = []
    d.client(write(wanted, number, one.version, one.acks))
    for _ in range(50):
        got = d.to_broker
        if got:
            seen.append(got)
            going = asked(got, one.version)
            errors = {one.error: 6} if one.error is not None else None
            d.broker(written(going, number, one.version, errors=errors))
        seen += [d.to_client, d.session.state]
        if d.port.wake is None or d.session.state not in (State.HELD, State.MUTED):
            return seen
        seen.append(round(d.port.wake, 6))
        d.wake()
    raise AssertionError("it waits for ever")


def run(made: World, requests: list[Sent]) -> list[object]:
    """All that clients, the broker and operators see, and how the meters stand in the end."""
    dialogues = {user: made.dialogue(user) for user in ("alice", "bob", "carol")}
    for d in dialogues.values():
        d.session.client.claim(b"\0\3app")
    found: list[object] = []
    now = 1.0
    for number, one in enumerate(requests, 1):
        d = dialogues[one.user]
        now = max(now + one.after, d.now)
        d.now = now
        found += step(d, one, number)
    engine = made.engine
    found += [(d.quota, d.action, d.entity, d.items, round(d.throttle, 6)) for d, _ in made.watcher.decisions]
    found += [round(engine.bytes_in.total.measured(now), 3), len(engine.fence)]
    found += [round(meter.measured(now), 3) for _, meter in sorted(engine.bytes_in.meters.items())]
    found += [(str(budget.owner), budget.used, budget.told) for budget in engine.stored.budgets]
    for kind in (engine.rates["producer_byte_rate"], engine.slowed_rates, *engine.slowed_by_stored):
        found += [(owner, round(kind.level(owner, now), 3)) for owner in (ALICE, BOB, Entity("carol", None))]
    found += [round(engine.topic_in.level(Entity(None, None, topic), now), 3) for topic in TOPICS]
    usage = engine.producer_ids.usage(now)
    found += sorted((user, one.counted) for user, one in usage.items())
    return [*found, *sorted(map(str, made.rows()))]


def again(*parts: tuple[str, int, int], producer_id: int = -1, waits: tuple[float, ...]) -> list[Sent]:
    """The same request of alice, after each of these waits."""
    return [Sent(after, "alice", parts, producer_id, -1, 9, None) for after in waits]


@example(
    again(("a", 0, 500), producer_id=7, waits=(*[0] * 8, 40, 40)), "window", Mode.TRANSIENT, IdMode.THROTTLE, False, None, True
)
@example(
    again(("a", 0, 90), ("b", 0, 3000), producer_id=7, waits=(0, 0, 40, 40)),
    "window",
    Mode.FAIL,
    IdMode.THROTTLE,
    False,
    None,
    True,
)
@example(again(("free", 0, 500), ("b", 0, 90), waits=(0, 0, 0, 0)), "window", Mode.TRANSIENT, IdMode.THROTTLE, False, None, True)
@examples(800)
@given(
    st.lists(sent, min_size=1, max_size=15),
    st.sampled_from(("ewma", "window")),
    st.sampled_from(Mode),
    st.sampled_from(IdMode),
    st.booleans(),
    st.sampled_from([None, *Above]),
    st.booleans(),
)
def test_the_fast_path_comes_to_what_the_judges_say(
    requests: list[Sent],
    meter: Literal["ewma", "window"],
    mode: Mode,
    ids: IdMode,
    volumes: bool,
    above: Above | None,
    stored: bool,
) -> None:
    if meter == "window":
        requests = [one._replace(parts=tuple({part[0]: part for part in one.parts}.values())) for one in requests]
    fast, judged = (run(world(judged, meter, mode, ids, volumes, above, stored=stored), requests) for judged in (False, True))
    assert fast == judged


def frames_in(data: bytes) -> list[bytes]:
    """The frames, each with its length."""
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        found.append(data[:size])
        data = data[size:]
    return found


def pieces(data: bytes, cuts: list[float]) -> list[bytes]:
    """The same bytes in several reads."""
    at = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(at) if start < stop]


def pipelined(made: World, groups: list[list[Sent]], cuts: list[float] | None) -> list[object]:
    """What becomes of requests that alice sends without waiting for answers, group by group. `cuts`: where reads end, of what the
    client and of what the broker sends; None: with each frame."""
    d = made.dialogue("alice")
    d.session.client.claim(b"\0\3app")
    to_broker = to_client = b""
    number = 0
    for group in groups:
        d.now += group[0].after
        errors: dict[int, str | None] = {}
        frames = []
        for one in group:
            number += 1
            errors[number] = one.error
            sequence = number if one.producer_id >= 0 else -1
            wanted = {(topic, i): records(size, one.producer_id, 0, sequence) for topic, i, size in one.parts}
            frames.append(write(wanted, number, 9, -1))
        d.client(*(frames if cuts is None else pieces(b"".join(frames), cuts)))
        for _ in range(100):
            got, answers = d.to_broker, []
            to_broker += got
            for frame in frames_in(got):
                at = int.from_bytes(frame[8:12], "big")
                failed = errors[at]
                answers.append(written(asked(frame, 9), at, errors=None if failed is None else {failed: 6}))
            d.broker(*(answers if cuts is None else pieces(b"".join(answers), cuts)))
            to_client += d.to_client
            if d.session.state in (State.HELD, State.MUTED):
                d.wake()
            elif not got:
                break
        else:
            raise AssertionError("it waits for ever")
    engine, now = made.engine, d.now
    found: list[object] = [
        to_broker,
        to_client,
        round(now, 6),
        d.session.state,
        len(d.session.client.charged),
        d.session.client.unsettled,
    ]
    found += [(d.quota, d.action, d.entity, round(d.throttle, 6)) for d, _ in made.watcher.decisions]
    found += [round(engine.bytes_in.total.measured(now), 3)]
    found += [round(kind.level(ALICE, now), 3) for kind in (engine.rates["producer_byte_rate"], engine.rates["request_rate"])]
    return [*found, *sorted(map(str, made.rows()))]


one_part = st.tuples(st.sampled_from(("a", "b", "free")), st.integers(0, 1), st.sampled_from((90, 500))).map(lambda part: (part,))
ordinary = st.builds(
    Sent,
    st.sampled_from((0.0, 1.0, 40.0)),
    st.just("alice"),
    st.one_of(one_part, one_part, one_part, parts.map(tuple)),
    st.sampled_from((-1, 7, 7, 8)),
    st.just(-1),
    st.just(9),
    st.sampled_from((None, None, None, None, None, "a")),
)


@example([[*again(("free", 0, 90), waits=(0,) * 9)]] * 3, [0.37], "ewma", None)
@examples(500)
@given(
    st.lists(st.lists(ordinary, min_size=1, max_size=8), min_size=1, max_size=5),
    st.lists(st.floats(0, 1), max_size=4),
    st.sampled_from(("ewma", "window")),
    st.sampled_from([None, *Above]),
)
def test_requests_that_come_together_come_to_what_they_come_to_one_by_one(
    groups: list[list[Sent]], cuts: list[float], meter: Literal["ewma", "window"], above: Above | None
) -> None:
    made = []
    for reads in (cuts, [], None):
        one = world(False, meter, Mode.TRANSIENT, IdMode.THROTTLE, volumes=False, above=above, requests=3)
        made.append(pipelined(one, groups, reads))
    assert made[0] == made[2]
    assert made[1] == made[2]
