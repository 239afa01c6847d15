"""What the tests of every API share, whatever the version of Kafka: a broker with a proxy before it, and the comparison.

One broker, so that both sides look at the same state, with everything switched on: SASL, an authorizer, delegation tokens,
share groups, a telemetry plugin. The broker listens on 127.0.0.1 and the proxy on 127.0.0.7, so that an address that gets
through is seen wherever it stands. `test_addresses` does the same to what only several brokers answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map

from localkafka import LocalCluster, Node, run_java
from localkafka.versions import Release, release_of
from tests.conftest import QUICK_START
from tests.real import by_hand, every_api
from tests.real.proxies import ProxyProcess
from tests.real.twins import ADMIN, BOB, Comparable, Side, differences, shows

JAVA = Path(__file__).parent / "java"
NAMES_BROKERS = {(3, 0), (10, 0), (55, 2), (60, 0)}
"""(API key, first version) whose answers name brokers, or controllers, also where there is but one."""

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
API_VERSIONS, STREAMS_GROUP_HEARTBEAT = 18, 88
TOKENS_SINCE, TELEMETRY_SINCE, KAFKA_4 = (3, 6), (3, 7), (4, 0)

Ranges = dict[int, tuple[int, int]]


@dataclass
class Twins:
    """Both ways to one broker."""

    release: Release
    direct: Side
    through: Side
    ranges: Ranges
    ports: set[int]
    """of the broker: for clients, for brokers, for controllers"""
    node: Node


@contextmanager
def twins_of(version: str, folder: Path) -> Iterator[Twins]:
    """A broker of this version, with all that it has switched on, and a proxy."""
    release, flags, properties = release_of(version), list(QUICK_START), dict(PROPERTIES)
    if release >= TOKENS_SINCE:
        properties["delegation.token.secret.key"] = "a secret of all brokers"
    if release >= TELEMETRY_SINCE:
        agent = folder / "telemetry.jar"
        run_java(JAVA / "AgentJar.java", str(JAVA / "Telemetry.java"), str(agent), version=version, check=True)
        flags.append(f"-javaagent:{agent}")
        properties["metric.reporters"] = "Telemetry"
    if TELEMETRY_SINCE <= release < KAFKA_4:
        properties["group.coordinator.rebalance.protocols"] = "classic,consumer"
    with ExitStack() as stack:
        kafka = LocalCluster(1, version=version, properties=properties, sasl=dict([ADMIN, BOB]), jvm_flags=flags)
        stack.enter_context(kafka)
        proxy = ProxyProcess(folder, kafka.bootstrap_servers, {"listen": {"bootstrap": "127.0.0.7:0"}})
        stack.enter_context(proxy)
        yield connected(release, kafka, proxy, stack)


def connected(release: Release, kafka: LocalCluster, proxy: ProxyProcess, stack: ExitStack) -> Twins:
    (node,) = kafka.brokers
    ports = node.listeners
    host, _, bootstrap = proxy.bootstrap.rpartition(":")
    direct = Side("d", node.address, {("127.0.0.1", ports.client): "broker", ("127.0.0.1", ports.controller): "bootstrap"}, stack)
    (broker,) = Side("p", proxy.bootstrap, {}, stack).ask(3, 12, topics=[]).brokers
    shown = {(broker.host, broker.port): "broker", (host, int(bootstrap)): "bootstrap"}
    through = Side("p", f"{broker.host}:{broker.port}", shown, stack)
    ranges = ranges_of(through)
    for side in (direct, through):
        side.notes |= {"ranges": ranges, "log_dir": str(node.log_dirs[0])}
    every_api.prepare(direct, through)
    return Twins(release, direct, through, ranges, {ports.client, ports.internal, ports.controller}, node)


def ranges_of(side: Side) -> Ranges:
    answer = side.ask(18, 3, client_software_name="raw", client_software_version="1")
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def same_ranges(twins: Twins, keys: Collection[int]) -> None:
    """What is advertised through the proxy is what the broker advertises."""
    assert set(twins.ranges) == set(keys), f"left out, or not tested: {set(twins.ranges) ^ set(keys)}"
    assert all(low <= high for low, high in twins.ranges.values())
    ours, theirs = twins.ranges, known(ranges_of(twins.direct))
    assert ours == theirs, {key: (theirs.get(key), ours.get(key)) for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}


def known(ranges: Ranges) -> Ranges:
    """Those of a broker without what the proxy does not pass, which is version 1 of StreamsGroupHeartbeat, of Kafka 4.4
    (docs/versions.md)."""
    return {key: (low, 0 if key == STREAMS_GROUP_HEARTBEAT else high) for key, (low, high) in ranges.items()}


def same_answers(twins: Twins, key: int) -> None:
    """All versions of one API."""
    for side in (twins.direct, twins.through):
        side.again()
    low, high = twins.ranges[key]
    met: set[int] = set()
    for version in range(low, high + 1):
        if (key, version) in by_hand.LIKE or (key in api_key_map and version in schema_name_map[api_key_map[key]]):
            met |= compare(twins, key, version)
        elif twins.release >= KAFKA_4 and (key, version) in by_hand.CLOSED:
            check_closed(twins, key, version)
        else:
            compare_by_hand(twins, key, version)
    wanted = every_api.wanted_errors(key, twins.release)
    assert met - {0} == wanted, f"the request asks for the errors {wanted}, and got {met - {0}}"


def id_of(key: int) -> str:
    """The name of an API, for the ids of tests."""
    return by_hand.NAMES.get(key) or str(api_key_map[key])


def compare(twins: Twins, key: int, version: int) -> set[int]:
    """The errors that were met."""
    answers, met = [], set()
    for side in (twins.direct, twins.through):
        frame = answer_of(side, key, version)
        check_shown(twins, side, key, version, frame)
        comparable = Comparable(side, every_api.VOLATILE.get(key, {}), listing=every_api.lists(key, twins.release))
        answer = comparable.of(every_api.decode(key, by_hand.LIKE.get((key, version), version), frame))
        answers.append(alike(answer, key))
        met |= comparable.errors
    found = differences(*answers)
    assert not found, f"version {version}: {found}"
    return met


def answer_of(side: Side, key: int, version: int) -> bytes:
    if (key, version) in by_hand.LIKE:
        return side.connection.ask_bytes(key, version, by_hand.BODIES[key, version](side))
    request = every_api.CASES[key](side, version)
    return request if isinstance(request, bytes) else side.connection.ask(key, version, **request)


def check_shown(twins: Twins, side: Side, key: int, version: int, frame: bytes) -> None:
    """Directly one sees real addresses, through the proxy none, wherever they might stand."""
    real = shows(frame, twins.ports)
    if side is twins.direct:
        if any(key == named and version >= first for named, first in NAMES_BROKERS):
            assert real, "the search finds nothing where something is"
    elif key == 32:  # the text of settings is the documented exception
        assert not shows(frame, twins.ports, host=False)
    else:
        assert not real, f"version {version} shows {real}"


def alike(answer: dict[str, Any], key: int) -> dict[str, Any]:
    """An answer without what is not the same on both sides: groups stand in the order of a hash of their names, and the proxy
    advertises what it passes."""
    if key == API_VERSIONS:
        ranges = known({api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]})
        return answer | {"api_keys": [*ranges.items()]}
    if key not in every_api.BY_HASH:
        return answer
    return {name: sorted(value, key=repr) if isinstance(value, list) else value for name, value in answer.items()}


def compare_by_hand(twins: Twins, key: int, version: int) -> None:
    answers = []
    for side in (twins.direct, twins.through):
        frame = side.connection.ask_bytes(key, version, by_hand.BODIES[key, version](side))
        assert side is twins.direct or not shows(frame, twins.ports)
        body = frame[8:]
        if not every_api.lists(key, twins.release):
            body = body.replace(f"twin-{side.letter}-".encode(), b"twin-")
        answers.append((body[:2], len(body)) if key in by_hand.SAME_LENGTH else body)
    assert answers[0] == answers[1], f"version {version}: {answers[0]!r} directly, {answers[1]!r} through the proxy"


def check_closed(twins: Twins, key: int, version: int) -> None:
    for side in (twins.direct, twins.through):
        connection = side.log_in(side.connect())
        with pytest.raises(ConnectionError):
            connection.ask_bytes(key, version, by_hand.BODIES[key, version](side))
