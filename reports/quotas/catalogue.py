"""The limits of users and client ids in a settings file. Made from `quota/catalogue.py` by `make docs`; a test
fails when this file is out of date."""

from typing import Final, NamedTuple


class Key(NamedTuple):
    """One limit: its name in the settings file, its quota, whether it is a size in bytes, whether it is a burst."""

    setting: str
    kind: str
    size: bool
    at_once: bool


KEYS: Final = (
    Key("producer_byte_rate", "producer_byte_rate", True, False),
    Key("consumer_byte_rate", "consumer_byte_rate", True, False),
    Key("request_rate", "request_rate", False, False),
    Key("controller_mutations_rate", "controller_mutations", False, False),
    Key("controller_mutations_burst", "controller_mutations", False, True),
    Key("producer_ids_rate", "producer_ids", False, False),
)
