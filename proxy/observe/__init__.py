"""Sees everything, changes nothing.

In: sums, decisions and incidents. Out: lines and figures. Nothing here holds up the data path: what cannot be written
in time is dropped and counted.

- `operations`  the operations log: structlog, JSON lines on standard output
- `as_json`     values as JSON, whatever they are
- `metrics`     prometheus figures, read off plain counters when they are scraped
- `catalogue`   the page of all figures, in Markdown
- `lines`       the lines of the usage log, as docs/log-format.md has them
- `writer`      the thread that writes them to their places; the folder, whose files it rotates
- `intervals`   stretches of monotonic time, with the wall clock as their label
- `usage_log`   closes intervals, and limits how often one entity is in the log
- `volumes`     volumes that cross their limits or will, to both logs
- `throttle_status`       who is throttled now, and what was refused lately: for the admin page
- `decision_totals`       what quotas did to whom since the start, and the last time
- `activity`    traffic of users and client ids in the last ten minutes
- `live`        what the console shows
- `limit_sources`  where limits are set: entry and line of the settings file, or `quotas alter`
- `watcher`     what sessions report: incidents to the operations log, decisions to both logs
"""
