"""Settings that stand in the documentation are right: whoever copies them can start with them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from loadtest.scenario import load_scenario
from proxy.cli import main
from proxy.config.load import load_settings
from proxy.operate.entities import spelled_out

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    (f"{page.name} {number}", text)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(text)
    if name.startswith("loadtest.md"):
        load_scenario(path)
    else:
        load_settings(path)


def test_there_are_examples() -> None:
    assert {name.split()[0] for name, _ in EXAMPLES} >= {"README.md", "security.md", "controller-mutations.md", "loadtest.md"}


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of each `kafka-quota-proxy …` in a block or between backticks; short forms of entities spelled out."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"(?:^|[ `/])kafka-quota-proxy ([a-z][^`\n|>&;]*)", text, re.MULTILINE):
            words = line.partition(" #")[0].replace("'", "").replace('"', "")
            found.append((page.name, spelled_out(shlex.split(words))))
    return found


def test_commands_have_the_options_that_pages_show() -> None:
    unknown, options = [], 0
    for page, words in commands():
        command: click.Command = main
        for word in words:
            if isinstance(command, click.Group) and (nested := command.get_command(click.Context(command), word)) is not None:
                command = nested
            elif word.startswith("--"):
                options += 1
                known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
                if word.partition("=")[0] not in known | {"--help", "--version"}:
                    unknown.append(f"{page}: {' '.join(words)}: {word}")
    assert options > 100, "they are found"
    assert unknown == []
