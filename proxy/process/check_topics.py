"""What `check-config --cluster` asks of the cluster: which prefixes of tenants no topic has. In: settings. Out: warnings. It
changes nothing, and needs what the proxy needs: the brokers of the settings, with their TLS and login."""

from __future__ import annotations

import asyncio

from proxy.config.models import Settings
from proxy.config.tenants import tenants_of
from proxy.tls import UPSTREAM, contexts_of
from proxy.upstream.cluster_client import DirectClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire.metadata import read_topics
from proxy.wire.primitives import BadBytes


def prefixes_without_topics(settings: Settings) -> list[str]:
    """A warning for each tenant that has such prefixes. `BrokerError` where no broker names the topics, `TlsError`."""
    tenants = tenants_of(settings.tenants)
    matched: set[str] = set()
    for topic in asyncio.run(_topics(settings)):
        matched.update(tenants.topic_prefixes.beginning(topic))
    return [
        f"`tenants.{tenant}.topic_prefixes`: no topic of the cluster begins with {', '.join(f'`{it}`' for it in prefixes)}"
        for tenant, prefixes in sorted(tenants.topic_prefixes.others(matched).items())
    ]


async def _topics(settings: Settings) -> list[str]:
    """All topics that the proxy's identity may see."""
    given, contexts = settings.upstream, contexts_of(settings)
    upstream = Upstream(given.connect_timeout, lambda: contexts[UPSTREAM], given.sasl)
    client = DirectClient(lambda: list(given.bootstrap_servers), upstream)
    brokers = await client.brokers()
    if not brokers:
        raise BrokerError("the cluster names no brokers")
    frame, version = await client.topics(brokers[0])
    try:
        return [topic.name.decode() for topic in read_topics(frame, version) if topic.name]
    except BadBytes as e:
        raise BrokerError(f"its answer cannot be understood: {e}") from None
