"""Document: a page as one HTML file that loads nothing, from no network. In: a title and the body. Out: the text of the file."""

from __future__ import annotations

from importlib.resources import files

from webpage.html import join, raw, tag

# What the page may load: nothing. Its styles are inline.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, *body: str) -> str:
    """The whole page."""
    head = join(
        (
            raw('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            raw(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", raw(files("webpage").joinpath("page.css").read_text(encoding="utf-8"))),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{tag("body", *body)}</html>\n'
