"""Settings files: every mistake is told with its key, its line and what would be right."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config.limits import limits_of, table_of, windows_of
from proxy.config.load import SettingsError, load_settings
from proxy.config.models import Settings
from proxy.config.units import HostPort, PortRange
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.catalogue import TOPIC_RATES
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.cold_reads import ColdReads
from quota.kinds.connections import ConnectionLimits
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIdOptions, Windows
from quota.kinds.rates import RateLimit
from quota.kinds.topic_rates import Above, TopicRateOptions
from quota.overrides import merged


def load(tmp_path: Path, text: str | bytes, **over: object) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_settings(path, over)


def mistake(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(SettingsError) as e:
        load(tmp_path, text)
    return str(e.value)


DESIGN = """
upstream:
  bootstrap_servers: [kafka-0:9092, kafka-1:9092]
listen:
  bootstrap: 0.0.0.0:9192
  advertise: proxy.example.com
  broker_ports: 9193-9292
admin: {listen: 127.0.0.1:9190}
logs: {usage: {path: logs, interval: 10s}}
exempt: {users: [], client_ids: [], topics: [__consumer_offsets, __transaction_state]}
quotas:
  entities:
    - {user: alice, controller_mutations_rate: 5, controller_mutations_burst: 500}
    - {user: "<default>", controller_mutations_rate: 100}
    - {user: bob, client_id: etl, controller_mutations_rate: 0.5}
    - {user: dave, producer_ids_rate: 2.5}
"""


def test_what_exists_of_the_designs_example(tmp_path):
    settings = load(tmp_path, DESIGN)
    assert settings.upstream.bootstrap_servers == [HostPort("kafka-0", 9092), HostPort("kafka-1", 9092)]
    assert settings.listen.bootstrap == HostPort("0.0.0.0", 9192)  # noqa: S104
    assert settings.listen.ports() == PortRange(9193, 9292)
    assert settings.logs.usage.interval == 10.0
    limits = limits_of(settings)
    assert limits.max_throttle == 30.0
    assert limits.exempt.topics == {"__consumer_offsets", "__transaction_state"}
    find = limits.table("controller_mutations").find
    assert find("alice", "x") == (MutationLimit(5, 500), Entity("alice", None))
    assert find("carol", "x") == (MutationLimit(100, 1100), Entity("carol", None))
    assert limits.table("producer_ids").find("dave", "x") == (ProducerIdLimit(2.5), Entity("dave", None))
    assert limits.table("producer_ids").find("alice", "x") is None
    assert find("bob", "etl") == (MutationLimit(0.5, 5.5), Entity("bob", "etl"))


def test_rates_and_thresholds(tmp_path):
    text = """
quotas:
  entities:
    - {client_id: etl, producer_byte_rate: 20MiB, consumer_byte_rate: 40MiB, request_rate: 0.5}
  topics:
    total_bytes_in_per_sec: 200MiB
    bytes_in_per_sec: {orders: 50MiB}
    mode: throttle
    meter: window
  producer_ids: {mode: reject, hold_new: yes}
