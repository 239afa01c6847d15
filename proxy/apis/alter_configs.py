"""AlterConfigs and IncrementalAlterConfigs: keys 33, versions 0-2, and 44, versions 0-1 (KIP-133, KIP-339). Topics with a config
that is against a policy are refused (`violations`); resources of other types, and configs that are set back to the default, go
on. Without a policy the request is not read."""

from __future__ import annotations

from proxy.apis import violations
from proxy.session.client import Client
from proxy.session.plans import FORWARD, Decided, Handling, Request
from proxy.wire.items import Items
from proxy.wire.topic_configs import AlterConfigsApi


class AlterConfigs:
    """One of the two."""

    def __init__(self, wire: AlterConfigsApi) -> None:
        self._wire, self.key, self.versions = wire, wire.key, wire.versions

    def request(self, client: Client, request: Request) -> Decided | Handling:
        return self._judged(client, request) if client.services.engine.topic_policies else FORWARD

    def _judged(self, client: Client, request: Request) -> Handling:
        request.join()
        items = yield from self._wire.read(request.buf, request.body, request.end, request.version)
        return (yield from violations.handle(self._wire, client, request, items, _go_on))


def _go_on(_client: Client, _request: Request, _items: Items) -> Handling:
    yield from ()
    return FORWARD
