"""What is documented is what is: the settings page is made from the models."""

from __future__ import annotations

from pathlib import Path

from proxy.config.reference import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_settings_page_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == reference(), "run `make docs`"
