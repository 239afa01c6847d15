"""docs/log-format.md is a contract: the proxy writes exactly the fields that it lists, of the types that it says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.observe.lines import (
    LARGEST_SIZE,
    VERSION,
    Author,
    decision_line,
    latency_line,
    producer_ids_line,
    usage_line,
    volume_line,
)
from proxy.session.latencies import Part, Place
from proxy.session.requester import NO_API, Requester
from proxy.session.tally import Row, TallyKey
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.kinds.producer_ids import Usage
from quota.kinds.storage import Replicas, Volume
from quota.windows.durations import Durations

PAGE = (Path(__file__).parents[2] / "docs" / "log-format.md").read_text(encoding="utf-8")
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "string": (str,),
    "string or null": (str, type(None)),
    "integer or null": (int, type(None)),
    "number": (int, float),
    "number or null": (int, float, type(None)),
    "object": (dict,),
    "object or null": (dict, type(None)),
    "time": (str,),
    "array of strings": (list,),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def table(heading: str) -> dict[str, str]:
    """field -> type, of the table below a heading."""
    section = PAGE.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    return dict(_rows(section))


def _rows(section: str) -> Iterator[tuple[str, str]]:
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`([a-z_0-9]+)`", cells[0]) if line.startswith("|") else []
        kinds = [kind.strip() for kind in cells[1].split(",")] if names else []
        for i, name in enumerate(names):
            yield name, kinds[i] if len(kinds) == len(names) else kinds[0]


EVERY = table("Fields of every line")
AUTHOR = Author("edge-1", "0123456789abcdef")
AT = "2026-01-01T00:00:00.000Z"


def usage(
    topic: str | None = None, topic_id: bytes | None = None, api_key: int = 0, client_id: str | None = "app"
) -> dict[str, Any]:
    key = TallyKey("User:alice", client_id, topic, topic_id, api_key)
    return usage_line(AUTHOR, Row(key, 1, 2, 3, 4, 5, 6, 7, {"controller_mutations": 3}), AT, AT)


def decided(entity: Entity = Entity("alice", None), client_id: str | None = "app", topics: int = 12) -> dict[str, Any]:  # noqa: B008
    by = Requester("User:alice", client_id, "10.0.0.1:5", 19, 7, tuple(f"t{i}" for i in range(topics)))
    return decision_line(
        AUTHOR, Decision("controller_mutations", Action.REFUSE, entity, (0, 1), 5.6, 5, 12.0, "why", 1.5), by, AT, 4
    )


def producer_ids(limit: float | None) -> dict[str, Any]:
    usage = Usage(5, limit, 95.0, 0.1, 0.0, 6.7, False)
    return producer_ids_line(AUTHOR, "alice", usage, 3600.0, AT, AT)


def latency(broker: int | None, key: int) -> dict[str, Any]:
    times = Durations()
    times.add(0.012, 3)
    return latency_line(AUTHOR, Place(Part.BROKER, broker, key), times.counts, AT, AT)


LINES = {
    "usage": [usage(), usage("orders"), usage("", bytes(range(16)), 1), usage(None, None, 999, None)],
    "decision": [decided(), decided(Entity(None, "app")), decided(client_id=None, topics=0)],
    "volume": [
        volume_line(AUTHOR, Volume(1, "/data", 100, 40), AT, "cluster", (10.5, 50.0), 0.75, Replicas({}, {"orders": 7}, 9)),
        volume_line(AUTHOR, Volume(1, "/d", 9, 4), AT, "cluster", None, 1.0, Replicas({}, {"a": 7}, 9), all_topics=True),
        volume_line(AUTHOR, Volume(None, "/data", 1 << 60, 1 << 55), AT, "local", None, 1.0, None),
    ],
    "producer_ids": [producer_ids(None), producer_ids(100.0)],
    "latency": [latency(1, 0), latency(None, NO_API)],
    "gap": [AUTHOR.line("gap", at=AT, lines=3)],
}


def fields_of(kind: str) -> dict[str, str]:
    if kind == "gap":
        return EVERY | {"at": "time", "lines": "integer"}
    by_reference = {"principal": "string", "client_id": "string or null"}
    return EVERY | {name: by_reference.get(name, kind) for name, kind in table(f"`{kind}`").items()}


def test_the_page_is_read_right():
    assert set(EVERY) == {"v", "type", "proxy", "boot", "seq"}
    assert {"start", "end", "refused"} <= set(table("`usage`"))
    assert {"at", "message", "left_out"} <= set(table("`decision`"))
    assert "## `gap`" in PAGE


@pytest.mark.parametrize("kind", LINES)
def test_lines_have_exactly_the_documented_fields(kind):
    for line in LINES[kind]:
        assert set(line) == set(fields_of(kind))


@pytest.mark.parametrize("kind", LINES)
def test_fields_have_the_documented_types(kind):
    for line in LINES[kind]:
        for name, documented in fields_of(kind).items():
            value = line[name]
            assert isinstance(value, TYPES[documented]), f"{name} is {value!r}, no {documented}"
            assert not isinstance(value, bool)
            assert documented != "time" or TIME.fullmatch(value), f"{name} is {value!r}"
        assert json.loads(json.dumps(line)) == line


def test_the_version_and_the_sequence():
    assert VERSION == 2
    author = Author("edge", "ab")
    assert [author.line("gap")["seq"] for _ in range(3)] == [1, 2, 3]


def test_a_topic_known_by_its_id_alone():
    line = LINES["usage"][2]
    assert line["topic"] == line["topic_id"] == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert usage("orders")["topic_id"] is None


def test_a_volume_whose_file_system_claims_more_than_is_believed():
    known, whole, local = LINES["volume"]
    assert (known["more_topic_bytes"], whole["more_topic_bytes"], local["more_topic_bytes"]) == (None, {}, None)
    assert (known["limit_bytes"], known["soft_limit_bytes"], known["replica_bytes"]) == (10, 50, 9)
    assert (local["total_bytes"], local["usable_bytes"], local["limit_bytes"]) == (LARGEST_SIZE, LARGEST_SIZE, None)
    assert (local["replica_bytes"], local["topic_bytes"]) == (None, {})


def test_records_are_counted_for_topics_of_produce_only():
    assert [line["records"] for line in LINES["usage"]] == [None, 5, None, None]


def test_an_api_that_nobody_knows_is_named_by_its_key():
    assert LINES["usage"][3]["api"] == "key-999"


def test_an_entity_names_the_parts_of_its_level():
    assert decided(Entity(None, "app"))["entity"] == {"user": None, "client_id": "app"}


def test_at_most_ten_topics_are_named():
    line = decided()
    assert line["topics"] == [f"t{i}" for i in range(10)]
    assert line["items"] == 2


def test_actions_are_the_documented_ones():
    row = next(line for line in PAGE.splitlines() if line.startswith("| `action`"))
    assert {action.value for action in Action} == set(re.findall(r"`(\w+)`:", row))
