"""CreateTopics: key 19, versions 0-7 (KIP-599, seed s1). A topic costs its partitions: the number asked for, its explicit
assignments, or the cluster's default, which the answer tells from version 5 on. Topics that are there already cost nothing;
the broker is asked which these are only when something would be refused, as its answer tells otherwise."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from proxy.apis.asking import Told
from proxy.apis.mutations import MutationApi
from proxy.session.client import Client
from proxy.wire.create_topics import CREATE_TOPICS
from proxy.wire.items import Item, Items, Key
from proxy.wire.steps import MANY
from quota.kinds.controller_mutations import MutationLimit
from quota.limit_table import ResolvedLimit


class CreateTopics(MutationApi):
    def __init__(self) -> None:
        super().__init__(CREATE_TOPICS)

    def free(self, items: Items) -> Generator[None, None, set[int]]:
        """Topics that stand twice, both of them: the broker creates none."""
        first: dict[str | None, int] = {}
        free: set[int] = set()
        for i, topic in enumerate(items.topics):
            if i % MANY == MANY - 1:
                yield
            if (before := first.setdefault(topic.name, i)) != i:
                free |= {before, i}
        return free

    def cost(self, client: Client, topic: Item, told: Told) -> int | None:
        there = self.there(client, topic, told)
        return 0 if there is not None and there > 0 else self.estimate(client, topic)

    def estimate(self, client: Client, topic: Item) -> int:
        return client.services.cluster.default_partitions if topic.amount == -1 else max(topic.amount, 0)

    def doubtful(
        self, client: Client, items: Items, costs: Sequence[int], found: ResolvedLimit[MutationLimit], told: Told, /
    ) -> Generator[None, None, list[Key]]:
        if not client.services.engine.controller_mutations.refuses(found, costs, client.now):
            return []
        doubtful: list[Key] = []
        for i, (topic, cost) in enumerate(zip(items.topics, costs, strict=True)):
            if i % MANY == MANY - 1:
                yield
            if cost and topic.key not in told:
                doubtful.append(topic.key)
        return doubtful
