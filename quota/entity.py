"""Who a limit is about. In: a user and a client id. Out: the levels that may hold their limit, in Kafka's order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

DEFAULT: Final = "<default>"
"""How settings write the default entity of a level, as kafka-configs.sh does."""


class Entity(NamedTuple):
    """A user, a client id, or both; None where the level does not look at that part. Or a topic, whoever writes to it.

    As the key of a limit either part may be `DEFAULT`; as the owner of a window both parts are names.
    """

    user: str | None
    client_id: str | None
    topic: str | None = None

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        parts = [f"user {self.user}"] if self.user is not None else []
        if self.client_id is not None:
            parts.append(f"client-id {self.client_id}")
        return ", ".join(parts)


class Level(NamedTuple):
    """One step of the precedence: under which key a limit would stand, and who shares its window if it does."""

    key: Entity
    owner: Entity


def levels(user: str, client_id: str) -> Iterator[Level]:
    """The eight places where a limit for this client may stand, the most specific first (Kafka documentation, "Quotas", KIP-55).

    A limit at a level of users and client ids gives every such pair a window of its own; at a user level all client ids of a user
    share one; at a client-id level all users with that client id do.
    """
    pair, of_user, of_client = Entity(user, client_id), Entity(user, None), Entity(None, client_id)
    yield Level(pair, pair)
    yield Level(Entity(user, DEFAULT), pair)
    yield Level(of_user, of_user)
    yield Level(Entity(DEFAULT, client_id), pair)
    yield Level(Entity(DEFAULT, DEFAULT), pair)
    yield Level(Entity(DEFAULT, None), of_user)
    yield Level(of_client, of_client)
    yield Level(Entity(None, DEFAULT), of_client)
