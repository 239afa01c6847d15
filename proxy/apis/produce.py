"""Produce: key 0, versions 0-13. Counts bytes and records per topic. Charges nothing, refuses nothing yet.

From version 10 on a response may name node endpoints (KIP-951), which are replaced. Requests with acks=0 have no response.
"""

from __future__ import annotations

from proxy.apis.addresses import Patch
from proxy.session.client import Client
from proxy.session.plans import FORWARD, NO_REPLY, Forward, Outcome, Request
from proxy.wire.addresses import PRODUCE, holds_addresses
from proxy.wire.produce import FIRST_TOPIC_ID, VERSIONS, skim


class Produce:
    key = PRODUCE
    versions = VERSIONS

    def request(self, client: Client, request: Request, now: float, held: bool) -> Outcome:  # noqa: ARG002
        version = request.version
        found = skim(request.body_places(), version)
        for topic, batches in found.topics:
            total = client.topic_sum(PRODUCE, topic, by_id=version >= FIRST_TOPIC_ID)
            total.requests += 1
            for batch in batches:
                total.record_bytes += batch.size
                if batch.records is not None:
                    total.records += batch.records
        if found.acks == 0:
            return NO_REPLY
        if holds_addresses(PRODUCE, version):
            return Forward(Patch(PRODUCE, version, client))
        return FORWARD


