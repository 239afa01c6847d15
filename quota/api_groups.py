"""Which group of request rates each API of Kafka is in (`metadata_request_rate` and the others of the catalogue). In: an API key.
Out: the name of a group; none for a login, which no rate limits, and for an API that this version does not know. Those count
towards `request_rate` alone. A test fails when Kafka has an API that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOGIN: Final = "login"
"""Not limited by kind: a client that cannot renew its login loses its connection."""

GROUPS: Final[Mapping[str, tuple[int, ...]]] = {
    # Metadata, ApiVersions, DescribeCluster, GetTelemetrySubscriptions, PushTelemetry, DescribeTopicPartitions
    "metadata": (3, 18, 60, 71, 72, 75),
    # FindCoordinator, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat,
    # StreamsGroupHeartbeat
    "group": (10, 11, 12, 13, 14, 68, 76, 88),
    # OffsetCommit, TxnOffsetCommit
    "commit": (8, 28),
    # ListOffsets, OffsetFetch, DescribeGroups, ListGroups, OffsetForLeaderEpoch, DescribeAcls, DescribeConfigs, DescribeLogDirs,
    # DescribeDelegationToken, ListPartitionReassignments, DescribeClientQuotas, DescribeUserScramCredentials, DescribeQuorum,
    # DescribeProducers, DescribeTransactions, ListTransactions, ConsumerGroupDescribe, ListConfigResources, ShareGroupDescribe,
    # ReadShareGroupState, ReadShareGroupStateSummary, StreamsGroupDescribe, DescribeShareGroupOffsets
    "describe": (2, 9, 15, 16, 23, 29, 32, 35, 41, 46, 48, 50, 55, 61, 65, 66, 69, 74, 77, 84, 87, 89, 90),
    # Fetch, ShareFetch, ShareAcknowledge, FetchSnapshot
    "fetch": (1, 59, 78, 79),
    "produce": (0,),
    # InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers
    "transaction": (22, 24, 25, 26, 27),
    # What changes topics, configurations, rights, quotas and groups
    "admin": (
        *(19, 20, 21, 30, 31, 33, 34, 37, 38, 39, 40, 42, 43, 44, 45, 47, 49, 51, 57, 64, 80, 81, 82, 91, 92),
        *(4, 5, 6, 7, 52, 53, 54, 56, 58, 62, 63, 67, 70, 73, 83, 85, 86),  # what brokers and controllers say to each other
    ),
    # SaslHandshake, SaslAuthenticate
    LOGIN: (17, 36),
}
GROUP_OF: Final[Mapping[int, str]] = {key: group for group, keys in GROUPS.items() for key in keys}
"""By API key."""
LIMITED: Final = tuple(group for group in GROUPS if group != LOGIN)
"""The groups that have a rate."""
