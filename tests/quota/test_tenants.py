"""Tenants: who belongs to which, and how their rates hold beside those of users. The tables of docs/tenants.md are tests
here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from proxy.config.limits import limits_of
from proxy.config.load import SettingsError, load_settings
from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.hashing import murmur3
from quota.catalogue import TENANT_RATES
from quota.decision import Action
from quota.engine import Engine
from quota.rules import Metered, Rules
from quota.tenants import Tenant, Tenants, owner_of

PAGE = (Path(__file__).parents[2] / "docs" / "tenants.md").read_text()
SETTINGS = Settings.model_validate(yaml.safe_load(PAGE.split("```yaml\n")[1].split("```")[0]))
PRODUCE = "cluster_producer_byte_rate"


def rows(first: str) -> list[list[str]]:
    """The cells of the table of the page whose head begins with this, without its head."""
    lines = PAGE.split(f"| {first} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def settings(user: int | None = None, tenant: int | None = None, users: Sequence[str] = (), **more: object) -> Settings:
    """Users app-1, app-2 and these are of the tenant apps; rates of bytes produced of app-1 and of the tenant."""
    entities = [] if user is None else [{"user": "app-1", PRODUCE: user}]
    apps = {"user_prefixes": ["app-"], "users": [*users]} | ({} if tenant is None else {PRODUCE: tenant})
    given = {"quotas": {"entities": entities, **more}, "tenants": {"apps": apps}, "limits": {"max_throttle": "1h"}}
    return Settings.model_validate(given)


def engine_of(found: Settings) -> Engine:
    return Engine(limits_of(found), murmur3)


def rate(engine: Engine, user: str = "app-1", now: float = 0.0) -> Metered:
    found = Rules(engine, user, "any", now).produce
    assert found is not None
    return found


def test_a_tenant_lists_users_or_names_their_beginning_and_the_longest_wins():
    tenants = tenants_of(SETTINGS.tenants)
    for user, tenant, _ in rows("user"):
        assert (tenants.of_user(user) or "none") == tenant, user


def test_a_topic_belongs_to_the_tenant_with_the_longest_prefix():
    tenants = tenants_of(SETTINGS.tenants)
    for topic, tenant in rows("topic"):
        assert (tenants.of_topic(topic) or "none") == tenant, topic


@pytest.mark.parametrize("row", rows("limit of the user"))
def test_the_tighter_of_the_limits_of_a_user_and_its_tenant_holds(row):
    user, tenant, produces, before, throttle = row
    engine = engine_of(settings(*(None if limit == "none" else int(limit) for limit in (user, tenant))))
    if other := Rules(engine, "app-2", "any", 0.0).produce:
        assert other.take(float(before), 0.0), "the others are within the limit"
    found = Rules(engine, "app-1", "any", 0.0).produce
    decision = None if found is None or found.take(float(produces), 0.0) else found.charge(float(produces), 0.0)
    assert (0 if decision is None else decision.throttle) == pytest.approx(float(throttle.removesuffix(" s")))


def test_what_is_over_the_limit_of_the_tenant_is_counted_once_for_the_user():
    engine = engine_of(settings(user=1000, tenant=100))
    found = rate(engine)
    assert not found.take(1300, 0.0)
    assert found.charge(1300, 0.0).entity == owner_of("apps")
    assert found.meter.level(0.0) == 1300
    found.refund(1300, 0.0)
    assert [meter.level(0.0) for meter in (found.meter, found.beside.meter)] == [0, 0], "given back to both"


def test_a_decision_names_the_tenant_and_mutes_all_its_users():
    engine = engine_of(settings(tenant=100))
    decision = rate(engine).charge(1300, 0.0)
    assert (decision.quota, decision.action, str(decision.entity)) == ("tenant_producer_byte_rate", Action.THROTTLE, "tenant apps")
    assert "quota of tenant apps is exceeded" in decision.message
    assert rate(engine, "app-2").hold(1.0).throttle == 2
    assert Rules(engine, "bob", "any", 0.0).produce is None, "who is of no tenant is not limited"


def test_client_ids_do_not_change_the_tenant():
    engine = engine_of(settings(tenant=100))
    owners = {Rules(engine, "app-1", client_id, 0.0).produce.meter for client_id in ("", "a", "app-2")}
    assert len(owners) == 1


def test_an_exempt_user_is_not_charged_to_its_tenant():
    found = settings(tenant=100)
    exempt = found.model_copy(update={"exempt": found.exempt.model_copy(update={"users": ["app-1"]})})
    assert Rules(engine_of(exempt), "app-1", "any", 0.0).produce is None


def test_an_observed_tenant_rate_throttles_nobody_and_the_rate_of_the_user_still_does():
    engine = engine_of(settings(user=100, tenant=50, observe=["tenant_producer_byte_rate"]))
    assert rate(engine).charge(1300, 0.0).entity.user == "app-1"
    assert [str(one.entity) for one in engine.would] == ["tenant apps"]


def test_a_tenant_that_is_removed_while_it_is_over_limits_nobody_any_more():
    engine = engine_of(settings(tenant=100))
    rate(engine).charge(90_000, 0.0)
    engine.change(limits_of(Settings()))
    assert Rules(engine, "app-1", "any", 0.0).produce is None
    engine.change(limits_of(settings(tenant=100)))
    assert not rate(engine).take(1, 1.0), "what was used stays used"


def test_users_that_come_to_a_tenant_share_its_window_from_then_on():
    engine = engine_of(settings(tenant=100))
    rate(engine).charge(1300, 0.0)
    assert Rules(engine, "bob", "any", 0.0).produce is None
    engine.change(limits_of(settings(tenant=100, users=["bob"])))
    assert not rate(engine, "bob", 1.0).take(1, 1.0)


def test_proxies_of_a_fleet_add_up_what_a_tenant_used():
    here, there = (engine_of(settings(tenant=100)) for _ in range(2))
    kinds = [next(sums for sums in one.publish() if sums.name == TENANT_RATES["producer_byte_rate"]) for one in (here, there)]
    assert rate(here).take(900, 0.0)
    ((owner, amount),) = [one for one in kinds[0].take_charged() if one[1]]
    kinds[1].learn(type(owner).__base__(*owner), amount, 0.0)  # as it comes from a store: without its class
    assert not rate(there, "app-2").take(200, 0.0)
    assert str(rate(there, "app-2").charge(900, 0.0).entity) == "tenant apps"


def test_ten_thousand_tenants_are_looked_up_by_the_lengths_of_their_prefixes():
    many = Tenants({f"t{i:05}": Tenant(user_prefixes=(f"t{i:05}-",), topic_prefixes=(f"t{i:05}.",)) for i in range(10_000)})
    assert (many.of_user("t04711-etl"), many.of_topic("t09999.orders"), many.of_user("other")) == ("t04711", "t09999", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tenants: {a: {users: [bob]}, b: {users: [bob]}}", "the user `bob` is of two tenants, `a` and `b`"),
        ("tenants: {a: {user_prefixes: [x-]}, b: {user_prefixes: [x-]}}", "the user prefix `x-` is of two tenants"),
        ("tenants: {a: {topic_prefixes: [x.]}, b: {topic_prefixes: [x.]}}", "the topic prefix `x.` is of two tenants"),
        ("tenants: {a: {users: [bob], cluster_request_rate: 0}}", "greater than 0"),
        ("tenants: {a: {users: [bob], cluster_producer_byte_rate: -1}}", "cluster_producer_byte_rate"),
        ("tenants: {a: {topic_prefixes: [x.], max_topics: 0}}", "`tenants.a.max_topics`: 0 is not right"),
        ("tenants: {a: {topic_prefixes: [x.], max_partitions: -1}}", "`tenants.a.max_partitions`: -1 is not right"),
        ("tenants: {a: {topic_prefixes: [x.], stored_bytes_hard: 0}}", "`tenants.a.stored_bytes_hard`: 0 is not right"),
        ("tenants: {a: {topic_prefixes: [x.], stored_bytes_hard: -5}}", "-5 is not right: a size"),
        ("tenants: {a: {topic_prefixes: [x.], stored_bytes_soft: 5}}", "`stored_bytes_soft` needs `stored_bytes_hard` beside it"),
        ("tenants: {a: {users: [''], cluster_request_rate: 1}}", "users"),
        ("tenants: {'a b': {users: [bob]}}", "a b"),
        ("tenants: {a: {users: [bob], controller_mutations_rate: 1}}", "controller_mutations_rate"),
    ],
)
def test_what_cannot_be_is_refused(text, said, tmp_path):
    (tmp_path / "settings.yaml").write_text(text)
    with pytest.raises(SettingsError) as e:
        load_settings(tmp_path / "settings.yaml", {})
    assert said in str(e.value)


def test_members_that_are_added_while_proxies_run_join_those_of_the_file_which_go_first():
    file = Tenants({"apps": Tenant(users=("alice",), topic_prefixes=("apps.",)), "ops": Tenant(users=("olga",))})
    added = {
        "ops": [("users", "alice"), ("users", "bob"), ("topic_prefixes", "ops.")],
        "new": [("users", "bob"), ("user_prefixes", "new-")],
        "apps": [("users", "alice")],
    }
    tenants, clashes = file.joined_by(added)
    assert [tenants.of_user(user) for user in ("alice", "olga", "bob", "new-1")] == ["apps", "ops", "new", "new"]
    assert (tenants.of_topic("ops.x"), tenants.of_topic("apps.x")) == ("ops", "apps")
    assert [str(clash) for clash in clashes] == [
        "`alice` of `users` is of tenant `apps` already",
        "`bob` of `users` is of tenant `new` already",
    ]


@pytest.mark.parametrize(("user", "tenant"), [(100, 120), (120, 100)])
def test_who_is_muted_for_itself_and_for_its_tenant_waits_for_the_longer_of_both(user: int, tenant: int) -> None:
    engine = engine_of(settings(user=user, tenant=tenant))
    rate(engine).charge(1300, 0.0)
    held = rate(engine).hold(0.0)
    assert held is not None
    assert held.throttle == pytest.approx(3)
