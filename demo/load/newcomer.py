"""Room demo, load, newcomer: teams that each need one small topic, once a second.

In: where, how long, a prefix for the topics' names, how many replicas. Out: an event `asked` for each topic, and `usable` when a
first record in it was acknowledged, or `failed`. Leaves to others: waits and their percentiles.

Open loop, as the producer: a topic is asked for at its time, whether or not those before it became usable. Runs until it is killed.
"""

import argparse
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo import plan
from demo.clock import now
from demo.events import emit

_PATIENCE = 300  # seconds; longer than any phase


class Newcomer:
    """Creates topics and writes one record into each."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "client.id": plan.NEWCOMER}
        # By default librdkafka gives a topic up that is unknown after 30 s, and asks for it with growing pauses.
        patience: dict[str, str | int | float | bool] = {
            "linger.ms": 0,
            "message.timeout.ms": _PATIENCE * 1000,
            "topic.metadata.propagation.max.ms": _PATIENCE * 1000,
            "topic.metadata.refresh.sparse": True,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 100,
        }
        self._admin = AdminClient(common)
        self._producer = Producer({**common, **patience})
        self._replicas = replicas

    def connect(self) -> None:
        """Make the connections now, rather than within the first measurement."""
        self._admin.list_topics(timeout=30)
        self._producer.list_topics(timeout=30)

    def run(self, prefix: str, seconds: float) -> None:
        """Ask for plan.NEW_TOPICS_PER_SECOND topics for so long, then wait for those that are still to come."""
        begin = now()
        for number in range(round(seconds * plan.NEW_TOPICS_PER_SECOND)):
            due = begin + (number + 0.5) / plan.NEW_TOPICS_PER_SECOND
            self._poll_until(due)
            self._ask(f"{prefix}-{number}")
        self._poll_until(now() + _PATIENCE)

    def _poll_until(self, moment: float) -> None:
        while (left := moment - now()) > 0:
            self._producer.poll(min(left, 0.1))

    def _ask(self, topic: str) -> None:
        at = now()
        emit("asked", topic=topic, at=at)
        created = self._admin.create_topics([NewTopic(topic, 1, self._replicas)], request_timeout=_PATIENCE)[topic]
        created.add_done_callback(partial(self._created, topic, at))

    def _created(self, topic: str, at: float, created: "Future[None]") -> None:
        """In a thread of the admin client's."""
        if error := created.exception():
            emit("failed", topic=topic, error=str(error))
            return

        def done(error: KafkaError | None, _message: Message) -> None:
            if error:
                emit("failed", topic=topic, error=str(error))
            else:
                emit("usable", topic=topic, seconds=now() - at)

        self._producer.produce(topic, b"hello", on_delivery=done)


def main() -> None:
    """Ask for topics until killed."""
    parser = argparse.ArgumentParser(description="Creates a small topic every second and writes to it.")
    parser.add_argument("bootstrap")
    parser.add_argument("seconds", type=float)
    parser.add_argument("prefix")
    parser.add_argument("replicas", type=int)
    options = parser.parse_args()
    newcomer = Newcomer(options.bootstrap, options.replicas)
    newcomer.connect()
    newcomer.run(options.prefix, options.seconds)


if __name__ == "__main__":
    main()
