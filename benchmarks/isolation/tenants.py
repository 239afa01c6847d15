"""A real cluster that several tenants share: logins, an authorizer, and one volume that looks full.

In: a folder. Out: a running broker with the topics and rights of `alice`, who behaves, and of those who do not; settings of a
proxy before it with all quotas on.

- `alice` has the rights to what begins with `alice`.
- `mallory-0` and so on have logins and the rights to what begins with `mallory`: one for each attack, so that what one has used
  up does not make the next one weak.
- `bob` works with them: he has the rights to what begins with `bob`, which they may not see, and to what is theirs.
- `proxy` is the proxy's identity, with no more rights than docs/security.md asks for.
- `operator` is a super user, and may alter quotas.

The broker has two log dirs. The second one has less left than the hard storage limit of the proxy: it is a file system of its own,
a small one where mounting is permitted, else that of /dev/shm."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.isolation import apis
from benchmarks.isolation.wire import Connection, Login
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch
from localkafka import LocalCluster

MIB: Final = 1 << 20
MALLORIES: Final = 64
PASSWORD: Final = "s3cret-of-all"  # noqa: S105 - of a cluster that lives for a minute
ALICE, BOB, PROXY, OPERATOR = "alice", "bob", "proxy", "operator"
USERS: Final = dict.fromkeys((ALICE, BOB, PROXY, OPERATOR, *(f"mallory-{i}" for i in range(MALLORIES))), PASSWORD)
QUOTA_TOPIC: Final = "__kafka_quota_proxy_quotas"
WELL: Final = (
    *("alice-data", "alice-ids", "alice-metered", "alice-share", "alice-paced", "alice-stored", "alice-read"),
    *("mallory-own", "bob-metered", "bob-read"),
)
FULL: Final = ("alice-full", "mallory-full")
"""Topics of one partition each, on the volume that is well and on the one that is full."""
RECORDS: Final = 50
"""in alice-read"""
OF_BOB: Final = 50_000
"""bytes in bob-read, which one Fetch brings"""
SMALL: Final = 64 * MIB
LIMIT: Final = 128 * MIB
_PREFIXES: Final = (("alice", ALICE), ("bob", BOB), ("mallory", "*"))
"""What a name begins with, and who may do anything with it."""
_LISTENER: Final = "listener.name.client"
_TOKENS: Final = {
    f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_LISTENER}.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    f' unsecuredLoginStringClaim_sub="{PROXY}" unsecuredValidatorRequiredScope="{PASSWORD}";',
}
"""Logins by OAUTHBEARER: a token with the password as its scope may have any user name."""


class NoFullVolume(Exception):
    """No file system here can be made to look full beside one that does not."""


def login(user: str) -> Login:
    return Login(user, USERS[user])


class Tenants:
    """The cluster. `address`: its broker; `limit`: the hard storage limit in bytes, between what the two volumes have left."""

    def __init__(self, kafka: LocalCluster, limit: int) -> None:
        self.kafka, self.limit = kafka, limit
        self.address = kafka.brokers[0].address
        self._operator = Connection(self.address, "operator", login(OPERATOR))
        self.written = b""
        """what a Fetch of alice-read from its beginning brings"""

    def furnish(self) -> None:
        """Make topics and rights, and write what is read."""
        rights = self._operator.ask(apis.CREATE_ACLS, creations=_rights())
        # The timestamps of records written by hand need not be of today.
        configs = [{"name": "retention.ms", "value": "-1"}]
        new = [{"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs} for name in (*WELL, *FULL)]
        made = self._operator.ask(apis.CREATE_TOPICS, topics=new, timeout=ms(10_000))
        if any(each.error_code for each in (*rights.results, *made.topics)):
            raise SystemExit(f"the cluster cannot be furnished: {rights} {made}")
        self._place()
        for number in range(RECORDS):
            self.write("alice-read", f"record {number}".ljust(400).encode())
        self.written = self.read("alice-read")
        self.write("bob-read", b"x" * OF_BOB)

    def end(self, topic: str) -> int:
        """The offset of the next record."""
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}]
        return int(self._operator.ask(apis.LIST_OFFSETS, replica_id=-1, topics=asked).topics[0].partitions[0].offset)

    def new_id(self) -> int:
        """A producer id, the next one of the broker."""
        no_producer = {"transactional_id": None, "transaction_timeout": ms(1000), "producer_id": -1, "producer_epoch": -1}
        return int(self._operator.ask(apis.INIT_PRODUCER_ID, **no_producer).producer_id)

    def remove(self, prefix: str) -> int:
        """Delete the topics that begin so; how many partitions they had."""
        topics = [topic for topic in self._operator.ask(apis.METADATA, topics=None).topics if topic.name.startswith(prefix)]
        if topics:
            self._operator.ask(apis.DELETE_TOPICS, topics=[{"name": topic.name} for topic in topics], timeout=ms(30_000))
        return sum(len(topic.partitions) for topic in topics)

    def write(self, topic: str, value: bytes) -> None:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": record_batch(value)}]}]
        answer = self._operator.ask(apis.PRODUCE, acks=-1, timeout=ms(10_000), topic_data=data)
        if answer.responses[0].partition_responses[0].error_code:
            raise SystemExit(f"{topic} cannot be written: {answer}")

    def read(self, topic: str) -> bytes:
        """All of it, from its beginning."""
        answer = self._operator.ask((1, 11), **fetch_of(topic))
        return bytes(answer.responses[0].partitions[0].records)

    def close(self) -> None:
        self._operator.close()

    def _place(self) -> None:
        """Every topic to its volume."""
        first, second = (str(path) for path in self.kafka.brokers[0].log_dirs)
        wanted = dict.fromkeys(WELL, first) | dict.fromkeys(FULL, second)
        dirs = [
            {"path": path, "topics": [{"name": name, "partitions": [0]} for name, place in wanted.items() if place == path]}
            for path in (first, second)
        ]
        until(lambda: self._where().keys() >= wanted.keys(), "topics to have log dirs")
        self._operator.ask(apis.ALTER_LOG_DIRS, dirs=dirs)
        until(lambda: wanted.items() <= self._where().items(), "topics to be on their volumes")

    def _where(self) -> dict[str, str]:
        """Topic to log dir; those that are just being moved are left out."""
        answer = self._operator.ask(apis.DESCRIBE_LOG_DIRS, topics=None)
        found = [(t.name, d.log_dir, p.is_future_key) for d in answer.results for t in d.topics for p in t.partitions]
        moving = {name for name, _, future in found if future}
        return {str(name): str(place) for name, place, _ in found if name not in moving}


def fetch_of(topic: str, **more: Any) -> dict[str, Any]:
    """The fields of a Fetch request v11 of partition 0 from its beginning."""
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": MIB}
    fields = {"replica_id": -1, "max_wait": ms(500), "min_bytes": 1, "max_bytes": 8 * MIB, "session_epoch": -1, "rack_id": ""}
    return {**fields, "topics": [{"topic": topic, "partitions": [partition]}], **more}


REQUEST_GROUPS: Final = ("metadata", "group", "commit", "describe", "fetch", "produce", "transaction", "admin")
MEMORY, CONNECTIONS, RATE, BURST = 32 * MIB, 300, 5, 50
"""Limits: bytes and connections in all, partitions a second and at once of those who are not alice."""
METERED, READS, MUTE = MIB // 16, 10_000, 0.2
"""Limits: bytes a second into bob-metered, and to bob; seconds that somebody is muted at most."""
OWNED, PARTITIONS, STORED = 11, 17, 4 * MIB
"""Limits: topics of alice's tenant, which has seven and gets two at a time, and their partitions, of which these two have three
each; bytes in alice-stored, which another tenant owns."""
ALICES_ADDRESS, STORMY_ADDRESS, STORMY_RATE = "127.0.3.1", "127.0.3.2", 20
"""An address that is alice's alone, one from which too many connections come, and how many may come from there per second."""
TOLD_WITHIN: Final = 0.3
"""Seconds that a broker has to say how large topics are, before the log says that it did not."""


