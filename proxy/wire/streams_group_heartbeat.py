"""StreamsGroupHeartbeat (key 88, version 0): the topology that a member of a Streams group sends when it joins, from which brokers
create internal topics; whether a response is an error; and a response that tells the member to try again.

Source: StreamsGroupHeartbeatRequest/Response.json of Apache Kafka 4.2; KIP-1071."""

from __future__ import annotations

import datetime
from typing import Any, Final, NamedTuple

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import encode_response, request_layout
from proxy.wire.layout import Array, Entity, Nullable
from proxy.wire.primitives import INT8, INT16, INT32, Buffer, fixed, string

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


def read_heartbeat(buf: Buffer, pos: int, end: int, version: int) -> Heartbeat:
    """A request body, or `BadBytes`."""
    layout = request_layout(KEY, version)
    group, at = string(buf, pos, end, compact=True)
    member, at = string(buf, at, end, compact=True)
    epoch = INT32.unpack_from(buf, fixed(at, 4, end) - 4)[0]
    at = layout.skip_to("topology", buf, pos, end)
    if INT8.unpack_from(buf, fixed(at, 1, end) - 1)[0] < 0:
        return Heartbeat(group or "", member or "", epoch, None)
    outer = next(part for name, part in layout.fields if name == "topology")
    assert isinstance(outer, Nullable)
    assert isinstance(outer.inner, Entity)
    array = outer.inner.array("subtopologies")
    assert isinstance(array.element, Entity)
    _, places = array.elements(buf, outer.inner.skip_to("subtopologies", buf, at + 1, end), end)
    return Heartbeat(group or "", member or "", epoch, tuple(_subtopology(array.element, buf, *place) for place in places))


def _subtopology(layout: Entity, buf: Buffer, start: int, stop: int) -> Subtopology:
    spans = layout.spans(buf, start, stop)
    _, sources = layout.array("source_topics").elements(buf, spans["source_topics"][0], stop)
    return Subtopology(
        tuple(string(buf, *place, compact=True)[0] or "" for place in sources),
        _internal(layout.array("repartition_source_topics"), buf, spans["repartition_source_topics"]),
        _internal(layout.array("state_changelog_topics"), buf, spans["state_changelog_topics"]),
    )


def _internal(topics: Array, buf: Buffer, place: tuple[int, int]) -> tuple[Internal, ...]:
    """Name and partitions (int32) stand first."""
    found = []
    for start, stop in topics.elements(buf, *place)[1]:
        name, at = string(buf, start, stop, compact=True)
        found.append(Internal(name or "", max(INT32.unpack_from(buf, at)[0], 0)))
    return tuple(found)


def error_of(frame: Buffer, version: int) -> int:
    """The error code of a whole response frame; it stands behind the throttle time."""
    at = response_body(frame, 0, len(frame), KEY, version) + 4
    return int(INT16.unpack_from(frame, fixed(at, 2, len(frame)) - 2)[0])


def try_again(correlation_id: int, version: int, heartbeat: Heartbeat, message: str) -> bytes:
    """A whole response frame: 14 COORDINATOR_LOAD_IN_PROGRESS, the error after which a member goes on trying at the same broker.
    It takes 89 for the end."""
    schema: Any = load_response_schema(KEY, version)
    body = schema(
        throttle_time=_NO_TIME,
        error_code=ErrorCode.coordinator_load_in_progress,
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
