"""A client as a program, so that it can run at a host of its own (`outside.py`). In: a bootstrap server, a topic and, for TLS,
a file of authorities. Out: as JSON, where it is told that brokers are, and the records that it wrote and read again."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.real.steady import read_in_order

PARTITIONS = 6
"""One record for each; each broker leads some of them."""


def main(bootstrap: str, topic: str, authorities: str | None = None) -> int:
    tls = {"security.protocol": "SSL", "ssl.ca.location": authorities} if authorities else {}
    brokers = AdminClient({"bootstrap.servers": bootstrap, **tls}).list_topics(timeout=90).brokers
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 90_000, **tls})
    for partition in range(PARTITIONS):
        producer.produce(topic, str(partition).encode(), partition=partition)
    producer.flush(90)
    read = read_in_order(bootstrap, topic, PARTITIONS, **tls)
    told = {node_id: f"{broker.host}:{broker.port}" for node_id, broker in sorted(brokers.items())}
    print(json.dumps({"brokers": told, "read": read}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
