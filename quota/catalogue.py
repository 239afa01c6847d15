"""The catalogue of the limits that operators set for users and client ids: one row for each key. Settings, AlterClientQuotas,
`quotas suggest` and the report are made from it. In: nothing. Out: rows, and the part of them that the report reads
(reports/quotas/catalogue.py, made by `make docs`), which imports nothing of the proxy.

Names are such that no broker has them: what ends in `_byte_rate` is a broker's, and means each broker by itself (KIP-13, KIP-546);
for the whole cluster it begins with `cluster_`. The settings file has the same names, and takes the deprecated ones without the
prefix too. The rate of addresses alone has Kafka's name: brokers cannot hold it behind a proxy, so there is no other one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, NamedTuple

from quota.api_groups import GROUPS, LIMITED

MAX_VALUE: Final = 1e12
"""The largest limit, except for bytes and requests."""
MAX_BYTES: Final = 1 << 50
"""The largest rate of bytes, per second."""
MAX_STORED: Final = 1 << 60
"""The largest number of stored bytes."""
MAX_TOPICS: Final = 10_000_000
"""The largest number of topics or partitions."""
MAX_REQUESTS: Final = 1e9
"""The largest rate of requests, per second."""

MUTATIONS_RATE: Final = "controller_mutations_rate"
MUTATIONS_BURST: Final = "controller_mutations_burst"
PRODUCER_IDS_RATE: Final = "producer_ids_rate"
STORED_HARD: Final = "stored_bytes_hard"
STORED_SOFT: Final = "stored_bytes_soft"

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78


class Measure(NamedTuple):
    """What of the usage log a limit is about: a field of the lines of these API keys (all when empty), of lines with a topic or
    of those without."""

    field: str
    apis: tuple[int, ...] = ()
    by_topic: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One limit. `name`: in the Kafka protocol and under `quotas.entities` of the settings file. `kind`: its quota, as
    decisions and `quotas.observe` name it. `users_only`: it cannot be set for client ids. `tenants_only`: nor for users.
    `size`: in bytes, so whole numbers and units (`20MiB`). `at_once`: a burst, not a rate. `whole`: no fractions. `measure`:
    None where usage lines of the log do not show it. `level`: what there may be at a time; lines `owned` of the log show it, in a
    field that is called like the kind."""

    name: str
    kind: str
    unit: str
    help: str
    measure: Measure | None = None
    users_only: bool = False
    tenants_only: bool = False
    maximum: float = MAX_VALUE
    size: bool = False
    at_once: bool = False
    whole: bool = False
    level: bool = False

    @property
    def deprecated(self) -> str:
        """The name that the settings file takes too."""
        return self.name.removeprefix("cluster_")

    @property
    def title(self) -> str:
        """The kind as messages name it."""
        return self.kind.replace("_", " ")


_GROUP_HELP: Final = {
    "metadata": "of Metadata, ApiVersions, DescribeCluster, DescribeTopicPartitions and telemetry.",
    "group": "of group membership: FindCoordinator, JoinGroup, SyncGroup, LeaveGroup and heartbeats of all kinds.",
    "commit": "of OffsetCommit and TxnOffsetCommit.",
    "describe": "that ask for offsets, groups, configurations and the like and change nothing: ListOffsets, OffsetFetch,\n"
    "DescribeGroups, DescribeConfigs and others.",
    "fetch": "of Fetch, ShareFetch and ShareAcknowledge.",
    "produce": "of Produce.",
    "transaction": "of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.",
    "admin": "that change topics, configurations, rights, quotas and groups.",
}


def _group_rate(group: str) -> Key:
    """The rate of requests of one group of APIs (`quota.api_groups`)."""
    return Key(
        f"cluster_{group}_request_rate",
        f"{group}_request_rate",
        "requests/s",
        f"Requests per second, in the same way, {_GROUP_HELP[group]}",
        Measure("requests", GROUPS[group]),
        maximum=MAX_REQUESTS,
    )