def settings(tenants: Tenants, **more: Any) -> dict[str, Any]:
    """Of a proxy with every quota on, addresses left out. alice's limits are above what she does, and not far above."""
    rates = {
        "cluster_producer_byte_rate": 4 * MIB,
        "cluster_consumer_byte_rate": 8 * MIB,
        "cluster_request_rate": 1500,
        "cluster_cold_read_rate": 8 * MIB,
        "cluster_connection_rate": 200,
    }
    by_kind = {f"cluster_{group}_request_rate": 1000 for group in REQUEST_GROUPS}
    owned = {"topic_prefixes": [ALICE], "max_topics": OWNED, "max_partitions": PARTITIONS}
    alice = {"user": ALICE, "controller_mutations_rate": 200, "producer_ids_rate": 5000, **rates}
    others = {"user": "<default>", "controller_mutations_rate": RATE, "controller_mutations_burst": BURST, "producer_ids_rate": 5}
    bob = {**others, "user": BOB, "cluster_consumer_byte_rate": READS}
    claimed = {"client_id": "<default>", "controller_mutations_rate": 5, "cluster_request_rate": 2000}
    return {
        "upstream": {"sasl": {"mechanism": "SCRAM-SHA-256", "username": PROXY, "password": USERS[PROXY]}},
        "more_listeners": {
            "other": {"bootstrap": "127.0.0.1:0"},
            "balanced": {"bootstrap": "127.0.0.1:0", "proxy_protocol": True},
        },
        "limits": {
            "max_frame": 8 * MIB,
            "memory_total": MEMORY,
            "memory_per_connection": MIB,
            "max_connections": CONNECTIONS,
            "max_connections_per_address": 200,
            "max_connections_per_principal": 100,
            "max_throttle": f"{MUTE * 1000:.0f}ms",
        },
        "exempt": {"client_ids": ["exempt-tool"]},
        "tenants": {
            ALICE: {"users": [ALICE], **owned, **rates, **by_kind},
            "keeper": {"topic_prefixes": ["alice-stored"], "stored_bytes_hard": STORED},
            "mallory": {"user_prefixes": ["mallory-"], "topic_prefixes": ["mallory"]},
        },
        "quotas": {
            "admins": [OPERATOR],
            "dynamic": {"topic": QUOTA_TOPIC},
            "entities": [alice, bob, others, claimed],
            "ask_timeout": f"{TOLD_WITHIN * 1000:.0f}ms",
            "producer_ids": {"mode": "reject", "hold_new": True},
            "storage": {
                "check_interval": "1s",
                "scope": "volume",
                "hard": {"min_available_bytes": tenants.limit},
                "release_margin": 0,
            },
            "cold_read_lag": 10,
            "stored_bytes": {"topics": {"alice-stored": {"hard": STORED}}, "check_interval": "1s"},
            "topic_rates": {"topics": {"alice-paced": {"bytes_in": MIB // 8}, "alice-read": {"bytes_out": 8 * MIB}}},
            "connections": {"networks": {ALICES_ADDRESS: 200, STORMY_ADDRESS: STORMY_RATE}},
            "topics": {
                "total_bytes_in_per_sec": 4 * MIB,
                "bytes_in_per_sec": {
                    "alice-data": 2 * MIB,
                    "alice-ids": MIB // 8,
                    "alice-metered": MIB // 2,
                    "alice-paced": MIB // 8,
                    "bob-metered": METERED,
                },
                "meter": "window",
            },
        },
        **more,
    }


@contextmanager
def sharing(folder: Path, jvm_flags: Sequence[str] = ()) -> Iterator[Tenants]:
    """The cluster, once topics and rights are there. Raises NoFullVolume."""
    with ExitStack() as stack:
        limit = _second_volume(folder, stack)
        kafka = LocalCluster(
            1,
            log_dirs=2,
            data_dir=folder,
            sasl=USERS,
            super_users=[OPERATOR],
            jvm_flags=jvm_flags,
            properties={"auto.create.topics.enable": True, **_TOKENS},
        )
        stack.callback(_end, kafka)
        kafka.start()
        tenants = Tenants(kafka, limit)
        stack.callback(tenants.close)
        tenants.furnish()
        yield tenants


def until(condition: Callable[[], object], what: str, limit: float = 30.0) -> None:
    """Looks again and again at something real."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {limit:g} s in vain for {what}")
        time.sleep(0.05)


def _rights() -> list[dict[str, Any]]:
    """ACLs, in the numbers of Kafka's protocol."""
    topic, group, cluster, transactional_id, literal, prefixed, every, describe = 2, 3, 4, 5, 3, 4, 2, 8
    own = [(sort, name, prefixed, user, every) for sort in (topic, group, transactional_id) for name, user in _PREFIXES]
    more = [(cluster, "kafka-cluster", literal, PROXY, describe), (topic, QUOTA_TOPIC, literal, PROXY, every)]
    return [
        {
            "resource_type": sort,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": f"User:{user}",
            "host": "*",
            "operation": operation,
            "permission_type": 3,
        }
        for sort, name, pattern, user, operation in (*own, *more)
    ]


def _second_volume(folder: Path, stack: ExitStack) -> int:
    """Prepare the log dirs; a limit between what they have left."""
    first, second = folder / "node0" / "data0", folder / "node0" / "data1"
    for path in (first, second):
        path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "kafka-quota-proxy-isolation", str(second)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        stack.callback(subprocess.run, ["umount", "--lazy", str(second)], capture_output=True, check=False)
    else:
        other = Path(tempfile.mkdtemp(dir="/dev/shm"))
        stack.callback(shutil.rmtree, other, ignore_errors=True)
        second.rmdir()
        second.symlink_to(other)
    left, least = _available(first), _available(second)
    if left < 1.5 * least or left < 2 * LIMIT:
        raise NoFullVolume(f"{left >> 20} MiB are left of {folder}, and {least >> 20} MiB of {second.resolve()}")
    return LIMIT if least < LIMIT else (left + least) // 2


def _available(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _end(kafka: LocalCluster) -> None:
    """Kill the brokers, without a clean stop, as their data is not read again."""
    for node in kafka.brokers:
        with contextlib.suppress(OSError):
            kafka.kill_broker(node.node_id)
    kafka.stop()
