"""Rendering: a `Report` shown to people. Knows neither Spark nor the logs.

- `page`: the HTML page, from the template `report.html`; `plots`: its plots, also as files; `words`: texts of single cells
- `sentences`: the summary, for the page and the terminal
- `terminal`: the short form for the terminal
"""