_ROWS: Final = (
    Key(
        MUTATIONS_RATE,
        "controller_mutations",
        "partitions/s",
        "Partitions per second that may be created, added and deleted on average.",
        Measure("mutations"),
    ),
    Key(
        MUTATIONS_BURST,
        "controller_mutations",
        "partitions",
        "Partitions that may be created, added and deleted at once; 11 times the rate when not set.",
        Measure("mutations"),
        at_once=True,
    ),
    Key(
        PRODUCER_IDS_RATE,
        "producer_ids",
        "ids/window",
        "Producer ids that a user may bring anew within `quotas.producer_ids.window_size`. For users only.",
        users_only=True,
    ),
    Key(
        "cluster_producer_byte_rate",
        "producer_byte_rate",
        "bytes/s",
        "Bytes of record batches per second, on average over 11 samples of 1 s, that may be produced to the whole cluster;\n"
        "Kafka's quota of this name is one for each broker.",
        Measure("record_bytes", (PRODUCE,), by_topic=True),
        maximum=MAX_BYTES,
        size=True,
    ),
    Key(
        "cluster_consumer_byte_rate",
        "consumer_byte_rate",
        "bytes/s",
        "Bytes per second, in the same way, of answers to Fetch and ShareFetch from the whole cluster.",
        Measure("response_bytes", (FETCH, SHARE_FETCH)),
        maximum=MAX_BYTES,
        size=True,
    ),
    Key(
        "cluster_request_rate",
        "request_rate",
        "requests/s",
        "Requests per second, in the same way, of any kind but those of a login.",
        Measure("requests"),
        maximum=MAX_REQUESTS,
    ),
    Key(
        "cluster_cold_read_rate",
        "cold_read_rate",
        "bytes/s",
        "Bytes per second, in the same way, of answers to Fetch that are more than `quotas.cold_read_lag` offsets behind\n"
        "the end of the log.",
        maximum=MAX_BYTES,
        size=True,
    ),
    *map(_group_rate, LIMITED),
    Key(
        "cluster_connection_rate",
        "connection_rate",
        "connections/s",
        "Connections per second, in the same way, that a user may open: further ones wait after their login. For users only.",
        users_only=True,
        maximum=MAX_REQUESTS,
    ),
    Key(
        "max_topics",
        "topic_count",
        "topics",
        "Topics that may exist at the same time, of a user those that it created as far as that is known; further ones are\n"
        "refused with 44 POLICY_VIOLATION. For users only.",
        users_only=True,
        maximum=MAX_TOPICS,
        whole=True,
        level=True,
    ),
    Key(
        "max_partitions",
        "partition_count",
        "partitions",
        "Partitions that these topics may have together, in the same way. For users only.",
        users_only=True,
        maximum=MAX_TOPICS,
        whole=True,
        level=True,
    ),
    Key(
        STORED_HARD,
        "stored_bytes",
        "bytes",
        "Bytes that its topics may have stored together; batches that would pass it are refused. For tenants only.",
        tenants_only=True,
        maximum=MAX_STORED,
        size=True,
        level=True,
    ),
    Key(
        STORED_SOFT,
        "stored_bytes",
        "bytes",
        "Stored bytes above which producing to its topics is slowed down, down to nothing at `stored_bytes_hard`.",
        tenants_only=True,
        maximum=MAX_STORED,
        size=True,
    ),
)
ADDRESS_RATE: Final = Key(
    "connection_creation_rate",
    "address_connection_rate",
    "connections/s",
    "Connections per second that an address may open (KIP-612).",
    maximum=(1 << 31) - 1,
    whole=True,
)
"""The one limit that addresses have (`quota.kinds.connections`). In the settings file it stands under `quotas.connections`."""
KEYS: Final[Mapping[str, Key]] = {key.name: key for key in (*_ROWS, ADDRESS_RATE)}
"""All limits by name in the Kafka protocol."""
ENTITY_KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _ROWS if not key.tenants_only}
"""Those that users and client ids can have."""
DEPRECATED: Final[Mapping[str, Key]] = {key.deprecated: key for key in _ROWS if key.deprecated != key.name}
"""Those of which the settings file takes another name too, by that name."""
RATES: Final = tuple(key for key in _ROWS if key.deprecated == key.kind)
"""Those that are plain rates (`quota.kinds.rates`), for which nothing but a row and who charges them is needed."""
ANSWERED: Final[Mapping[int, str]] = {
    api: key.kind for key in RATES if key.measure is not None and key.measure.field == "response_bytes" for api in key.measure.apis
}
"""API keys to the rate that is charged with the bytes of their answers."""
TOPIC_MEASURES: Final = {
    "topic_producer_byte_rate": ("bytes_in", Measure("record_bytes", (PRODUCE,), by_topic=True)),
    "topic_consumer_byte_rate": ("bytes_out", Measure("record_bytes", (FETCH, SHARE_FETCH), by_topic=True)),
}
"""By kind: the setting of a rate of topics below `quotas.topic_rates.topics`, and what of the usage log it is about."""
TOPIC_RATES: Final = tuple(TOPIC_MEASURES)
"""Rates of topics: what may be produced and read (`quota.kinds.topic_rates`)."""
TOPIC_NUMBERS: Final = (KEYS["max_topics"], KEYS["max_partitions"])
"""How many topics and partitions there may be (`quota.kinds.topic_numbers`)."""
STORED: Final = KEYS[STORED_HARD].kind
TENANT_ROWS: Final = (*RATES, *TOPIC_NUMBERS, *(key for key in _ROWS if key.tenants_only))
"""All limits that tenants can have."""
TENANT_KINDS: Final[Mapping[str, str]] = {row.kind: f"tenant_{row.kind}" for row in TENANT_ROWS}
"""Their kinds, of users to those of tenants."""
TOPIC_STORED: Final = f"topic_{STORED}"
"""The kind of stored bytes of topics (`quota.kinds.stored_bytes`)."""
LEVELS: Final = tuple(row for row in _ROWS if row.level)
"""Limits of what there may be at a time."""
TENANT_RATES: Final[Mapping[str, str]] = {row.kind: TENANT_KINDS[row.kind] for row in RATES}
"""Plain rates to the same rates of tenants (`quota.kinds.tenant_rates`), by kind."""
KINDS: Final = (
    *dict.fromkeys(key.kind for key in ENTITY_KEYS.values()),
    *("storage", "bytes_in", ADDRESS_RATE.kind),
    *TOPIC_RATES,
    *TENANT_KINDS.values(),
    TOPIC_STORED,
    "topic_policy",
    "overload",
)
"""Every kind of quota, as `quotas.observe` names it."""


