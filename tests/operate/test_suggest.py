"""Limits from usage logs."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from shutil import copy
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from proxy.config.limits import table_of
from proxy.config.load import load_settings
from proxy.observe.lines import Author, Holds, decision_line, iso, owned_line, usage_line
from proxy.operate.quotas import quotas
from proxy.operate.suggest import Histogram
from proxy.session.requester import Requester
from proxy.session.tally import Row, TallyKey
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.tenants import owner_of

T0 = 1_700_000_000.0
ALICE = Entity("alice", None)


class Log:
    """The log of one proxy, as the proxy itself writes it."""

    def __init__(self, folder: Path, proxy: str) -> None:
        self.file, self.author = folder / f"usage-{proxy}-00-0.jsonl", Author(proxy, "00")

    def add(self, interval: int, user: str, api: int, *, topic: str | None = None, client_id: str = "app", **sums: int) -> None:
        row = {"requests": 1, "request_bytes": 0, "response_bytes": 0, "record_bytes": 0, "records": 0, "mutations": 0}
        key = TallyKey(f"User:{user}", client_id, topic, None, api)
        values = [*({**row, **sums}).values(), 0]
        line = usage_line(self.author, Row(key, *values, {}), iso(T0 + 10 * interval), iso(T0 + 10 * interval + 10))
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def own(self, minute: int, holds: Holds) -> None:
        line = owned_line(self.author, holds, iso(T0 + 60 * minute), iso(T0 + 60 * minute + 10))
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def refuse(self, interval: int, entity: Entity, user: str, quota: str) -> None:
        """A throttle of somebody by a limit of 1 KiB/s."""
        decision = Decision(quota, Action.THROTTLE, entity, (0,), usage=2048, limit=1024, throttle=1.0, message="over")
        by = Requester(f"User:{user}", "app", "10.1.1.1", 0, 9)
        with self.file.open("a") as file:
            file.write(json.dumps(decision_line(self.author, decision, by, iso(T0 + 10 * interval), 0)) + "\n")


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(quotas, ["suggest", *arguments])
    assert done.exit_code == code, done.output
    return done


def suggested(folder: Path, *more: str) -> dict[tuple[str | None, str], tuple[float, float, int]]:
    found = json.loads(run("--from", str(folder), "--json", "--min-intervals", "1", *more).stdout)
    return {
        (one["entity"]["user"] or one["entity"]["client_id"], one["key"]): (one["used"], one["limit"], one["intervals"])
        for one in found
    }


def test_percentiles_are_at_most_two_percent_too_high() -> None:
    chance = Random(1)
    for _ in range(20):
        amounts = sorted(chance.lognormvariate(5, 3) for _ in range(1000))
        histogram = Histogram()
        for amount in amounts:
            histogram.add(amount)
        for part in (0.5, 0.99, 1.0):
            exact = amounts[int(part * 1000) - 1]
            assert exact * 0.999999 <= histogram.percentile(part) <= exact * 1.0201


def test_proxies_are_summed_up_interval_by_interval(tmp_path: Path) -> None:
    one, two = Log(tmp_path, "one"), Log(tmp_path, "two")
    for interval in range(100):
        for log in (one, two):
            log.add(interval, "alice", 0, topic="a", record_bytes=5000)
            log.add(interval, "alice", 0, topic="b", record_bytes=1000)
            log.add(interval, "alice", 0, requests=40)
            log.add(interval, "alice", 1, response_bytes=50_000, requests=10)
    found = suggested(tmp_path)
    assert found["alice", "cluster_producer_byte_rate"] == (1200, 1800, 100)
    assert found["alice", "cluster_consumer_byte_rate"] == (10_000, 15_000, 100)
    assert found["alice", "cluster_request_rate"] == (10, 15, 100)


def test_a_peak_in_a_hundred_is_beyond_the_percentile(tmp_path: Path) -> None:
    log = Log(tmp_path, "one")
    for interval in range(200):
        log.add(interval, "alice", 19, mutations=1000 if interval == 7 else 10)
    found = suggested(tmp_path, "--headroom", "2")
    assert found["alice", "controller_mutations_rate"][1] == pytest.approx(2.0, rel=0.05)
    assert found["alice", "controller_mutations_burst"] == (1000, 2000, 200), "the rate alone would not let it pass"
    assert found["alice", "controller_mutations_rate"][1] * 11 < 1000
    assert suggested(tmp_path, "--percentile", "100")["alice", "controller_mutations_rate"][1] == 150


def test_the_settings_file_is_right(tmp_path: Path) -> None:
    log = Log(tmp_path, "one")
    for interval in range(40):
        log.add(interval, "alice", 0, topic="a", record_bytes=123_456)
        log.add(interval, "bob", 19, mutations=3)
    log.add(1, "rare", 0, topic="a", record_bytes=5)
    done = run("--from", str(tmp_path), "--yaml")
    file = tmp_path / "suggested.yaml"
    file.write_text(done.stdout)
    table = table_of(load_settings(file))
    assert table[ALICE]["cluster_producer_byte_rate"] == 19_000
    assert Entity("rare", None) not in table
    assert "1 had too few intervals" in done.stderr
    assert yaml.safe_load(done.stdout)["quotas"]["entities"][0]["user"] == "alice"
    both = yaml.safe_load(run("--from", str(tmp_path), "--yaml", "--by", "both").stdout)["quotas"]["entities"]
    assert both[0]["user"] == "alice"
    assert both[0]["client_id"] == "app"
    assert "alice" in run("--from", str(tmp_path)).stdout


def test_rates_of_topics_are_what_all_together_write_and_read(tmp_path: Path) -> None:
    one, two = Log(tmp_path, "one"), Log(tmp_path, "two")
    for interval in range(40):
        for log, user in ((one, "alice"), (two, "bob"), (two, "<other>")):
            log.add(interval, user, 0, topic="orders", record_bytes=1000)
            log.add(interval, user, 1, topic="orders", record_bytes=2000)
            log.add(interval, user, 78, topic="orders", record_bytes=3000)
            log.add(interval, user, 0, requests=40)
        two.add(interval, "bob", 0, topic="<other>", record_bytes=77_000)
    done = run("--from", str(tmp_path), "--by", "topic", "--json")
    found = {(one["entity"]["topic"], one["key"]): (one["used"], one["limit"], one["intervals"]) for one in json.loads(done.stdout)}
    assert found == {
        ("orders", "topic_producer_byte_rate"): (300, 450, 40),
        ("orders", "topic_consumer_byte_rate"): (1500, 2300, 40),
    }
    assert "topic orders" in run("--from", str(tmp_path), "--by", "topic").stdout
    file = tmp_path / "suggested.yaml"
    file.write_text(run("--from", str(tmp_path), "--by", "topic", "--yaml").stdout)
    rate = load_settings(file).quotas.topic_rates.topics["orders"]
    assert (rate.bytes_in, rate.bytes_out) == (450, 2300)


TENANTS = """
tenants:
  shop: {users: [alice], user_prefixes: [shop-], cluster_producer_byte_rate: 1KiB}
  till: {user_prefixes: [shop-till-]}
