"""localkafka: a real Apache Kafka on loopback, with no container, no Maven and no Kafka installed.

In: how many brokers, which version, which properties. Out: a running cluster, and Kafka's own tools.
Leaves to others: what is done with it. It knows nothing of the proxy.

The modules, from the bottom up:

    java        finds a Java, or says how to get one
    guard       starts processes that never outlive this one; `_watch` is the process that ends them
    repository  where Maven packages come from, and through which proxy
    resolver    fetches them, with the resolver that PySpark brings
    jars        keeps the jars of Kafka and Kafka Streams in a cache folder, and repairs it
    ports       free loopback ports, and ports that stay reserved while a broker is down
    jvm         command lines
    settings    server.properties as a value
    storage     formats a node's folders
    ready       asks a broker which brokers are in the cluster
    node        one process: start, signal, log
    cluster     LocalCluster: one to three nodes
    archive     makes brokers start faster
    versions    which versions are tested, and what older ones cannot do
    tools       kafka-topics and the others, and Java source files

    with LocalCluster(3) as kafka:
        tool("topics", "--bootstrap-server", kafka.bootstrap_servers, "--create", "--topic", "orders", check=True)
"""

from localkafka.archive import prepare
from localkafka.cluster import LocalCluster
from localkafka.jars import DEFAULT_VERSION
from localkafka.java import Java, JavaMissing, ensure_java, find_java
from localkafka.node import Node, NodeError
from localkafka.resolver import FetchError
from localkafka.settings import Tls
from localkafka.storage import FormatError
from localkafka.tools import ToolError, run_java, tool

__all__ = [
    "DEFAULT_VERSION",
    "FetchError",
    "FormatError",
    "Java",
    "JavaMissing",
    "LocalCluster",
    "Node",
    "NodeError",
    "Tls",
    "ToolError",
    "ensure_java",
    "find_java",
    "prepare",
    "run_java",
    "tool",
]
