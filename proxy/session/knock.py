"""The question by which the proxy sees whether a broker serves a connection that has not logged in: see `admission`."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.held_answers import Question
from proxy.session.plans import Ask
from proxy.wire import metadata
from proxy.wire.primitives import Buffer


def knock(client: Client, correlation_id: int) -> Ask:
    """Ask the broker of this connection about no topic."""
    return Ask(metadata.ask(correlation_id, "", [], []), correlation_id, Knock(client))


class Knock(Question):
    """Any answer lets the connection in: a broker that wants a login closes the connection instead."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def finish(self, _buf: Buffer, _start: int, _end: int, /) -> list[Buffer] | None:
        client = self._client
        if client.exchange is None:
            client.services.admission.served(client.now)
        client.come_in()
        return []

    def give_up(self) -> None:
        """Wait on: `limits.first_request_timeout` ends a connection that is not let in."""
