"""Settings that stand in the documentation are right: whoever copies them can start with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtest.scenario import load_scenario
from proxy.config.load import load_settings

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
