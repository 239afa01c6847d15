"""A user who may write to a topic, or may not: what connections keep of `quota.confirmed`. It is looked at for each topic of a
request, so it is compiled, and a module of its own."""

from __future__ import annotations

from typing import Final


class Pair:
    """A user and a topic. It is `confirmed` as long as it is in the table."""

    __slots__ = ("confirmed", "since", "topic", "user")

    def __init__(self, user: str, topic: str, since: float, confirmed: bool) -> None:
        self.user, self.topic, self.since, self.confirmed = user, topic, since, confirmed


UNCONFIRMED: Final = Pair("", "", 0.0, False)