exempt: {users: [shop-operator], topics: [free]}
"""


def test_rates_of_tenants_are_what_their_users_do_together(tmp_path: Path) -> None:
    log, file = Log(tmp_path, "one"), tmp_path / "settings.yaml"
    file.write_text("upstream: {bootstrap_servers: [kafka:9092]}" + TENANTS)
    for interval in range(40):
        for user in ("alice", "shop-web", "shop-till-1", "shop-operator", "bob", "<other>"):
            log.add(interval, user, 0, topic="orders", record_bytes=1000)
            log.add(interval, user, 0, topic="free", record_bytes=5000)
            log.add(interval, user, 19, mutations=5)
    for entity, user, quota in (
        (owner_of("shop"), "shop-web", "tenant_producer_byte_rate"),
        (Entity("alice", None), "alice", "producer_byte_rate"),
        (owner_of("other"), "alice", "tenant_producer_byte_rate"),
        (Entity("bob", None), "bob", "producer_byte_rate"),
    ):
        log.refuse(3, entity, user, quota)
    asked = ("--from", str(tmp_path), "--by", "tenant", "--tenants", str(file))
    found = {(one["entity"]["tenant"], one["key"]): one for one in json.loads(run(*asked, "--json").stdout)}
    assert {which: one["used"] for which, one in found.items()} == {
        ("shop", "cluster_producer_byte_rate"): 200,
        ("till", "cluster_producer_byte_rate"): 100,
        ("shop", "cluster_request_rate"): 0.2,
        ("till", "cluster_request_rate"): 0.1,
        ("shop", "cluster_admin_request_rate"): 0.2,
        ("till", "cluster_admin_request_rate"): 0.1,
    }
    held_back = found["shop", "cluster_producer_byte_rate"]["held_back"]
    assert (held_back["throttled"], held_back["limit"]) == (2, 1024), "as a tenant, and one of its users"
    assert found["shop", "cluster_producer_byte_rate"]["limit"] > 1024
    assert "tenant shop" in run(*asked).stdout
    (tmp_path / "suggested.yaml").write_text(run(*asked, "--yaml").stdout)
    assert load_settings(tmp_path / "suggested.yaml").tenants["till"].cluster_producer_byte_rate == 150


def test_limits_of_what_there_is_at_a_time_rest_on_the_most_of_it(tmp_path: Path) -> None:
    one, two, file = Log(tmp_path, "one"), Log(tmp_path, "two"), tmp_path / "settings.yaml"
    file.write_text("upstream: {bootstrap_servers: [kafka:9092]}" + TENANTS)
    one.add(1, "alice", 0, topic="orders", record_bytes=5)
    for minute in range(40):
        one.own(minute, Holds(owner_of("shop"), 10, 30 + minute, 1000))
        two.own(minute, Holds(owner_of("shop"), 12 if minute == 7 else 9, 30, 900))
        one.own(minute, Holds(owner_of("gone"), 10, 30))
        one.own(minute, Holds(Entity("alice", None), 4, 8))
        one.own(minute, Holds(Entity(None, None, "orders"), stored=700))
        if minute == 1:
            one.own(minute, Holds(owner_of("till"), 1, 1))
    one.refuse(2, owner_of("shop"), "bob", "tenant_partition_count")
    one.refuse(3, owner_of("shop"), "bob", "tenant_partition_count")
    asked = ("--from", str(tmp_path), "--by", "tenant", "--tenants", str(file))
    found = {(one["entity"]["tenant"], one["key"]): one for one in json.loads(run(*asked, "--json").stdout)}
    assert {which: (one["used"], one["limit"], one["intervals"]) for which, one in found.items()} == {
        ("shop", "max_topics"): (12, 18, 40),
        ("shop", "max_partitions"): (69, 1600, 40),
        ("shop", "stored_bytes_hard"): (1000, 1500, 40),
    }
    assert found["shop", "max_partitions"]["held_back"]["intervals"] == 1, "of the minutes, whoever asked"
    told = run(*asked).stdout
    assert "up to 12 in 40 minutes" in " ".join(told.replace("│", " ").split())
    (tmp_path / "suggested.yaml").write_text(run(*asked, "--yaml").stdout)
    shop = load_settings(tmp_path / "suggested.yaml").tenants["shop"]
    assert (shop.max_topics, shop.max_partitions, shop.stored_bytes_hard) == (18, 1600, 1500)
    assert suggested(tmp_path)["alice", "max_topics"] == (4, 6, 40)
    (tmp_path / "topics.yaml").write_text(run("--from", str(tmp_path), "--by", "topic", "--yaml").stdout)
    assert load_settings(tmp_path / "topics.yaml").quotas.stored_bytes.topics["orders"].hard == 1100
    assert {key for _, key in suggested(tmp_path, "--by", "client-id")}.isdisjoint({"max_topics", "max_partitions"})


def test_tenants_are_known_by_a_settings_file_alone(tmp_path: Path) -> None:
    Log(tmp_path, "one").add(1, "alice", 0, topic="a", record_bytes=5)
    file = tmp_path / "settings.yaml"
    file.write_text("upstream: {bootstrap_servers: [kafka:9092]}")
    assert "go together" in run("--from", str(tmp_path), "--by", "tenant", code=2).output
    assert "go together" in run("--from", str(tmp_path), "--tenants", str(file), code=2).output
    assert "there are no `tenants`" in run("--from", str(tmp_path), "--by", "tenant", "--tenants", str(file), code=2).output


def test_bad_lines_and_lines_that_come_twice(tmp_path: Path) -> None:
    log = Log(tmp_path, "one")
    for interval in range(3):
        log.add(interval, "alice", 19, mutations=10)
    copy = tmp_path / "usage-one-00-copy.jsonl"
    copy.write_bytes(log.file.read_bytes())
    good = json.loads(log.file.read_text().splitlines()[0])
    bad = [b"{", b"[]", b"\xff", b'{"v":2,"type":"usage"}', b'{"v":1,"type":"usage"}']
    bad.append(b'{"v":2,"type":"owned","seq":1,"proxy":"a","boot":"b"}')
    bad += [json.dumps(good | change).encode() for change in ({"start": "yesterday"}, {"mutations": -1}, {"requests": "1"})]
    (tmp_path / "usage-two-00-0.jsonl").write_bytes(b"\n".join(bad) + b"\n" + json.dumps({**good, "type": "gap"}).encode())
    (tmp_path / "usage-three-00-0.jsonl").write_bytes(b"")
    done = run("--from", str(tmp_path), "--json", "--min-intervals", "1")
    found = {one["key"]: one["used"] for one in json.loads(done.stdout)}
    assert found["controller_mutations_rate"] == 1, "counted once"
    assert f"{len(bad)} line(s) could not be read" in done.stderr
    assert "3 lines" in done.stderr


def test_a_folder_without_logs(tmp_path: Path) -> None:
    assert "files usage-*.jsonl are looked for" in run("--from", str(tmp_path), code=1).output
    assert "does not exist" in run("--from", str(tmp_path / "nowhere"), code=2).output


def test_a_file_that_was_begun_after_the_clock_was_set_back_hides_none_before(tmp_path: Path) -> None:
    log = Log(tmp_path, "edge")
    for interval in range(4):
        log.add(interval, "alice", 3, requests=20)
    log.file = tmp_path / "usage-edge-00-1.jsonl"
    for interval in range(-100, -96):
        log.add(interval, "alice", 3, requests=20)
    assert suggested(tmp_path)["alice", "cluster_request_rate"][2] == 8


def test_a_limit_of_a_client_id_is_for_the_user_that_uses_most_of_it(tmp_path: Path) -> None:
    log = Log(tmp_path, "one")
    for interval in range(10):
        log.add(interval, "alice", 1, client_id="etl", response_bytes=1000)
        log.add(interval, "bob", 1, client_id="etl", response_bytes=9000)
        log.add(interval, "bob", 1, client_id="<other>", response_bytes=9000)
    found = suggested(tmp_path, "--by", "client-id")
    assert found["etl", "cluster_consumer_byte_rate"] == (900, 1400, 10)
    assert {name for name, _ in found} == {"etl"}


def test_who_was_held_back_is_not_advised_to_have_less(tmp_path: Path) -> None:
    """By the log that a proxy wrote while a producer wanted ten times its rate; the report says the same
    (tests/reports/test_advice.py)."""
    copy(Path(__file__).parents[1] / "reports" / "throttled.jsonl", tmp_path / "usage-one-0-0.jsonl")
    found = {one["key"]: one for one in json.loads(run("--from", str(tmp_path), "--json").stdout)}
    produced = found["cluster_producer_byte_rate"]
    assert produced["held_back"]["limit"] == 20_480
    assert produced["held_back"]["throttled"] > 100, "those that were left out of the log are counted"
    assert produced["limit"] > 1.5 * 20_480
    assert found["controller_mutations_rate"]["limit"] > 1
    assert not any(found["cluster_request_rate"]["held_back"].values()), "nobody was held back by that"
    told = run("--from", str(tmp_path)).stdout
    assert "hit its limit of 20,480 in" in told
    assert "throttled 281 times, for at least" in told


@pytest.mark.parametrize("change", [{"mode": "observe"}, {"quota": "storage"}, {"principal": "<other>"}])
def test_decisions_that_held_nobody_back(tmp_path: Path, change: dict[str, str]) -> None:
    lines = [json.loads(line) for line in (Path(__file__).parents[1] / "reports" / "throttled.jsonl").open()]
    made = [line | change if line["type"] == "decision" else line for line in lines]
    (tmp_path / "usage-one-0-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    found = json.loads(run("--from", str(tmp_path), "--json", "--min-intervals", "1").stdout)
    assert len(found) > 2
    assert not [one for one in found if any(one["held_back"].values())]


def test_decisions_that_make_no_sense_are_counted_as_bad(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (Path(__file__).parents[1] / "reports" / "throttled.jsonl").open()]
    good = next(line for line in lines if line["type"] == "decision")
    wrong = [{"at": "yesterday"}, {"entity": None}, {"entity": {"user": 5, "client_id": None}}, {"left_out": -1}, {"limit": "1"}]
    bad = [good | change for change in (*wrong, {"topics": [1]}, {"throttle_ms": None})]
    (tmp_path / "usage-one-0-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*lines, *bad)))
    assert f"{len(bad)} line(s) could not be read" in run("--from", str(tmp_path), "--json").stderr
