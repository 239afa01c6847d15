"""InitProducerId: key 22, all versions, as little of it is read. Charges nothing, refuses nothing: ids are counted when they
write. By setting, `quotas.producer_ids.hold_new`, it waits while its user has used up its producer id limit, since that is where
ids are born (KIP-98, KIP-936). From version 3 on a producer may name the id that it has, to get another epoch (KIP-360): one
that is known does not wait."""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.plans import FORWARD, Hold, Outcome, Plain, Request
from proxy.wire.init_producer_id import INIT_PRODUCER_ID, current_id


class InitProducerId(Plain):
    key = INIT_PRODUCER_ID
    versions = (0, 0x7FFF)

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:
        engine = client.services.engine
        if held or not engine.limits.hold_new_ids:
            return FORWARD
        request.join()
        current = current_id(memoryview(request.buf)[request.body : request.end], request.version)
        wait = engine.hold_new_id(client.user, client.client_id or "", current, now)
        if wait is None:
            return FORWARD
        client.services.watcher.decided(wait, client.requester(self.key, request.version))
        return Hold(wait.throttle)
