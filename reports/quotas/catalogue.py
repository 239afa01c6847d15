"""The limits of users and client ids in a settings file. Made from `quota/catalogue.py` by `make docs`; a test
fails when this file is out of date."""

from typing import Final, NamedTuple


class Measure(NamedTuple):
    """What of the usage log a limit is about: a field of the lines of these API keys (all when empty), of lines with a topic or
    of those without."""

    field: str
    apis: tuple[int, ...]
    by_topic: bool


class Key(NamedTuple):
    """One limit: its name in the settings file, its quota, whether it is a size in bytes or a burst, and what it measures."""

    setting: str
    kind: str
    size: bool
    at_once: bool
    measure: Measure | None


KEYS: Final = (
    Key("producer_byte_rate", "producer_byte_rate", True, False, Measure("record_bytes", (0,), True)),
    Key("consumer_byte_rate", "consumer_byte_rate", True, False, Measure("response_bytes", (1, 78), False)),
    Key("request_rate", "request_rate", False, False, Measure("requests", (), False)),
    Key("controller_mutations_rate", "controller_mutations", False, False, Measure("mutations", (), False)),
    Key("controller_mutations_burst", "controller_mutations", False, True, Measure("mutations", (), False)),
    Key("producer_ids_rate", "producer_ids", False, False, None),
)
