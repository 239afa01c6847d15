"""All handlers by API key. In: nothing. Out: the table that sessions look requests up in, and the ranges that
ApiVersions is clamped to."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.apis.addresses import ADDRESS_APIS
from proxy.apis.alter_configs import AlterConfigs
from proxy.apis.api_versions import ApiVersions
from proxy.apis.charged_answers import ChargedAnswers
from proxy.apis.client_quotas import AlterClientQuotas, DescribeClientQuotas
from proxy.apis.create_partitions import CreatePartitions
from proxy.apis.create_topics import CreateTopics
from proxy.apis.delete_topics import DeleteTopics
from proxy.apis.fetch import Fetch
from proxy.apis.init_producer_id import InitProducerId
from proxy.apis.metadata import Metadata
from proxy.apis.produce import Produce
from proxy.apis.sasl import SaslAuthenticate, SaslHandshake
from proxy.apis.share_fetch import ShareFetch
from proxy.apis.streams_group_heartbeat import StreamsGroupHeartbeat
from proxy.session.plans import Handler
from proxy.wire import api_versions as wire
from proxy.wire.topic_configs import APIS as ALTER_CONFIGS_APIS
from quota.catalogue import ANSWERED


def default_handlers() -> list[Handler]:
    """One of each."""
    records: list[Handler] = [Produce(), InitProducerId(), Fetch(), ShareFetch()]
    connections: list[Handler] = [SaslHandshake(), ApiVersions(), SaslAuthenticate()]
    topics: list[Handler] = [Metadata(), CreateTopics(), CreatePartitions(), DeleteTopics(), StreamsGroupHeartbeat()]
    configs = map(AlterConfigs, ALTER_CONFIGS_APIS)
    own = [*records, *connections, *topics, *configs, DescribeClientQuotas(), AlterClientQuotas(), *ADDRESS_APIS]
    return [*own, *(ChargedAnswers(key) for key in ANSWERED.keys() - {handler.key for handler in own})]


def understood(table: Mapping[int, Handler]) -> dict[int, tuple[int, int]]:
    """The versions that the proxy understands, of the APIs that it must understand."""
    return {key: handler.versions for key, handler in table.items()} | {ApiVersions.key: (0, wire.MAX_VERSION)}