REQUEST_RATES: Final[Mapping[int, str]] = {key: f"{group}_request_rate" for group in LIMITED for key in GROUPS[group]}
"""API keys to the rate of their group, which their requests are charged to beside `request_rate`."""


def report_module() -> str:
    """The text of reports/quotas/catalogue.py."""
    rates_first = sorted(_ROWS, key=lambda row: row.deprecated != row.kind)  # the order of limits in the report
    rows = "".join(f"    {_report_row(row)},\n" for row in rates_first)
    topics = "".join(
        f'    TopicRate("{setting}", "{kind}", {_measure(measure)}),\n' for kind, (setting, measure) in TOPIC_MEASURES.items()
    )
    return f'''"""The limits of users, client ids and topics in a settings file. Made from `quota/catalogue.py` by `make docs`; a
test fails when this file is out of date."""

from typing import Final, NamedTuple


class Measure(NamedTuple):
    """What of the usage log a limit is about: a field of the lines of these API keys (all when empty), of lines with a topic or
    of those without."""

    field: str
    apis: tuple[int, ...]
    by_topic: bool


class Key(NamedTuple):
    """One limit: its name in the settings file, its quota, whether it is a size in bytes or a burst, what it measures, whether it
    is of what there is at a time (a field of lines `owned`), and whether only tenants have it."""

    name: str
    kind: str
    size: bool
    at_once: bool
    measure: Measure | None
    level: bool = False
    tenants_only: bool = False

    @property
    def deprecated(self) -> str:
        """The name that the file may have too."""
        return self.name.removeprefix("cluster_")


class TopicRate(NamedTuple):
    """One rate of topics: its name below `quotas.topic_rates.topics`, its quota, and what it measures."""

    setting: str
    kind: str
    measure: Measure


# fmt: off
KEYS: Final = (
{rows})
TOPIC_RATES: Final = (
{topics})
# fmt: on
TOPIC_STORED: Final = "{TOPIC_STORED}"
'''


def _report_row(row: Key) -> str:
    more = "".join(f", {name}=True" for name in ("level", "tenants_only") if getattr(row, name))
    return f'Key("{row.name}", "{row.kind}", {row.size}, {row.at_once}, {_measure(row.measure)}{more})'


def _measure(measure: Measure | None) -> str:
    if measure is None:
        return "None"
    apis = str(measure.apis)
    if len(apis) > 16:
        apis = "(\n        " + "\n        ".join(wrap(apis[1:-1], 100)) + "\n    )"
    return f'Measure("{measure.field}", {apis}, {measure.by_topic})'


if __name__ == "__main__":
    sys.stdout.write(report_module())
