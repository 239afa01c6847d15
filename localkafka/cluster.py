"""One to three Kafka nodes on loopback that can be started, stopped, killed and moved to other ports.

In: how many, which version, which properties. Out: a cluster that answers, and its bootstrap servers.
Leaves to others: fetching (jars.py), formatting (storage.py), one process (node.py), its properties (settings.py).
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from localkafka import jvm, storage
from localkafka.guard import Guard
from localkafka.jars import DEFAULT_VERSION, Progress, fetch
from localkafka.java import find_java
from localkafka.node import Node, NodeError, wait_all
from localkafka.ready import known_brokers
from localkafka.settings import PropertyValue, Tls, check_users, cluster_properties
from localkafka.versions import LOG_DIRS_SINCE, SCRAM_SINCE, release_of

_PORT_TRIES = 3
_POLL = 0.05  # seconds between two questions to a node that starts
_STOP_LIMIT = 30.0  # seconds


class LocalCluster:
    """A real Apache Kafka on 127.0.0.1, for demos, tests and benchmarks. Not thread-safe.

    Node ids are 0, 1, 2, so `brokers[i]` is the node with id i, unless `ids` says otherwise. Every node has three listeners:
    CLIENT (plaintext, or SASL when `sasl` is given, and TLS when `tls` is), INTERNAL and CONTROLLER (plaintext). The nodes end with
    this Python process, however it ends.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        ids: Sequence[int] | None = None,
        log_dirs: int | None = None,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, PropertyValue] | None = None,
        data_dir: Path | None = None,
        sasl: Mapping[str, str] | None = None,
        super_users: Sequence[str] | None = None,
        tls: Tls | None = None,
        in_front: Callable[[Node], int] | None = None,
        jvm_flags: Sequence[str] = (),
        start_limit: float = 90.0,
        progress: Progress | None = None,
    ) -> None:
        """Describe a cluster; nothing runs yet.

        `ids` are those of the nodes. `log_dirs` is the number per broker: by default 2, before Kafka 3.7 1. `properties` override
        the defaults in every node's server.properties. `data_dir` is kept at stop, and a later cluster with the same number of
        brokers and log dirs can use it again; without it, data is temporary.
        `sasl` maps user to password, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (since Kafka 3.5). `tls` is the same for all nodes:
        its certificate is for 127.0.0.1. `super_users` turn the authorizer on: these users of `sasl` may do everything, and so
        may brokers among each other. All other users have only the rights that ACLs give them. `jvm_flags` override the defaults,
        for example -Xmx512m. `in_front` is called for each node before its first start, and returns the port that clients are told
        in place of the node's own: that of a relay, say.
        `start_limit` is in seconds. Errors: ValueError.
        """
        if not 1 <= brokers <= 3:
            raise ValueError(f"brokers: 1, 2 or 3, not {brokers}")
        if ids is not None and len(set(ids)) != brokers:
            raise ValueError(f"ids: {brokers} different ones, not {ids}")
        several = release_of(version) >= LOG_DIRS_SINCE
        if log_dirs is None:
            log_dirs = 2 if several else 1
        if log_dirs < 1 or (log_dirs > 1 and not several):
            raise ValueError(f"log_dirs: {'at least ' if several else ''}1 in Kafka {version}, not {log_dirs}")
        check_users(sasl or {}, super_users or ())
        self.version = version
        self.brokers: Sequence[Node] = ()
        self._ids, self._log_dirs, self._jvm_flags = list(ids or range(brokers)), log_dirs, list(jvm_flags)
        self._properties, self._sasl, self._tls = dict(properties or {}), sasl, tls
        self._super_users, self._in_front = super_users, in_front
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        self._start_limit, self._progress = start_limit, progress
        self._guard: Guard | None = None
        self._command: list[str] = []

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of all nodes, running or not."""
        return ",".join(node.address for node in self.brokers)

    def node(self, node_id: int) -> Node:
        """The node with this id."""
        return self.brokers[self._ids.index(node_id)]

    def start(self) -> None:
        """Fetch Kafka if need be, start all nodes, and return when every one of them answers and knows the others.

        Errors: JavaMissing, FetchError, FormatError, NodeError, OSError for files of `tls`; nothing is left running then.
        """
        if self._guard is not None:
            raise RuntimeError("the cluster was started already")
        java = find_java()
        jars = fetch(self.version, java, self._progress)
        self._guard = guard = Guard()
        try:
            self._command = jvm.broker_command(java, jars, guard.folder, self._jvm_flags)
            root = self._data_dir or guard.folder
            self.brokers = [Node(number, root / f"node{number}", self._log_dirs) for number in self._ids]
            if self._in_front is not None:
                for node in self.brokers:
                    node.advertised = self._in_front(node)
            self._format(jvm.tool_command(java, jars, guard.folder), jars)
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes and remove temporary data. Stopping twice is allowed."""
        if self._guard is None:
            return
        # Temporary data is not read again, and an orderly stop of several nodes takes 6 s: the last nodes wait for a quorum.
        self._end_all(signal.SIGTERM if self._data_dir else signal.SIGKILL)
        for node in self.brokers:
            node.release_ports()
        self._guard.close()
        self._guard = None

    def stop_broker(self, node_id: int, limit: float = _STOP_LIMIT) -> None:
        """Stop a node as an operator would (SIGTERM, a controlled shutdown), kill it after `limit` seconds. Its data stays."""
        node = self.node(node_id)
        node.signal(signal.SIGTERM)
        node.wait_end(limit)

    def kill_broker(self, node_id: int) -> None:
        """Kill a node (SIGKILL). The others notice after broker.session.timeout.ms."""
        node = self.node(node_id)
        node.signal(signal.SIGKILL)
        node.wait_end(_STOP_LIMIT)

    def start_broker(self, node_id: int, *, move: bool = False) -> None:
        """Start a stopped node with the data it has, on its port or, with `move`, on a new one; return when the others know it.

        This may take broker.session.timeout.ms (4 s here): the controller waits for the end of the broker's last session.
        Errors: NodeError. Where a majority is needed for a quorum, that is when two of three run again.
        """
        node = self.node(node_id)
        if node.running:
            raise RuntimeError(f"broker {node_id} runs")
        if move:
            node.move()
        self._launch(node)
        try:
            self._wait_ready()
        except BaseException:
            self.kill_broker(node_id)
            raise

    def _format(self, tool: Sequence[str], jars: Path) -> None:
        assert self._guard is not None
        known = {node: storage.cluster_id_of(node.metadata_dir) for node in self.brokers}
        if None not in known.values():
            return
        cluster_id = next(filter(None, known.values()), None) or storage.new_id()
        release = release_of(self.version)
        scram = self._sasl if release >= SCRAM_SINCE else None
        bootstrap = storage.checkpoint(self._guard, tool, jars, scram, release)
        for node in self.brokers:
            if known[node] is None:
                folders = (node.metadata_dir, *node.log_dirs)
                storage.format_node(node.node_id, cluster_id, folders, bootstrap, release)

    def _start_all(self) -> None:
        for left in reversed(range(_PORT_TRIES)):
            try:
                for node in self.brokers:
                    self._launch(node)
                self._wait_ready()
            except NodeError as error:
                if not error.port_taken or left == 0:
                    raise
                self._end_all(signal.SIGKILL)
                for node in self.brokers:
                    node.new_ports()
            else:
                return

    def _launch(self, node: Node) -> None:
        if self._guard is None:
            raise RuntimeError("the cluster is not started")
        voters = {each.node_id: each.listeners.controller for each in self.brokers}
        common = cluster_properties(voters, self._sasl, self._tls, self._super_users)
        node.launch(self._guard, self._command, common, self._properties)

    def _end_all(self, how: signal.Signals) -> None:
        for node in self.brokers:
            node.signal(how)
        wait_all(self.brokers, _STOP_LIMIT)

    def _wait_ready(self) -> None:
        """Wait until every node that should run says that all of them are in the cluster, at their present ports."""
        wanted = [node for node in self.brokers if node.wanted]
        ports = {node.node_id: node.listeners.internal for node in wanted}
        deadline = time.monotonic() + self._start_limit
        for node in wanted:
            while not (node.started() and ports.items() <= known_brokers(node.listeners.internal).items()):
                for each in wanted:
                    each.check_alive()
                if time.monotonic() > deadline:
                    raise NodeError(f"was not ready after {self._start_limit:.0f} s", node)
                time.sleep(_POLL)
