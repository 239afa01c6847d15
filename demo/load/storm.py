"""Room demo, load, storm: a client that creates topics as fast as it is answered.

In: which kind of client, its id, the shape of its requests, how many partitions it wants. Out: an event `sends` for each request,
and `answered` with what became of it. Leaves to others: speaking Kafka (new_admin, old_admin), adding up (demo.figures).
"""

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from demo import plan
from demo.clock import now
from demo.events import emit

THROTTLING_QUOTA_EXCEEDED = 89

Create = Callable[[Sequence[str], int], Sequence[int]]
"""Creates topics, each with so many partitions, and returns when they were answered: an error code each, 0 for none."""
Connect = Callable[[str, str], Create]
"""Of a bootstrap address and a client id; the function `connect` of new_admin and old_admin."""


@dataclass(frozen=True)
class Shape:
    """Topics per request, partitions per topic, and partitions in total after which it is enough."""

    topics: int
    partitions: int
    enough: int


def storm(create: Create, prefix: str, shape: Shape) -> None:
    """Create until there are enough partitions."""
    created = requests = 0
    while created < shape.enough:
        names = [f"{plan.STORM_PREFIX}{prefix}-{requests}-{number}" for number in range(shape.topics)]
        at = now()
        emit("sends", at=at)
        codes = create(names, shape.partitions)
        refused = codes.count(THROTTLING_QUOTA_EXCEEDED)
        made = codes.count(0)
        failed = len(codes) - refused - made
        parts = shape.partitions
        emit("answered", seconds=now() - at, created=made * parts, refused=refused * parts, failed=failed * parts)
        created += made * parts
        requests += 1


def main() -> None:
    """Storm."""
    parser = argparse.ArgumentParser(description="Creates topics as fast as it is answered.")
    parser.add_argument("kind", choices=("new", "old"))
    parser.add_argument("bootstrap")
    parser.add_argument("client_id")
    for name in ("topics", "partitions", "enough"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    connect: Connect = importlib.import_module(f"demo.load.{options.kind}_admin").connect
    shape = Shape(options.topics, options.partitions, options.enough)
    storm(connect(options.bootstrap, options.client_id), options.client_id, shape)


if __name__ == "__main__":
    main()
