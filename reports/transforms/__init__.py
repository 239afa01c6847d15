"""Transforms: one concept a file, each from DataFrame to DataFrame by a query in SQL.

- `buckets`: time cut into buckets of equal length, and the length that suits a plot
- `lines`: gaps; what was read of each file
- `rates`: for how long each principal, client and topic had which rate
- `volumes`: how full each volume was, and with what
- `producers`: active producer ids
- `quarantine`: bad lines
- `traffic`: whole requests by principal, client id and API
- `topics`: the part of them for each topic
- `refusals`: items refused, from the complete sums of usage lines
- `decisions`: decisions one by one, and over time by quota and entity

Sums go by the bucket in which an interval starts, so intervals of several proxies that overlap but do not align fall together.
"""
