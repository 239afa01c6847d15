"""The cluster that gets the load, directly or behind a proxy. In: addresses, how to log in. Out: its id, topics that are created
and removed again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from configfile.access import Access, Login
from configfile.units import parse_server
from loadtest.scenario import Login as TenantLogin
from loadtest.scenario import Topic

CLIENT_ID: Final = "loadtest"
"""Client id of the load test's own requests. A quota for it limits preparing and verifying, not the load."""
REACHED: Final = 10.0
"""Seconds in which an endpoint has to answer."""
REFUSED: Final = 3.0
"""The same, for an address where nothing listens."""
CHANGED: Final = 60.0
"""Seconds for topics to be made or removed."""
AT_ONCE: Final = 50
"""Topics that one request removes."""


_LATER: Final = (
    *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART),
    *(KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC),  # the client's own: the broker that it asked has not heard of it
)


class EndpointError(Exception):
    """The endpoint cannot be used. The message says why in one line."""


def said(error: KafkaException) -> str:
    """What librdkafka says about it."""
    inner = error.args[0]
    return str(inner.str() if isinstance(inner, KafkaError) else inner)


def librdkafka_settings(bootstrap: str, access: Access) -> dict[str, Any]:
    """Settings of librdkafka to connect and log in."""
    tls, login = access.tls, access.login
    found: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": f"{'SASL_' if login else ''}{'SSL' if tls else 'PLAINTEXT'}",
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    if login is not None:
        found |= {"sasl.mechanism": login.mechanism, "sasl.username": login.username, "sasl.password": login.password}
    if tls is not None:
        files = {"ssl.ca.location": tls.ca_file, "ssl.certificate.location": tls.cert_file, "ssl.key.location": tls.key_file}
        found |= {name: file for name, file in files.items() if file is not None}
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_hostname else "none"
    return found


def login_of(tenant: str, login: TenantLogin) -> Login:
    """The login with its password. Raises EndpointError if the password cannot be read."""
    if login.password_env is not None:
        password = os.environ.get(login.password_env)
        if password is None:
            raise EndpointError(f"tenant {tenant}: the environment variable {login.password_env} with its password is not set")
    else:
        try:
            password = Path(str(login.password_file)).read_text(encoding="utf-8").removesuffix("\n")
        except OSError as e:
            raise EndpointError(f"tenant {tenant}: {login.password_file} cannot be read: {e.strerror}") from None
    return Login(login.mechanism, login.username, password)


