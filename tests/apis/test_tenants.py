"""Limits of tenants as clients, operators and logs see them."""

from __future__ import annotations

import orjson
import pytest
import yaml

from proxy.cluster.quota_records import BadRecord, decode, encode
from proxy.config.limits import limits_of, table_of
from proxy.config.models import Settings
from proxy.observe.lines import Author, decision_line
from proxy.observe.throttle_status import named
from proxy.operate.plan import as_settings
from proxy.operate.throttles import whose
from proxy.session.requester import Requester
from proxy.session.session import State
from quota.decision import Action
from quota.entity import Entity
from quota.keys import wrong_value
from quota.overrides import Change
from quota.tenants import owner_of
from tests.apis.produce_frames import records, throttle, write, written
from tests.apis.test_client_quotas import DynamicQuotas, alter, altered, describe, described, results, seen
from tests.apis.test_topic_numbers import topics
from tests.apis.topic_frames import HEARTBEAT, create

APPS = owner_of("apps")
RATE = "cluster_producer_byte_rate"


def tenants(w, **limits: object):
    apps = {"user_prefixes": ["app-"], **limits}
    w.engine.change(limits_of(Settings.model_validate({"tenants": {"apps": apps}})))
    return w


def produce(d, size: int) -> float:
    parts = {("orders", 0): records(size)}
    d.client(write(parts, 1))
    assert d.to_broker == write(parts, 1)
    d.broker(written(list(parts), 1))
    return throttle(d.to_client, 9)


def test_users_of_a_tenant_share_what_it_may_produce_and_others_do_not(world):
    w = tenants(world(), **{RATE: 100})
    one, two, bob = (w.dialogue(user) for user in ("app-1", "app-2", "bob"))
    assert produce(one, 900) == 0
    assert produce(two, 400) == 3
    assert produce(bob, 90_000) == 0
    assert two.session.state is State.MUTED
    one.now = 1.0
    one.client(write({("orders", 0): records(1)}, 1))
    assert (one.to_broker, one.session.state) == (b"", State.HELD), "its tenant is muted on another connection"
    decision, by = w.watcher.decisions[0]
    assert (decision.quota, decision.action, decision.entity) == ("tenant_producer_byte_rate", Action.THROTTLE, APPS)
    assert by.principal == "User:app-2"


def test_what_the_broker_did_not_write_is_given_back_to_the_tenant_too(world):
    w = tenants(world(), **{RATE: 100})
    one, two = w.dialogue("app-1"), w.dialogue("app-2")
    parts = {("orders", 0): records(900)}
    one.client(write(parts, 1))
    assert one.to_broker
    one.broker(written(list(parts), 1, errors={"orders": 29}))
    assert one.to_client
    assert produce(two, 900) == 0


def test_requests_of_all_users_count(world):
    w = tenants(world(), cluster_request_rate=1)
    for i in range(11):
        d = w.dialogue(f"app-{i}")
        d.client(HEARTBEAT)
        assert d.to_broker == HEARTBEAT
    ((decision, by),) = w.watcher.decisions
    assert (decision.quota, decision.throttle) == ("tenant_request_rate", 1)
    assert by.topics == (), "the name of a tenant is not the name of a topic"


def test_requests_that_come_in_one_read_are_within_both_limits_or_looked_at_one_by_one(world):
    apps = {"users": ["app-1"], "cluster_request_rate": 1}
    entity = {"user": "app-1", "cluster_request_rate": 1_000_000}
    w = world()
    w.engine.change(limits_of(Settings.model_validate({"tenants": {"apps": apps}, "quotas": {"entities": [entity]}})))
    d = w.dialogue("app-1")
    frame = write({("orders", 0): records(100)}, 1, acks=0)
    d.client(frame * 3)
    assert d.to_broker == frame * 3
    d.client(frame * 20)
    assert d.to_broker == frame * 8, "11 are within the limit of the tenant, or one more, which mutes"
    assert [(one.quota, str(one.entity)) for one, _ in w.watcher.decisions] == [("tenant_request_rate", "tenant apps")]


# ------------------------------------------------------------------ changed while the proxy runs


def test_limits_of_tenants_are_altered_and_described_and_no_broker_hears_of_them(world):
    quotas = DynamicQuotas()
    d = world(dynamic_quotas=quotas).dialogue("admin")
    who = (("tenant", "apps"),)
    d.client(alter(1, (who, {RATE: 100.0})))
    assert d.to_broker == b""
    quotas.done()
    assert d.to_client == altered(1, (who, 0, None))
    assert quotas.table == {APPS: {RATE: 100.0}}
    d.client(describe(2))
    assert d.to_broker == describe(2)
    d.broker(described(2, {}))
    assert seen(d.to_client) == {who: {RATE: 100.0}}


