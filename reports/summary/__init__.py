"""Summary: the tables reduced to what one page shows. In: DataFrames. Out: Python values.

- `model`: the values, as dataclasses; all that the page, the terminal and `summary.json` know
- `lines`: how many lines there are, of which kind, how complete
- `traffic`: who sends and fetches most, by principal, client, API and topic, and over time
- `limits`: who was refused or throttled, by which quota, and over time
- `build`: the whole of it
"""
