"""Rendering: a summary becomes something to look at. Nothing here knows Spark, and nothing from a log is trusted. Text,
HTML and drawing are those of `webpage`.

- `sentences`: what the report says in plain words
- `plots`: series and volumes drawn
- `page` with `sections`: the page
- `terminal`: the short form
"""
