"""Room demo, load, producer: an ordinary application that writes orders at a steady rate.

In: where, how long, a prefix for the records' ids. Out: an event `record` for each, with its latency. Leaves to
others: percentiles.

Open loop: a record is due at a fixed time whether or not those before it were acknowledged, and its latency counts from that time.
So a broker that stands still for a second shows as 200 slow records and not as one.
"""

import argparse

from confluent_kafka import KafkaError, Message, Producer

from demo import plan
from demo.clock import now
from demo.events import emit

_FLUSH_LIMIT = 60.0  # seconds


class OrdersProducer:
    """Produces one record at a time, acks=all, no lingering."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "client.id": plan.PRODUCER, "acks": "all", "linger.ms": 0})
        self._prefix = prefix
        self._sent = 0

    def connect(self) -> None:
        """Send a record to each partition, so that no connection has to be made later."""
        for partition in range(plan.ORDERS_PARTITIONS):
            self._send(now(), "unmeasured", partition)
        self._producer.flush(_FLUSH_LIMIT)

    def run(self, seconds: float) -> None:
        """Produce at plan.RECORDS_PER_SECOND and return when all records were acknowledged or given up."""
        begin = now()
        emit("begin", at=begin)
        for number in range(round(seconds * plan.RECORDS_PER_SECOND)):
            due = begin + number / plan.RECORDS_PER_SECOND
            while (left := due - now()) > 0:
                self._producer.poll(left)
            self._send(due, "record", number % plan.ORDERS_PARTITIONS)
            self._producer.poll(0)
        emit("end", at=now())
        self._producer.flush(_FLUSH_LIMIT)

    def _send(self, due: float, kind: str, partition: int) -> None:
        name = f"{self._prefix}-{self._sent}"
        self._sent += 1

        def done(error: KafkaError | None, _message: Message) -> None:
            emit(kind, id=name, due=due, ms=(now() - due) * 1000, error=str(error) if error else None)

        self._producer.produce(plan.ORDERS, name.encode().ljust(plan.RECORD_BYTES), partition=partition, on_delivery=done)


def main() -> None:
    """Produce for a while."""
    parser = argparse.ArgumentParser(description="Produces orders at a steady rate.")
    parser.add_argument("bootstrap")
    parser.add_argument("seconds", type=float)
    parser.add_argument("prefix")
    options = parser.parse_args()
    producer = OrdersProducer(options.bootstrap, options.prefix)
    producer.connect()
    producer.run(options.seconds)


if __name__ == "__main__":
    main()
