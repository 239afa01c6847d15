"""The operations log: a line for whatever happens, and no fault of its own."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.observe.as_json import as_json
from proxy.observe.operations import Text, _Lines


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Closing(io.BytesIO):
    """Standard output that takes nothing any more."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, _: Any) -> int:
        raise self._error


def circle() -> dict[str, Any]:
    round_and_round: dict[str, Any] = {}
    round_and_round["again"] = round_and_round
    return round_and_round


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"user": "a\ud800"}, {"user": "a?"}),
        ({"a\ud800": 1}, {"a?": 1}),
        ({"size": 1 << 80, "event": "x"}, {"size": str(1 << 80), "event": "x"}),
        ({"what": Unspeakable(), "n": [1, {2}]}, {"what": "<Unspeakable>", "n": [1, [2]]}),
        ({"raw": b"\xff"}, {"raw": "b'\\\\xff'".replace("\\\\", "\\")}),
    ],
)
def test_what_has_no_form_in_json_is_written_as_text(value: Any, seen: Any) -> None:
    assert json.loads(as_json(value)) == seen


def test_a_circle_is_cut() -> None:
    assert b"again" in as_json(circle())


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    )
)
def test_any_value_is_json(value: Any) -> None:
    json.loads(as_json({"event": value}))


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed file")])
def test_a_line_that_standard_output_does_not_take_is_lost_and_nothing_else(error: Exception) -> None:
    lines = _Lines(Closing(error))
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(lines, level)(b"{}")


def test_lines_are_written_at_once() -> None:
    file = io.BytesIO()
    _Lines(file).info(b"{}")
    assert file.getvalue() == b"{}\n"


def text_of(**event: Any) -> str:
    return Text(colors=False)(None, "info", {"timestamp": "2026-11-23T10:15:00.123456Z", "level": "info", **event}).decode()


def test_a_line_for_people_says_the_time_the_event_and_its_fields() -> None:
    line = text_of(event="over quota", quota="request_rate", usage=7.5)
    assert line.startswith("10:15:00.123 [info")
    assert line.split("]", 1)[1].split() == ["over", "quota", "quota=request_rate", "usage=7.5"]


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202eabc", "a\ud800"])
def test_a_name_cannot_steer_the_terminal(name: str) -> None:
    line = text_of(event=name, client_id=name, topics=[name], **{f"k{name}": 1})
    assert line.isprintable()


def test_a_line_for_people_is_written_whatever_stands_in_it() -> None:
    assert "<Unspeakable>" in text_of(event="x", what=Unspeakable(), again=circle())
    assert text_of(event="x", exception="Traceback:\n  boom\x1b").endswith("Traceback:\n  boom\\x1b")
