"""DeleteTopics: key 20, versions 0-6 (KIP-599, seed s1). A topic, by its name or its id, costs the partitions that it has, for
which the broker is asked. One that is not there costs nothing."""

from __future__ import annotations

from proxy.apis.asking import Told
from proxy.apis.mutations import MutationApi
from proxy.session.client import NOT_TOLD, Client
from proxy.wire.delete_topics import DELETE_TOPICS
from proxy.wire.items import Item


class DeleteTopics(MutationApi):
    def __init__(self) -> None:
        super().__init__(DELETE_TOPICS)

    def cost(self, client: Client, topic: Item, told: Told) -> int | None:
        there = self.there(client, topic, told)
        return self.unseen(client, topic) if there == NOT_TOLD else there

    def estimate(self, client: Client, topic: Item) -> int:
        cluster = client.services.cluster
        name = topic.name if topic.name is not None else cluster.topic_name(topic.topic_id)
        return cluster.topic_size(name or "") or 1
