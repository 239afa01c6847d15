"""HTML pages that are one file each and load nothing. The package knows nothing of what the pages say.

- `text`: names from elsewhere made printable; numbers, sizes, rates and times for people
- `drawing`: plots as inline SVG that takes its colours from the page
- `templates`: Jinja2 with autoescape. `document.html` is the page (light, dark, on paper and on a phone, by `page.css`),
`parts.html` has macros for tables, tiles and figures
"""