"""
    limits = limits_of(load(tmp_path, text))
    etl = Entity("alice", "etl")
    assert limits.table("producer_byte_rate").find("alice", "etl") == (RateLimit(20 << 20), etl)
    assert limits.table("consumer_byte_rate").find("alice", "etl") == (RateLimit(40 << 20), etl)
    assert limits.table("request_rate").find("alice", "etl") == (RateLimit(0.5), etl)
    assert limits.option(TopicLimits) == TopicLimits(200 << 20, {"orders": 50 << 20}, "window", Mode.THROTTLE)
    assert limits.option(ProducerIdOptions) == ProducerIdOptions(hold_new=True)
    assert limits_of(load(tmp_path, "")).option(TopicLimits) is None


@pytest.mark.parametrize("algorithm", Algorithm)
def test_an_algorithm_is_that_of_every_limit(tmp_path, algorithm):
    text = DESIGN.replace("quotas:\n", f"quotas:\n  controller_mutations_algorithm: {algorithm.value}\n")
    limits = limits_of(load(tmp_path, text)).table("controller_mutations")
    assert {limits.find(*who).limit for who in (("alice", "x"), ("carol", "x"), ("bob", "etl"))} == {  # type: ignore[union-attr]
        MutationLimit(5, 500, algorithm),
        MutationLimit(100, 1100, algorithm),
        MutationLimit(0.5, 5.5, algorithm),
    }


def test_defaults_of_quotas_and_metrics(tmp_path):
    settings = load(tmp_path, DESIGN)
    assert limits_of(settings).table("controller_mutations").find("alice", "x") == (
        MutationLimit(5, 500, Algorithm.SPREAD),
        Entity("alice", None),
    )
    assert settings.quotas.default_partitions is None, "the cluster's own"
    assert settings.quotas.ask_timeout == 5.0
    assert settings.metrics.max_entities == 100
    given = load(tmp_path, "quotas: {default_partitions: 3, ask_timeout: 500ms}\nmetrics: {max_entities: 0}\n")
    assert (given.quotas.default_partitions, given.quotas.ask_timeout, given.metrics.max_entities) == (3, 0.5, 0)


def test_how_producer_ids_are_counted(tmp_path):
    assert windows_of(load(tmp_path, DESIGN)) == Windows(3600, 11, 0.01), "the seed's"
    limits = limits_of(load(tmp_path, DESIGN))
    assert limits.option(ProducerIdOptions) == ProducerIdOptions(count_unlimited=True, sweep_interval=60)
    text = (
        "{window_size: PT10M, window_num: 3, cleanup_interval: 20s, false_positive_rate: 0.1, count_unlimited: no, state_file: x}"
    )
    given = load(tmp_path, f"quotas:\n  producer_ids: {text}\n")
    assert windows_of(given) == Windows(600, 3, 0.1)
    limits = limits_of(given)
    assert limits.option(ProducerIdOptions) == ProducerIdOptions(count_unlimited=False, sweep_interval=20)
    assert given.quotas.producer_ids.state_file == "x"


def test_a_limit_on_producer_ids_stands_for_the_default_user_too(tmp_path):
    both = "quotas: {entities: [{user: '<default>', producer_ids_rate: 3, controller_mutations_rate: 4}]}"
    limits = limits_of(load(tmp_path, both))
    assert limits.table("producer_ids").find("bob", "x") == (ProducerIdLimit(3), Entity("bob", None))
    assert limits.table("controller_mutations").find("bob", "x") is not None


def test_a_round_trip_through_plain_data(tmp_path):
    settings = load(tmp_path, DESIGN)
    again = Settings.model_validate(
        settings.model_dump(exclude_unset=True, mode="json") | {"logs": {"usage": {"path": "logs", "interval": "10s"}}}
    )
    assert again == settings


def test_no_file_and_an_empty_one_give_the_defaults(tmp_path):
    assert load_settings(None).limits == load(tmp_path, "").limits == load(tmp_path, "# nothing\n").limits
    assert load_settings(None).limits.max_frame == 104_857_600


MISTAKES = {
    "producer ids by client id": (
        "quotas:\n  entities:\n    - user: a\n      client_id: b\n      producer_ids_rate: 5\n",
        5,
        "`quotas.entities[0].producer_ids_rate`",
        "leave out `client_id`",
    ),
    "producer ids by default client id": (
        "quotas:\n  entities:\n    - client_id: <default>\n      producer_ids_rate: 5\n",
        4,
        "`quotas.entities[0].producer_ids_rate`",
        "is for users only",
    ),
    "no producer ids": ("quotas: {entities: [{user: a, producer_ids_rate: 0}]}\n", 1, "producer_ids_rate`", "greater than 0"),
    "less than none": (
        "quotas: {entities: [{user: a, producer_ids_rate: -1}]}\n",
        1,
        "producer_ids_rate`",
        "greater than 0",
    ),
    "endless producer ids": ("quotas: {entities: [{user: a, producer_ids_rate: .inf}]}\n", 1, "producer_ids_rate`", "finite"),
    "no window": ("quotas:\n  producer_ids:\n    window_size: 0s\n", 3, "`quotas.producer_ids.window_size`", "than or equal to 1"),
    "endless window": ("quotas: {producer_ids: {window_size: P31D}}\n", 1, "`quotas.producer_ids.window_size`", "2592000"),
    "no samples": ("quotas: {producer_ids: {window_num: 0}}\n", 1, "`quotas.producer_ids.window_num`", "than or equal to 1"),
    "too many samples": ("quotas: {producer_ids: {window_num: 1001}}\n", 1, "`quotas.producer_ids.window_num`", "1000"),
    "cleaning always": (
        "quotas: {producer_ids: {cleanup_interval: 9s}}\n",
        1,
        "`quotas.producer_ids.cleanup_interval`",
        "10",
    ),
    "never wrong": (
        "quotas: {producer_ids: {false_positive_rate: 0}}\n",
        1,
        "`quotas.producer_ids.false_positive_rate`",
        "0.000001",
    ),
    "always wrong": ("quotas: {producer_ids: {false_positive_rate: 1}}\n", 1, "`quotas.producer_ids.false_positive_rate`", "0.5"),
    "rejecting": ("quotas: {producer_ids: {mode: refuse}}\n", 1, "`quotas.producer_ids.mode`", "reject"),
    "thresholds above the total": (
        "quotas:\n  topics:\n    total_bytes_in_per_sec: 100\n    bytes_in_per_sec: {orders: 60, bills: 50}\n",
        2,
        "`quotas.topics`",
        "110 bytes/s in sum, which is 10 more than the total of 100",
    ),
    "no threshold": (
        "quotas:\n  topics:\n    total_bytes_in_per_sec: 100\n    bytes_in_per_sec: {orders: 0}\n",
        4,
        "`quotas.topics.bytes_in_per_sec.orders`",
        "greater than or equal to 1",
    ),
    "no total": ("quotas:\n  topics: {mode: fail}\n", 2, "`quotas.topics.total_bytes_in_per_sec`", "required"),
    "no such mode": ("quotas: {topics: {total_bytes_in_per_sec: 1MiB, mode: drop}}\n", 1, "`quotas.topics.mode`", "transient"),
    "a topic without a rate": (
        "quotas:\n  topic_rates: {topics: {orders: {}}}\n",
        2,
        "`quotas.topic_rates.topics.orders`",
        "`bytes_in`, `bytes_out`",
    ),
    "a rate of a topic of 0": ("quotas: {topic_rates: {topics: {orders: {bytes_in: 0}}}}\n", 1, "orders.bytes_in`", "greater"),
    "no name of a topic": (
        "quotas: {topic_rates: {topics: {'a b': {bytes_in: 1}}}}\n",
        1,
        "`quotas.topic_rates.topics",
        "A-Za-z0-9",
    ),
    "no such mode of topic rates": ("quotas: {topic_rates: {mode: drop}}\n", 1, "`quotas.topic_rates.mode`", "transient"),
    "no address": ("quotas: {connections: {networks: {somewhere: 1}}}\n", 1, "`quotas.connections.networks`", "10.1.0.0/16"),
    "a network that stands twice": (
        "quotas: {connections: {networks: {10.1.0.0/16: 1, 10.1.2.3/16: 2}}}\n",
        1,
        "`quotas.connections.networks`",
        "stands twice, as 10.1.0.0/16",
    ),
    "a rate of connections below 1": ("quotas: {connections: {per_address: 0.5}}\n", 1, "`quotas.connections.per_address`", "1"),
    "a prefix that is too long": ("quotas: {connections: {ipv6_prefix: 129}}\n", 1, "`quotas.connections.ipv6_prefix`", "128"),
    "connections of a client id": (
        "quotas:\n  entities: [{client_id: a, connection_rate: 1}]\n",
        2,
        "connection_rate`",
        "users only",
    ),
    "an age that is none": ("limits: {max_connection_age: 10ms}\n", 1, "`limits.max_connection_age`", "1"),
    "a lag below 0": ("quotas: {cold_read_lag: -1}\n", 1, "`quotas.cold_read_lag`", "0"),
    "no such meter": ("quotas: {topics: {total_bytes_in_per_sec: 1MiB, meter: x}}\n", 1, "`quotas.topics.meter`", "window"),
    "no bytes": (
        "quotas: {entities: [{user: a, producer_byte_rate: 0}]}\n",
        1,
        "producer_byte_rate`",
        "greater than or equal to 1",
    ),
    "negative bytes": ("quotas: {entities: [{user: a, consumer_byte_rate: -1}]}\n", 1, "consumer_byte_rate`", "64MiB"),
    "no requests": ("quotas: {entities: [{user: a, request_rate: 0}]}\n", 1, "request_rate`", "greater than 0"),
    "unknown key": ("upstream: {}\nlisten:\n  advertize: x\n", 3, "`listen.advertize`", "`advertise` is probably meant"),
    "unknown root key": ("quota: {}\n", 1, "`quota`", "`quotas` is probably meant"),
    "nothing alike": ("admin:\n  zzz: 1\n", 2, "`admin.zzz`", "here there are auth, listen, tls"),
    "unknown key in a list": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_rat: 5\n",
        4,
        "`quotas.entities[0].controller_mutations_rat`",
        "`controller_mutations_rate` is probably meant",
    ),
    "duration without unit": ("limits:\n  max_throttle: 30\n", 2, "`limits.max_throttle`", "such as 30s"),
    "negative duration": ("limits: {max_throttle: -30s}\n", 1, "`limits.max_throttle`", "such as 30s"),
    "weeks": ("limits: {max_throttle: P1W}\n", 1, "`limits.max_throttle`", "such as 30s"),
    "too long a throttle": ("limits: {max_throttle: 2h}\n", 1, "`limits.max_throttle`", "3600"),
    "size": ("limits:\n  max_frame: 1 pound\n", 2, "`limits.max_frame`", "such as 64MiB"),
    "size too small": ("limits: {max_frame: 1B}\n", 1, "`limits.max_frame`", "1024"),
    "address without port": (
        "upstream:\n  bootstrap_servers:\n    - a:1\n    - kafka\n",
        4,
        "`upstream.bootstrap_servers[1]`",
        "kafka-0.example.com:9092",
    ),
    "address with a scheme": ("admin: {listen: 'http://a:1'}\n", 1, "`admin.listen`", "kafka-0.example.com:9092"),
    "port too large": ("admin: {listen: 'a:65536'}\n", 1, "`admin.listen`", "kafka-0.example.com:9092"),
    "IPv6 without brackets": ("admin: {listen: '::1:9190'}\n", 1, "`admin.listen`", "[::1]:9092"),
    "ports backwards": ("listen:\n  broker_ports: 9292-9193\n", 2, "`listen.broker_ports`", "9193-9292"),
    "one port": ("listen: {broker_ports: 9193}\n", 1, "`listen.broker_ports`", "9193-9292"),
    "level": ("logs:\n  level: loud\n", 2, "`logs.level`", "'debug', 'info', 'warning' or 'error'"),
    "nobody": (
        "quotas:\n  entities:\n    - controller_mutations_rate: 5\n",
        3,
        "`quotas.entities[0]`",
        "`user`, `client_id` or both",
    ),
    "no limit": ("quotas: {entities: [{user: a}]}\n", 1, "`quotas.entities[0]`", "set `controller_mutations_rate`"),
    "burst alone": (
        "quotas: {entities: [{user: a, controller_mutations_burst: 5}]}\n",
        1,
        "`quotas.entities[0]`",
        "needs `controller_mutations_rate`",
    ),
    "burst below rate": (
        "quotas:\n  entities:\n    - {user: a, controller_mutations_rate: 5, controller_mutations_burst: 4}\n",
        3,
        "`quotas.entities[0]`",
        "at least 5",
    ),
    "rate of nothing": (
        "quotas: {entities: [{user: a, controller_mutations_rate: 0}]}\n",
        1,
        "controller_mutations_rate`",
        "greater than 0",
    ),
    "rate without end": (
        "quotas: {entities: [{user: a, controller_mutations_rate: .inf}]}\n",
        1,
        "controller_mutations_rate`",
        "finite",
    ),
    "rate below nothing": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_rate: -5\n",
        4,
        "`quotas.entities[0].controller_mutations_rate`",
        "greater than 0",
    ),
    "rate that is no number": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_rate: 5/s\n",
        4,
        "`quotas.entities[0].controller_mutations_rate`",
        "a valid number",
    ),
    "rate beyond measure": (
        "quotas: {entities: [{user: a, controller_mutations_rate: 1.0e+300}]}\n",
        1,
        "controller_mutations_rate`",
        "less than or equal to",
    ),
    "burst of nothing": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_rate: 5\n      controller_mutations_burst: 0\n",
        5,
        "`quotas.entities[0].controller_mutations_burst`",
        "greater than 0",
    ),
    "burst below nothing": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_rate: 5\n      controller_mutations_burst: -500\n",
        5,
        "`quotas.entities[0].controller_mutations_burst`",
        "greater than 0",
    ),
    "burst of ages": (
        "quotas:\n  entities:\n    - {user: a, controller_mutations_rate: 1.0e-6, controller_mutations_burst: 1000000}\n",
        3,
        "`quotas.entities[0]`",
        "at most 1000",
    ),
    "unknown algorithm": (
        "quotas:\n  entities: []\n  controller_mutations_algorithm: leaky_bucket\n",
        3,
        "`quotas.controller_mutations_algorithm`",
        "'spread' or 'token_bucket'",
    ),
    "an algorithm of one entity": (
        "quotas:\n  entities:\n    - user: a\n      controller_mutations_algorithm: spread\n",
        4,
        "`quotas.entities[0].controller_mutations_algorithm`",
        "there is no such setting",
    ),
    "no default partitions": ("quotas:\n  default_partitions: 0\n", 2, "`quotas.default_partitions`", "greater than or equal to 1"),
    "asking for no time": ("quotas:\n  ask_timeout: 0s\n", 2, "`quotas.ask_timeout`", "greater than 0"),
    "asking without a unit": ("quotas:\n  ask_timeout: 5\n", 2, "`quotas.ask_timeout`", "such as 30s"),
    "fewer than no entities": ("metrics: {max_entities: -1}\n", 1, "`metrics.max_entities`", "greater than or equal to 0"),
    "more entities than a scrape takes": ("metrics: {max_entities: 10001}\n", 1, "`metrics.max_entities`", "10000"),
    "twice the same entity": (
        "quotas:\n  entities:\n    - {user: a, controller_mutations_rate: 5}\n    - {user: a, controller_mutations_rate: 6}\n",
        1,
        "`quotas`",
        "into one entry",
    ),
    "key twice": ("admin: {}\nlogs: {}\nadmin: {}\n", 3, "`admin`", "first on line 1"),
    "nested key twice": ("logs:\n  level: info\n  usage: {}\n  level: info\n", 4, "`logs.level`", "first on line 2"),
    "one topic for quotas and logs": (
        "logs: {usage: {topic: kept}}\nquotas:\n  dynamic: {topic: kept}\n",
        2,
        "`quotas.dynamic.topic`",
        "take two topics",
    ),
    "a topic with a blank": ("logs:\n  usage:\n    topic: my log\n", 3, "`logs.usage.topic`", "A-Za-z0-9"),
    "a broker that is no number": ("upstream:\n  brokers:\n    one: kafka-1:9092\n", 3, "`upstream.brokers.one`", "integer"),
    "a broker without a port": ("upstream:\n  brokers: {1: kafka-1}\n", 2, "`upstream.brokers.1`", "an address, such as"),
    "not YAML": ("upstream:\n  - a\n b: [\n", 3, "", "not YAML"),
    "a list": ("- a\n", 1, "", "must be a mapping of settings"),
    "a text": ("hello\n", 1, "", "must be a mapping of settings"),
    "an alias of itself": ("logs: &a\n  usage: *a\n", 1, "", "contains itself"),
    "a section that is a text": ("listen: 127.0.0.1:9192\n", 1, "`listen`", ""),
    "an empty name": ("listen: {advertise: ''}\n", 1, "`listen.advertise`", "at least 1 character"),
    "a proxy id with a slash": ("proxy_id: a/b\n", 1, "`proxy_id`", "A-Za-z0-9"),
    "a date that is none": ("listen:\n  advertise: 2024-99-99\n", 2, "`listen.advertise`", ""),
    "a tag that is none": ("listen:\n  advertise: !secret x\n", 2, "`listen.advertise`", ""),
    "a number that is none": ("quotas:\n  default_partitions: !!int x\n", 2, "`quotas.default_partitions`", ""),
    "binary that is none": ("proxy_id: !!binary '*'\n", 1, "`proxy_id`", ""),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_key_line_and_what_would_be_right(tmp_path, name):
    text, line, key, right = MISTAKES[name]
    told = mistake(tmp_path, text)
    assert "\n" not in told
    assert f"settings.yaml: line {line}: " in told
    assert key in told
    assert right in told
    assert "instance of" not in told, "words of the program's, not of the reader's"


def test_every_mistake_has_a_line_of_its_own(tmp_path):
    told = mistake(tmp_path, "limits:\n  max_throttle: 5\n  max_frame: x\nadmin: {listen: y}\n").splitlines()
    assert sorted(line.split(": ")[1] for line in told) == ["line 2", "line 3", "line 4"]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "missing.yaml")
    assert "UTF-8" in mistake(tmp_path, b"a: \xff\n")
    assert "not YAML" in mistake(tmp_path, b"a: \0\n")


def test_a_section_left_empty_means_its_defaults(tmp_path):
    """As it stands there once all its settings are commented out."""
    assert load(tmp_path, "quotas:\n#  entities: []\nlogs:\n").quotas.entities == []


def test_the_command_line_replaces_what_it_names_and_nothing_else(tmp_path):
    text = "upstream: {bootstrap_servers: [a:1], connect_timeout: 5s}\n"
    settings = load(tmp_path, text, upstream={"bootstrap_servers": ["b:2"]}, logs={"usage": {"path": "x"}})
    assert settings.upstream.bootstrap_servers == [HostPort("b", 2)]
    assert settings.upstream.connect_timeout == 5
    assert settings.logs.usage.path == "x"
    with pytest.raises(SettingsError, match=r"settings: `upstream\.bootstrap_servers"):
        load_settings(None, {"upstream": {"bootstrap_servers": ["b"]}})


def test_what_holds_for_every_listener(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("listen: {bootstrap: 'h:1000'}\nmore_listeners:\n  inside: {bootstrap: 'h:2000'}\n  open: {bootstrap: 'h:0'}\n")
    with pytest.raises(SettingsError, match=r"line 4: `more_listeners\.open`: `reuse_port` needs fixed ports"):
        load_settings(file, {}, {"reuse_port": True})
    file.write_text("more_listeners:\n  inside: {bootstrap: 'h:2000'}\n")
    both = load_settings(file, {"listen": {"bootstrap": "h:1000"}}, {"reuse_port": True})
    assert [listener.reuse_port for listener in both.listeners.values()] == [True, True]
    assert load_settings(None, {}, {"reuse_port": True}).listen.reuse_port
    assert not load_settings(file).listen.reuse_port
    for text in ("more_listeners: 7\n", "more_listeners: {inside: 7}\n", "listen: 7\n"):
        file.write_text(text)
        with pytest.raises(SettingsError, match=r"line 1: .*7 is not right"):
            load_settings(file, {}, {"reuse_port": True})


def test_a_file_of_each_proxys_own(tmp_path):
    text = "proxy_id: p-1\nquotas: {producer_ids: {state_file: '/var/{proxy_id}/{proxy_id}.ids'}}\n"
    assert load(tmp_path, text).producer_ids_file == Path("/var/p-1/p-1.ids")
    assert load(tmp_path, "").producer_ids_file is None


def test_an_alias_that_is_used_twice_is_fine(tmp_path):
    text = "exempt:\n  users: &names [a, b]\n  client_ids: *names\n"
    assert load(tmp_path, text).exempt.client_ids == ["a", "b"]


def test_an_exempt_client_is_a_user_with_a_client_id(tmp_path):
    exempt = limits_of(load(tmp_path, "exempt: {clients: [{user: etl, client_id: mirror}], client_ids: [tool]}\n")).exempt
    assert exempt.everywhere("etl", "mirror")
    assert not exempt.everywhere("etl", "tool")
    assert not exempt.everywhere("mallory", "mirror")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("exempt: {clients: [{client_id: mirror}]}\n", "user"),
        ("exempt: {clients: [{user: etl}]}\n", "client_id"),
        ("exempt: {clients: [{user: '<default>', client_id: mirror}]}\n", "<default>` cannot be exempt"),
        ("exempt: {clients: [mirror]}\n", "exempt.clients"),
    ],
)
def test_an_exempt_client_needs_both_names(tmp_path, text, wrong):
    with pytest.raises(SettingsError, match=wrong):
        load(tmp_path, text)


def test_rates_of_topics_connections_and_cold_reads(tmp_path):
    text = """
