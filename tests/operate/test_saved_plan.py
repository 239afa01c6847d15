"""Plans of quotas as values: their file, the state they are made from, whom they name, and what is shown of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.operate import plan_text, saved_plan
from proxy.operate.foreseen import Replayed, held_back
from proxy.operate.saved_plan import Plan, PlanError
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.entity import DEFAULT, Entity
from quota.overrides import Difference
from quota.tenants import Tenant, owner_of
from reports.quotas.limits import Limit

ALICE, RATE = Entity("alice", None), "cluster_request_rate"
BEFORE = {ALICE: {RATE: 5.0}, owner_of("team"): {RATE: 9.0}}
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LOCAL = NOW.astimezone().replace(tzinfo=None)
"""As Spark gives it."""


def planned(entity: Entity = ALICE) -> Plan:
    return Plan("new.yaml", NOW, (Difference(entity, RATE, 5.0, 3.0),), {(entity, RATE): 4}, BEFORE)


def row(**other: object) -> dict[str, object]:
    found = {"kind": "request_rate", "owner_user": "alice", "owner_client": None, "seconds_throttled": 20.0, "waiting": 30.0}
    return found | {"limit": 3.0, "longest_wait": 10.0, "times": 2, "first_over": LOCAL, "last_over": NOW} | other


def test_a_saved_plan_is_read_as_it_was(tmp_path):
    told = held_back([row()], [Limit("request_rate", "alice", None, 3)], [], {(ALICE, RATE): 4})
    members = {"team": Tenant(("bob",), ("app-",))}
    made = replace(planned(), replayed=Replayed(tuple(told), 7, "a", "b", ()), observed_from=NOW, tenants=members)
    saved_plan.save(made, tmp_path / "plan.json")
    assert saved_plan.load(tmp_path / "plan.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_time_without_a_zone_is_no_plan(tmp_path):
    saved_plan.save(replace(planned(), observed_from=LOCAL), tmp_path / "plan.json")
    with pytest.raises(PlanError, match="has no time zone"):
        saved_plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "is not a plan of"),
        ('{"format": "kafka-quota-proxy plan", "version": 9}', "another version, 9"),
        ('{"format": "kafka-quota-proxy plan", "version": 1}', "is not a whole plan: 'changes'"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path, text, says):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanError, match=says):
        saved_plan.load(tmp_path / "plan.json")
    run = CliRunner().invoke(main, ["quotas", "apply", "--bootstrap-server", "127.0.0.1:1", str(tmp_path / "plan.json")])
    assert (run.exit_code, says in run.output) == (1, True)


def test_a_mistake_is_no_outcome(tmp_path):
    (tmp_path / "new.yaml").write_text("quotas: {entities: [{user: a, request_rat: 1}]}")
    for arguments in (["nowhere.yaml"], [str(tmp_path / "new.yaml")], [], ["x", "--hurt-above", "long"]):
        run = CliRunner().invoke(main, ["quotas", "plan", "--bootstrap-server", "127.0.0.1:1", *arguments])
        assert (run.exit_code, "Traceback" in run.output) == (1, False), run.output


def test_a_state_that_moved_on_is_told_limit_by_limit():
    made = planned()
    assert made.moved(BEFORE) == []
    assert made.moved({owner_of("team"): {RATE: 9.0}, ALICE: {RATE: 5.0}}) == []
    assert made.moved({**BEFORE, ALICE: {RATE: 4.0}}) == ["user alice cluster_request_rate is 4, and was 5"]
    assert made.moved({ALICE: {RATE: 5.0}}) == ["tenant team cluster_request_rate is not set, and was 9"]
    assert made.is_done({ALICE: {RATE: 3.0}})


def test_each_limit_is_known_by_its_line(tmp_path):
    (tmp_path / "new.yaml").write_text(
        "quotas:\n  entities:\n    - user: alice\n      request_rate: 5\n"
        "    - client_id: '<default>'\n      cluster_request_rate: 6\n"
        "  connections:\n    per_address: 7\n    ipv6_prefix: 56\n    networks: {10.1.0.0/16: 5, 10.1.2.3/32: 6}\n"
        "  cold_read_lag: 10m\n  dynamic: {}\n"
        "tenants:\n  team:\n    users: [bob]\n    cluster_request_rate: 9\n"
    )
    found, left_out = saved_plan.lines_of(tmp_path / "new.yaml")
    at = {(ALICE, RATE): 4, (Entity(None, DEFAULT), RATE): 6, (owner_of("team"), RATE): 16}
    assert found == at | {
        (DEFAULT_ADDRESS, "connection_creation_rate"): 8,
        (with_limit("10.1.2.3"), "connection_creation_rate"): 10,
    }
    assert left_out == (
        "quotas.cold_read_lag",
        "quotas.connections.ipv6_prefix",
        "tenants.*.users",
        "quotas.connections.networks.10.1.0.0/16",
    )


def test_what_a_plan_does_not_look_at_is_told():
    made = replace(planned(), left_out=("quotas.storage", "tenants.*.users"))
    for changes in (made.changes, ()):
        said = plan_text.text(replace(made, changes=changes))
        assert "own settings files alone: quotas.storage, tenants.*.users." in said


def test_who_would_be_hurt_is_not_none_where_it_is_not_known():
    no_line = Replayed((), 0, None, None, ())
    for replayed in (None, no_line):
        assert "who would be hurt is not known" in plan_text.markdown(replace(planned(), replayed=replayed))
    assert "0 would be hurt" in plan_text.markdown(replace(planned(), replayed=replace(no_line, lines=7, first="a", last="b")))


def test_only_lower_and_new_limits_hold_somebody_back():
    three, default = Limit("request_rate", "alice", None, 3), Limit("request_rate", DEFAULT, None, 1)
    (one,) = held_back([row()], [three, default], [default], {(ALICE, RATE): 4})
    assert (one.owner, one.rule, one.line, one.times, one.seconds) == ("user alice", "user alice", 4, 2, 30.0)
    assert one.first == NOW.isoformat(), "with its zone"
    assert held_back([row()], [three], [replace(three, rate=2)], {}) == [], "it is raised"
    assert held_back([row()], [three], [three], {}) == [], "it stays"
    assert len(held_back([row()], [three], [replace(three, rate=4)], {})) == 1
    assert held_back([row(seconds_throttled=0.0)], [three], [], {}) == []


def test_names_of_clients_are_no_markdown():
    shown = plan_text.markdown(planned(Entity("a|b <img> @all [x](y)\n# top", None)))
    assert "<img>" not in shown
    assert "@all" not in shown
    assert "\n# top" not in shown
    assert "a\\|b" in shown
    assert "no logs were given" in plan_text.text(planned())
