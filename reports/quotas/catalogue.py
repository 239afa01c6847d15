"""The limits of users, client ids and topics in a settings file. Made from `quota/catalogue.py` by `make docs`; a
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
    Key("cluster_producer_byte_rate", "producer_byte_rate", True, False, Measure("record_bytes", (0,), True)),
    Key("cluster_consumer_byte_rate", "consumer_byte_rate", True, False, Measure("response_bytes", (1, 78), False)),
    Key("cluster_request_rate", "request_rate", False, False, Measure("requests", (), False)),
    Key("cluster_cold_read_rate", "cold_read_rate", True, False, None),
    Key("cluster_metadata_request_rate", "metadata_request_rate", False, False, Measure("requests", (
        3, 18, 60, 71, 72, 75
    ), False)),
    Key("cluster_group_request_rate", "group_request_rate", False, False, Measure("requests", (
        10, 11, 12, 13, 14, 68, 76, 88
    ), False)),
    Key("cluster_commit_request_rate", "commit_request_rate", False, False, Measure("requests", (8, 28), False)),
    Key("cluster_describe_request_rate", "describe_request_rate", False, False, Measure("requests", (
        2, 9, 15, 16, 23, 29, 32, 35, 41, 46, 48, 50, 55, 61, 65, 66, 69, 74, 77, 84, 87, 89, 90
    ), False)),
    Key("cluster_fetch_request_rate", "fetch_request_rate", False, False, Measure("requests", (1, 59, 78, 79), False)),
    Key("cluster_produce_request_rate", "produce_request_rate", False, False, Measure("requests", (0,), False)),
    Key("cluster_transaction_request_rate", "transaction_request_rate", False, False, Measure("requests", (
        22, 24, 25, 26, 27
    ), False)),
    Key("cluster_admin_request_rate", "admin_request_rate", False, False, Measure("requests", (
        19, 20, 21, 30, 31, 33, 34, 37, 38, 39, 40, 42, 43, 44, 45, 47, 49, 51, 57, 64, 80, 81, 82, 91, 92,
        4, 5, 6, 7, 52, 53, 54, 56, 58, 62, 63, 67, 70, 73, 83, 85, 86
    ), False)),
    Key("cluster_connection_rate", "connection_rate", False, False, None),
    Key("controller_mutations_rate", "controller_mutations", False, False, Measure("mutations", (), False)),
    Key("controller_mutations_burst", "controller_mutations", False, True, Measure("mutations", (), False)),
    Key("producer_ids_rate", "producer_ids", False, False, None),
    Key("max_topics", "topic_count", False, False, None, level=True),
    Key("max_partitions", "partition_count", False, False, None, level=True),
    Key("stored_bytes_hard", "stored_bytes", True, False, None, level=True, tenants_only=True),
    Key("stored_bytes_soft", "stored_bytes", True, False, None, tenants_only=True),
)
TOPIC_RATES: Final = (
    TopicRate("bytes_in", "topic_producer_byte_rate", Measure("record_bytes", (0,), True)),
    TopicRate("bytes_out", "topic_consumer_byte_rate", Measure("record_bytes", (1, 78), True)),
)
# fmt: on
TOPIC_STORED: Final = "topic_stored_bytes"
