"""Rendering: a summary becomes something to look at. Nothing here knows Spark, and nothing from a log is trusted.

- `text`: names from logs made harmless; numbers, sizes, rates and times for people
- `sentences`: what the report says in plain words
- `html`: HTML that escapes unless told otherwise
- `plots`: series as inline SVG that takes its colours from the page
- `page` with `sections` and `page.css`: the page
- `terminal`: the short form
"""
