"""Room demo, load, reader: an ordinary application that reads the orders, as a consumer group of one.

In: where. Out: an event `read` for each record; after SIGTERM it reads what is still there, and ends. Leaves to others:
what is missing.
"""

import argparse
import signal

from confluent_kafka import Consumer, KafkaException

from demo import plan
from demo.events import emit

_QUIET = 1.5  # seconds without a record that mean that there is no more


class Reader:
    """Reads from the beginning until it is told to end."""

    def __init__(self, bootstrap: str) -> None:
        self._ending = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": plan.READER,
                "group.id": plan.READER,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 5000,
            }
        )

    def end(self, *_: object) -> None:
        """Read what is still there, then end."""
        self._ending = True

    def run(self) -> None:
        """Read."""
        self._consumer.subscribe([plan.ORDERS])
        while True:
            message = self._consumer.poll(_QUIET)
            if message is None:
                if self._ending:
                    break
            elif (error := message.error()) is None:
                emit("read", id=(message.value() or b"").decode().strip())
            elif error.fatal():
                raise KafkaException(error)
        self._consumer.close()


def main() -> None:
    """Read until SIGTERM."""
    parser = argparse.ArgumentParser(description="Reads orders until SIGTERM.")
    parser.add_argument("bootstrap")
    reader = Reader(parser.parse_args().bootstrap)
    signal.signal(signal.SIGTERM, reader.end)
    reader.run()


if __name__ == "__main__":
    main()
