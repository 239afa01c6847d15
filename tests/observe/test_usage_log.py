"""Intervals, limits on decisions, incidents: what ends up in the logs and in the figures."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from proxy.hashing import murmur3
from proxy.observe.lines import Holds, api_name, iso
from proxy.observe.throttle_status import ThrottleStatus
from proxy.observe.usage_log import UsageLog
from proxy.observe.watcher import Observer
from proxy.session.requester import Requester
from proxy.session.tally import OTHER, Tally, TallyKey
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIds, Usage, user_limit_table
from quota.steps import Steps
from quota.tenants import owner_of
from tests.observe.support import LogFiles
from tests.support import rows_of

ALICE = Entity("alice", None)
BY = Requester("User:alice", "app", "10.0.0.1:5", 19, 7, tuple(f"t{i}" for i in range(12)))


def decision(entity: Entity = ALICE, action: Action = Action.REFUSE) -> Decision:
    return Decision("controller_mutations", action, entity, (0, 1), 5.6, 5.0, 12.0, "why", 0.12345)


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict]] = []

    def __getattr__(self, level: str):
        return lambda event, **fields: self.events.append((level, event, fields))


class Clock:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.now, self.wall = 0.0, 1_767_225_600.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def room(tmp_path):
    log_files, tally, clock, jumps = LogFiles(tmp_path / "logs"), Tally(), Clock(), []
    usage = UsageLog(tally, log_files.author, log_files.writer, 3, lambda: clock.wall, lambda: clock.now, jumped=jumps.append)
    return SimpleNamespace(log_files=log_files, tally=tally, clock=clock, usage=usage, jumps=jumps)


def test_intervals_follow_each_other_without_a_hole(room):
    traffic = room.tally.take(TallyKey("User:alice", "app", None, None, 3))
    for seconds in (10.0, 11.5):
        traffic.requests += 1
        room.clock.pass_time(seconds)
        room.usage.close_interval()
    room.log_files.work()
    assert [(line["start"], line["end"]) for line in room.log_files.lines()] == [
        ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:10.000Z"),
        ("2026-01-01T00:00:10.000Z", "2026-01-01T00:00:21.500Z"),
    ]


@pytest.mark.parametrize("step", [-3600.0, 86_400.0])
def test_a_wall_clock_that_is_set_neither_stops_the_log_nor_bends_an_interval(room, step):
    traffic = room.tally.take(TallyKey("User:alice", "app", None, None, 3))
    for second in range(40):
        if not room.usage.due_in:
            room.usage.close_interval()
        traffic.requests += 1
        if second == 14:
            room.clock.wall += step
        room.clock.pass_time(1.0)
    room.usage.close_interval()
    room.log_files.work()
    lines = room.log_files.lines()
    begin = [1_767_225_600.0, 1_767_225_610.0, 1_767_225_620.0 + step, 1_767_225_630.0 + step]
    assert [(line["start"], line["end"], line["requests"]) for line in lines] == [
        (iso(start), iso(start + 10), 10) for start in begin
    ]
    assert room.jumps == [pytest.approx(step)]


def test_an_interval_that_was_not_logged_to_its_end_is_when_the_next_one_ends(room):
    """As when the proxy stops meanwhile: nothing is lost, and what came meanwhile is of the next interval."""
    sums = [room.tally.take(TallyKey(f"User:{i}", "app", None, None, 3)) for i in range(30)]
    for each in sums:
        each.requests = 1
    room.clock.pass_time(10)
    steps = room.usage.closing()
    for _ in range(10):
        next(steps)
    steps.close()
    for each in sums:
        each.requests += 100
    room.clock.pass_time(3)
    room.usage.close_interval()
    room.log_files.work()
    lines = room.log_files.lines()
    assert sum(line["requests"] for line in lines) == 30 * 101
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {(line["start"][17:19], line["end"][17:19]) for line in lines} == {("00", "10"), ("10", "13")}
    assert len([line for line in lines if line["end"].endswith("13.000Z")]) == 10, "those that had been closed already"


def test_an_interval_without_traffic_has_no_lines(room):
    room.tally.take(TallyKey("User:alice", "app", None, None, 3))
    room.usage.close_interval()
    room.log_files.work()
    assert room.log_files.lines() == []


def busiest(ids: ProducerIds) -> Steps[tuple[float, list[tuple[str, Usage]]]]:
    found = yield from ids.busiest(9, 0.0)
    return ids.windows.seconds, found.shown


def test_the_log_has_the_active_producer_ids_of_each_interval(room):
    ids = ProducerIds(user_limit_table({ALICE: ProducerIdLimit(100)}), murmur3)
    ids.count("alice", [1, 2, 3], 0.0)
    ids.count("bob", [4, 4], 0.0)
    usage = UsageLog(
        room.tally,
        room.log_files.author,
        room.log_files.writer,
        3,
        lambda: room.clock.wall,
        lambda: room.clock.now,
        lambda: busiest(ids),
    )
    room.clock.pass_time(10)
    usage.close_interval()
    room.log_files.work()
    lines = room.log_files.lines()
    assert [(line["type"], line["user"], line["active"], line["counted"], line["limit"]) for line in lines] == [
        ("producer_ids", "alice", 3, 3, 100),
        ("producer_ids", "bob", 1, 1, None),
    ]
    assert (lines[0]["start"], lines[0]["end"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:10.000Z")
    assert lines[0]["window_ms"] == 3_600_000


def test_the_log_says_once_a_minute_and_at_the_end_what_tenants_users_and_topics_have(room):
    had = [Holds(owner_of("orders"), 3, 12, 1 << 60), Holds(ALICE, 1, 2), Holds(Entity(None, None, "orders"), stored=7)]

    def holdings() -> Steps[list[Holds]]:
        yield
        return had

    room.usage.holdings = holdings
    for _ in range(6):
        room.clock.pass_time(10)
        room.usage.close_interval()
    had = [Holds(owner_of("orders"), stored=0)]
    room.clock.pass_time(10)
    room.log_files.writer.start()
    room.usage.stop()
    room.log_files.writer.stop(60.0)  # which waits for longer, where the disk is busy
    lines = room.log_files.lines()
    assert {line["type"] for line in lines} == {"owned"}
    assert [(line["end"][14:19], line["tenant"], line["user"], line["topic"]) for line in lines] == [
        ("01:00", "orders", None, None),
        ("01:00", None, "alice", None),
        ("01:00", None, None, "orders"),
        ("01:10", "orders", None, None),
    ]
    assert [(line["topic_count"], line["partition_count"], line["stored_bytes"]) for line in lines] == [
        (3, 12, 1 << 50),
        (1, 2, None),
        (None, None, 7),
        (None, None, 0),
    ]


def test_the_log_has_how_long_requests_took_in_each_interval(room):
    times = room.usage.latencies.of(2, 0)
    for took in ((0.004, 0.02), (), (0.5,)):
        for seconds in took:
            times.add(seconds)
        room.clock.pass_time(10)
        room.usage.close_interval()
    room.log_files.work()
    first, last = room.log_files.lines()
    assert (first["type"], first["part"], first["broker_id"], first["api"], first["requests"]) == (
        "latency",
        "broker",
        2,
        "Produce",
        2,
    )
    assert first["p10_ms"] <= 5 < first["p99_ms"] <= first["max_ms"] <= 24
    assert (last["requests"], last["start"]) == (1, "2026-01-01T00:00:20.000Z")
    assert last["p10_ms"] >= 400


def test_decisions_of_one_entity_are_limited_per_interval_and_counted(room):
    for _ in range(8):
        room.usage.decided(decision(), BY)
    room.usage.decided(decision(Entity("bob", None)), BY)
    room.usage.close_interval()
    room.usage.decided(decision(), BY)
    room.log_files.work()
    lines = room.log_files.lines()
    assert [line["entity"]["user"] for line in lines] == ["alice"] * 3 + ["bob", "alice"]
    assert [line["left_out"] for line in lines] == [0, 0, 0, 0, 5]


def test_decisions_of_one_principal_are_limited_whatever_its_client_ids(room):
    mallory = Requester("User:mallory", "x", "10.0.0.2:5", 0, 7, ())
    for i in range(50_000):
        room.usage.decided(decision(Entity("mallory", f"made-up-{i}")), mallory)
    room.usage.decided(decision(), BY)
    room.log_files.work()
    lines = room.log_files.lines()
    assert [line["principal"] for line in lines] == ["User:mallory"] * 30 + ["User:alice"]
    assert len(room.usage._left_out) < 10_000
    for _ in range(5):
        room.usage.decided(decision(), BY)
    room.usage.close_interval()
    room.usage.decided(decision(), BY)
    room.usage.decided(decision(Entity("mallory", "made-up-40")), mallory)
    room.log_files.work()
    assert [line["left_out"] for line in room.log_files.lines()[-2:]] == [3, 1]


def test_a_decision_says_what_was_used_what_is_allowed_and_what_is_left(room):
    room.usage.decided(decision(), BY)
    room.log_files.work()
    (line,) = room.log_files.lines()
    assert (line["usage"], line["limit"], line["left"], line["throttle_ms"]) == (5.6, 5.0, 0.12345, 12_000)


@pytest.mark.parametrize("throttle", [1e13, 1e30, float("inf")])
def test_a_throttle_without_end_is_written_as_a_number_that_a_report_takes(room, throttle):
    """10 MB at a throttle factor of 0 are such a one."""
    room.usage.decided(replace(decision(), throttle=throttle), BY)
    room.log_files.work()
    (line,) = room.log_files.lines()
    assert line["throttle_ms"] == 2**50


def test_totals_go_on_over_intervals_with_and_without_a_writer(room):
    for writer in (room.log_files.writer, None):
        tally = Tally()
        usage = UsageLog(tally, room.log_files.author, writer, 3, lambda: 0.0, lambda: 0.0)
        for _ in range(2):
            whole, part = tally.take(TallyKey("u", None, None, None, 0)), tally.take(TallyKey("u", None, "t", None, 0))
            whole.requests, whole.request_bytes, whole.response_bytes, part.requests = 2, 30, 4, 1
            usage.decided(decision(), BY)
            usage.close_interval()
        assert (usage.requests, usage.request_bytes, usage.response_bytes) == ({"Produce": 4}, {"Produce": 60}, {"Produce": 8})
        assert usage.dropped == 0


def test_a_stop_logs_the_running_interval(room):
    room.tally.take(TallyKey("User:alice", "app", None, None, 3)).requests = 1
    room.log_files.writer.start()
    room.usage.stop()
    room.log_files.writer.stop(60.0)  # which waits for longer, where the disk is busy
    assert [line["requests"] for line in room.log_files.lines()] == [1]


def test_past_its_share_a_principal_is_summed_up_and_the_others_keep_their_lines():
    tally = Tally(max_keys=90)
    for i in range(1000):
        for topic in (None, f"t{i}"):
            held = tally.take(TallyKey("User:mallory", f"made-up-{i}", topic, None, 0))
            held.requests += 1
    tally.take(TallyKey("User:alice", "app", None, None, 0)).requests += 1
    rows = {row.key: row.requests for row in rows_of(tally)}
    assert rows[TallyKey("User:alice", "app", None, None, 0)] == 1
    assert sum(rows.values()) == 2001
    assert {key: count for key, count in rows.items() if key.client_id == OTHER} == {
        TallyKey("User:mallory", OTHER, None, None, 0): 960,
        TallyKey("User:mallory", OTHER, OTHER, None, 0): 960,
    }
    assert len(tally) <= 90


def test_sums_that_nobody_holds_are_dropped_when_they_are_logged():
    tally = Tally()
    mine = tally.take(TallyKey("a", None, None, None, 0))
    assert tally.take(TallyKey("a", None, None, None, 0)) is mine
    mine.requests = 5
    tally.give_back(mine)
    assert len(rows_of(tally)) == len(tally) == 1
    tally.give_back(mine)
    mine.response_bytes = 7
    assert [row.response_bytes for row in rows_of(tally)] == [7]
    assert len(tally) == 0


def test_an_entity_over_its_quota_is_an_event_of_operations_once(room):
    log = Log()
    observer = Observer(log, room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    for _ in range(5):
        observer.decided(decision(), BY)
    assert [event for _, event, _ in log.events] == ["over quota"]
    assert log.events[0][2]["entity"] == "user alice"
    assert (log.events[0][2]["usage"], log.events[0][2]["limit"], log.events[0][2]["left"]) == (5.6, 5.0, 0.123)
    observer.forget_quiet({("controller_mutations", ALICE)})
    observer.decided(decision(), BY)
    assert len(log.events) == 1
    observer.forget_quiet(set())
    observer.decided(decision(), BY)
    assert len(log.events) == 2
    assert observer.throttled_requests == {"controller_mutations": 7}
    assert observer.refused_items == {"controller_mutations": 14}
    assert observer.throttle_seconds == {"controller_mutations": 84.0}


def test_who_makes_up_client_ids_does_not_fill_the_log_of_operations(room):
    log = Log()
    observer = Observer(log, room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    mallory = Requester("User:mallory", "x", "10.0.0.2:5", 0, 7, ())
    for i in range(20_000):
        observer.decided(decision(Entity("mallory", f"made-up-{i}")), mallory)
    observer.decided(decision(), BY)
    assert [fields["principal"] for _, _, fields in log.events] == ["User:mallory"] * 10 + ["User:alice"]
    observer.sweep()
    assert log.events[-1][1:] == ("lines left out", {"of": "over quota", "about": "User:mallory", "times": 19_990})
    observer.forget_quiet({("controller_mutations", ALICE)})
    assert len(observer._over) == 1


def test_a_quota_that_lasts_is_said_once_for_an_entity(room):
    log = Log()
    observer = Observer(log, room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    observer.decided(decision(), BY)
    observer.forget_quiet(set(), ("controller_mutations",))
    observer.decided(decision(), BY)
    assert len(log.events) == 1
    observer.forget_quiet(set(), ("storage",))
    observer.decided(decision(), BY)
    assert len(log.events) == 2


def test_a_broker_that_does_not_tell_is_said_once_for_a_host_and_counted(room):
    log = Log()
    observer = Observer(log, room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    for _ in range(3):
        observer.not_told(BY)
    assert [(level, event) for level, event, _ in log.events] == [("warning", "broker did not tell")]
    assert (log.events[0][2]["client"], log.events[0][2]["api"], log.events[0][2]["topics"]) == (
        "10.0.0.1:5",
        "CreateTopics",
        BY.topics[:10],
    )
    observer.sweep()
    observer.not_told(BY)
    assert len(log.events) == 2
    assert observer.unanswered_questions == 4


def test_a_throttle_refuses_nothing(room):
    observer = Observer(Log(), room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    observer.decided(decision(action=Action.THROTTLE), BY)
    assert observer.refused_items == {}


def test_incidents_are_counted_and_said(room):
    log = Log()
    observer = Observer(log, room.usage, ThrottleStatus(lambda: 0.0, lambda: 0.0))
    observer.client_failed("10.0.0.1:5", "app", "garbage")
    observer.broker_failed("10.0.0.1:5", "away")
    assert (observer.client_failures, observer.broker_failures) == (1, 1)
    assert [(level, fields["reason"]) for level, _, fields in log.events] == [("warning", "garbage"), ("warning", "away")]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (0, "Produce"),
        (3, "Metadata"),
        (18, "ApiVersions"),
        (36, "SaslAuthenticate"),
        (23, "OffsetForLeaderEpoch"),
        (94, "UnregisterController"),
        (9999, "key-9999"),
        (4, "key-4"),
    ],
)
def test_names_of_apis(key, name):
    assert api_name(key) == name


def test_names_of_apis_are_those_of_kafka():
    from tests.messages import schemas

    assert {key: api_name(key) for _, key, _, _ in schemas()} == {
        key: schema.__name__.removesuffix("Request") for kind, key, _, schema in schemas() if kind == "request"
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_767_225_600.1239, "2026-01-01T00:00:00.123Z"), (1e20, "9999-12-31T23:59:59.000Z")],
)
def test_times(seconds, text):
    assert iso(seconds) == text


def test_what_users_produced_in_the_last_interval_is_told_per_second(room):
    for user, client_id, topic, key, size in (
        ("alice", "a", "t", 0, 30_000),
        ("alice", "b", "u", 0, 20_000),
        ("bob", "a", "t", 1, 70_000),
        ("carol", "a", None, 0, 0),
    ):
        traffic = room.tally.take(TallyKey(f"User:{user}", client_id, topic, None, key))
        traffic.requests, traffic.record_bytes = 1, size
    room.clock.pass_time(10)
    room.clock.wall -= 3600
    room.usage.close_interval()
    assert room.usage.produced == {"alice": 5000.0}, "Fetch is not producing, and a clock that is set changes no rate"
    room.clock.pass_time(10)
    room.usage.close_interval()
    assert room.usage.produced == {}
