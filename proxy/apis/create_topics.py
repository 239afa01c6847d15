"""CreateTopics: key 19, versions 0-7 (KIP-599, seed s1). A topic costs its partitions: the number asked for, its explicit
assignments, or the cluster's default, which the answer tells from version 5 on. Topics that are there already cost nothing;
the broker is asked which these are only when something would be refused, as its answer tells otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from proxy.apis.mutations import MutationApi
from proxy.session.client import Client
from proxy.wire.create_topics import CREATE_TOPICS
from proxy.wire.items import Item, Items, Key
from quota.book import Found
from quota.kinds.controller_mutations import MutationLimit


class CreateTopics(MutationApi):
    def __init__(self) -> None:
        super().__init__(CREATE_TOPICS)

    def free(self, items: Items) -> set[int]:
        """Topics that stand twice, both of them: the broker creates none."""
        names = Counter(topic.name for topic in items.topics)
        return {i for i, topic in enumerate(items.topics) if names[topic.name] > 1}

    def cost(self, client: Client, topic: Item) -> int | None:
        there = self.there(client, topic)
        return 0 if there is not None and there > 0 else self.estimate(client, topic)

    def estimate(self, client: Client, topic: Item) -> int:
        return client.services.cluster.default_partitions if topic.amount == -1 else max(topic.amount, 0)

    def doubtful(self, client: Client, items: Items, costs: Sequence[int], found: Found[MutationLimit], now: float) -> list[Key]:
        if not client.services.engine.refuses_mutations(found, costs, now):
            return []
        return [t.key for t, cost in zip(items.topics, costs, strict=True) if cost and t.key not in client.asked]
