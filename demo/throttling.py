"""What the proxy's own log says about a client (docs/log-format.md). In: the folder of the usage log. Out: sums per client id."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Throttling:
    """Of a client's CreateTopics requests: how many topics were refused, and the throttle time that answers held, in ms."""

    refused_topics: int = 0
    throttle_ms: int = 0


def throttling_by_client(folder: Path) -> dict[str, Throttling]:
    """By client id."""
    sums: dict[str, Throttling] = {}
    for file in sorted(folder.glob("usage-*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if not line.endswith("\n"):  # still being written
                    continue
                entry = json.loads(line)
                if entry["type"] == "usage" and entry["api"] == "CreateTopics" and entry["client_id"]:
                    before = sums.get(entry["client_id"], Throttling())
                    refused = sum(entry["refused"].values())
                    sums[entry["client_id"]] = Throttling(
                        before.refused_topics + refused, before.throttle_ms + entry["throttle_ms"]
                    )
    return sums
