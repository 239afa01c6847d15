"""What rates of topics, cold reads and tenants cost for a Fetch of ten partitions: `python -m tests.quota.cost_fetch`, with
KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test: figures are for people.

CPU of a request and its answer with rates of its user alone, and with each of the others besides, none of which is exceeded. Cases
take turns, and the least of all rounds counts."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from tests.messages import request
from tests.support import World
from tests.wire.test_fetch import fetched

REQUESTS, ROUNDS = 1_000, 60
VERSION = 12
_THROTTLE = 9
"""Where an answer says how long its client has to wait."""
RATES: dict[str, Any] = {
    "entities": [{"user": "alice", "cluster_consumer_byte_rate": "1TiB", "cluster_request_rate": 1_000_000_000}],
}


def cases(topics: list[str]) -> dict[str, dict[str, Any]]:
    """Settings by what they have besides rates of the user."""
    of_topics = {"topic_rates": {"topics": {topic: {"bytes_out": "1TiB"} for topic in topics}}}
    cold = {"entities": [RATES["entities"][0] | {"cluster_cold_read_rate": "1TiB"}], "cold_read_lag": 1000}
    kind = {"entities": [RATES["entities"][0] | {"cluster_fetch_request_rate": 1_000_000_000}]}
    tenant = {"apps": {"users": ["alice"], "cluster_consumer_byte_rate": "1TiB", "cluster_request_rate": 1_000_000_000}}
    return {
        "rates of the user": {"quotas": RATES},
        "the same again": {"quotas": RATES},
        "rates of its topics": {"quotas": RATES | of_topics},
        "cold reads": {"quotas": RATES | cold},
        "requests by kind": {"quotas": RATES | kind},
        "a tenant": {"quotas": RATES, "tenants": tenant},
    }


class Case:
    """A client that asks the same again and again."""

    def __init__(self, settings: dict[str, Any], answer: bytes) -> None:
        world = World()
        world.engine.change(limits_of(Settings.model_validate(settings)))
        self._dialogue = world.dialogue("alice")
        self._frame, self._answer = request(1, VERSION, 1, chance=Random(1)), answer
        self._dialogue.client(self._frame)  # the first one connects
        self._dialogue.broker(answer)
        self.least = float("inf")

    def round(self) -> None:
        session, port = self._dialogue.session, self._dialogue.port
        frame, answer, begin = self._frame, self._answer, time.process_time()
        for _ in range(REQUESTS):
            session.client_bytes(frame, 1.0)
            session.broker_bytes(answer, 1.0)
        self.least = min(self.least, (time.process_time() - begin) / REQUESTS)
        assert len(b"".join(port.client)) >= REQUESTS * len(answer)
        port.client.clear()
        port.broker.clear()


def main() -> None:
    for title, parts in {
        "one topic of ten partitions": {"topic-0": [1000] * 10},
        "ten topics of a partition": {f"topic-{i}": [1000] for i in range(10)},
    }.items():
        answer = bytearray(fetched(VERSION, Random(3), *parts.items()))
        answer[_THROTTLE : _THROTTLE + 4] = bytes(4)  # the broker throttles nobody
        made = {name: Case(settings, bytes(answer)) for name, settings in cases(list(parts)).items()}
        for _ in range(ROUNDS):
            for case in made.values():
                case.round()
        alone = made["rates of the user"].least
        print(title)
        for name, case in made.items():
            print(f"  {name:22}{case.least * 1e6:8.2f} us  {case.least / alone - 1:+7.1%}")


if __name__ == "__main__":
    main()