@pytest.mark.parametrize(
    ("who", "key"),
    [
        ((("tenant", None),), RATE),
        ((("tenant", "a b"),), RATE),
        ((("tenant", "apps"), ("user", "bob")), RATE),
        ((("tenant", "apps"),), "controller_mutations_rate"),
    ],
)
def test_what_no_tenant_can_have_is_refused(world, who, key):
    quotas = DynamicQuotas()
    d = world(dynamic_quotas=quotas).dialogue("admin")
    d.client(alter(1, (who, {key: 5.0})))
    assert results(d.to_client) == [(who, 42)]
    assert not quotas.asked


def test_members_are_added_to_tenants_and_taken_away(world):
    quotas = DynamicQuotas()
    d = world(dynamic_quotas=quotas).dialogue("admin")
    apps = (("tenant", "apps"),)
    d.client(alter(1, (apps, {"users.alice.smith": 1.0, "topic_prefixes.pay.": 1.0})))
    quotas.done()
    assert results(d.to_client) == [(apps, 0)]
    assert quotas.table == {APPS: {"users.alice.smith": 1.0, "topic_prefixes.pay.": 1.0}}


@pytest.mark.parametrize(
    ("who", "key", "value"),
    [
        ((("user", "bob"),), "users.alice", 1.0),
        ((("tenant", "apps"),), "users.alice", 2.0),
        ((("tenant", "apps"),), "users." + "x" * 2000, 1.0),
    ],
)
def test_what_cannot_be_a_member_is_refused(world, who, key, value):
    quotas = DynamicQuotas()
    d = world(dynamic_quotas=quotas).dialogue("admin")
    d.client(alter(1, (who, {key: value})))
    assert results(d.to_client) == [(who, 42)]
    assert not quotas.asked


def test_numbers_of_topics_are_altered_for_tenants_and_users_in_whole_numbers(world):
    quotas = DynamicQuotas()
    d = world(dynamic_quotas=quotas).dialogue("admin")
    apps, bob = (("tenant", "apps"),), (("user", "bob"),)
    d.client(alter(1, (apps, {"max_topics": 5.0}), (bob, {"max_partitions": 9.0})))
    quotas.done()
    assert results(d.to_client) == [(apps, 0), (bob, 0)]
    assert quotas.table == {APPS: {"max_topics": 5.0}, Entity("bob", None): {"max_partitions": 9.0}}
    pair = (("user", "bob"), ("client-id", "app"))
    d.client(alter(2, (apps, {"max_topics": 2.5}), (pair, {"max_topics": 5.0})))
    assert results(d.to_client) == [(apps, 42), (pair, 42)]


def test_numbers_that_were_altered_are_in_force(world):
    settings = Settings.model_validate({"tenants": {"apps": {"topic_prefixes": ["apps."], "max_topics": 9}}})
    w = world(knows_nothing=True)
    w.engine.change(limits_of(settings, table_of(settings) | {APPS: {"max_topics": 1.0}}))
    w.cluster.learn_size("apps.0", 1)
    d = w.dialogue("bob")
    d.client(create(7, 1, ("apps.1", 1)))
    d.to_broker  # noqa: B018
    assert topics(d.to_client, 19, 7) == [("apps.1", 44, "tenant apps has 1 of 1 topics (max_topics); 1 more is too many.")]


def test_a_limit_of_a_tenant_is_kept_as_a_record_that_older_versions_skip():
    change = Change(APPS, RATE, 100.0)
    record = encode(change, {})
    assert orjson.loads(record.key) == {"tenant": "apps", "quota": RATE}
    assert decode(record.key, record.value) == change
    assert str(decode(record.key, record.value).entity) == "tenant apps"
    for key in ({"tenant": 5, "quota": RATE}, {"tenant": "", "quota": RATE}, {"tenant": "apps", "quota": "producer_ids_rate"}):
        with pytest.raises(BadRecord):
            decode(orjson.dumps(key), record.value)


def test_a_limit_from_the_topic_goes_before_that_of_the_file_and_needs_the_tenant(world):
    settings = Settings.model_validate({"tenants": {"apps": {"user_prefixes": ["app-"], RATE: 1_000_000}}})
    w = world()
    w.engine.change(limits_of(settings, table_of(settings) | {APPS: {RATE: 100.0}, owner_of("gone"): {RATE: 1.0}}))
    assert produce(w.dialogue("app-1"), 1300) == 3


def test_exported_limits_of_tenants_can_be_read_again():
    text = as_settings({APPS: {RATE: 100.0}})
    assert table_of(Settings.model_validate(yaml.safe_load(text.replace("100", "'100'")))) == {APPS: {RATE: 100.0}}
    assert wrong_value(APPS, RATE, 100.0) is None


# ------------------------------------------------------------------ told


def test_the_tenant_is_named_in_the_log_and_in_the_list_of_throttles(world):
    w = tenants(world(), **{RATE: 100})
    assert produce(w.dialogue("app-1"), 1300) == 3
    decision, by = w.watcher.decisions[0]
    assert isinstance(by, Requester)
    line = decision_line(Author("p", "b"), decision, by, "now", 0)
    assert line["entity"] == {"user": None, "client_id": None, "tenant": "apps"}
    assert whose(named((decision.quota, "enforce", decision.entity))) == "tenant apps"
