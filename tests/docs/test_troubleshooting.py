"""Whoever looks up an error code or a line of the operations log in the documentation finds it, with what to do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.answers_and_events import CODES, answered_numbers, logged, named_codes

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
OF_BROKERS = {
    "TOPIC_AUTHORIZATION_FAILED": "brokers say it of topics that the proxy asks about",
    "TOPIC_ALREADY_EXISTS": "brokers say it of topics that were to be created",
    "REQUEST_TIMED_OUT": "brokers say it of what may have been done",
    "UNKNOWN_TOPIC_ID": "brokers say it of ids",
    "REBOOTSTRAP_REQUIRED": "brokers say it to clients that expect another one",
}
"""Named in the sources, as the proxy reads them; it answers with none of them."""


def rows(section: str) -> list[list[str]]:
    """The cells of the table of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_line_of_the_operations_log_is_explained() -> None:
    events, unknown = logged()
    assert not unknown, "lines whose event cannot be found in the sources"
    assert {"started", "upstream is up", "limit reached", "over quota", "over quota, only observed"} <= events, "they are found"
    table = rows("Lines of the operations log")
    explained = {event for first, *_ in table for event in re.findall(r"`([^`]+)`", first)}
    assert events - explained == set()
    assert explained - events == set(), "no such line any more"
    assert all(len(row) == 3 and all(row) for row in table)


def test_every_error_code_is_explained() -> None:
    answered = (named_codes() - {CODES[name] for name in OF_BROKERS}) | answered_numbers()
    assert {19, 44, 56, 89} <= answered, "they are found"
    table = rows("Error codes")
    explained = {int(first.split("`")[0]): name for first, *_ in table if (name := first.split("`")[1])}
    assert explained.keys() == answered
    assert all(CODES[name] == code for code, name in explained.items())
    assert all(len(row) == 4 and all(row) for row in table)
