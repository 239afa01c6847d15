"""StreamsGroupHeartbeat (key 88, version 0): the topology that a member of a Streams group sends when it joins, from which brokers
create internal topics; whether a response is an error; and a response that tells the member to try again.

Source: StreamsGroupHeartbeatRequest/Response.json of Apache Kafka 4.2; KIP-1071."""

from __future__ import annotations

import datetime
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import encode_response, request_layout
from proxy.wire.layout import Array, Entity, Nullable, skipping
from proxy.wire.primitives import INT8, INT16, INT32, Buffer, fixed, string
from proxy.wire.steps import FEW

KEY: Final = 88
VERSIONS: Final = (0, 0)
_NO_TIME: Final = i32Timedelta.parse(datetime.timedelta(0))


class Internal(NamedTuple):
    """A topic that brokers create; 0 partitions where they decide how many."""

    name: str
    partitions: int


class Subtopology(NamedTuple):
    """A part of a topology: topics that it reads, and those that are created for it. A repartition topic is read too."""

    sources: tuple[str, ...]
    repartitions: tuple[Internal, ...]
    changelogs: tuple[Internal, ...]

    @property
    def names(self) -> int:
        """How many topics it names."""
        return len(self.sources) + len(self.repartitions) + len(self.changelogs)


Topology = tuple[Subtopology, ...]


class Heartbeat(NamedTuple):
    """What a request says; `topology` is None where it has none."""

    group: str
    member: str
    epoch: int
    topology: Topology | None


def read_heartbeat(buf: Buffer, pos: int, end: int, version: int, max_names: int) -> Generator[None, None, tuple[Heartbeat, bool]]:
    """(a request body, whether its topology names more than `max_names` topics: then it is read no further, and empty), or
    `BadBytes`. In steps."""
    layout = request_layout(KEY, version)
    group, at = string(buf, pos, end, compact=True)
    member, at = string(buf, at, end, compact=True)
    epoch = INT32.unpack_from(buf, fixed(at, 4, end) - 4)[0]
    at = layout.skip_to("topology", buf, pos, end)
    heartbeat = Heartbeat(group or "", member or "", epoch, None)
    if INT8.unpack_from(buf, fixed(at, 1, end) - 1)[0] < 0:
        return heartbeat, False
    outer = next(part for name, part in layout.fields if name == "topology")
    assert isinstance(outer, Nullable)
    assert isinstance(outer.inner, Entity)
    array = outer.inner.array("subtopologies")
    assert isinstance(array.element, Entity)
    count, at = array.count(buf, outer.inner.skip_to("subtopologies", buf, at + 1, end), end)
    found: list[Subtopology] = []
    names = 0
    for _ in range(count):
        part, at = yield from _subtopology(array.element, buf, at, end, max_names - names)
        if part is None:
            return heartbeat._replace(topology=()), True
        found.append(part)
        names += part.names + 1
    return heartbeat._replace(topology=tuple(found)), False


def _subtopology(
    layout: Entity, buf: Buffer, pos: int, end: int, max_names: int
) -> Generator[None, None, tuple[Subtopology | None, int]]:
    """(a part of a topology, None where it names more topics than that; the position behind it). In steps."""
    sources: list[str] = []
    internal: dict[str, list[Internal]] = {"repartition_source_topics": [], "state_changelog_topics": []}
    for name, field in layout.fields:
        if name != "source_topics" and name not in internal:
            pos = yield from skipping(field, buf, pos, end)
            continue
        assert isinstance(field, Array)
        count, pos = field.count(buf, pos, end)
        max_names -= max(count, 0)
        if max_names < 0:
            return None, pos
        for i in range(count):
            if i % FEW == FEW - 1:
                yield
            text, at = string(buf, pos, end, compact=True)
            if name == "source_topics":
                sources.append(text or "")
                pos = at
            else:  # name and partitions (int32) stand first
                pos = field.element.skip(buf, pos, end)
                internal[name].append(Internal(text or "", max(INT32.unpack_from(buf, at)[0], 0)))
    yield
    topics = (tuple(found) for found in internal.values())
    return Subtopology(tuple(sources), *topics), layout.skip_tags(buf, pos, end)


def error_of(frame: Buffer, version: int) -> int:
    """The error code of a whole response frame; it stands behind the throttle time."""
    at = response_body(frame, 0, len(frame), KEY, version) + 4
    return int(INT16.unpack_from(frame, fixed(at, 2, len(frame)) - 2)[0])


def try_again(correlation_id: int, version: int, heartbeat: Heartbeat, message: str) -> bytes:
    """A whole response frame: 14 COORDINATOR_LOAD_IN_PROGRESS, the error after which a member goes on trying at the same broker.
    It takes 89 for the end."""
    return _refusal(correlation_id, version, heartbeat, ErrorCode.coordinator_load_in_progress, message)


def violation(correlation_id: int, version: int, heartbeat: Heartbeat, message: str) -> bytes:
    """A whole response frame: 44 POLICY_VIOLATION, which is the end of a member."""
    return _refusal(correlation_id, version, heartbeat, ErrorCode.policy_violation, message)


def _refusal(correlation_id: int, version: int, heartbeat: Heartbeat, error: ErrorCode, message: str) -> bytes:
    """A whole response frame with this error."""
    schema: Any = load_response_schema(KEY, version)
    body = schema(
        throttle_time=_NO_TIME,
        error_code=error,
        error_message=message,
        member_id=heartbeat.member,
        member_epoch=heartbeat.epoch,
        heartbeat_interval=_NO_TIME,
        acceptable_recovery_lag=0,
        task_offset_interval=_NO_TIME,
        status=None,
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    )
    return encode_response(correlation_id, body)
