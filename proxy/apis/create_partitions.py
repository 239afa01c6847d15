"""CreatePartitions: key 37, versions 0-3 (KIP-599, seed s1). A topic costs the partitions that it gets: the number that it is
to have less the number that it has, for which the broker is asked. One that is not there, or has as many, costs nothing."""

from __future__ import annotations

from proxy.apis.asking import Told
from proxy.apis.mutations import MutationApi
from proxy.session.client import NOT_TOLD, Client
from proxy.wire.create_partitions import CREATE_PARTITIONS
from proxy.wire.items import Item


class CreatePartitions(MutationApi):
    def __init__(self) -> None:
        super().__init__(CREATE_PARTITIONS)

    def cost(self, client: Client, topic: Item, told: Told) -> int | None:
        there = self.there(client, topic, told)
        if there is None or there == NOT_TOLD:
            return None if there is None else self.unseen(client, topic)
        return max(topic.amount - there, 0) if there else 0

    def estimate(self, client: Client, topic: Item) -> int:
        there = client.services.cluster.topic_size(topic.name or "")
        return 1 if there is None else max(topic.amount - there, 0)

    def unseen(self, client: Client, topic: Item) -> int:
        return max(topic.amount - (client.services.cluster.topic_size(topic.name or "") or 0), 0)