def leaders(bootstrap: str, access: Access, topic: str) -> list[tuple[str, list[int]]]:
    """(address, its partitions) of the brokers that lead some of a topic."""
    found = AdminClient({**librdkafka_settings(bootstrap, access), "log_level": 0}).list_topics(topic, timeout=REACHED)
    places: dict[int, list[int]] = {}
    for number, partition in found.topics[topic].partitions.items():
        places.setdefault(partition.leader, []).append(number)
    addresses = {broker.id: f"{broker.host}:{broker.port}" for broker in found.brokers.values()}
    if not places or not places.keys() <= addresses.keys():
        raise EndpointError(f"topic {topic}: a partition has no leader")
    return [(addresses[id], some) for id, some in places.items()]


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset and the last one + 1. Brokers learn late who leads a new partition: errors are retried for a while.

    Raises KafkaException."""
    deadline = time.monotonic() + CHANGED
    while True:
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REACHED)
        except KafkaException as e:
            if (not e.args[0].retriable() and e.args[0].code() not in _LATER) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return int(found[0]), int(found[1])


@dataclass(slots=True)
class Cluster:
    """An endpoint, and what a run made there."""

    bootstrap: str
    access: Access = field(default_factory=Access)
    id: str = ""
    made: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, bootstrap: str, access: Access) -> Cluster:
        """Raises EndpointError if no broker answers."""
        for server in bootstrap.split(","):
            try:
                parse_server(server)
            except ValueError as e:
                raise EndpointError(f"{server!r} is not right: {e}") from None
        cluster = cls(bootstrap, access)
        cluster.id = cluster._asked()
        return cluster

    def _asked(self) -> str:
        told: list[str] = []
        admin = self.admin(error_cb=lambda error: told.append(error.str()))
        began = time.monotonic()
        while True:
            admin.poll(0.2)
            try:
                return str(admin.list_topics(timeout=1).cluster_id)
            except KafkaException as e:
                refused = next((text for text in told if "SASL" in text or "SSL" in text), None)
                if refused is not None:
                    raise EndpointError(f"{self.bootstrap}: {_short(refused)}") from None
                refused_at_once = any("Connection refused" in text or "resolve" in text for text in told)
                if time.monotonic() >= began + (REFUSED if refused_at_once else REACHED):
                    why = _short(told[0]) if told else said(e)
                    raise EndpointError(f"{self.bootstrap}: cannot be reached: {why}") from None

    def admin(self, **more: Any) -> AdminClient:
        return AdminClient({**librdkafka_settings(self.bootstrap, self.access), "client.id": CLIENT_ID, "log_level": 0, **more})

    def partitions(self, name: str) -> int | None:
        """None if the topic does not exist."""
        found = self._listed().get(name)
        return None if found is None else len(found.partitions)

    def create(self, topics: Mapping[str, Topic]) -> None:
        """Makes these, by their names at the cluster. Raises EndpointError; what was made until then is removed by `remove`."""
        if not topics:
            return
        new = [
            NewTopic(name, topic.partitions, topic.replicas, config={key: _text(value) for key, value in topic.config.items()})
            for name, topic in topics.items()
        ]
        admin = self.admin()
        self.made += topics
        for name, made in admin.create_topics(new, operation_timeout=CHANGED, request_timeout=CHANGED).items():
            try:
                made.result(CHANGED)
            except KafkaException as e:
                raise EndpointError(f"topic {name} is not there and cannot be created: {said(e)}") from None
        deadline = time.monotonic() + CHANGED
        while any(self._leaderless(found.get(name)) for found in [self._listed()] for name in topics):
            if time.monotonic() > deadline:
                raise EndpointError(f"the topics {', '.join(topics)} have partitions without a leader after {CHANGED:g} s")
            time.sleep(0.1)

    def remove_topics(self, prefix: str) -> None:
        """Removes the topics with this prefix, until none is listed any more. Raises EndpointError.

        A broker applies changes in their order. So a topic that it does not know yet shows up, at the latest, when those that were
        removed after its creation are gone."""
        admin, asked, deadline = self.admin(), set[str](), time.monotonic() + 2 * CHANGED
        while found := {name for name in self._listed() if name.startswith(prefix)}:
            if new := sorted(found - asked):
                for answer in admin.delete_topics(new, operation_timeout=2 * CHANGED, request_timeout=2 * CHANGED).values():
                    answer.result(2 * CHANGED)
            asked |= found
            if time.monotonic() > deadline:
                raise EndpointError(f"topics {prefix}… are still there {2 * CHANGED:g} s after they were removed")
            time.sleep(0.2)

    def remove(self, prefix: str, share_groups: Sequence[str] = ()) -> list[str]:
        """Removes the topics and groups of the run; librdkafka lists no share groups. Returns those that could not be removed, with
        the reason."""
        try:
            there = self._listed()
        except KafkaException as e:
            return [f"{name}: {said(e)}" for name in self.made]
        admin = self.admin()
        groups = list(share_groups)
        left = []
        try:
            found = admin.list_consumer_groups(request_timeout=CHANGED).result(2 * CHANGED).valid
            groups += [one.group_id for one in found if one.group_id.startswith(prefix)]
        except KafkaException as e:  # without the right to list groups, no lasting group was made
            if e.args[0].code() not in (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
                left.append(f"groups {prefix}…: {said(e)}")
        if groups:  # before their topics: brokers do not remove a share group of a topic that they do not know any more
            left += [f"group {text}" for text in _remove_groups(admin, groups)]
        names = [name for name in there if name in self.made or name.startswith(prefix)]
        for some in (names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)):
            answers = admin.delete_topics(some, operation_timeout=CHANGED, request_timeout=CHANGED)
            left += [f"{name}: {said(error)}" for name, error in _not_removed(answers, KafkaError.UNKNOWN_TOPIC_OR_PART).items()]
        self.made.clear()
        return left

    def _listed(self) -> dict[str, Any]:
        return dict(self.admin().list_topics(timeout=REACHED).topics)

    @staticmethod
    def _leaderless(topic: Any) -> bool:
        return topic is None or not topic.partitions or any(one.leader < 0 for one in topic.partitions.values())


def _remove_groups(admin: AdminClient, names: list[str]) -> list[str]:
    """A group whose members have not left yet is removed when they have, or when the broker takes them for dead."""
    left, deadline = list[str](), time.monotonic() + CHANGED
    while True:
        answers = admin.delete_consumer_groups(names, request_timeout=CHANGED)
        found = _not_removed(answers, KafkaError.GROUP_ID_NOT_FOUND)
        names = [name for name, error in found.items() if error.args[0].code() == KafkaError.NON_EMPTY_GROUP]
        last = time.monotonic() > deadline
        left += [f"{name}: {said(error)}" for name, error in found.items() if last or name not in names]
        if last or not names:
            return left
        time.sleep(0.5)


def _not_removed(answers: Mapping[str, Future[None]], unknown: int) -> dict[str, KafkaException]:
    """What could not be removed, with its error. `unknown`: the error of what does not exist any more."""
    left = {}
    for name, answer in answers.items():
        try:
            answer.result(2 * CHANGED)
        except KafkaException as e:
            if e.args[0].code() != unknown:
                left[name] = e
    return left


def same_cluster(clusters: Iterable[Cluster]) -> None:
    """Raises EndpointError if they are not all the same cluster."""
    first, *others = clusters
    for other in others:
        if other.id != first.id:
            both = f"{other.bootstrap} ({other.id}) and {first.bootstrap} ({first.id})"
            raise EndpointError(f"{both} are two clusters: their figures do not compare")


def _short(text: str) -> str:
    """Without librdkafka's names of its threads and how long it waited."""
    text = re.sub(r"^(\S+/(bootstrap|\d+): )+", "", text)
    return re.sub(r" \(after \d+ms in state .*\)$", "", text)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
