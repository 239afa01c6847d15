"""InitProducerId: key 22, all versions, as little of it is read. Charges nothing, refuses nothing: ids are counted when they
write. By setting, `quotas.producer_ids.hold_new`, it waits while its user has used up its producer id limit, since that is where
ids are born (KIP-98, KIP-936). From version 3 on a producer may name the id that it has, to get another epoch (KIP-360): one
that is known does not wait."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import FORWARD, Decided, Handling, Hold, Request
from proxy.wire.init_producer_id import INIT_PRODUCER_ID, current_id
from quota.decision import Decision
from quota.engine import MAX_HOLD


class InitProducerId:
    key = INIT_PRODUCER_ID
    versions = (0, 0x7FFF)

    def request(self, client: Client, request: Request) -> Decided | Handling:
        engine, ids = client.services.engine, client.services.engine.producer_ids
        if not ids.hold_new or engine.limits.exempt.everywhere(client.user, client.client_id or ""):
            return FORWARD
        request.join()
        current = current_id(memoryview(request.buf)[request.body : request.end], request.version)
        wait = ids.wait_for_room(client.user, current, MAX_HOLD, client.now)
        return FORWARD if wait is None else self._held(client, request, wait)

    def _held(self, client: Client, request: Request, wait: Decision) -> Handling:
        client.services.watcher.decided(wait, client.requester(self.key, request.version))
        yield Hold(wait.throttle)
        return FORWARD
