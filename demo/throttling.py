"""What the proxy's own log says about a client (docs/log-format.md). In: the folder of the usage log. Out: sums per client id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Throttling:
    """Of one kind of a client's requests: how many topics or batches were refused, the throttle time that answers held, in ms, and
    how many batches a full disk refused."""

    refused: int = 0
    throttle_ms: int = 0
    refused_by_disk: int = 0


def throttling_by_client(folder: Path, api: str = "CreateTopics") -> dict[str, Throttling]:
    """By client id."""
    sums: dict[str, Throttling] = {}
    for entry in _lines(folder):
        if entry["type"] == "usage" and entry["api"] == api and entry["client_id"]:
            before, refused = sums.get(entry["client_id"], Throttling()), entry["refused"]
            sums[entry["client_id"]] = Throttling(
                before.refused + sum(refused.values()),
                before.throttle_ms + entry["throttle_ms"],
                before.refused_by_disk + refused.get("storage", 0),
            )
    return sums


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("usage-*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.endswith("\n"))  # the last one may still be being written