quotas:
  observe: [topic_producer_byte_rate]
  topic_rates: {topics: {orders: {bytes_in: 10MiB, bytes_out: 50MiB}, bills: {bytes_in: 1MiB}}, mode: transient}
  connections: {per_address: 5, networks: {10.0.0.0/8: 7, "2001:db8::/32": 9}, ipv6_prefix: 56}
  cold_read_lag: 1000
limits: {max_connection_age: 1h}
"""
    settings = load(tmp_path, text)
    limits = limits_of(settings)
    rates = {
        kind: [limits.table(kind).of(Entity(None, None, topic)) for topic in ("orders", "bills", "else")] for kind in TOPIC_RATES
    }
    assert rates == {
        "topic_producer_byte_rate": [RateLimit(10 << 20), RateLimit(1 << 20), None],
        "topic_consumer_byte_rate": [RateLimit(50 << 20), None, None],
    }
    assert limits.option(TopicRateOptions) == TopicRateOptions(Above.THROTTLE), "what is only observed refuses nothing"
    assert limits.observed == {"topic_producer_byte_rate": Action.REFUSE}
    networks = {ip_network("10.0.0.0/8"): 7, ip_network("2001:db8::/32"): 9}
    assert limits.option(ConnectionLimits) == ConnectionLimits(5, networks, 56)
    assert limits.option(ColdReads) == ColdReads(1000)
    assert settings.limits.max_connection_age == 3600
    assert load(tmp_path, "").limits.max_connection_age is None


def test_rates_of_addresses_that_were_set_while_it_runs_go_before_those_of_the_file(tmp_path):
    rate = "connection_creation_rate"
    text = "quotas: {connections: {per_address: 5, networks: {10.0.0.0/8: 7, 10.0.0.1: 8, 10.0.0.2: 9}}}"
    settings = load(tmp_path, text)
    file = table_of(settings)
    assert file == {DEFAULT_ADDRESS: {rate: 5}, with_limit("10.0.0.1"): {rate: 8}, with_limit("10.0.0.2"): {rate: 9}}
    dynamic = {DEFAULT_ADDRESS: {rate: 50.0}, with_limit("10.0.0.1"): {rate: 80.0}, with_limit("2001:db8::1"): {rate: 6.0}}
    networks = {"10.0.0.0/8": 7, "10.0.0.1": 80, "10.0.0.2": 9, "2001:db8::1": 6}
    wanted = ConnectionLimits(50, {ip_network(name): rate for name, rate in networks.items()}, 64)
    assert limits_of(settings, merged(file, dynamic)).option(ConnectionLimits) == wanted
