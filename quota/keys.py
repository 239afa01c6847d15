"""The limits that the proxy owns, by the names that they have in the Kafka protocol. In: names, entities and values as an operator
gives them. Out: whether that can be a limit, and if not, why, in words.

Names are such that no broker has them: what ends in `_byte_rate` is a broker's, and means each broker by itself (KIP-13, KIP-546);
for the whole cluster it begins with `cluster_`. In the settings file there is nothing to be confused with, and the prefix is left
out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from quota.entity import DEFAULT, Entity

Values = Mapping[str, float]
"""Limits of one entity, by the names of their keys."""

MOST: Final = 1e12
"""No limit is larger, but for bytes."""
MOST_BYTES: Final = 1 << 50
MOST_REQUESTS: Final = 1e9
"""The largest rates, per second."""
LONGEST_BURST: Final = 1e9
"""Seconds of the rate that a burst may be, some thirty years."""
MAX_NAME: Final = 1024
"""Bytes of the name of a user or of a client id."""

MUTATIONS_RATE: Final = "controller_mutations_rate"
MUTATIONS_BURST: Final = "controller_mutations_burst"
PRODUCER_IDS_RATE: Final = "producer_ids_rate"


@dataclass(frozen=True, slots=True)
class Key:
    """One limit. `setting` is its name under `quotas.entities` of the settings file; `users_only`: not for client ids;
    `most`: the largest value; `whole`: whole numbers only."""

    name: str
    setting: str
    unit: str
    text: str
    users_only: bool = False
    most: float = MOST
    whole: bool = False


_ALL: Final = (
    Key(MUTATIONS_RATE, MUTATIONS_RATE, "partitions/s", "Partitions created, added and deleted per second on average."),
    Key(MUTATIONS_BURST, MUTATIONS_BURST, "partitions", "Partitions created, added and deleted at once."),
    Key(PRODUCER_IDS_RATE, PRODUCER_IDS_RATE, "ids/window", "New producer ids of a user within a window.", users_only=True),
    Key("cluster_producer_byte_rate", "producer_byte_rate", "bytes/s", "Bytes produced.", most=MOST_BYTES, whole=True),
    Key("cluster_consumer_byte_rate", "consumer_byte_rate", "bytes/s", "Bytes fetched.", most=MOST_BYTES, whole=True),
    Key("cluster_request_rate", "request_rate", "requests/s", "Requests.", most=MOST_REQUESTS),
)
KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _ALL}
"""By name in the Kafka protocol."""
SETTINGS: Final[Mapping[str, Key]] = {key.setting: key for key in _ALL}
"""The same by name in the settings file."""


def wrong_entity(entity: Entity) -> str | None:
    """Why nobody can be called so; None when somebody can."""
    for what, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name == "":
            return f"the name of the {what} is empty"
        if name is not None and len(name.encode(errors="replace")) > MAX_NAME:
            return f"the name of the {what} has more than {MAX_NAME} bytes"
    return "neither a user nor a client-id is named" if entity.user is None and entity.client_id is None else None


def wrong_value(entity: Entity, name: str, value: float) -> str | None:
    """Why an entity cannot have this limit; None when it can, seen for itself."""
    key = KEYS[name]
    if key.users_only and entity.client_id is not None:
        return f"{name} is for users and the default user only, as a client id is whatever a client claims"
    if not (isfinite(value) and 0 < value <= key.most):
        return f"{name} {value:g} is out of range; more than 0 and at most {key.most:g} {key.unit} is right"
    if key.whole and value % 1:
        return f"{name} {value:g} is no whole number of bytes"
    return None


def wrong_together(values: Values) -> str | None:
    """Why these limits cannot stand beside each other; None when they can."""
    rate, burst = values.get(MUTATIONS_RATE), values.get(MUTATIONS_BURST)
    if burst is None:
        return None
    if rate is None:
        return f"`{MUTATIONS_BURST}` needs `{MUTATIONS_RATE}` beside it"
    if burst < rate:
        return f"`{MUTATIONS_BURST}` {burst:g} is below `{MUTATIONS_RATE}` {rate:g}; at least {rate:g} is right"
    if burst / LONGEST_BURST > rate:
        return (
            f"`{MUTATIONS_BURST}` {burst:g} is too much for `{MUTATIONS_RATE}` {rate:g}; at most {rate * LONGEST_BURST:g} is right"
        )
    return None


def named(entity: Entity) -> str:
    """An entity of a limit for people, defaults included."""
    parts = (("user", entity.user), ("client-id", entity.client_id))
    return ", ".join(f"default {what}" if name == DEFAULT else f"{what} {name}" for what, name in parts if name is not None)
