"""A realistic sample: two proxies, a handful of tenants, one that floods the controller, one that is throttled, some damage.

Also a command, to look at a page: `python -m tests.reports.sample DIR [MINUTES]`.
"""

import math
import random
import sys
from pathlib import Path

from tests.reports.logs import Log

TENANTS = {
    "User:orders": (9e6, ["orders", "orders-dlq"], "orders-service"),
    "User:clickstream": (2.4e7, ["clicks"], "collector"),
    "User:billing": (1.5e6, ["invoices", "payments"], None),
    "User:etl": (5e6, ["clicks-hourly", "orders-daily", "tmp-etl"], "etl-nightly"),
    "User:search": (3e6, ["index-updates"], "indexer"),
    "User:fraud": (2e6, ["scores"], "fraud-model"),
    "User:ANONYMOUS": (2e5, ["test"], "rdkafka"),
    "User:mobile": (9e5, ["push"], "push-gateway"),
    "User:CN=partner,O=Example": (6e5, ["partner-in"], "<script>alert(1)</script>"),
}


def write_sample(folder: Path, minutes: int = 90) -> None:
    """Write the logs of `minutes` of two proxies, in intervals of 10 s that do not align."""
    chance = random.Random(11)
    for number, (boot, offset) in enumerate((("5c1e0b7a99d2f301", 0.0), ("a90f33c1d4e8b672", 3.7))):
        log = Log(f"proxy-{number}", boot)
        intervals = minutes * 6
        for index in range(intervals):
            _interval(log, index / intervals, index * 10 + offset, chance)
            if index % (intervals // 2 + 1) == intervals // 2:
                log.write(folder, index, compress=True)
        if number:
            log.seq += 4
            log.gap(minutes * 60 - 5, lines=4).raw(b'{"v":2,"type":"usage","seq":1}').raw(b"\x00\x00\x00")
            log.raw(b'{"v":1,"type":"usage","proxy":"proxy-1","boot":"a90f33c1d4e8b672","seq":99999,"start":"2026-03-01T13:3')
        log.write(folder, 999_999, end=b"" if number else b"\n")


def _interval(log: Log, part: float, at: float, chance: random.Random) -> None:
    for index, (principal, (rate, topics, client_id)) in enumerate(TENANTS.items()):
        wave = 0.6 + 0.4 * math.sin(part * 9 + index) + (2.5 if principal == "User:etl" and 0.55 < part < 0.75 else 0)
        sent = int(rate * wave * chance.uniform(7, 10) / 2)
        who = {"principal": principal, "client_id": client_id}
        requests = max(1, sent // 60_000)
        log.usage(at, **who, requests=requests, request_bytes=sent, response_bytes=requests * 62)
        for topic in topics:
            share = sent // len(topics)
            log.usage(at, **who, topic=topic, requests=requests, record_bytes=share, records=share // 310)
            log.usage(at, **who, topic=topic, api="Fetch", api_key=1, requests=requests, record_bytes=share * 3 // 2)
        log.usage(at, **who, api="Fetch", api_key=1, requests=requests, request_bytes=requests * 90, response_bytes=sent * 3 // 2)
        log.usage(at, **who, api="Metadata", api_key=3, requests=2, request_bytes=120, response_bytes=4200)
    if 0.3 < part < 0.42 or part > 0.9:
        _flood(log, at, chance)
    if 0.55 < part < 0.75:
        _throttle(log, at, chance)


def _flood(log: Log, at: float, chance: random.Random) -> None:
    refused = chance.randint(5, 60)
    who = {"principal": "User:etl", "client_id": "etl-nightly", "api": "CreateTopics", "api_key": 19}
    log.usage(
        at, **who, requests=9, request_bytes=9000, response_bytes=9000, mutations=40, refused={"controller_mutations": refused}
    )
    entity = {"user": "etl", "client_id": None}
    topics = [f"tmp-etl-{chance.randint(1, 999)}" for _ in range(5)]
    message = "controller_mutations quota of user etl exceeded: usage 38.2, limit 5 partition mutations per second; retry in 6.6 s"
    common = {"entity": entity, "items": 5, "topics": topics, "usage": 38.2, "throttle_ms": 6640, "message": message}
    log.decision(at + 4, **who, **common, left_out=chance.randint(0, 5))


def _throttle(log: Log, at: float, chance: random.Random) -> None:
    wait = chance.randint(200, 9000)
    who = {"principal": "User:clickstream", "client_id": "collector", "api": "DeleteTopics", "api_key": 20}
    log.usage(at, **who, requests=3, request_bytes=400, response_bytes=300, mutations=12, throttle_ms=wait)
    entity = {"user": "<default>", "client_id": "collector"}
    log.decision(at + 2, **who, action="throttle", entity=entity, items=2, topics=["clicks-old"], throttle_ms=wait, message=None)
    observe = {
        "quota": "storage",
        "mode": "observe",
        "entity": {"user": None, "client_id": None},
        "message": "volume data1 is full",
    }
    log.decision(at + 6, principal="User:search", client_id="indexer", api="Produce", api_key=0, throttle_ms=0, **observe)


if __name__ == "__main__":
    write_sample(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 90)
