"""Room demo, topics: those that are made and deleted behind the proxy's back.

In: the cluster's own address. Out: a topic for the orders; a cluster without the storm's topics. Leaves to others: the load.
"""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo import plan
from demo.clock import now
from demo.errors import DemoError

_LIMIT = 120.0  # seconds
_POLL = 0.2  # seconds


def create_orders(upstream: str, replicas: int) -> None:
    """Create the topic of the ordinary clients. Errors: DemoError."""
    admin = _client(upstream)
    try:
        admin.create_topics([NewTopic(plan.ORDERS, plan.ORDERS_PARTITIONS, replicas)])[plan.ORDERS].result(_LIMIT)
    except KafkaException as error:
        raise DemoError(f"the topic {plan.ORDERS} could not be created: {error}") from None


def delete_storm(upstream: str) -> float:
    """Delete the storm's topics; returns the seconds until the cluster had digested storm and deletion. Errors: DemoError.

    A broker takes up changes in their order. So a topic that it does not know yet shows, at the latest, when those that were
    deleted after its creation are gone.
    """
    begin = now()
    try:
        _delete_until_none(_client(upstream), begin + _LIMIT)
    except KafkaException as error:
        raise DemoError(f"the storm's topics could not be deleted: {error}") from None
    return now() - begin


def _delete_until_none(admin: AdminClient, deadline: float) -> None:
    deleted: set[str] = set()
    while found := _storm_topics(admin):
        if fresh := sorted(found - deleted):
            for answer in admin.delete_topics(fresh, operation_timeout=_LIMIT, request_timeout=_LIMIT).values():
                answer.result(_LIMIT)
        deleted |= found
        if now() > deadline:
            raise DemoError(f"the cluster had not digested the storm {_LIMIT:.0f} s after its end")
        time.sleep(_POLL)


def _client(upstream: str) -> AdminClient:
    """One that says nothing on standard error: it is ours, and its mishaps are told as DemoError."""
    return AdminClient({"bootstrap.servers": upstream, "log_level": 0})


def _storm_topics(admin: AdminClient) -> set[str]:
    return {name for name in admin.list_topics(timeout=_LIMIT).topics if name.startswith(plan.STORM_PREFIX)}
