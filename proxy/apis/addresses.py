"""The APIs whose responses name brokers, and of which nothing else matters. Charge nothing, refuse nothing. Metadata, Produce,
Fetch and ShareFetch have files of their own.

| key | API | versions | where |
|---|---|---|---|
| 10 | FindCoordinator | 0-6 | the coordinators |
| 52 | Vote | 0-2 | controllers, since version 1 (KIP-853) |
| 53, 54 | BeginQuorumEpoch, EndQuorumEpoch | 0-1 | controllers, since version 1 |
| 55 | DescribeQuorum | 0-2 | the controllers' listeners, since version 2 |
| 59 | FetchSnapshot | 0-1 | controllers, since version 1 |
| 60 | DescribeCluster | 0-2 | all brokers |
| 79 | ShareAcknowledge | 1-2 | node endpoints (KIP-932) |
| 82 | UpdateRaftVoter | 0 | the leader of the controllers |

Controllers are shown as the bootstrap address. A broker serves 52, 53, 54, 59 and 82 on its controller listener only, for
which the proxy is not made; should it be put before one all the same, nothing shows there either. Responses are held
whole: they are small.
"""

from __future__ import annotations

from proxy.session.client import Client
from proxy.session.held_answers import SmallAnswer
from proxy.session.plans import FORWARD, Decided, Forward, Request
from proxy.wire import addresses as wire
from proxy.wire.addresses import holds_addresses, patch_addresses
from proxy.wire.primitives import Buffer


class AddressApi:
    """An API in whose responses addresses are replaced."""

    def __init__(self, key: int, lowest: int, highest: int) -> None:
        self.key, self.versions = key, (lowest, highest)

    def request(self, client: Client, request: Request) -> Decided:
        if not holds_addresses(self.key, request.version):
            return FORWARD
        return Forward(Patch(self.key, request.version, client))


class Patch(SmallAnswer):
    """Replace the addresses of a response."""

    __slots__ = ("_client", "_key", "_version")

    def __init__(self, key: int, version: int, client: Client) -> None:
        super().__init__()
        self._key, self._version, self._client = key, version, client

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self.patched(bytes(buf[start:end]))

    def patched(self, frame: bytes) -> list[Buffer] | None:
        """The same of a frame alone."""
        return patch_addresses(self._key, self._version, frame, self._client.endpoint)


ADDRESS_APIS = (
    AddressApi(wire.FIND_COORDINATOR, 0, 6),
    AddressApi(wire.VOTE, 0, 2),
    AddressApi(wire.BEGIN_QUORUM_EPOCH, 0, 1),
    AddressApi(wire.END_QUORUM_EPOCH, 0, 1),
    AddressApi(wire.DESCRIBE_QUORUM, 0, 2),
    AddressApi(wire.FETCH_SNAPSHOT, 0, 1),
    AddressApi(wire.DESCRIBE_CLUSTER, 0, 2),
    AddressApi(wire.SHARE_ACKNOWLEDGE, 1, 2),
    AddressApi(wire.UPDATE_RAFT_VOTER, 0, 0),
)
