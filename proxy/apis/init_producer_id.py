"""InitProducerId: key 22, all versions, as nothing of it is read. Charges nothing, refuses nothing: ids are counted when they
write. By setting, `quotas.producer_ids.hold_new`, it waits while its user is over the producer id limit, since that is where
ids are born (KIP-98, KIP-936)."""

from __future__ import annotations

from typing import Final

from proxy.session.client import Client
from proxy.session.plans import FORWARD, Hold, Outcome, Plain, Request

INIT_PRODUCER_ID: Final = 22


class InitProducerId(Plain):
    key = INIT_PRODUCER_ID
    versions = (0, 0x7FFF)

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        wait = None if held else client.services.engine.hold_new_id(client.user, client.client_id or "", now)
        if wait is None:
            return FORWARD
        client.services.watcher.decided(wait, client.requester(self.key, request.version))
        return Hold(wait.throttle)
