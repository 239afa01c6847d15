"""Who a limit is about. In: a user and a client id. Out: the levels that may hold their limit, in Kafka's order.

Who shares a window differs from Kafka in one place. Under a limit of a client id alone, Kafka has one window for all users who
claim that client id, so that a stranger who claims it uses up what others need. A client id is whatever a client claims; a window
belongs to a principal. So here each user has a window of its own under such a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

DEFAULT: Final = "<default>"
"""How settings write the default entity of a level, as kafka-configs.sh does."""
OTHERS: Final = "<others>"
"""The client id of the window that further client ids of a user share, where the user has as many windows as it may have."""


class Entity(NamedTuple):
    """A user, a client id, or both; None where the level does not look at that part. Or a topic, for all who write to it.

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

    At a user level all client ids of a user share a window; at every other level each pair of user and client id has its own.
    """
    pair, of_user, of_client = Entity(user, client_id), Entity(user, None), Entity(None, client_id)
    yield Level(pair, pair)
    yield Level(Entity(user, DEFAULT), pair)
    yield Level(of_user, of_user)
    yield Level(Entity(DEFAULT, client_id), pair)
    yield Level(Entity(DEFAULT, DEFAULT), pair)
    yield Level(Entity(DEFAULT, None), of_user)
    yield Level(of_client, pair)
    yield Level(Entity(None, DEFAULT), pair)
