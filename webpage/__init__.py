"""Pages for people, as one file each that needs nothing else: for every room that makes some. It knows nothing of what they say.

- `text`     names from elsewhere made harmless; numbers, sizes, rates and times for people
- `html`     HTML that escapes unless told otherwise
- `drawing`  plots as inline SVG that takes its colours from the page
- `document` with `page.css`: the whole page, light and dark, on paper and on a phone
"""
