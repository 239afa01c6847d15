"""Sections: the parts of the page below its summary, each from a part of a `Report` to HTML.

- `capacity`: volumes, quotas, chargeback
- `limits`: throttled and refused, decisions
- `traffic`: principals, clients, topics, APIs
- `log`: writers, quarantine
- `cells`: what their tables have in common

Left to others: the frame of the page (`reports.render.page`), the drawing of plots (`reports.render.plots`).
"""
