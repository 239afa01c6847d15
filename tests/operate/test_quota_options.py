"""Options of `quotas`, as kafka-configs.sh has them, and the way from a table to a file and back."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from proxy.cli import main
from proxy.config.limits import table_of
from proxy.config.load import load_settings
from proxy.operate import plan
from proxy.operate.access import AccessError, upstream_of
from proxy.operate.entities import filter_of, notes_of, ops_of, parts_of, spelled_out, who_of_parts
from proxy.operate.quotas import quotas
from proxy.wire.client_quotas import Component, Op
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.entity import DEFAULT, Entity
from quota.overrides import changed
from tests.certs import Authority

USER, CLIENT = "user", "client-id"


@pytest.mark.parametrize(
    ("arguments", "who"),
    [
        ("--entity-type users --entity-name alice", ((USER, "alice"),)),
        ("--entity-type users --entity-default", ((USER, None),)),
        ("--entity-type clients --entity-default", ((CLIENT, None),)),
        ("--entity-type users --entity-name a --entity-type clients --entity-name b", ((USER, "a"), (CLIENT, "b"))),
        ("--entity-type users --entity-default --entity-type clients --entity-name b", ((USER, None), (CLIENT, "b"))),
        ("--entity-type clients --entity-type users --entity-name b --entity-default", ((CLIENT, "b"), (USER, None))),
        ("--user alice", ((USER, "alice"),)),
        ("--user=alice --client-defaults", ((USER, "alice"), (CLIENT, None))),
        ("--user-defaults --client-id app", ((USER, None), (CLIENT, "app"))),
        ("--entity-type ips --entity-name 10.0.0.1", (("ip", "10.0.0.1"),)),
        ("--ip 10.0.0.1", (("ip", "10.0.0.1"),)),
        ("--ip-defaults", (("ip", None),)),
    ],
)
def test_entities_are_named_as_kafka_configs_does(arguments, who):
    words = spelled_out(arguments.split())
    pairs = list(zip(words[::2], words[1::2], strict=True))
    types = [value for option, value in pairs if option == "--entity-type"]
    names = [value for option, value in pairs if option == "--entity-name"]
    assert who_of_parts(parts_of(types, names)) == who


def test_filters():
    assert filter_of([]) == ((), False)
    parts = [(USER, "alice"), (CLIENT, DEFAULT)]
    assert filter_of(parts) == ((Component(USER, 0, "alice"), Component(CLIENT, 1, None)), True)
    assert filter_of([(USER, None)]) == ((Component(USER, 2, None),), True)


def test_changes():
    ops = ops_of(["a=1,b=2.5", "producer_byte_rate=20MiB"], ["c,d"])
    assert ops == (
        Op("a", 1, False), Op("b", 2.5, False), Op("producer_byte_rate", 20 << 20, False), Op("c", 0, True), Op("d", 0, True),
    )  # fmt: skip


ALTER = ["alter", "--bootstrap-server", "localhost:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "whose? give --entity-type"),
        (["--entity-type", "users"], "which user? give --entity-name or --entity-default"),
        (["--entity-name", "x"], "more names than types"),
        (["--user", "a", "--entity-type", "users", "--entity-name", "b"], "stands twice"),
        (["--user", "a"], "alter what?"),
        (["--user", "a", "--add-config", "rate"], "must be key=value"),
        (["--user", "a", "--add-config", "rate=fast"], "rate=fast: must be a number"),
        (["--user", "a", "--add-config", "producer_byte_rate=1 mile"], "such as 1048576 or 20MiB"),
        (["--user", "a", "--add-config", "r=1", "--delete-config", "r"], "r stands twice"),
        (["--user", "a", "--delete-config", ","], "a key is missing"),
        (["--entity-type", "topics"], "'topics' is not one of 'users', 'clients'"),
    ],
)
def test_what_is_not_right_is_said(arguments, said):
    run = CliRunner().invoke(quotas, [*ALTER, *arguments])
    assert run.exit_code == 2
    assert said in run.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.password=geheim", 'username="…"'),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere/x.jks", "only PEM can be read here"),
        ("security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("security.protocol=SSL\nssl.certificate.location=/a", "belong together"),
        ("security.protocol=SSL\nssl.key.password=geheim", "give one without"),
        ("a=\\u00zz", "not a properties file"),
    ],
)
def test_properties_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    run = CliRunner().invoke(quotas, ["describe", "--bootstrap-server", "localhost:1", "--command-config", str(file)])
    assert run.exit_code == 2
    assert said in run.output
    assert str(file) in run.output
    assert "geheim" not in run.output


def test_properties_of_java_and_of_librdkafka(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    java = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a b" password="s\\\\"e;cret";'
    texts = [
        "security.protocol = SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.file}\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={java}\n",
        f"security.protocol: sasl_ssl\nssl.ca.location: {authority.file}\nsasl.mechanisms=SCRAM-SHA-512\n"
        'sasl.username=a b\nsasl.password=s"e;cret\n',
    ]
    for text in texts:
        file = tmp_path / "client.properties"
        file.write_text(text)
        upstream = upstream_of(file)
        assert upstream.identity is not None
        assert upstream.identity.password is not None
        assert (upstream.identity.username, upstream.identity.password.get_secret_value()) == ("a b", 's"e;cret')
        assert upstream.context() is not None
    assert upstream_of(None).identity is None
    with pytest.raises(AccessError, match="cannot be read"):
        upstream_of(tmp_path / "nowhere")


ALICE, BOTH, OTHERS = Entity("alice", None), Entity("alice", "app"), Entity(DEFAULT, None)
TABLE = {
    ALICE: {"controller_mutations_rate": 5.0, "producer_ids_rate": 0.5},
    BOTH: {"controller_mutations_rate": 2.0},
    OTHERS: {"producer_ids_rate": 9.0},
    DEFAULT_ADDRESS: {"connection_creation_rate": 50},
    with_limit("10.0.0.1"): {"connection_creation_rate": 500},
    with_limit("2001:db8::1"): {"connection_creation_rate": 5},
}


def test_an_export_is_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(plan.as_settings(TABLE))
    assert table_of(load_settings(file)) == TABLE
    assert yaml.safe_load(plan.as_settings({})) == {"quotas": {"entities": []}}


def test_the_way_from_one_table_to_another():
    kept = {entity: values for entity, values in TABLE.items() if entity not in (ALICE, BOTH)}
    wanted = {ALICE: {"controller_mutations_rate": 6.0}, **kept}
    found = plan.steps(TABLE, wanted, prune=False)
    assert [(one.entity, one.key, one.old, one.new) for one in found] == [(ALICE, "controller_mutations_rate", 5.0, 6.0)]
    entries = plan.entries_of(plan.steps(TABLE, wanted, prune=True))
    assert [(entry.who, len(entry.ops)) for entry in entries] == [(((USER, "alice"),), 2), (((USER, "alice"), (CLIENT, "app")), 1)]
    assert changed(TABLE, [one[0:2] + one[3:] for one in plan.steps(TABLE, wanted, prune=True)]) == wanted


def test_what_is_the_proxys_and_what_is_not():
    found = {
        ((USER, "a"),): {"consumer_byte_rate": 1.0, "producer_ids_rate": 2.0},
        (("ip", "1.1.1.1"),): {"connection_creation_rate": 5.0},
    }
    address = {with_limit("1.1.1.1"): {"connection_creation_rate": 5.0}}
    assert plan.own(found) == {Entity("a", None): {"producer_ids_rate": 2.0}, **address}
    assert plan.theirs(found) == 1
    assert json.dumps(plan.as_json(found))


def test_a_file_with_what_the_proxy_would_refuse(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: {entities: [{user: a, producer_ids_rate: 0}]}")
    run = CliRunner().invoke(quotas, ["import", "--bootstrap-server", "localhost:1", str(file)])
    assert run.exit_code == 2
    assert "`quotas.entities[0].producer_ids_rate`" in run.output


@pytest.mark.parametrize(
    ("key", "similar"),
    [("producer_byte_rate", "cluster_producer_byte_rate"), ("controller_mutation_rate", "controller_mutations_rate")],
)
def test_who_sets_a_quota_of_the_brokers_is_told_which_one_is_of_the_cluster(key: str, similar: str) -> None:
    (note,) = notes_of(ops_of([f"{key}=5"], []))
    assert note == f"note: {key} is enforced by each broker by itself; for the whole cluster set {similar}"
    assert notes_of(ops_of([f"{similar}=5"], [key])) == []
    run = CliRunner().invoke(quotas, [*ALTER, "--user", "a", "--add-config", f"{key}=5"])
    assert note in run.output


def test_a_deprecated_name_of_the_settings_file_is_no_key() -> None:
    with pytest.raises(ValueError, match="there is no cold_read_rate; cluster_cold_read_rate is meant"):
        notes_of(ops_of(["cold_read_rate=5"], []))


@pytest.mark.parametrize(("mistyped", "meant"), [("throttle", "throttles"), ("sevre", "serve"), ("quota", "quotas")])
def test_a_mistyped_command_is_told_what_is_probably_meant(mistyped: str, meant: str) -> None:
    run = CliRunner().invoke(main, [mistyped])
    assert run.exit_code == 2
    assert f"Did you mean '{meant}'?" in run.output
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).output
